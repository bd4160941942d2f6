"""memory_optimize and release_memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Union

from transpiler import arguments
from transpiler.planner import OPTIMIZE, RELEASE_ONLY, PlanOptions, Sequences, plan
from transpiler.program_desc import environment, live_program
from transpiler.program_desc.calibration import cached_cost_model
from transpiler.program_desc.emitter import MARKS, emit, is_marked
from transpiler.program_desc.importer import import_program
from transpiler.program_desc.shapes import is_batch
from transpiler.program_desc.validation import check_emitted, check_names
from transpiler.report import MemoryReport
from transpiler.report.builder import build_report, resting_bytes

_ALREADY = 'The program was rewritten by an earlier call; it is unchanged. Build it again to plan anew.'
_NOTHING_HELPS = ('Nothing that can be proved safe lowers the peak on this runtime; the program is '
                  'unchanged.')


def memory_optimize(input_program: Any,
                    skip_opt_set: Any = None,
                    print_log: bool = False,
                    level: int = 0,
                    skip_grads: bool = True,
                    *,
                    fetch_list: Any = None,
                    batch_size: Optional[int] = None,
                    trip_count: Union[None, int, Mapping[int, int]] = None,
                    runtime: str = 'auto',
                    recompute: Union[str, bool] = 'auto',
                    max_overhead: float = 0.10,
                    budget: Union[None, int, str] = None,
                    parallel: bool = False) -> MemoryReport:
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
        recompute: what may be computed again for the gradient instead of kept: 'auto' what costs at most
            `max_overhead` of the step time by the cost model, 'cheap' all but products, 'max' whatever lowers the peak,
            False nothing.
        max_overhead: a share of the step time.
        budget: bytes that all tensors together may take, resting memory included: a number, or a text as '6GB' or
            '1.5GiB'. The cheapest plan that fits is taken; one that costs nothing if there is any. `max_overhead` does
            not limit it, `recompute` says what may be computed again.
        parallel: ops that could run side by side still can. No op is moved or held back, and variables share memory only
            where that adds no dependence; so the saving is smaller.

    Returns:
        What was predicted and done. `changed` is False if nothing lowers the peak.

    Raises:
        MemoryBudgetError: no plan fits into the budget.
        TranspilerError: bad arguments, an unsupported Paddle, or a rewrite that could not be proved equal. The
            program is unchanged then.
    """
    arguments.check_flag('print_log', print_log)
    options = PlanOptions(arguments.check_level(level),
                          arguments.check_flag('skip_grads', skip_grads),
                          arguments.recompute_mode(recompute),
                          arguments.share('max_overhead', max_overhead),
                          arguments.check_flag('parallel', parallel))
    request = _Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime,
                       arguments.byte_count('budget', budget))
    report = _rewrite(input_program, request, OPTIMIZE, options, MARKS[0])
    if print_log:
        print(report)
    return report


def release_memory(input_program: Any,
                   skip_opt_set: Any = None,
                   *,
                   fetch_list: Any = None,
                   batch_size: Optional[int] = None,
                   trip_count: Union[None, int, Mapping[int, int]] = None,
                   runtime: str = 'auto') -> MemoryReport:
    """Makes a static program give back each variable after its last use, where the runtime would hold on.

    Takes, returns and raises what memory_optimize does. Where the executor collects garbage there is nothing to do,
    and `changed` is False.
    """
    request = _Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime)
    return _rewrite(input_program, request, RELEASE_ONLY, PlanOptions(skip_grads=False), MARKS[1])


@dataclass(frozen=True)
class _Request:
    fetch_list: Any
    skip_opt_set: Any
    batch_size: Optional[int]
    trip_count: Union[None, int, Mapping[int, int]]
    runtime: str
    budget: Optional[int] = None


def _rewrite(target: Any, request: _Request, sequences: Sequences, options: PlanOptions,
             mark: str) -> MemoryReport:
    started = time.perf_counter()
    environment.check_paddle()
    serialized = live_program.serialize(target)
    fetched = arguments.names_of('fetch_list', request.fetch_list)
    skipped = arguments.names_of('skip_opt_set', request.skip_opt_set)
    batch_size = arguments.positive('batch_size', request.batch_size)
    model = arguments.runtime_model(request.runtime, environment.collects_garbage())
    check_names(serialized, fetched, skipped, live_program.merged_variables(target))

    program = import_program(serialized, fetched, skipped)
    dims, assumed = arguments.dim_values(program.symbols(), batch_size, request.trip_count,
                                         is_batch)
    if request.budget is not None:
        resting = resting_bytes(program.graph, dims)
        options = replace(options, budget=request.budget - resting)
    options = replace(options, cost=cached_cost_model() or options.cost)
    done = is_marked(program, mark)
    decided = plan(program.graph, model, dims, options, () if done else sequences)
    if decided.changed:
        emitted = emit(program, decided.graph, mark, decided.held)
        check_emitted(program, emitted)
        live_program.replace_contents(target, emitted)
    note = '' if decided.changed else _ALREADY if done else _NOTHING_HELPS
    return build_report(decided, model, dims, assumed, time.perf_counter() - started, note)
