"""Optimal orders of small problems, and of windows of larger ones."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from transpiler.analysis.control_flow_graph import bit_set
from transpiler.analysis.memory_profile import turnover
from transpiler.passes.orders.least import is_least
from transpiler.passes.orders.order_problem import Order, OrderProblem
from transpiler.passes.orders.simulator import bytes_at_start, peak_bytes, profile

SMALL = 18  # ops up to which a region is searched as a whole
WINDOW = 14
_MOST_STATES = 60_000
_MOST_WINDOW_STATES = 3_000
_MOST_WINDOWS = 48


class _State(NamedTuple):
    """The best way found to have run a set of ops: its peak, the bytes alive after it, its last op."""

    peak: int
    live: int
    last: int


def optimal_order(problem: OrderProblem,
                  below: Optional[int] = None,
                  most_states: int = _MOST_STATES) -> Optional[Order]:
    """An order of least peak, by dynamic programming over downsets (Serenity: Ahn et al. 2020).

    What exists after a set of ops ran, and what each further op costs, does not depend on the order in which the set
    ran; so of all the ways to run a set only the one of least peak counts.

    Args:
        problem: up to about 20 ops.
        below: only orders of a peak below this count.
        most_states: the search gives up when a level of it has more sets.

    Returns:
        None if there is no such order, or the search gave up.
    """
    search = _Search(problem, float('inf') if below is None else below)
    levels: List[Dict[int, _State]] = [{0: _State(0, bytes_at_start(problem), -1)}]
    for _ in range(len(problem)):
        levels.append(search.next_level(levels[-1]))
        if not levels[-1] or len(levels[-1]) > most_states:
            return None
    return _walk_back(levels)


def optimal_if_small(problem: OrderProblem) -> Order:
    """The optimal order if the problem is small enough; else the given one."""
    order = list(range(len(problem)))
    if not 1 < len(problem) <= SMALL:
        return order
    return optimal_order(problem, below=peak_bytes(problem, order)) or order


def improve_windows(problem: OrderProblem, order: Sequence[int]) -> Order:
    """`order`, with windows around its peak put into their optimal order for as long as that lowers the peak.

    The first op of a window, its last, or its middle is the peak; what exists before and after a window does not
    depend on the order inside.
    """
    best = list(order)
    for _ in range(_MOST_WINDOWS):
        bytes_at = profile(problem, best)
        peak = max(bytes_at, default=0)
        at = bytes_at.index(peak) if bytes_at else 0
        for start in (at - WINDOW // 2, at - WINDOW + 1, at):
            better = _better_window(problem, best, max(0, start))
            if better is not None:
                best = better
                break
        else:
            return best
    return best


def _better_window(problem: OrderProblem, order: Order, start: int) -> Optional[Order]:
    stop = min(len(order), start + WINDOW)
    window = problem.window(order, start, stop)
    given = range(len(window))
    peak = peak_bytes(window, given)
    if is_least(window, given, peak):
        return None
    found = optimal_order(window, below=peak, most_states=_MOST_WINDOW_STATES)
    if found is None:
        return None
    return order[:start] + [order[start + i] for i in found] + order[stop:]


class _Search:

    def __init__(self, problem: OrderProblem, below: float) -> None:
        self._problem = problem
        self._below = below
        self._needs = [bit_set(ops) for ops in problem.before]
        self._users = [bit_set(ops) for ops in problem.users]
        # By op, of the cells that it touches: bytes, users, whether it may come into being there, or end.
        self._cells = [[(problem.sizes[c], self._users[c], not problem.from_start[c],
                         not problem.to_end[c]) for c in cells] for cells in problem.touches]

    def next_level(self, level: Dict[int, _State]) -> Dict[int, _State]:
        """The sets of one op more."""
        found: Dict[int, _State] = {}
        for done, state in level.items():
            for op, needs in enumerate(self._needs):
                if done >> op & 1 or needs & done != needs:
                    continue
                during, added = self._cost(op, done)
                peak = max(state.peak, state.live + during)
                if peak >= self._below:
                    continue
                after = done | 1 << op
                if after not in found or peak < found[after].peak:
                    found[after] = _State(peak, state.live + added, op)
        return found

    def _cost(self, op: int, done: int) -> Tuple[int, int]:
        """As `Simulator.cost`, after the ops of `done`."""
        problem, users, here = self._problem, self._users, 1 << op
        kept = problem.leaves[op] - problem.collects[op]
        if not problem.pairs[op]:  # the same, for most ops
            allocated = freed = 0
            for size, used, begins, ends in self._cells[op]:
                if begins and not used & done:
                    allocated += size
                if ends and used & ~done == here:
                    freed += size
            return allocated + problem.transient[op], allocated - freed + kept
        born = [c for c in problem.touches[op] if not problem.from_start[c] and not users[c] & done]
        dying = [
            c for c in problem.touches[op] if not problem.to_end[c] and users[c] & ~done == here
        ]
        allocated, freed = turnover(problem.sizes, born, dying, problem.pairs[op])
        return allocated + problem.transient[op], allocated - freed + kept


def _walk_back(levels: List[Dict[int, _State]]) -> Order:
    (done, _), = levels[-1].items()
    order: Order = []
    for level in reversed(levels[1:]):
        op = level[done].last
        order.append(op)
        done &= ~(1 << op)
    return order[::-1]
