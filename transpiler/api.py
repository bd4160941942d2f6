"""memory_optimize and release_memory."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from transpiler import arguments
from transpiler.agreement import Round, Rounds, agreed, telling
from transpiler.backends.installed import collects_garbage, is_layer, live_programs, workers
from transpiler.errors import InvalidArgumentError
from transpiler.flow import OPTIMIZING, RELEASING, Decision, keep_heap, rewrite_and_report
from transpiler.heap import Kept, give_back
from transpiler.layers import LayerReport, optimize_layer
from transpiler.planning import PlanOptions
from transpiler.report import MemoryReport
from transpiler.request import Request


def memory_optimize(
        input_program: Any,
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
        parallel: bool = False,
        heap: Union[bool, str] = True,
        segments: Union[str, bool, int] = 'auto',
        shared: bool = False,
        optimizer: Any = None,
        verify_runs: int = 0,
        verify_feed: Union[None, Mapping[str, Any], Sequence[Mapping[str, Any]]] = None,
        progress: Optional[Callable[[str, float],
                                    None]] = None) -> Union[MemoryReport, LayerReport]:
    """Rewrites a static program in place so that it needs less memory and computes the same bytes.

    Or does that for each program that Paddle makes of a layer on which `paddle.jit.to_static` was called.

    Args:
        input_program: a `paddle.static.Program` of Paddle 2.6 or 3, with its backward and optimizer ops already in it. Or a
            `paddle.nn.Layer` that is static or has layers that are, or one static function.
        skip_opt_set: variables (names or Variables) that must keep a memory of their own.
        print_log: print the report.
        level: 1 also reuses smaller storages, which the runtime then reallocates; 0 does not.
        skip_grads: no variable takes over the memory of a parameter's gradient after it. Where the program gives memory back
            by itself, the gradient goes after its last use too: to fetch one, name it in `fetch_list`.
        fetch_list: variables that will be fetched. One that is not named here may be merged away; fetching it then
            raises MergedVariableError.
        batch_size: what -1 batch dims will mostly be: sentences, where an input is a LoD tensor of words. Or rows by the
            name of the input, `{'words': 2000, 'label': 64}`, and other open dims by input and dim, `'ids[1]': 40`. Ranks choices and
            makes figures concrete; the program stays right for every size. Without it, and for loops without `trip_count`, the plan
            is one that is good over a range of sizes, which `report.sizes` names; a budget is kept at one row, and up to
            `report.budget_up_to`.
        trip_count: the same for loops: one number, or one by block index.
        runtime: 'auto' (from the flags in force), 'collecting' (alias 'executor') or 'retaining' (alias 'predictor').
        recompute: what may be computed again instead of kept: 'auto' for gradients what costs at most
            `max_overhead` of the step time by the cost model, 'cheap' all but products, 'max' whatever lowers the peak,
            False nothing. Where nothing is trained, 'auto' does so for a budget alone.
        max_overhead: a share of the processors' time of a step; without hints at all of `report.sizes`, but at the smallest where that
            would cost more than a tenth of memory elsewhere. What a held order takes by the clock where processors are idle comes on
            top: `report.order`.
        budget: bytes that all tensors together may take, resting memory included: a number, or a text as '6GB' or
            '1.5GiB'. The cheapest plan that fits is taken; one that costs nothing if there is any. `max_overhead` does
            not limit it, `recompute` says what may be computed again. Of a layer it limits a step of training that calls it once:
            forward, backward, and the `optimizer`'s part, with parameters, gradients, and what the optimizer keeps.
        parallel: ops that could run side by side still can. No op is moved or held back, and variables share memory only
            where that adds no dependence; so the saving is smaller.
        heap: what has been freed goes back to the operating system ahead of the next run, by settings of the process (glibc's
            mallopt) that `report.heap` names; none if it is False, or the environment or another malloc rules. 'small': and every tensor
            of a quarter of a MiB or more comes from the system, in each run: the smallest process, for more processor time. Of a layer:
            ahead of each step, and `LayerReport.heap`.
        segments: whether a long main block is cut into blocks that run once each, for which the executor keeps nothing per
            pair of ops: 'auto' where the model says that it pays, True wherever it can be done, or a number of ops each.
            Only what is fetched, fed or persistable can be asked for by name then.
        shared: all workers of the job (`paddle.distributed.launch`) make this call, equally often: over Paddle's store they agree on
            worker 0's hints, options and cost model, and on the smallest budget. Then equal programs get equal plans; names and
            the runtime stay each worker's own, and programs that differ are planned each by itself. If one finds no plan (a budget that its
            runtime cannot keep), all raise, and no program is changed.
        optimizer: of a layer: the `paddle.optimizer.Optimizer` that trains it, if `budget` is to count what it keeps and what it needs while
            it works. A program has its optimizer in it.
        verify_runs: before anything is changed, the program as it is and the rewritten one run so many times, each in a fresh process on
            the CPU, from the parameters that the scope has (where it has none, from what the default startup program makes), with the
            same random numbers. `report.measured` says what both needed. 0 runs nothing. In this process, from copies of the
            parameters, run loops and branches that are trained on Paddle 3; with `shared`, programs that talk to other workers, on all
            workers at once (one whose run fails leaves the others waiting there, as a step of training would); and layers: forward
            and backward, after which parameters, buffers, gradients and random numbers are what they were.
        verify_feed: what these runs are fed, {name: array}, by names of arguments for a layer; or a list of feeds, which the runs take
            in turn.
        progress: called with what is done next, a text, and the seconds since the call began: for programs that take long to plan.

    Returns:
        What was predicted and done. `changed` is False if nothing lowers the peak. For a layer a `LayerReport`, to which each
        program adds what was done when it is made; `release()` takes the layer back. A layer that is optimized already
        is left as it is, and its report given again.

    Raises:
        MemoryBudgetError: no plan fits into the budget.
        TranspilerError: bad arguments, an unsupported Paddle, a rewrite that could not be proved equal, or that `verify_runs` has seen
            to give other bytes. The program is unchanged then.
    """
    others = workers() if arguments.check_flag('shared', shared) else None
    with telling(others):
        arguments.check_flag('print_log', print_log)
        wanted = arguments.heap_mode(heap)
        options = PlanOptions(arguments.check_level(level),
                              arguments.check_flag('skip_grads', skip_grads),
                              arguments.recompute_mode(recompute),
                              arguments.share('max_overhead', max_overhead),
                              arguments.check_flag('parallel', parallel),
                              segments=arguments.segments(segments),
                              progress=arguments.progress(progress))
        trial = arguments.trial(verify_runs, verify_feed)
        request = Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime, budget)
        if is_layer(input_program):
            _check_alone(others)
            return _of_layer(input_program, request, options, print_log, optimizer, wanted, trial)
        if optimizer is not None:
            raise InvalidArgumentError(
                'optimizer is taken with a layer; a program has its optimizer in it: leave it out')
        backend = live_programs(input_program)
        request = request.in_names(backend, input_program).checked()
    rounds = None
    if others is not None:
        request, options = agreed(request, options, backend.cost, others,
                                  trial.runs if trial else 0)
        rounds = Rounds(workers)  # for what they say when they have their plans
    tried = partial(_tried, backend, input_program, trial, options, wanted, rounds)
    with telling(rounds, stays=True):
        report = rewrite_and_report(backend, input_program, request, options, OPTIMIZING, tried)
    report.heap = keep_heap(_kept(report, wanted), collects_garbage,
                            partial(backend.keep, input_program))
    give_back()
    if print_log:
        print(report)
    return report


def _check_alone(others: Optional[Round]) -> None:
    if others is not None:
        raise InvalidArgumentError(
            'shared takes a program: those of a layer are made when each worker first calls it, '
            'and planned then; leave shared out')


def _of_layer(target: Any, request: Request, options: PlanOptions, print_log: bool, optimizer: Any,
              heap: Optional[str], trial: Optional[arguments.Trial]) -> LayerReport:
    optimize = partial(optimize_layer, target, request, options, optimizer=optimizer, heap=heap)
    if trial is None:
        return optimize(print_log=print_log)
    from transpiler.trials.layers import measured
    report = measured(target, trial, optimize)
    if print_log:
        print(report)
    return report


def _tried(backend: Any, program: Any, trial: Optional[arguments.Trial], options: PlanOptions,
           heap: Optional[str], rounds: Optional[Rounds], decision: Decision) -> None:
    """What happens between a plan and what it changes: runs, if they were asked for, and of several workers none goes on where one has
    found no plan, or other bytes: one that trained alone would wait in its first collective."""
    if trial is not None:
        from transpiler.trials.trial import alone, measure
        options.progress('running both programs')
        decision.report.measured = measure(backend, program, decision, trial,
                                           _kept(decision.report, heap),
                                           rounds.any_of if rounds else alone)
    if rounds is not None:
        rounds.any_of(False, is_last=True)


def _kept(report: MemoryReport, heap: Optional[str]) -> Optional[Kept]:
    """How the heap is kept for the program; None if it is not."""
    if heap is None:
        return None
    return Kept(max(report.needed_bytes, report.peak_bytes_after), small=heap == 'small')


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
    backend = live_programs(input_program)
    request = Request(fetch_list, skip_opt_set, batch_size, trip_count, runtime)
    request = request.in_names(backend, input_program)
    options = PlanOptions(skip_grads=False)
    return rewrite_and_report(backend, input_program, request, options, RELEASING)
