"""Which passes run, in which order, and whether their result is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from typing import Callable, Container, Iterator, List, Mapping, Optional

from transpiler.errors import MemoryBudgetError
from transpiler.ir import Graph
from transpiler.planning.bases import bases, first_steps, reordered
from transpiler.planning.budget import fitter_of, levels, over_budget, within_budget
from transpiler.planning.finishing import finish, may_hold
from transpiler.planning.freeing import computed_again, released
from transpiler.planning.fitting import Fitter, different
from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.runner import Runner
from transpiler.planning.sequences import OPTIMIZE, ROW_SUMS, SPLIT, STAYS, SUMS, NamedPass, Sequences
from transpiler.planning.work import Work
from transpiler.runtime import Runtime

# A plan that needs more elsewhere is seldom followed by many others that do, and to finish one takes time.
_MOST_FINISHED = 6


def plan(graph: Graph,
         runtime: Runtime,
         dims: Mapping[str, int],
         options: PlanOptions = PlanOptions(),
         sequences: Sequences = OPTIMIZE,
         work: Optional[Work] = None) -> Plan:
    """The best of the pass sequences by the timeline of `runtime`; the original if none lowers the peak.

    With `options.parallel`, nothing is done that could keep two ops from running side by side: no op is moved or held
    back, and values share memory only if that adds no dependence. `work` is what earlier calls for the same graph, runtime,
    dims and options have done: this one goes on from there.

    Raises:
        MemoryBudgetError: no plan keeps to `options.budget`.
    """
    loose = not may_hold(runtime, options, sequences)
    runner = Runner(graph, runtime, dims, options, loose, work)
    tried = tried_plans(runner, sequences)
    free = partial(_lowest, runner, list(tried), replace(options, budget=None), sequences)
    if options.budget is None:
        return free()
    try:
        done = _within_budget(runner, tried, options, sequences)
    except MemoryBudgetError as error:
        done = _for_budget(runner, free(), options, sequences)
        if done.sure_bytes > options.budget:
            done = _again_for_budget(runner, done, options, sequences, error)
    if not runner.grows_elsewhere(done):
        return done
    found = (each for each in _other_ways(runner, tried, free, options, sequences)
             if each.sure_bytes <= options.budget and not runner.grows_elsewhere(each))
    return next(found, replace(done, grows_elsewhere=True))


def _other_ways(runner: Runner, tried: List[Plan], free: Callable[[], Plan], options: PlanOptions,
                sequences: Sequences) -> Iterator[Plan]:
    """Of those that need nowhere more than no plan the cheapest, finished for the budget; and the lowest of all."""
    fitting = [each for each in tried if each.timely_bytes <= options.budget]
    cheapest = different(sorted(fitting, key=lambda each: (each.extra_seconds, each.timely_bytes)))
    steady = (each for each in cheapest if not runner.grows_elsewhere(each))
    for each in islice(steady, _MOST_FINISHED):
        each = replace(each, left_alone=tried[0].left_alone)
        yield finish(runner, each, options, sequences)
    yield _for_budget(runner, free(), options, sequences)


def _for_budget(runner: Runner, lowest: Plan, options: PlanOptions, sequences: Sequences) -> Plan:
    """The lowest plan of all, which was made for no budget, with what keeps to one: as it is, it may leave all to the collector."""
    return lowest if lowest.frees_in_time else finish(runner, lowest, options, sequences)


def _again_for_budget(runner: Runner, free: Plan, options: PlanOptions, sequences: Sequences,
                      error: MemoryBudgetError) -> Plan:
    """The cheapest plan for the budget that computes some of the main block again where the runtime frees nothing by itself; raises
    `error`, or one that names a lower peak, if there is none: that of `free`, which was made for no budget, too."""
    budget = options.budget
    finished = partial(finish, runner, options=options, sequences=sequences)

    def choose(freeing: Runner, options: PlanOptions, sequences: Sequences) -> Plan:
        fitter = _fitter(freeing, sequences)
        chosen = fitter.within_peak(budget, lambda each: finished(released(runner, each)))
        is_one = chosen is not None and chosen.recomputed is not None  # of others nothing is made
        return chosen if is_one else fitter.lowest()

    found = [finished(each) for each in computed_again(runner, options, sequences, choose)]
    lowest = min([*found, free], key=lambda each: each.sure_bytes)
    if lowest.sure_bytes >= error.best_bytes:
        raise error
    if lowest.sure_bytes > budget:
        raise over_budget(lowest, budget) from error
    return lowest


def _within_budget(runner: Runner, tried: List[Plan], options: PlanOptions,
                   sequences: Sequences) -> Plan:
    best = _best_of_levels(runner, tried, sequences)
    return within_budget(runner, tried, best, options.budget, sequences,
                         partial(finish, runner, options=options, sequences=sequences))


def choice_for_budgets(graph: Graph,
                       runtime: Runtime,
                       dims: Mapping[str, int],
                       options: PlanOptions = PlanOptions(),
                       sequences: Sequences = OPTIMIZE) -> Fitter:
    """What every budget picks from in the main block, for whoever compares: it depends on no budget."""
    return _fitter(Runner(graph, runtime, dims, options), sequences)


def _fitter(runner: Runner, sequences: Sequences) -> Fitter:
    tried = tried_plans(runner, sequences)
    best = _best_of_levels(runner, tried, sequences)
    return fitter_of(runner, tried, best, best, sequences)


def _best_of_levels(runner: Runner, tried: List[Plan], sequences: Sequences) -> Plan:
    """The best of `tried`, and of the plans that compute more and less again in its loops, which are added to `tried`."""
    best = _without_sums(runner, reduce(_lower, tried))
    for candidate in levels(runner, best, sequences):
        tried.append(candidate)
        best = _lower(best, candidate)
    return best


def tried_plans(runner: Runner,
                sequences: Sequences,
                some: Optional[Sequences] = None) -> List[Plan]:
    """What all sequences lead to, or `some` of them; no change is the first."""
    first = runner.run(first_steps(sequences)).steps
    tried = [runner.run(()), runner.run(first)]
    for sequence in (first + sequence for sequence in (sequences if some is None else some)):
        if runner.may_help(sequence):
            tried.append(runner.run(sequence))
            tried[0].left_alone.update(tried[-1].left_alone)
    return tried


def _lowest(runner: Runner, tried: List[Plan], options: PlanOptions, sequences: Sequences) -> Plan:
    """The plan of the lowest peak, finished; of the lowest few the first that needs no more than no plan elsewhere, or else
    the last."""
    grows = False
    for best in lowest_few(runner, tried, options, sequences):
        done = finish(runner, best, options, sequences)
        grows = runner.grows_elsewhere(done)
        if not grows:
            break
    return replace(done, grows_elsewhere=grows)


def lowest_few(runner: Runner, tried: List[Plan], options: PlanOptions,
               sequences: Sequences) -> Iterator[Plan]:
    """Plans by rising peak, the lowest first, each as it is before it is finished; the last is no plan, if there are so few."""
    tried = tried + computed_again(runner, options, sequences, _chosen)
    for _ in range(_MOST_FINISHED):
        lowest = reduce(_lower, tried)
        best = lowest if lowest.recomputed else _without_sums(runner, lowest)
        made = _within_overhead(runner, best, options, sequences)
        yield made
        if STAYS in made.steps:
            yield _within_overhead(runner, best, options, sequences, left_out=(STAYS,))
        if not lowest.changed:
            break
        tried = [each for each in tried if each.graph is not lowest.graph]


def _chosen(runner: Runner, options: PlanOptions, sequences: Sequences) -> Plan:
    """The plan of the lowest peak, as it is before it is finished."""
    best = _without_sums(runner, reduce(_lower, tried_plans(runner, sequences)))
    return _within_overhead(runner, best, options, sequences)


def _without_sums(runner: Runner, best: Plan) -> Plan:
    """`best` with sums where they were, or as they were, if that needs no more."""
    for sums in (SPLIT, ROW_SUMS, SUMS):
        if sums in best.steps:
            candidate = runner.run([step for step in best.steps if step != sums])
            if candidate.after.peak_bytes <= best.after.peak_bytes:
                best = candidate
    return best


def _lower(best: Plan, candidate: Plan) -> Plan:
    """The better one by the sizes of values; but a kernel's own memory, which no order was made for, may not spoil it."""
    if (candidate.after.peak_bytes >= best.after.peak_bytes or
            candidate.needed_bytes > best.needed_bytes):
        return best
    return replace(candidate, left_alone=best.left_alone)


def _within_overhead(runner: Runner,
                     best: Plan,
                     options: PlanOptions,
                     sequences: Sequences,
                     left_out: Container[NamedPass] = ()) -> Plan:
    """`best` with as much computed again in the main block as the overhead allows, in an order that none of `left_out` makes."""
    seconds = float('inf')
    if options.recompute == 'auto':
        seconds = options.max_overhead * runner.step_seconds + best.saved_seconds
        if not best.original.trains:
            return best  # nobody has asked for it
    fitter = Fitter(bases(runner, [best], sequences, left_out=left_out),
                    best,
                    runner.context,
                    seconds,
                    reorder=reordered(runner, best.original))
    return fitter.within_overhead(seconds)
