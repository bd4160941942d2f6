"""From a serialized program to a checked decision: shared by the library call and the command line."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Union

from transpiler import arguments
from transpiler.planner import Plan, PlanOptions, Sequences, plan
from transpiler.program_desc import environment
from transpiler.program_desc.emitter import EmittedProgram, emit, is_marked
from transpiler.program_desc.importer import import_program
from transpiler.program_desc.shapes import is_batch
from transpiler.program_desc.validation import check_emitted, check_names
from transpiler.report import MemoryReport
from transpiler.report.builder import build_report

_ALREADY = 'The program was rewritten by an earlier call; it is unchanged. Build it again to plan anew.'
_NOTHING_HELPS = ('Nothing that can be proved safe lowers the peak on this runtime; the program is '
                  'unchanged.')


@dataclass(frozen=True)
class Request:
    """What the caller said of the program and of how it will run; see memory_optimize."""

    fetch_list: Any = None
    skip_opt_set: Any = None
    batch_size: Optional[int] = None
    trip_count: Union[None, int, Mapping[int, int]] = None
    runtime: str = 'auto'


@dataclass(frozen=True)
class Decision:
    """A plan, its report, and the new program, proved equal; `emitted` is None if nothing helps."""

    plan: Plan
    dims: Dict[str, int]
    report: MemoryReport
    emitted: Optional[EmittedProgram]


def decide(serialized: bytes, merged: Mapping[str, str], request: Request, sequences: Sequences,
           options: PlanOptions, mark: str) -> Decision:
    """Plans a program; `merged` are names whose contents an earlier rewrite gave up.

    Raises:
        TranspilerError: bad arguments, or a rewrite that could not be proved equal.
    """
    started = time.perf_counter()
    fetched = arguments.names_of('fetch_list', request.fetch_list)
    skipped = arguments.names_of('skip_opt_set', request.skip_opt_set)
    batch_size = arguments.positive('batch_size', request.batch_size)
    model = arguments.runtime_model(request.runtime, environment.collects_garbage())
    check_names(serialized, fetched, skipped, merged)

    program = import_program(serialized, fetched, skipped)
    dims, assumed = arguments.dim_values(program.symbols(), batch_size, request.trip_count,
                                         is_batch)
    done = is_marked(program, mark)
    decided = plan(program.graph, model, dims, options, () if done else sequences)
    emitted = None
    if decided.changed:
        emitted = emit(program, decided.graph, mark, decided.held)
        check_emitted(program, emitted)
    note = '' if decided.changed else _ALREADY if done else _NOTHING_HELPS
    report = build_report(decided, model, dims, assumed, time.perf_counter() - started, note)
    return Decision(decided, dims, report, emitted)
