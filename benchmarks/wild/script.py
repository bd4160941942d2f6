"""What a training script is here: programs that run in turns, and what happens between the steps."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Optional, Tuple

import paddle
from paddle import static

from benchmarks.programs.case import Case, Draft, Options, TripCount, drafting

BATCH = 16
Hook = Callable[[static.Executor, int], None]
Builder = Callable[[], 'Script']


def _nothing(executor: static.Executor, step: int) -> None:
    """Between the steps of most scripts."""


@dataclass(frozen=True)
class Script:
    """`cases` run one after the other in each step, in one scope, after the startup program of each.

    `after_step` is told the executor and the number of the step. `foreseeable`: shapes do not depend on values, so that the
    peak can be predicted.
    """
    cases: Tuple[Case, ...]
    after_step: Hook = _nothing
    foreseeable: bool = True


def writing(batch: int = BATCH,
            trip_count: Optional[TripCount] = None,
            static_batch: bool = False) -> Any:
    """A draft of one program."""
    return drafting(Options(batch_size=batch, static_batch=static_batch), batch, trip_count)


def trained(draft: Draft, loss: Any, optimizer: Any = None, *also: Any) -> Script:
    """Minimizes `loss` and fetches it and `also`."""
    (optimizer or paddle.optimizer.Adam(0.001)).minimize(loss)
    return fetching(draft, loss, *also)


def fetching(draft: Draft, *fetched: Any, training: bool = True) -> Script:
    """The program as it is."""
    return Script((draft.case(fetched, training=training),))


def stepping(script: Script, scheduler: Any) -> Script:
    """Asks the schedule for another learning rate after each step."""
    return replace(script, after_step=lambda executor, step: scheduler.step())
