"""Hooks into `paddle.jit.to_static` of Paddle 3.

Paddle traces a function for each kind of its arguments, adds the backward part, and splits the two apart: the hook stands in
between.
"""

from __future__ import annotations

import inspect
import time
from typing import Any, Callable, List, Tuple

import paddle
from paddle.jit.dy2static import pir_partial_program
from paddle.jit.dy2static.pir_partial_program import PartialProgramLayer, PartialProgramLayerHook

from transpiler.backends.base import Planner, Replanned
from transpiler.backends.paddle3.environment import check_paddle
from transpiler.backends.paddle3.joint import JointProgram, JointPrograms
from transpiler.backends.rereading import RunsInOne, Seen, check_unchanged, seen_ahead
from transpiler.backends.watching import FunctionWatch, Planned, forget_programs, made_of, traced
from transpiler.errors import UnsupportedPaddleError

_CSE = 'FLAGS_enable_cse_in_dy2st'
_RUN, _PLACES = 'call_run_impl_with_hook', ('restore', 'quick_restore')
_MADE = ('train_program', '_train_program_id', 'infer_program', '_infer_program_id')


def check_holds_orders() -> None:
    """Raises UnsupportedPaddleError where Paddle cannot be made to run the programs of one layer in their order."""
    check_paddle()
    if 'in_sot_mode' not in inspect.signature(PartialProgramLayer._prepare_attributes).parameters:
        raise UnsupportedPaddleError(
            f'paddlepaddle {paddle.__version__} does not run the programs of layers in their order: '
            'install 3.3, or 2.6.2')


class Watch(FunctionWatch):
    """Of a function of Paddle 3; see `backends.base.Watching`."""

    def __init__(self, function: Any, plan: Planner) -> None:
        check_holds_orders()
        super().__init__(function, plan, _Hook, pir_partial_program)


class _Hook(PartialProgramLayerHook):
    """Between the making of a program and its split."""

    def __init__(self, partial: PartialProgramLayer, plan: Planned) -> None:
        self._partial, self._plan = partial, plan
        partial.add_hooker(self)
        create = partial._create_program
        partial._create_program = lambda is_infer_mode=False: _as_planned(create, is_infer_mode)
        partial._prepare_attributes = self._attributes
        self._read: Tuple[str, ...] = ()  # names of inputs and parameters, when it was traced
        self._made: Tuple[str, ...] = ()  # of outputs
        self._runs_in_one = None if hasattr(partial, _RUN) else RunsInOne(
            partial, partial._outputs, _PLACES, self._ahead, self._check)
        if self._runs_in_one is None:
            partial.call_run_impl_with_hook = self._run
        self._planned = Replanned()
        forget_programs(partial, _MADE)

    def remove(self) -> None:
        self._partial._hookers.remove(self)
        for own in ('_create_program', '_prepare_attributes', *(() if self._runs_in_one else
                                                                (_RUN,))):
            del self._partial.__dict__[own]
        if self._runs_in_one:
            self._runs_in_one.remove()
        forget_programs(self._partial, _MADE)

    def after_append_backward(self, program: Any, inputs: Any, targets: Any, gradients: Any,
                              forward_end: int, backward_start: int) -> Tuple[Any, int, Any]:
        read = (*self._partial._inputs.var_list, *self._partial._params)
        target = JointProgram(program, (forward_end, backward_start),
                              self._plan.written_elsewhere(read))
        given, made = ([v.id for v in values] for values in (inputs, targets))
        has_backward = backward_start < len(program.global_block().ops)
        if self._planned_as(target, 'train' if has_backward else 'no grad'):
            paddle.set_flags({_CSE: False})
        self._read, self._made = (
            tuple(target.names.get(v, '') for v in ids) for ids in (given, made))
        return program, target.between[0], targets

    def after_infer(self, infer_program: Any) -> None:
        target = JointProgram(infer_program.program)
        self._planned_as(target, 'eval')

    def _planned_as(self, target: JointProgram, mode: str) -> bool:
        """Paddle, but for 3.0, gives a function up whose stretches took it 40 seconds in all to compile: what we take is not its time."""
        began = time.perf_counter()
        planned = self._plan.plan(JointPrograms(), target,
                                  traced(mode, self._partial._inputs.var_list),
                                  made_of(self._partial))
        counter = getattr(self._partial, '_compile_time_counter', None)
        if counter is not None:
            counter._time_history.append(began - time.perf_counter())
        self._planned = self._planned.and_also(planned)
        return planned.changed

    def _attributes(self, in_sot_mode: bool = False) -> Any:
        """Paddle runs in their order what it says is a stretch, and in any other what it was given as a whole."""
        self._partial.program_id  # who asks for a program has it made, and planned
        if self._partial.training:
            self._plan.ran(made_of(self._partial).program)
        return PartialProgramLayer._prepare_attributes(self._partial, in_sot_mode or
                                                       self._planned.changed)

    def _run(self, inputs: Any, parameters: Any, attributes: Any) -> Any:
        seen = self._ahead(inputs, parameters)
        outputs = PartialProgramLayer.call_run_impl_with_hook(self._partial, inputs, parameters,
                                                              attributes)
        self._check(seen, outputs)
        return outputs

    def _ahead(self, inputs: Any, parameters: Any) -> List[Seen]:
        """By their places: a parameter may have got another name since."""
        if not self._partial.training:
            return []
        return seen_ahead(self._planned.again, list(zip(self._read, (*inputs, *parameters))))

    def _check(self, seen: List[Seen], outputs: Any) -> None:
        check_unchanged(seen, self._planned.again, self._read, list(zip(self._made, outputs)))


def _as_planned(create: Callable[[bool], Any], is_infer_mode: bool) -> Any:
    """Paddle's elimination of common expressions would make one of an op and its clones: a hook turns it off for this program."""
    was = paddle.get_flags([_CSE])[_CSE]
    try:
        return create(is_infer_mode)
    finally:
        paddle.set_flags({_CSE: was})
