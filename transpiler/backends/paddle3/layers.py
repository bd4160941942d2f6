"""Hooks into `paddle.jit.to_static` of Paddle 3.

Paddle traces a function for each kind of its arguments, adds the backward part, and splits the two apart: the hook stands in
between.
"""

from __future__ import annotations

import functools
import inspect
import time
from typing import Any, Callable, List, Tuple

import paddle
from paddle.jit.dy2static import pir_partial_program
from paddle.jit.dy2static.pir_partial_program import PartialProgramLayer, PartialProgramLayerHook

from transpiler.backends.base import Planner, Replanned
from transpiler.backends.paddle3.environment import check_paddle
from transpiler.backends.paddle3.joint import JointProgram, JointPrograms
from transpiler.backends.rereading import check_unchanged
from transpiler.backends.watching import FunctionWatch, forget_programs, made_of, traced, written_elsewhere
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
        super().__init__(function, lambda partial: _Hook(function, partial, plan),
                         pir_partial_program, plan.began)


class _Hook(PartialProgramLayerHook):
    """Between the making of a program and its split."""

    def __init__(self, function: Any, partial: PartialProgramLayer, plan: Planner) -> None:
        self._function, self._partial, self._plan = function, partial, plan
        partial.add_hooker(self)
        create = partial._create_program
        partial._create_program = lambda is_infer_mode=False: _as_planned(create, is_infer_mode)
        partial._prepare_attributes = self._attributes
        self._runs_in_one = None if hasattr(partial, _RUN) else _RunsInOne(partial, self._check)
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
                              written_elsewhere(self._function, read))
        has_backward = backward_start < len(program.global_block().ops)
        if self._planned_as(target, 'train' if has_backward else 'no grad'):
            paddle.set_flags({_CSE: False})
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
        outputs = PartialProgramLayer.call_run_impl_with_hook(self._partial, inputs, parameters,
                                                              attributes)
        self._check(inputs, parameters, outputs)
        return outputs

    def _check(self, inputs: Any, parameters: Any, outputs: Any) -> None:
        names = [v.name for v in self._partial._inputs.var_list]
        check_unchanged(self._planned.again, dict(zip(names, inputs)), parameters, outputs)


class _RunsInOne:
    """Has `ran` told of each call of a function of Paddle 3.0, which leaves no place between running its program and handing on: what
    was read is noted where Paddle looks whether there is any, what came of it where Paddle puts it in its place."""

    def __init__(self, partial: PartialProgramLayer, ran: Callable[[Any, Any, Any], None]) -> None:
        self._partial, self._ran = partial, ran
        self._noted: List[Any] = []  # inputs, parameters, outputs, of the last call
        partial._valid_vars = self._note
        for name in _PLACES:
            setattr(partial._outputs, name, functools.partial(self._placed, name))

    def _note(self, variables: Any) -> Any:
        self._noted = [*self._noted, variables][-3:]
        return PartialProgramLayer._valid_vars(self._partial, variables)

    def _placed(self, name: str, outputs: Any) -> Any:
        inputs, parameters, _ = self._noted
        self._noted = []
        self._ran(inputs or (), parameters or (), outputs)
        return getattr(type(self._partial._outputs), name)(self._partial._outputs, outputs)

    def remove(self) -> None:
        del self._partial.__dict__['_valid_vars']
        for name in _PLACES:
            del self._partial._outputs.__dict__[name]


def _as_planned(create: Callable[[bool], Any], is_infer_mode: bool) -> Any:
    """Paddle's elimination of common expressions would make one of an op and its clones: a hook turns it off for this program."""
    was = paddle.get_flags([_CSE])[_CSE]
    try:
        return create(is_infer_mode)
    finally:
        paddle.set_flags({_CSE: was})
