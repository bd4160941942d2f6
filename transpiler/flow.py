"""The flow, whatever the back end: a program is read, planned, written, proved equal, and only then changed."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Iterator, Mapping, Optional, Sequence

from transpiler import arguments
from transpiler.analysis.kept import kept_bytes
from transpiler.analysis.leftovers import not_forgotten, piled_up
from transpiler.analysis.segments import Segments
from transpiler.backends.base import OPTIMIZED, RELEASED, Backend, Imported
from transpiler.errors import InvalidArgumentError, MemoryBudgetError, VerificationError
from transpiler.heap import Keeper, Kept, give_back, keeper_for
from transpiler.ir import Graph
from transpiler.ir.columns import Columns
from transpiler.ir.whole_rows import count_whole_rows
from transpiler.plain import printable
from transpiler.planning import (OPTIMIZE, RELEASE_ONLY, Plan, PlanOptions, Sequences, Sizes,
                                 in_segments_or_not, plan_for, simpler_and_simpler)
from transpiler.report import HeapReport, MemoryReport, PipelineReport
from transpiler.report.builder import build_report, resting_bytes
from transpiler.request import Request, check_names
from transpiler.runtime import Runtime
from transpiler.verify import verify

_ALREADY = 'The program was rewritten by an earlier call; it is unchanged. Build it again to plan anew.'
_CLOSED = 'The program is unchanged: {}. Figures leave out what is not known.'
_NOTHING_HELPS = ('Nothing that can be proved safe lowers the peak on this runtime; the program is '
                  'unchanged.')
# What Paddle itself computes wrong, and a plan would have mended.
_STALE = (
    'With collection off, gradients of loops may take what the run before left in {} for their own, and be wrong where trip '
    'counts change from run to run. So they do in Paddle without a rewrite: run it with collection on.'
)
# What Paddle itself leaves lying, which no plan mends.
_PILES_UP = (
    'With collection off, each run adds to memory, for good, what branches make for which no gradient comes: {}. So it does in '
    'Paddle without a rewrite: no figure counts more than one run of it, and no budget can be kept. '
    'Run it with collection on.')
_TRIPS_PILE_UP = (
    'As it is, each run adds to memory, for good, what loops in branches copy in each trip for a gradient that never comes: {}. So it '
    'does in Paddle without a rewrite: no figure counts more than one run of it, and no budget can be kept. '
    'Make them in a program of their own that trains nothing.')
_ALIKE = "All {} workers have planned with worker 0's hints, the speed of its machine, and the smallest budget."
_NO_BUDGET = (
    'budget: what a section of a pipeline needs also depends on how many small batches are under way, so that no budget can be '
    'promised; leave it out')
_NAMED = 3
_GROWS = (
    'A better plan was dropped, because it would need more than no plan for other sizes of the '
    'inputs, other ways through its branches, or a collector that is late.')


@dataclass(frozen=True)
class Task:
    """What is done to programs: passes in the sequences that are tried, and what a program says to which it was done."""

    done: str
    sequences: Sequences


OPTIMIZING, RELEASING = Task(OPTIMIZED, OPTIMIZE), Task(RELEASED, RELEASE_ONLY)


@dataclass(frozen=True)
class Decision:
    """A plan, its report, and the new program, proved equal; `written` is None if nothing helps. `held_bytes` are there whatever the
    plan: resting memory, and what the caller said is there besides."""

    plan: Plan
    dims: Dict[str, int]
    report: MemoryReport
    written: Any
    imported: Imported
    held_bytes: int


def _not_tried(decision: Decision) -> None:
    """What is proved need not be run."""


def rewrite(backend: Backend,
            target: Any,
            request: Request,
            options: PlanOptions,
            task: Task = OPTIMIZING,
            tried: Callable[[Decision], None] = _not_tried) -> Decision:
    """Reads, plans, writes, verifies, has what was decided `tried`, which may raise, and applies it.

    Raises:
        TranspilerError: bad arguments, a program that cannot be read, no plan that fits. `target` is as it was.
    """
    with _no_cycle_collection(), backend.session():
        decision = decide(backend, target, request, options, task)
        tried(decision)
        if decision.written is not None:
            backend.apply(target, decision.written)
    return decision


def rewrite_and_report(backend: Backend,
                       target: Any,
                       request: Request,
                       options: PlanOptions,
                       task: Task = OPTIMIZING,
                       tried: Callable[[Decision], None] = _not_tried) -> MemoryReport:
    """As `rewrite`, for whoever keeps no more than the report: what planning took is given back before the program is changed, which
    takes as much again, and what is then made for long does not come to lie among it."""
    with _no_cycle_collection(), backend.session():
        decision = decide(backend, target, request, options, task)
        tried(decision)
        reported = Columns(decision.report)
        written = None if decision.written is None else backend.kept(decision.written)
        del decision
        _drop_caches()
        give_back()
        if written is not None:
            backend.apply(target, written())
    return reported.again()


def decide(backend: Backend,
           target: Any,
           request: Request,
           options: PlanOptions,
           task: Task = OPTIMIZING) -> Decision:
    """The same but for applying it."""
    started = time.perf_counter()
    fetched, skipped = request.names()
    runtime = arguments.runtime_of(request.runtime, backend.runtime)
    options.progress('reading')
    imported = backend.read(target, fetched, skipped)
    check_names(imported.declared, fetched, skipped)
    _, assumed = request.sizes(imported.graph, imported.inputs)
    sizes = request.planned_sizes(imported.graph, imported.inputs)
    dims = sizes[0][0]
    count_whole_rows(imported.graph, dims)
    budget = arguments.byte_count('budget', request.budget)
    held = resting_bytes(imported.graph, dims) + _besides(imported.graph, request)
    if budget is not None:
        if imported.under_way:
            raise InvalidArgumentError(_NO_BUDGET)
        budget -= held
        options.progress('running kernels')
        backend.run_kernels(imported)
    options = replace(options, budget=budget, cost=request.cost or backend.cost or options.cost)
    closed = _why_closed(imported, task)
    if closed:
        task, options = replace(task, sequences=()), replace(options, segments=False)
    give_back()  # reading takes more than the program
    with _holding(held):
        proved = _proved(backend, imported, runtime, Sizes(*sizes), options, task)
        if imported.under_way and proved.plan.changed and not _lowers(proved.plan,
                                                                      imported.under_way):
            unchanged = replace(task, sequences=())
            proved = _proved(backend, imported, runtime, Sizes(*sizes), options, unchanged)
    dims = dict(proved.plan.sizes[0]) if proved.plan.sizes else dims
    served = request.runtime == 'predictor'  # which runs another operator instead
    piles = '' if served else _piles_up(proved.plan, runtime)
    if piles and budget is not None:
        raise MemoryBudgetError(piles, proved.plan.sure_bytes, held)
    said = proved.note or closed or ('' if proved.plan.changed else _NOTHING_HELPS)
    alike = _ALIKE.format(request.workers) if request.workers else ''
    note = ' '.join(filter(None, (said, _stale(proved.plan, runtime), piles, alike)))
    seconds, asked = time.perf_counter() - started, None if closed else options
    report = build_report(proved.plan, runtime, dims, assumed, seconds, note, options=asked)
    if imported.under_way:
        report.pipeline = _pipeline(proved.plan, imported.under_way)
    return Decision(proved.plan, dims, report, proved.written, imported, held)


def _pipeline(plan: Plan, under_way: int) -> PipelineReport:
    before, after = (sum(kept_bytes(graph, timeline).values())
                     for graph, timeline in ((plan.original, plan.before), (plan.graph,
                                                                            plan.after)))
    return PipelineReport(under_way, (before, after))


def _lowers(plan: Plan, under_way: int) -> bool:
    """Whether it needs less with what the other small batches keep meanwhile."""
    before, after = _pipeline(plan, under_way).others_bytes()
    return plan.after.peak_bytes + after < plan.before.peak_bytes + before


def _why_closed(imported: Imported, task: Task) -> str:
    """Why nothing is to be changed; '' if it may be."""
    if task.done in imported.done:
        return _ALREADY
    return _CLOSED.format(imported.closed) if imported.closed else ''


def _besides(graph: Graph, request: Request) -> int:
    """Bytes that are there besides all that `graph` has."""
    own = {v.name for v in graph.values if v.persistable}
    return sum(size for name, size in request.besides.items() if name not in own)


@contextlib.contextmanager
def _holding(held: int) -> Iterator[None]:
    """Has errors about the budget say what is there besides."""
    try:
        yield
    except MemoryBudgetError as error:
        error.held_bytes = held
        raise


def _stale(chosen: Plan, runtime: Runtime) -> str:
    return '' if runtime.collects else _said_of(_STALE, not_forgotten(chosen.graph))


def _piles_up(chosen: Plan, runtime: Runtime) -> str:
    what = _TRIPS_PILE_UP if runtime.collects else _PILES_UP
    return _said_of(what, piled_up(chosen.graph, runtime.collects))


def _said_of(what: str, names: Sequence[str]) -> str:
    """`what`, with the first of `names` in it; nothing if there are none."""
    shown = ', '.join(map(repr, names[:_NAMED])) + (' and others' if len(names) > _NAMED else '')
    return what.format(printable(shown)) if names else ''


def write_proved(backend: Backend,
                 imported: Imported,
                 graph: Graph,
                 held: FrozenSet[int] = frozenset(),
                 done: str = '',
                 segments: Segments = ()) -> Any:
    """What `backend` writes of `graph`; raises VerificationError if that is not proved equal to what was read."""
    written = backend.write(imported, graph, held, done, *([segments] if segments else []))
    give_back()  # as does writing
    prove(backend, imported, written)
    return written


def prove(backend: Backend, imported: Imported, written: Any) -> None:
    """Raises VerificationError unless what was written, read again, is proved equal to what was read."""
    again, origins = backend.reread(imported, written)
    give_back()  # so does reading it again
    verify(imported.graph, again, origins)


@dataclass(frozen=True)
class _Proved:
    plan: Plan
    written: Any
    note: str = ''


def _proved(backend: Backend, imported: Imported, runtime: Runtime, sizes: Sizes,
            options: PlanOptions, task: Task) -> _Proved:
    """The best plan that is proved equal. One that is not is dropped, and a simpler one is tried; so is one that would need
    more than no plan for other sizes of the inputs, but where nothing else keeps to the budget."""
    note, grows = '', None
    for allowed in simpler_and_simpler(task.sequences):
        try:
            decided = plan_for(imported.graph, runtime, sizes, options, allowed)
        except MemoryBudgetError:
            if grows is None:
                raise
            return grows
        if not decided.grows_elsewhere:
            # Seldom is another plan made: what was tried takes more memory than the program, which is now copied several times.
            sizes = replace(sizes)
        try:
            dims = decided.sizes[0] if decided.sizes else sizes.made[0]
            done = _in_segments_or_whole(backend, imported, runtime, dims, options, task, decided)
        except VerificationError as error:
            note = f'A better plan was dropped, because it could not be proved equal: {error}.'
            continue
        if not decided.grows_elsewhere:
            return replace(done, note=note)
        grows, note = grows or done, _GROWS
    raise AssertionError('the last plan tried changes nothing')


def _in_segments_or_whole(backend: Backend, imported: Imported, runtime: Runtime,
                          dims: Mapping[str, int], options: PlanOptions, task: Task,
                          decided: Plan) -> _Proved:
    """`decided`, in segments where that pays and is proved equal; raises VerificationError if the whole is not."""
    cut = in_segments_or_not(decided, runtime, dims, options)
    options.progress('writing, and proving it equal')
    if cut.segments:
        try:
            return _Proved(
                cut, write_proved(backend, imported, cut.graph, cut.held, task.done, cut.segments))
        except VerificationError as error:
            cut = replace(decided, unsegmented=f'that could not be proved equal: {error}')
    if not decided.changed:
        return _Proved(cut, None)
    return _Proved(cut, write_proved(backend, imported, cut.graph, cut.held, task.done))


@contextlib.contextmanager
def _no_cycle_collection() -> Iterator[None]:
    """Planning makes many objects and few cycles: looking for those among all that Paddle holds takes a third of its time. Who looks
    for them meanwhile looks at those alone that were made since."""
    enabled = gc.isenabled()
    freezes = not gc.get_freeze_count()  # or others would be thawed with ours
    gc.disable()
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        if enabled:
            gc.enable()


def _drop_caches() -> None:
    """What Python keeps of objects that are gone: cycles, tuples and lists for later ones, and, for each type, the names that were looked up
    last. C code makes those anew each time (`ndarray.cumsum` asks for 'accumulate'), so that thousands lie all over the heap."""
    waiting = gc.get_count()[2]
    gc.collect()
    # What is old was not looked at, and has its turn as soon as before.
    for _ in range(waiting):
        gc.collect(1)
    sys._clear_type_cache()


def keep_heap(kept: Optional[Kept], collects: Callable[[], bool],
              keep: Callable[[Keeper], bool]) -> HeapReport:
    """Sets the heap of the process and has it kept, if it is to be. `collects` says whether the runtime does, `keep` whether that is done between
    runs."""
    keeper = 'heap=False' if kept is None else keeper_for(kept, collects)
    if isinstance(keeper, str):
        return HeapReport({}, keeper)
    return HeapReport(dict(keeper.settings), '', keep(keeper))
