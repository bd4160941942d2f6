"""Scheduling: an order of the ops of each region that needs less memory.

Needs: nothing. Keeps: ops and storages; all dependences. Changes: the order of ops inside their regions. The order only
holds if it is pinned (`pinning.py`): Paddle's executor starts whatever is ready.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Callable, Counter as CounterOf, Dict, Hashable, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from transpiler.analysis.accesses import Accesses
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Unit
from transpiler.passes.context import PassContext
from transpiler.passes.orders.early_updates import updates_where_they_fit
from transpiler.passes.orders.exact_order import improve_windows, optimal_if_small
from transpiler.passes.orders.grouped import groups_of, updates_as_one
from transpiler.passes.orders.heuristics import HEURISTICS, Heuristic, update_chains, updates_early
from transpiler.passes.orders.least import is_least
from transpiler.passes.orders.order_problem import Order, OrderProblem, region_problem
from transpiler.passes.orders.simulator import peak_bytes
from transpiler.passes.orders.spacing import Kinds, keep_apart
from transpiler.passes.orders.storages import storage_bytes
from transpiler.passes.remat.remat_problem import RematProblem, remat_problem

# A smaller gain is not worth holding an order.
_WORTH_IT = 0.995
# So many searches in vain, and there are none for regions that look like those.
_ENOUGH_IN_VAIN = 4
# What can be computed again counts for this part of its bytes: it is there around its uses alone.
_LIGHTER = 8
CANDIDATES: Mapping[str, Heuristic] = {**HEURISTICS, 'exact': optimal_if_small}
Judge = Callable[[OrderProblem, Sequence[int]], int]  # bytes that an order needs


@dataclass(frozen=True)
class Choice:
    """An order, the name of what found it, and the bytes that it needs above what exists outside of the region."""

    order: Order
    name: str
    peak: int


def best_order(problem: OrderProblem,
               candidates: Mapping[str, Heuristic] = CANDIDATES,
               judge: Judge = peak_bytes,
               by_cells: bool = True) -> Choice:
    """The order that needs least; the given one unless another is strictly better. `by_cells`: no `judge` says less than what the
    cells that exist at one time take."""
    order = list(range(len(problem)))
    best = Choice(order, 'given', judge(problem, order))
    judged: Set[Tuple[int, ...]] = {tuple(order)}
    seen: Optional[Choice] = None  # not to be the least
    for name, heuristic in candidates.items():
        if by_cells and best is not seen:
            if is_least(problem, best.order, best.peak):
                return best
            seen = best
        best = _better(problem, best, heuristic(problem), name, judge, judged)
    groups = groups_of(problem, update_chains(problem))
    of_groups = updates_as_one(problem, groups)
    if of_groups is not None:
        found = best_order(of_groups, candidates)
        best = _better(problem, best, groups.expanded(found.order), f'{found.name}, updates as one',
                       judge, judged)
    best = _better(problem, best, improve_windows(problem, best.order), f'{best.name}, windows',
                   judge, judged)
    return _better(problem, best, updates_where_they_fit(problem, best.order),
                   f'{best.name}, updates where they fit', judge, judged)


def _better(problem: OrderProblem, best: Choice, order: Order, name: str, judge: Judge,
            judged: Set[Tuple[int, ...]]) -> Choice:
    """`best`, or `order` if it needs less. Storages need no less than what is alive at one time, which is found out faster."""
    if tuple(order) in judged:
        return best
    judged.add(tuple(order))
    if judge is storage_bytes and peak_bytes(problem, order) >= best.peak:
        return best
    peak = judge(problem, order)
    return Choice(order, name, peak) if peak < best.peak else best


def schedule(graph: Graph, context: PassContext) -> Graph:
    """Reorders every region, inner ones first.

    What counts is what is alive at one time: a collecting runtime frees the rest, and RELEASE ops do it for the main block
    of one that holds. In the inner blocks of the latter nothing frees, so there orders are judged by the storages that
    they need once reuse has assigned them. Of regions that look alike only some are searched, if that was in vain.
    """
    peaks: Dict[int, int] = {}
    accesses = Accesses(graph)
    timeline, moved = context.collecting(graph), False
    in_vain: CounterOf[Hashable] = Counter()
    for region in _inner_first(graph):
        problem = _problem(graph, context, region, peaks, accesses)
        given = graph.regions[region].ops
        judge = _judge(context, timeline, region, given, peaks)
        by_cells = judge in (peak_bytes, storage_bytes)
        peaks[region] = judge(problem, range(
            len(given))) if by_cells or moved else timeline.rise_of(region)
        look = _look(problem)
        if in_vain[look] >= _ENOUGH_IN_VAIN:
            continue
        choice = best_order(problem, judge=judge, by_cells=by_cells)
        in_vain[look] += choice.name == 'given'
        if choice.peak < peaks[region] * _WORTH_IT:
            order = keep_apart(problem, choice.order, _kinds(graph, given))
            peaks[region] = judge(problem, order)
            _reordered(graph, region, order)
            moved = True
    return graph


def _look(problem: OrderProblem) -> Hashable:
    """Equal for regions of the same ops on cells of the same sizes, whatever is nested in them: those of the many branches of a
    `switch_case` are alike."""
    return (tuple(map(tuple, problem.before)), tuple(problem.touches), tuple(problem.sizes),
            tuple(problem.from_start), tuple(problem.to_end), tuple(problem.pairs))


def _judge(context: PassContext, timeline: Timeline, region: int, given: Sequence[int],
           inner_peaks: Mapping[int, int]) -> Judge:
    """The cells of a problem know nothing of branches that exclude each other: there the timeline itself is asked."""
    if not context.runtime.collects and region != 0:
        return storage_bytes
    if timeline.counts_as_cells(region):
        return peak_bytes
    return lambda _, order: timeline.rise_within(region, [given[i] for i in order], inner_peaks)


def updates_early_in_main(graph: Graph, context: PassContext) -> Graph:
    """Runs parameter updates as early as they can, whether that lowers the peak yet or not."""
    problem = _main_problem(graph, context)
    kinds = _kinds(graph, graph.regions[0].ops)
    return _reordered(graph, 0, keep_apart(problem, updates_early(problem), kinds))


def schedule_what_stays(graph: Graph, context: PassContext) -> Graph:
    """Reorders the main region for what cannot be computed again: of what can, little is there where memory is short.

    An order that is best as long as all activations are there may let gradients pile up behind them, as nothing is lost by it yet,
    which no recomputation takes away. That matters where workers talk: what they send keeps its order. For one row, where all
    is small but parameters and their gradients, no order is taken that needs more than the given one.
    """
    problem = _main_problem(graph, context)
    few = Timeline(graph, context.runtime.freeing(), dict.fromkeys(context.dims, 1))
    of_few = region_problem(graph, 0, few, {r.id: 0 for r in graph.regions[1:]})
    given = graph.regions[0].ops
    most = peak_bytes(of_few, range(len(given)))
    order = best_order(_lighter(problem, remat_problem(graph, context, context.collecting(graph))),
                       judge=lambda weighed, order: peak_bytes(weighed, order)
                       if peak_bytes(of_few, order) <= most else sys.maxsize).order
    return _reordered(graph, 0, keep_apart(problem, order, _kinds(graph, given)))


def _lighter(problem: OrderProblem, again: RematProblem) -> OrderProblem:
    """`problem`, but what the backward part reads and `again` can compute weighs less, with what hands its memory on to it."""
    found = {
        cell for cell, users in enumerate(problem.users)
        if again.producer[cell] >= 0 and users and users[-1] >= again.boundary
    }
    for pairs in reversed(problem.pairs):
        found.update(source for source, target in pairs if target in found)
    sizes = [size // _LIGHTER if c in found else size for c, size in enumerate(problem.sizes)]
    return replace(problem, sizes=sizes)


@dataclass(frozen=True)
class InOrder:
    """A pass that runs the main region in the order of the heuristic of that name, whether that lowers the peak yet or not: what is
    computed again may."""

    name: str

    def __call__(self, graph: Graph, context: PassContext) -> Graph:
        return _reordered(graph, 0, CANDIDATES[self.name](_main_problem(graph, context)))


def space_updates_in_main(graph: Graph, context: PassContext) -> Graph:
    """Parameter updates apart from products, in the order that the main region has: clones may have come in between."""
    given = graph.regions[0].ops
    order, kinds = range(len(given)), _kinds(graph, given)
    if kinds.meet(order):
        _reordered(graph, 0, keep_apart(_main_problem(graph, context), order, kinds))
    return graph


def _reordered(graph: Graph, region: int, order: Iterable[int]) -> Graph:
    """`graph`, changed: the ops of `region` stand in `order`, which has their positions."""
    given = graph.regions[region].ops
    graph.regions[region].ops = [given[i] for i in order]
    return graph


def _main_problem(graph: Graph, context: PassContext) -> OrderProblem:
    """Of the main region, where nested ones need nothing."""
    return _problem(graph, context, 0, {r.id: 0 for r in graph.regions[1:]})


def _problem(graph: Graph,
             context: PassContext,
             region: int,
             inner_peaks: Dict[int, int],
             accesses: Optional[Accesses] = None) -> OrderProblem:
    """Of a graph that no op of `region` was moved in yet."""
    make = lambda: region_problem(graph, region, context.collecting(graph), inner_peaks, accesses)
    return make() if inner_peaks else context.once('problem', make)


def _kinds(graph: Graph, ops: List[int]) -> Kinds:
    """Updates by vector instructions, products, and what helps between them."""
    units = [graph.ops[op].facts.work.unit for op in ops]
    updates = [unit is Unit.VECTOR_UPDATE for unit in units]
    products = [unit is Unit.PRODUCT for unit in units]
    between = [
        unit is Unit.OTHER and graph.ops[op].origin is not None for unit, op in zip(units, ops)
    ]
    return Kinds(updates, products, between)


def _inner_first(graph: Graph) -> Iterator[int]:
    """A region is made before those inside it."""
    used = {0, *(inner for op in graph.walk() for inner in op.regions)}
    return iter(sorted(used, reverse=True))
