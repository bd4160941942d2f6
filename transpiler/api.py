"""memory_optimize and release_memory."""

from __future__ import annotations

import time
from typing import Any, List, Mapping, Optional, Union

from transpiler import arguments
from transpiler.planner import Plan, plan
from transpiler.program_desc import environment, live_program
from transpiler.program_desc.emitter import emit
from transpiler.program_desc.importer import ImportedProgram, import_program
from transpiler.program_desc.shapes import BATCH
from transpiler.program_desc.validation import check_emitted, check_names
from transpiler.report import MemoryReport
from transpiler.report.builder import build_report


def memory_optimize(input_program: Any,
                    skip_opt_set: Any = None,
                    print_log: bool = False,
                    level: int = 0,
                    skip_grads: bool = True,
                    *,
                    fetch_list: Any = None,
                    batch_size: Optional[int] = None,
                    trip_count: Union[None, int, Mapping[int, int]] = None,
                    runtime: str = 'auto') -> MemoryReport:
    """Rewrites a static program in place so that it needs less memory and computes the same bytes.

    Args:
        input_program: a `paddle.static.Program`, with its backward and optimizer ops already in it.
        skip_opt_set: variables (names or Variables) that must keep a memory of their own.
        print_log: print the report.
        level: 1 also reuses smaller storages, which the runtime then reallocates; 0 does not.
        skip_grads: gradients of parameters keep their names and last contents, for passes that look for them.
        fetch_list: variables that will be fetched. One that is not named here may be merged away; fetching it then
            raises MergedVariableError.
        batch_size: what -1 batch dims will mostly be. Ranks choices and makes figures concrete; the program stays
            right for every size.
        trip_count: the same for loops: one number, or one by block index.
        runtime: 'auto' (from the flags in force), 'collecting' (alias 'executor') or 'retaining' (alias 'predictor').

    Returns:
        What was predicted and done. `changed` is False if nothing lowers the peak.

    Raises:
        TranspilerError: bad arguments, an unsupported Paddle, or a rewrite that could not be proved equal. The
            program is unchanged then.
    """
    started = time.perf_counter()
    environment.check_paddle()
    serialized = live_program.serialize(input_program)
    fetched = arguments.names_of('fetch_list', fetch_list)
    skipped = arguments.names_of('skip_opt_set', skip_opt_set)
    model = arguments.runtime_model(runtime, environment.collects_garbage())
    arguments.check_level(level)
    arguments.positive('batch_size', batch_size)
    check_names(serialized, fetched, skipped, live_program.merged_variables(input_program))

    program = import_program(serialized, fetched, skipped)
    dims, assumed = arguments.dim_values(program.symbols(), batch_size, trip_count, BATCH)
    decided = plan(program.graph, model, dims, level, skip_grads)
    if decided.changed:
        _write_back(input_program, program, decided)
    report = build_report(decided, model, dims, assumed, time.perf_counter() - started)
    if print_log:
        print(report)
    return report


def _write_back(target: Any, program: ImportedProgram, decided: Plan) -> None:
    emitted = emit(program, decided.graph)
    check_emitted(program, emitted)
    live_program.replace_contents(target, emitted.message, emitted.merged)


__all__: List[str] = ['memory_optimize']
