"""What `memory_optimize(layer, verify_runs=N)` does: the layer as it is and as it became run forward and backward, in this process."""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import Any, Callable, Iterator, List, Mapping

import numpy as np
import paddle

from transpiler.arguments import Trial
from transpiler.backends.failed_traces import forgotten_if_failed
from transpiler.backends.static_functions import layer_of
from transpiler.errors import InvalidArgumentError, InvalidProgramError, VerificationError
from transpiler.heap import give_back
from transpiler.layers import LayerReport, known_report
from transpiler.report import MeasuredReport
from transpiler.serving.apart import Peaks, digest
from transpiler.trials.running import Ran, dice_kept, difference, last_line
from transpiler.trials.trial import runs_report

_NOT_A_LAYER = (
    'verify_runs takes a layer, or a function of one: what a function alone reads is not known, and could not be put back; leave '
    'verify_runs out')
_PARALLEL = (
    'verify_runs: paddle.DataParallel talks to other workers in backward: give the layer inside of it, or leave verify_runs out'
)
_NOT_HERE = "verify_runs: runs are on the CPU, and this process is on {}: paddle.set_device('cpu') first, or leave verify_runs out"
_STATIC_MODE = 'verify_runs: layers run in dygraph mode: paddle.disable_static() first'
_DIFFERENT = (
    'verify_runs: the optimized layer gives other bytes than the layer as it was ({}). The layer is as it was. Please report '
    'this as a bug, with the layer')
_UNSTEADY = 'The layer as it is gives other bytes each time it is run, so its results say nothing of the optimized one\'s.'


def measured(target: Any, trial: Trial, optimize: Callable[[], LayerReport]) -> LayerReport:
    """The report of `optimize`, with what was measured: `target` ran before and after it, and is as it was but for that.

    A first run of each, in which Paddle makes the programs, is not counted. A target that is optimized already does not run.

    Raises:
        VerificationError: they give different bytes; the target is released.
        InvalidProgramError: it does not run.
        InvalidArgumentError: what is no layer, or a feed that does not fit its arguments.
    """
    known = known_report(target)
    if known is not None:
        return known
    runs = _Runs(target, trial)
    with runs.kept(), dice_kept():
        untouched = runs.run('the layer as it is')
        report = optimize()
        try:
            report.measured = _compared(runs, untouched, report)
        except BaseException:
            report.release()
            raise
    if not report.measured.equal:  # it was released to see that
        compared, report = report.measured, optimize()
        report.measured = compared
    return report


def _compared(runs: _Runs, untouched: Ran, report: LayerReport) -> MeasuredReport:
    optimized = runs.run('the optimized layer')
    if not any(each.report is not None and each.report.changed for each in report.programs):
        return MeasuredReport(runs.number, runs_report(untouched))
    different = _difference(untouched, optimized)
    if different:
        report.release()
        if not _difference(untouched, runs.run('the layer as it is')):
            raise VerificationError(_DIFFERENT.format(different))
    return MeasuredReport(runs.number, runs_report(untouched), runs_report(optimized),
                          not different, len(runs.state), _UNSTEADY if different else '')


def _difference(untouched: Ran, other: Ran) -> str:
    return difference(untouched, other, 'outputs or gradients', 'parameters and buffers')


class _Runs:
    """Runs of one layer, all from the state and the random numbers that there are now."""

    def __init__(self, target: Any, trial: Trial) -> None:
        layer = target if hasattr(target, 'named_sublayers') else layer_of(target)
        _check(layer)
        self._target, self.number = target, trial.runs
        self._feeds = [_fitting(target, feed) for feed in trial.feeds or ({},)]
        self._parameters = [p for p in layer.parameters() if not p.stop_gradient]
        self.state = [*layer.parameters(), *layer.buffers()]
        self._values = [each.numpy().copy() for each in self.state]
        self._dice = paddle.get_rng_state()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Parameters, buffers and gradients are afterwards what they were."""
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in self._parameters]
        try:
            yield
        finally:
            self._start()
            for parameter, gradient in zip(self._parameters, gradients):
                if gradient is not None:
                    parameter.grad = gradient

    def run(self, what: str) -> Ran:
        """Raises InvalidProgramError if it, which is `what`, does not run."""
        try:
            with forgotten_if_failed():
                self._start()
                self._step(0)  # makes the programs
                self._start()
                give_back()
                return self._counted()
        except Exception as error:  # what the layer throws, or Paddle
            raise InvalidProgramError(
                f'verify_runs: {what} does not run with verify_feed: {last_line(error)}') from error

    def _counted(self) -> Ran:
        peaks, digests, seconds = Peaks(), [], []
        for number in range(self.number):
            started = time.process_time()
            results = peaks.around(lambda at=number: self._step(at))  # type: ignore[misc]
            seconds.append(time.process_time() - started)
            digests.append(digest(results))
            self._forget_gradients()
        state = digest([each.numpy() for each in self.state])
        first, *later = peaks.above_least_rest()
        return Ran(first, later, None, seconds, digests, state)

    def _step(self, number: int) -> List[np.ndarray]:
        """Forward, and backward of every output that has a gradient: outputs, and the gradients of parameters and inputs."""
        given = _tensors(self._feeds[number % len(self._feeds)])
        outputs = list(_leaves(self._target(**given)))
        roots = [each for each in outputs if not each.stop_gradient]
        if roots:
            paddle.autograd.backward(roots)
        found = outputs + [
            each.grad for each in (*self._parameters, *_leaves(given)) if each.grad is not None
        ]
        return [each.numpy() for each in found]

    def _start(self) -> None:
        for each, value in zip(self.state, self._values):
            each.set_value(value)
        paddle.set_rng_state(self._dice)
        self._forget_gradients()

    def _forget_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.clear_gradient(False)


def _check(layer: Any) -> None:
    """Raises InvalidArgumentError for what cannot run here, or be put back."""
    if layer is None:
        raise InvalidArgumentError(_NOT_A_LAYER)
    if isinstance(layer, paddle.DataParallel):
        raise InvalidArgumentError(_PARALLEL)
    if not paddle.in_dynamic_mode():
        raise InvalidArgumentError(_STATIC_MODE)
    if paddle.get_device() != 'cpu':
        raise InvalidArgumentError(_NOT_HERE.format(paddle.get_device()))


def _fitting(target: Any, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """`feed`; raises InvalidArgumentError if `target` does not take that."""
    function = target.forward if hasattr(target, 'named_sublayers') else target
    signature = inspect.signature(getattr(function, 'dygraph_function', function))
    names = [name for name in signature.parameters if name != 'self']
    try:
        given = {str(name): value for name, value in feed.items()}
        signature.bind(**given, **({'self': None} if 'self' in signature.parameters else {}))
    except TypeError as error:
        raise InvalidArgumentError(
            f'verify_feed: the layer takes {", ".join(names) or "nothing"} ({error}): give values by these names, as '
            "verify_feed={'x': array}") from error
    return feed


def _tensors(given: Any) -> Any:
    """`given`, in which arrays are tensors and tensors are copies of them, with gradients of their own."""
    if isinstance(given, Mapping):
        return {name: _tensors(value) for name, value in given.items()}
    if isinstance(given, (list, tuple)):
        return type(given)(map(_tensors, given))
    if isinstance(given, paddle.Tensor):
        copied = given.detach().clone()
        copied.stop_gradient = given.stop_gradient
        return copied
    return paddle.to_tensor(given) if isinstance(given, np.ndarray) else given


def _leaves(given: Any) -> Iterator[Any]:
    """The tensors in `given`."""
    if isinstance(given, Mapping):
        given = list(given.values())
    if isinstance(given, (list, tuple)):
        for each in given:
            yield from _leaves(each)
    elif isinstance(given, paddle.Tensor):
        yield given
