"""What to keep and what to rebuild, as a minimum cut.

Keeping a value costs its bytes, rebuilding it costs its op's time, at an exchange rate. The closure formulation is that of
min-cut rematerialization (Chen et al. 2016 for the idea; AOTAutograd's partitioner for the cut), here with compute time on
the arcs and trips as a factor.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

from transpiler.passes.inner_remat.inner_problem import InnerProblem, clone_operands
from transpiler.passes.min_cut import INFINITE, SINK, SOURCE, min_cut

_Node = Tuple[int, str]  # a value or an op, and what of it
_SOURCE, _SINK = (-1, 'source'), (-1, 'sink')
# How long `_put_back` tries: values kept after all, and values looked at for each.
_MOST_PUT_BACK, _MOST_CANDIDATES = 6, 40
# Bytes that a second of compute is worth: from nearly nothing to more than any memory.
RATES = [10.0**(k / 8) for k in range(24, 121)]


def choose(problem: InnerProblem, seconds: float) -> FrozenSet[int]:
    """Values to rebuild, at the lowest exchange rate whose extra time fits into `seconds`.

    A higher rate never rebuilds more, so the lowest is found by bisection. No rate gives the sets between those of two
    neighbouring rates: so starting from what takes too long, values are put back until the time fits.
    """
    best: FrozenSet[int] = frozenset()
    low, high = 0, len(RATES)
    while low < high:
        middle = (low + high) // 2
        rebuilt = cut(problem, RATES[middle])
        if extra_seconds(problem, rebuilt) <= seconds:
            best, high = rebuilt, middle
        else:
            low = middle + 1
    if high == 0:
        return best
    between = (
        _put_back(problem, seconds, rate) for rate in dict.fromkeys((RATES[0], RATES[high - 1])))
    return min((best, *between), key=lambda rebuilt: kept_bytes(problem, rebuilt))


def _put_back(problem: InnerProblem, seconds: float, rate: float) -> FrozenSet[int]:
    """What is rebuilt at `rate`, which takes too long, with a few values kept after all: greedily the one after which the
    time fits and least is kept, or else the one that takes most time off for its bytes."""
    kept: FrozenSet[int] = frozenset()
    rebuilt = cut(problem, rate)
    for _ in range(_MOST_PUT_BACK):
        options = [(cut(problem, rate, kept | {value}), value)
                   for value in sorted(rebuilt)[:_MOST_CANDIDATES]]
        if not options:
            break
        fitting = [option for option in options if extra_seconds(problem, option[0]) <= seconds]
        rank = kept_bytes if fitting else extra_seconds
        rebuilt, value = min(fitting or options, key=lambda option: rank(problem, option[0]))
        if fitting:
            return rebuilt
        kept |= {value}
    return frozenset()


def extra_seconds(problem: InnerProblem, rebuilt: FrozenSet[int]) -> float:
    """Of a step, for all clones."""
    return problem.repeats * sum(problem.seconds[op] for op in _ops_of(problem, rebuilt))


def kept_bytes(problem: InnerProblem, rebuilt: FrozenSet[int]) -> int:
    """Bytes of what stays for the gradient in a step: what it needs and what the rebuilt values are made of."""
    made_of = {v for value in rebuilt for v in clone_operands(problem.producer[value])}
    kept = (problem.needed | made_of) - rebuilt
    return problem.repeats * sum(problem.size.get(v, 0) for v in kept - problem.free)


def cut(problem: InnerProblem, rate: float, kept: FrozenSet[int] = frozenset()) -> FrozenSet[int]:
    """Values to rebuild when a second costs `rate` bytes. A value's node is split: the arc inside is keeping it, the arc
    from the source is rebuilding it, the arcs from its op's operands say that these must be had too. `kept` values are
    not rebuilt at any price."""
    if problem.needed.isdisjoint(problem.producer):
        return frozenset()
    network = _Network()
    pending, seen = sorted(problem.needed), set(problem.needed)
    for value in pending:
        network.arc((value, 'had'), _SINK)
    while pending:
        value = pending.pop()
        op = None if value in kept else problem.producer.get(value)
        network.arc((value, 'made'), (value, 'had'), problem.size.get(value, 0) + 1)
        if op is None:  # keeping it is the only way: any cost above that of keeping it says so
            network.arc(_SOURCE, (value, 'made'), problem.size.get(value, 0) + 2)
            continue
        network.arc(_SOURCE, (op.id, 'op'), int(problem.seconds[op.id] * rate) + 1)
        network.arc((op.id, 'op'), (value, 'made'))
        for operand in clone_operands(op) if op.facts.replay is not None else op.data_reads():
            if operand in problem.free or operand not in problem.size:
                continue
            network.arc((operand, 'had'), (op.id, 'op'))
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return frozenset(value for value, what in network.sink_side() if what == 'made')


def cuts(problem: InnerProblem, rates: Sequence[float]) -> List[FrozenSet[int]]:
    """What `cut` says to each of `rates`, which rise or fall. The sets grow with the fall of the rate, so that those between
    two equal ones are like them."""
    found: Dict[int, FrozenSet[int]] = {}
    pending = [(0, len(rates) - 1)] if rates else []
    while pending:
        first, last = pending.pop()
        for end in (first, last):
            if end not in found:
                found[end] = cut(problem, rates[end])
        if found[first] == found[last]:
            found.update((i, found[first]) for i in range(first + 1, last))
        elif last - first > 1:
            middle = (first + last) // 2
            pending += [(first, middle), (middle, last)]
    return [found[i] for i in range(len(rates))]


class _Network:
    """Arcs between named nodes; the last capacity counts where one is added again."""

    def __init__(self) -> None:
        self._arcs: Dict[Tuple[_Node, _Node], int] = {}

    def arc(self, tail: _Node, head: _Node, capacity: int = INFINITE) -> None:
        self._arcs[tail, head] = capacity

    def sink_side(self) -> List[_Node]:
        """Nodes on the sink's side of a minimum cut: of several, the one nearest to the sink, which rebuilds least."""
        nodes = list(dict.fromkeys([_SOURCE, _SINK, *(node for arc in self._arcs for node in arc)]))
        numbers = {node: number for number, node in enumerate(nodes)}
        assert (numbers[_SOURCE], numbers[_SINK]) == (SOURCE, SINK)
        found = min_cut([numbers[tail] for tail, _ in self._arcs],
                        [numbers[head] for _, head in self._arcs], list(self._arcs.values()))
        return [nodes[number] for number in found.behind]


def _ops_of(problem: InnerProblem, rebuilt: FrozenSet[int]) -> Set[int]:
    return {problem.producer[v].id for v in rebuilt}
