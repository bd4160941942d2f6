"""From a serialized program to a checked decision: shared by the library call and the command line."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from paddle.base.proto import framework_pb2

from transpiler import arguments
from transpiler.analysis.leftovers import not_forgotten
from transpiler.backends.paddle2 import environment
from transpiler.backends.paddle2.calibration import cached_cost_model
from transpiler.backends.paddle2.emitter import EmittedProgram, emit, is_marked
from transpiler.backends.paddle2.importer import ImportedProgram, import_message
from transpiler.backends.paddle2.validation import check_emitted, check_inputs, check_names, check_sizes
from transpiler.errors import MemoryBudgetError, VerificationError
from transpiler.plain import printable
from transpiler.planning import Plan, PlanOptions, Sequences, Work, plan, simpler_and_simpler
from transpiler.report import MemoryReport
from transpiler.report.builder import build_report, resting_bytes
from transpiler.runtime import Runtime

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
    'inputs.')


@dataclass(frozen=True)
class Request:
    """What the caller said of the program and of how it will run; see memory_optimize."""

    fetch_list: Any = None
    skip_opt_set: Any = None
    batch_size: Optional[int] = None
    trip_count: Union[None, int, Mapping[int, int]] = None
    runtime: str = 'auto'
    budget: Union[None, int, str] = None


@dataclass(frozen=True)
class Decision:
    """A plan, its report, and the new program, proved equal; `emitted` is None if nothing helps."""

    plan: Plan
    dims: Dict[str, int]
    report: MemoryReport
    emitted: Optional[EmittedProgram]


def decide(message: framework_pb2.ProgramDesc, merged: Mapping[str, str], request: Request,
           sequences: Sequences, options: PlanOptions, mark: str) -> Decision:
    """Plans a program, of which it takes the message; `merged` are names whose contents an earlier rewrite gave up.

    Raises:
        TranspilerError: bad arguments.
    """
    started = time.perf_counter()
    fetched = arguments.names_of('fetch_list', request.fetch_list)
    skipped = arguments.names_of('skip_opt_set', request.skip_opt_set)
    arguments.row_hints('batch_size', request.batch_size)
    runtime = arguments.runtime_of(request.runtime, environment.collects_garbage())
    check_names(message, fetched, skipped, merged)

    program = import_message(message, fetched, skipped)
    dims, assumed = sizes_of(program, program.symbols(), request)
    budget = arguments.byte_count('budget', request.budget)
    if budget is not None:
        budget -= resting_bytes(program.graph, dims)
    options = replace(options, budget=budget, cost=cached_cost_model() or options.cost)
    done = is_marked(program, mark)
    proved = _proved(program, runtime, dims, options, () if done else sequences, mark)
    said = proved.note or (_ALREADY if done else '' if proved.plan.changed else _NOTHING_HELPS)
    note = ' '.join(filter(None, (said, _stale(proved.plan, runtime))))
    report = build_report(proved.plan, runtime, dims, assumed, time.perf_counter() - started, note)
    return Decision(proved.plan, dims, report, proved.emitted)


def _stale(chosen: Plan, runtime: Runtime) -> str:
    names = not_forgotten(chosen.graph) if not runtime.collects else []
    shown = ', '.join(map(repr, names[:_NAMED])) + (' and others' if len(names) > _NAMED else '')
    return _STALE.format(printable(shown)) if names else ''


def sizes_of(program: ImportedProgram, symbols: Iterable[str],
             request: Request) -> Tuple[Dict[str, int], List[str]]:
    """A value for each of `symbols`, and which of them had to be assumed.

    Raises:
        TranspilerError: hints that are none, or name what is no input and no loop, or are beyond all sizes.
    """
    batch_size = arguments.row_hints('batch_size', request.batch_size)
    if isinstance(batch_size, Mapping):
        check_inputs(program, batch_size)
    dims, assumed = arguments.dim_values(symbols, batch_size, request.trip_count)
    check_sizes(program.graph, dims)
    return dims, assumed


@dataclass(frozen=True)
class _Proved:
    plan: Plan
    emitted: Optional[EmittedProgram]
    note: str


def _proved(program: ImportedProgram, runtime: Runtime, dims: Mapping[str, int],
            options: PlanOptions, sequences: Sequences, mark: str) -> _Proved:
    """The best plan that is proved equal. One that is not is dropped, and a simpler one is tried; so is one that would need
    more than no plan for other sizes of the inputs, but where nothing else keeps to the budget."""
    note, grows, work = '', None, Work()
    for allowed in simpler_and_simpler(sequences):
        try:
            decided = plan(program.graph, runtime, dims, options, allowed, work)
        except MemoryBudgetError:
            if grows is None:
                raise
            return grows
        if not decided.changed:
            return _Proved(decided, None, note)
        try:
            emitted = emit(program, decided.graph, mark, decided.held)
            check_emitted(program, emitted)
        except VerificationError as error:
            note = f'A better plan was dropped, because it could not be proved equal: {error}.'
            continue
        done = _Proved(decided, emitted, note)
        if not decided.grows_elsewhere():
            return done
        grows, note = grows or done, _GROWS
    raise AssertionError('the last plan tried changes nothing')
