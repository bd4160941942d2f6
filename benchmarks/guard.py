"""What planning decides for every program, written to a file, so that a later version can be held against it.

`python -m benchmarks.guard --out before.json` plans every benchmark program, training and inference, for both runtimes, in
every recompute mode and at some budgets; nothing runs. `python -m benchmarks.guard --against before.json` does it again and
fails if a peak, the extra time, or the planning time of a program is worse than it was.
"""
from __future__ import annotations

import gc
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import click

from benchmarks.programs import PROGRAMS, Case, Options, build

RUNTIMES: Tuple[str, ...] = ("collecting", "retaining")
MODES: Tuple[Union[str, bool], ...] = (False, "auto", "cheap", "max")
# Where budgets lie between the lowest peak that was reached (0) and the untouched one (1).
BUDGETS: Tuple[float, ...] = (0.05, 0.3, 0.7)
# What a measure may be above what it was, as a share; planning is timed, so its noise is allowed for.
ALLOWED = 0.005
ALLOWED_SECONDS = 0.10
# Programs whose inference is nothing but a prefix of another's, or whose sizes take minutes to build.
TRAINING_ONLY = frozenset({"rnn_cell", "attention_steps", "tanh_product", "tanh_chain", "nmt"})


@dataclass(frozen=True)
class Decided:
    """One plan. Bytes are above resting; `key` names the program, the runtime and what was asked for."""
    key: str
    peak_bytes: int
    guaranteed_bytes: int
    clones: int
    extra_seconds: float
    planning_cpu_seconds: float


def programs(names: Sequence[str]) -> Iterator[Tuple[str, Options]]:
    """The training program of each name, and its inference."""
    for name in names:
        yield name, Options(optimizer="momentum")
        if name not in TRAINING_ONLY:
            yield name + "/inference", Options(inference=True)


def _plan(case: Case, key: str, **asked: Any) -> Tuple[Decided, Any]:
    from transpiler import memory_optimize
    main = case.main.clone()
    gc.collect()
    started = time.process_time()
    report = memory_optimize(main,
                             fetch_list=list(case.fetch),
                             batch_size=case.batch_size,
                             trip_count=case.trip_count,
                             **asked)
    seconds = time.process_time() - started
    done = report.recompute
    decided = Decided(key, report.peak_bytes_after, report.budget_bytes, done.clones if done else 0,
                      done.extra_seconds if done else 0.0, seconds)
    return decided, report


def decisions(name: str, case: Case) -> Iterator[Decided]:
    """All plans of one program."""
    from transpiler import MemoryBudgetError
    for runtime in RUNTIMES:
        lowest: Any = None
        for mode in MODES:
            key = "{} {} recompute={}".format(name, runtime, mode)
            decided, lowest = _plan(case, key, runtime=runtime, recompute=mode)
            yield decided
        room = max(0, lowest.peak_bytes_before - lowest.budget_bytes)
        for share in BUDGETS:
            key = "{} {} budget={}".format(name, runtime, share)
            budget = lowest.resting_bytes + lowest.budget_bytes + int(share * room)
            try:
                yield _plan(case, key, runtime=runtime, recompute="max", budget=budget)[0]
            except MemoryBudgetError as error:
                yield Decided(key, error.best_bytes, error.best_bytes, 0, 0.0, 0.0)


def worse(before: Sequence[Decided], after: Sequence[Decided]) -> List[str]:
    """A line for each measure that is worse than it was, or that is no longer there."""
    found = []
    now = {each.key: each for each in after}
    for old in before:
        new = now.get(old.key)
        if new is None:
            found.append("{}: not planned any more".format(old.key))
            continue
        for measure in ("peak_bytes", "guaranteed_bytes", "extra_seconds"):
            was, is_now = getattr(old, measure), getattr(new, measure)
            # A budget is a limit: what is spent below it may move as long as time does not.
            if "budget" in old.key and measure != "extra_seconds":
                continue
            if is_now > was * (1 + ALLOWED):
                found.append("{}: {} {} -> {}".format(old.key, measure, was, is_now))
    return found + _slower(before, after)


def _slower(before: Sequence[Decided], after: Sequence[Decided]) -> List[str]:
    was, is_now = _seconds(before), _seconds(after)
    return [
        "{}: planning {:.2f} -> {:.2f} s".format(name, was[name], is_now[name])
        for name in was.keys() & is_now.keys()
        if is_now[name] > was[name] * (1 + ALLOWED_SECONDS)
    ]


def _seconds(plans: Sequence[Decided]) -> Dict[str, float]:
    """CPU seconds of planning by program: single plans are too short to be compared."""
    total: Dict[str, float] = {}
    for each in plans:
        name = each.key.split()[0]
        total[name] = total.get(name, 0.0) + each.planning_cpu_seconds
    return total


@click.command()
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the plans.")
@click.option("--against",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Plans of an earlier version.")
def main(names: Tuple[str, ...], out: Optional[Path], against: Optional[Path]) -> None:
    """Plan the programs NAMES (all without), and write the plans or hold them against earlier ones."""
    found: List[Decided] = []
    for name, options in programs(names or tuple(PROGRAMS)):
        found.extend(decisions(name, build(name.split("/")[0], options)))
        click.echo("{}: {:.1f} s".format(name, _seconds(found)[name]), err=True)
    if out is not None:
        out.write_text(json.dumps([asdict(each) for each in found], indent=0) + "\n")
    if against is not None:
        before = [Decided(**each) for each in json.loads(against.read_text())]
        names_now = {each.key.split()[0] for each in found}
        lines = worse([each for each in before if each.key.split()[0] in names_now], found)
        if lines:
            raise click.ClickException("worse than before:\n" + "\n".join(sorted(lines)))
        click.echo("{} plans, none worse".format(len(found)))


if __name__ == "__main__":
    main()
