"""The flow, whatever the back end: a program is read, planned, written, proved equal, and only then changed."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, Iterator, Mapping

from transpiler import arguments
from transpiler.analysis.leftovers import not_forgotten
from transpiler.backends.base import OPTIMIZED, RELEASED, Backend, Imported
from transpiler.errors import MemoryBudgetError, VerificationError
from transpiler.ir import Graph
from transpiler.plain import printable
from transpiler.planning import (OPTIMIZE, RELEASE_ONLY, Plan, PlanOptions, Sequences, Work, plan,
                                 simpler_and_simpler)
from transpiler.report import MemoryReport
from transpiler.report.builder import build_report, resting_bytes
from transpiler.request import Request, check_names
from transpiler.runtime import Runtime
from transpiler.verify import verify

_ALREADY = 'The program was rewritten by an earlier call; it is unchanged. Build it again to plan anew.'
_NOTHING_HELPS = ('Nothing that can be proved safe lowers the peak on this runtime; the program is '
                  'unchanged.')
# What Paddle itself computes wrong, and a plan would have mended.
_STALE = (
    'With collection off, gradients of loops may take what the run before left in {} for their own, and be wrong where trip '
    'counts change from run to run. So they do in Paddle without a rewrite: run it with collection on.'
)
_NAMED = 3
_GROWS = (
    'A better plan was dropped, because it would need more than no plan for other sizes of the '
    'inputs, or other ways through its branches.')
_GROWS_ANYWAY = (
    'For other sizes of the inputs, or other ways through its branches, it needs more than no plan would; no other plan '
    'keeps to the budget.')


@dataclass(frozen=True)
class Task:
    """What is done to programs: passes in the sequences that are tried, and what a program says to which it was done."""

    done: str
    sequences: Sequences


OPTIMIZING, RELEASING = Task(OPTIMIZED, OPTIMIZE), Task(RELEASED, RELEASE_ONLY)


@dataclass(frozen=True)
class Decision:
    """A plan, its report, and the new program, proved equal; `written` is None if nothing helps."""

    plan: Plan
    dims: Dict[str, int]
    report: MemoryReport
    written: Any


def rewrite(backend: Backend,
            target: Any,
            request: Request,
            options: PlanOptions,
            task: Task = OPTIMIZING) -> Decision:
    """Reads, plans, writes, verifies, applies.

    Raises:
        TranspilerError: bad arguments, a program that cannot be read, no plan that fits. `target` is as it was.
    """
    with _no_cycle_collection(), backend.session():
        decision = decide(backend, target, request, options, task)
        if decision.written is not None:
            backend.apply(target, decision.written)
    return decision


def decide(backend: Backend,
           target: Any,
           request: Request,
           options: PlanOptions,
           task: Task = OPTIMIZING) -> Decision:
    """The same but for applying it."""
    started = time.perf_counter()
    fetched, skipped = request.names()
    runtime = arguments.runtime_of(request.runtime, backend.runtime)
    imported = backend.read(target, fetched, skipped)
    check_names(imported.declared, fetched, skipped)
    dims, assumed = request.sizes(imported.graph, imported.inputs)
    budget = arguments.byte_count('budget', request.budget)
    if budget is not None:
        budget -= resting_bytes(imported.graph, dims)
    options = replace(options, budget=budget, cost=backend.cost or options.cost)
    done = task.done in imported.done
    proved = _proved(backend, imported, runtime, dims, options,
                     replace(task, sequences=()) if done else task)
    said = proved.note or (_ALREADY if done else '' if proved.plan.changed else _NOTHING_HELPS)
    note = ' '.join(filter(None, (said, _stale(proved.plan, runtime))))
    report = build_report(proved.plan, runtime, dims, assumed, time.perf_counter() - started, note)
    return Decision(proved.plan, dims, report, proved.written)


def _stale(chosen: Plan, runtime: Runtime) -> str:
    names = [] if runtime.collects else not_forgotten(chosen.graph)
    shown = ', '.join(map(repr, names[:_NAMED])) + (' and others' if len(names) > _NAMED else '')
    return _STALE.format(printable(shown)) if names else ''


def write_proved(backend: Backend,
                 imported: Imported,
                 graph: Graph,
                 held: FrozenSet[int] = frozenset(),
                 done: str = '') -> Any:
    """What `backend` writes of `graph`; raises VerificationError if that is not proved equal to what was read."""
    written = backend.write(imported, graph, held, done)
    prove(backend, imported, written)
    return written


def prove(backend: Backend, imported: Imported, written: Any) -> None:
    """Raises VerificationError unless what was written, read again, is proved equal to what was read."""
    again, origins = backend.reread(imported, written)
    verify(imported.graph, again, origins)


@dataclass(frozen=True)
class _Proved:
    plan: Plan
    written: Any
    note: str


def _proved(backend: Backend, imported: Imported, runtime: Runtime, dims: Mapping[str, int],
            options: PlanOptions, task: Task) -> _Proved:
    """The best plan that is proved equal. One that is not is dropped, and a simpler one is tried; so is one that would need
    more than no plan for other sizes of the inputs, but where nothing else keeps to the budget."""
    note, grows, work = '', None, Work()
    for allowed in simpler_and_simpler(task.sequences):
        try:
            decided = plan(imported.graph, runtime, dims, options, allowed, work)
        except MemoryBudgetError:
            if grows is None:
                raise
            return replace(grows, note=_GROWS_ANYWAY)
        if not decided.changed:
            return _Proved(decided, None, note)
        try:
            written = write_proved(backend, imported, decided.graph, decided.held, task.done)
        except VerificationError as error:
            note = f'A better plan was dropped, because it could not be proved equal: {error}.'
            continue
        done = _Proved(decided, written, note)
        if not decided.grows_elsewhere():
            return done
        grows, note = grows or done, _GROWS
    raise AssertionError('the last plan tried changes nothing')


@contextlib.contextmanager
def _no_cycle_collection() -> Iterator[None]:
    """Planning makes many objects and few cycles: looking for those among all that Paddle holds takes a third of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
