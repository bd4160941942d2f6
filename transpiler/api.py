"""memory_optimize and release_memory."""

from __future__ import annotations

from typing import Any, Mapping, Union

from transpiler import arguments
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.flow import OPTIMIZING, RELEASING, rewrite
from transpiler.planning import PlanOptions
from transpiler.report import MemoryReport
from transpiler.request import Request


def memory_optimize(input_program: Any,
                    skip_opt_set: Any = None,
                    print_log: bool = False,
                    level: int = 0,
                    skip_grads: bool = True,
                    *,
                    fetch_list: Any = None,
                    batch_size: Union[None, int, Mapping[str, int]] = None,
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
        skip_grads: no variable takes over the memory of a parameter's gradient after it. Where the program gives memory back
            by itself, the gradient goes after its last use too: to fetch one, name it in `fetch_list`.
        fetch_list: variables that will be fetched. One that is not named here may be merged away; fetching it then
            raises MergedVariableError.
        batch_size: what -1 batch dims will mostly be: sentences, where an input is a LoD tensor of words. Or rows by the
            name of the input, `{'words': 2000, 'label': 64}`. Ranks choices and makes figures concrete; the program stays
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
    request = Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime, budget)
    report = rewrite(LivePrograms(), input_program, request, options, OPTIMIZING).report
    if print_log:
        print(report)
    return report


def release_memory(input_program: Any,
                   skip_opt_set: Any = None,
                   *,
                   fetch_list: Any = None,
                   batch_size: Union[None, int, Mapping[str, int]] = None,
                   trip_count: Union[None, int, Mapping[int, int]] = None,
                   runtime: str = 'auto') -> MemoryReport:
    """Makes a static program give back each variable after its last use, where the runtime would hold on.

    Takes, returns and raises what memory_optimize does. Where the executor collects garbage there is nothing to do,
    and `changed` is False.
    """
    request = Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime)
    options = PlanOptions(skip_grads=False)
    return rewrite(LivePrograms(), input_program, request, options, RELEASING).report
