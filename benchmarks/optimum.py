"""Our plans of a chain beside the optimum (revolve) and checkpoints at equal distances: `python -m benchmarks.optimum`.

All figures are predicted, ours by the planner's own model; the references count the same memory and the same steps. No time is
measured here.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import click
from rich.table import Table

from benchmarks.output import show, write
from benchmarks.programs import Options, build

MIB = 2.0**20
PIPE_WIDTH = 120
# The tensor that is fed stays, a gradient is handed back in place, and a step is computed in place: all else is checkpoints.
_HELD = 3


@lru_cache(maxsize=None)
def reversal(steps: int, checkpoints: int, unread: bool = False) -> int:
    """The fewest evaluations of a step with which a chain is reversed from its input, the first sweep included.

    The gradient of a step reads what the step made (as tanh's does), so what is kept at `first` serves the gradient of that
    step, too: after it only the steps before it are left. Dynamic programming over the place of the first checkpoint, as in
    Griewank and Walther, "Algorithm 799: Revolve" (2000), where a gradient reads what its step reads.

    Args:
        steps: how many there are.
        checkpoints: how many results can be kept beside the one that is being computed.
        unread: the first step has no gradient.
    """
    if checkpoints == 0 or steps <= 1:
        return steps * (steps + 1) // 2 - (unread and steps > 0)
    return min(first + reversal(steps - first, checkpoints - 1) +
               reversal(first - 1, checkpoints, unread) for first in range(1, steps + 1))


def fewest_extra(steps: int, slots: int) -> Optional[int]:
    """Evaluations beyond one of each step in the best plan that has `slots` tensors at once; None if there is no such plan.

    The first step has no gradient: it is the `scale` in front of the tanh.
    """
    if slots < _HELD:
        return None
    return max(0, reversal(steps, slots - _HELD, True) - steps)


def equal_distances(steps: int, slots: int) -> Optional[int]:
    """The same where each step runs at most twice: results are kept at equal distances, and one stretch at a time is computed
    again (sqrt(n) where that is the least memory); None if no distance fits into `slots`. The first step has no gradient."""
    steps -= 1  # what it makes need not be there again, unless nothing later is kept; counted in favour of this way
    found = []
    for distance in range(1, steps + 1):
        stretches = -(-steps // distance)
        # The last stretch is there from the first sweep; of the others all but their ends are computed again.
        if stretches - 1 + distance + 2 <= slots:
            found.append((stretches - 1) * (distance - 1))
    return min(found, default=None)


@dataclass(frozen=True)
class Row:
    """One budget. `peak_bytes` above resting, as predicted; evaluations of steps beyond the first of each.

    `slots`: as many tensors of the chain as fit into what the budget leaves when fed batches of earlier runs are off it. `ours`
    is None where no plan was found.
    """
    steps: int
    budget: int
    slots: int
    peak_bytes: Optional[int]
    ours: Optional[int]
    extra: Optional[float]
    optimum: Optional[int]
    equal: Optional[int]

    @property
    def verdict(self) -> str:
        """How far above the optimum ours is, or what is the matter."""
        if self.optimum is None:
            return 'no plan fits' if self.ours is None else 'below the optimum: the count is wrong'
        if self.ours is None:
            return 'not found'
        if self.ours < self.optimum:
            return 'below the optimum: the count is wrong'
        return 'optimum' if self.ours == self.optimum else f'{self.ours - self.optimum:+d}'


def row(layers: int, slots: int) -> Row:
    """memory_optimize on a chain of tanh with a budget for `slots` of its tensors."""
    from transpiler import MemoryBudgetError, memory_optimize
    case = build('tanh_chain', Options(layers=layers))
    tensor = case.batch_size * 1024 * 4
    # A fed batch of an earlier run may still be there, and scalars: they are in what is promised.
    budget = (slots + 1) * tensor + tensor // 64
    steps = layers + 1  # with the `scale` in front, which costs as much as a tanh
    best, equal = fewest_extra(steps, slots), equal_distances(steps, slots)
    try:
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=case.batch_size,
                                 recompute='max',
                                 budget=budget)
    except MemoryBudgetError:
        return Row(steps, budget, slots, None, None, None, best, equal)
    again = report.recompute
    clones = again.clones if again else 0
    extra = again.extra_seconds / again.step_seconds if again else 0.0
    return Row(steps, budget, slots, int(report.peak_bytes_after), clones, extra, best, equal)


def spread(steps: int, count: int) -> Tuple[int, ...]:
    """`count` numbers of tensors, from the fewest with which there is a plan to all, closer where it gets tight."""
    most = steps + 1  # all that gradients read, what is fed, and a gradient
    shares = (number / max(1, count - 1) for number in range(count))
    return tuple(dict.fromkeys(_HELD + round((most - _HELD) * share**2) for share in shares))


_COLUMNS = ('steps', 'budget MiB', 'tensors', 'peak MiB', 'extra', 'ours', 'optimum',
            'equal distances', 'ours against the optimum')


def table(rows: Sequence[Row]) -> Table:
    """One line a budget."""
    result = Table(title='Chains of tanh: steps that run again, predicted')
    for name in _COLUMNS:
        result.add_column(name, justify='right')
    for each in rows:
        result.add_row(
            str(each.steps), f'{each.budget / MIB:.2f}', str(each.slots),
            '' if each.peak_bytes is None else f'{each.peak_bytes / MIB:.2f}',
            '' if each.extra is None else f'{each.extra:+.1%}',
            *('' if n is None else str(n) for n in (each.ours, each.optimum, each.equal)),
            each.verdict)
    return result


@click.command()
@click.option('--layers', type=click.IntRange(2), default=50, show_default=True)
@click.option('--points', type=click.IntRange(2), default=10, show_default=True, help='Budgets.')
@click.option('--json', 'out', type=click.Path(dir_okay=False, path_type=Path))
def main(layers: int, points: int, out: Optional[Path]) -> None:
    """Plan a chain of LAYERS tanh for budgets from the least to all, and compare."""
    rows: List[Row] = [row(layers, slots) for slots in spread(layers + 1, points)]
    show(table(rows), PIPE_WIDTH)
    write(({**asdict(each), 'verdict': each.verdict} for each in rows), out)


if __name__ == '__main__':
    main()
