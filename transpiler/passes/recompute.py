"""Save less: forward values that a gradient region reads are rebuilt there from what is kept anyway.

Needs: nothing. Keeps: the order of the ops that are there. Changes: adds clones of forward ops, and reads of arrays that hold
what a trip made, to gradient regions, which read their results instead.

For each region with a gradient region (the body of a training loop, a branch), `inner_remat` finds which values to keep per
trip and which to rebuild, at an exchange rate of bytes for seconds. The rate is the lowest at which the extra time of all
regions stays within `max_overhead` of the step (a Lagrangian of the budget).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterable, Iterator, List, Sequence, Tuple

from transpiler.analysis.writers import Writers
from transpiler.ir import Graph, Region
from transpiler.passes.cloning import Cloner, Races
from transpiler.passes.context import PassContext
from transpiler.passes.inner_remat.cut import RATES, choose, cuts, extra_seconds, kept_bytes
from transpiler.passes.inner_remat.inner_problem import InnerProblem, drop_shape_readers, inner_problem
from transpiler.passes.inner_remat.readers import Readers
from transpiler.passes.inner_remat.rebuilder import Rebuilder

_Limits = Tuple[Tuple[int, float], ...]  # of gradient regions: id, and seconds of a step
_FOREVER = float('inf')
# Levels for budgets: so many, and fewer where a graph has many ops; two rates have at most so many between them.
_MOST_LEVELS, _FEWEST_LEVELS, _OPS_OF_LEVELS, _MOST_BETWEEN = 24, 4, 40_000, 6


def recompute_in_regions(graph: Graph, context: PassContext) -> Graph:
    """Rewrites every gradient region, innermost last."""
    return _recompute(graph, context, _allowed_seconds(graph, context))


def recompute_less_in_regions(graph: Graph, context: PassContext) -> Graph:
    """The same with half the time: the main block may make more of the rest."""
    return _recompute(graph, context, _allowed_seconds(graph, context) / 2)


@dataclass(frozen=True)
class RecomputeWithin:
    """The pass with a limit for each gradient region: (region, seconds of a step)."""

    limits: _Limits

    def __call__(self, graph: Graph, context: PassContext) -> Graph:
        return _recompute_within(graph, context, self.limits)


def recompute_levels(graph: Graph, context: PassContext) -> List[RecomputeWithin]:
    """Passes that rebuild more and more, by the time it takes, from nothing that takes time to all that can be.

    They depend on the graph alone, not on any budget.
    """
    problems = _problems(graph, context)
    rungs = context.once('rungs', lambda: _rungs(problems))
    most = min(_MOST_LEVELS, max(_FEWEST_LEVELS, _OPS_OF_LEVELS // max(1, len(graph.ops))))
    found = rungs[:1]  # takes no time, but may rebuild what takes none
    for rung in rungs[1:]:
        found.extend((*_between(found[-1], rung, rungs[0].kept // most), rung))
    limits = [rung.limits for rung in _spread(found, rungs[0].kept / most)]
    if len(problems) > 1:  # what one region leaves of its time the next one may spend
        limits.sort(key=lambda each: sum(spent for _, _, spent in _chosen(problems, each)))
    return [RecomputeWithin(each) for each in limits]


def _allowed_seconds(graph: Graph, context: PassContext) -> float:
    if context.recompute != 'auto':
        return _FOREVER
    step = context.cost.region_seconds(graph, 0, context.dims)
    return context.max_overhead * step + context.saved_seconds


def _gradient_regions(graph: Graph) -> List[Region]:
    return [region for region in graph.regions if region.forward >= 0]


def _recompute(graph: Graph, context: PassContext, seconds: float) -> Graph:
    """All regions at the lowest exchange rate for which `seconds` of a step are enough; who comes first gets the rest."""
    if not context.recompute:
        return graph
    rungs = context.once('rungs', lambda: _rungs(_problems(graph, context)))
    fitting = [rung for rung in rungs if rung.seconds <= seconds]
    return _recompute_within(graph, context, fitting[-1].limits, seconds - fitting[-1].seconds)


def _recompute_within(graph: Graph,
                      context: PassContext,
                      limits: _Limits,
                      spare: float = 0.0) -> Graph:
    writers, cloner = Writers(graph), Cloner(graph, 0)
    problems = _each_problem(graph, [graph.regions[region] for region, _ in limits], context,
                             writers)
    for problem, rebuilt, spent in _chosen(problems, limits, spare):
        context.spent_seconds += spent
        if rebuilt:
            Rebuilder(graph, problem, rebuilt, cloner).run()
            writers.update(problem.gradient.id)
    return graph


def _chosen(problems: Iterable[InnerProblem],
            limits: _Limits,
            spare: float = 0.0) -> Iterator[Tuple[InnerProblem, FrozenSet[int], float]]:
    """What each region rebuilds, and the seconds that takes; what it leaves of its time the next one may spend."""
    for problem, (_, limit) in zip(problems, limits):
        rebuilt = choose(problem, limit + spare)
        spent = extra_seconds(problem, rebuilt)
        spare = max(0.0, limit + spare - spent)
        yield problem, rebuilt, spent


def _each_problem(graph: Graph, gradients: Iterable[Region], context: PassContext,
                  writers: Writers) -> Iterator[InnerProblem]:
    """Of gradient regions, of the graph as it is when the problem is asked for."""
    races, readers = Races(graph), Readers(graph, writers.positions)
    for gradient in gradients:
        drop_shape_readers(graph, gradient, readers)
        yield inner_problem(graph, gradient, context, writers, races, readers)


@dataclass(frozen=True)
class _Rung:
    """What stays for the gradients, in bytes, if they may take so long."""

    kept: int
    limits: _Limits

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.limits)


def _problems(graph: Graph, context: PassContext) -> List[InnerProblem]:
    """Of all gradient regions, of the graph as it is."""
    graph = graph.fork()
    return list(_each_problem(graph, _gradient_regions(graph), context, Writers(graph)))


def _rungs(problems: Sequence[InnerProblem]) -> List[_Rung]:
    """All regions at one exchange rate, which falls, from that at which nothing is rebuilt."""
    found = [_rung((problem, frozenset()) for problem in problems)]
    for chosen in zip(*(cuts(problem, RATES[::-1]) for problem in problems)):
        rung = _rung(zip(problems, chosen))
        if rung != found[-1]:
            found.append(rung)
    return found


def _rung(choices: Iterable[Tuple[InnerProblem, FrozenSet[int]]]) -> _Rung:
    chosen = list(choices)
    return _Rung(
        sum(kept_bytes(problem, rebuilt) for problem, rebuilt in chosen),
        tuple(
            (problem.gradient.id, extra_seconds(problem, rebuilt)) for problem, rebuilt in chosen))


def _between(last: _Rung, rung: _Rung, least: int) -> Iterator[_Rung]:
    """No rate gives the sets between those of two neighbouring rates; a limit of the time does. They differ by `least`
    bytes."""
    parts = min(_MOST_BETWEEN, (last.kept - rung.kept) // max(1, least))
    for part in range(1, parts):
        share = part / parts
        yield _Rung(
            int(last.kept + share * (rung.kept - last.kept)),
            tuple((region, before + share * (after - before))
                  for (region, before), (_, after) in zip(last.limits, rung.limits)))


def _spread(rungs: Sequence[_Rung], least: float) -> List[_Rung]:
    """The last, and those before it that each keep `least` bytes less than the one before."""
    found: List[_Rung] = []
    for rung in rungs:
        if rung is rungs[-1] or not found or found[-1].kept - rung.kept >= least:
            found.append(rung)
    return found
