"""Hooks into `paddle.jit.to_static` of Paddle 2.6: programs for training are planned. What evaluates is Paddle's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Tuple

from paddle.base.framework import Variable
from paddle.jit.dy2static import partial_program
from paddle.jit.dy2static.partial_program import LazyInitialized, PartialProgramLayer, PartialProgramLayerHook

from transpiler.backends.base import Planner, Replanned, Traced
from transpiler.backends.paddle2.environment import check_paddle
from transpiler.backends.paddle2.joint import JointProgram, JointPrograms
from transpiler.backends.rereading import RunsInOne, Seen, check_unchanged, seen_ahead
from transpiler.backends.watching import FunctionWatch, Planned, forget_programs, made_of, traced

_MADE = tuple(name for name, kind in vars(PartialProgramLayer).items()
              if isinstance(kind, LazyInitialized) and name.startswith('_train'))
_OWN = ('_prepare_attributes', 'prepare_gradient_aggregation', '_prepare_inputs')


class Watch(FunctionWatch):
    """Of a function of Paddle 2.6; see `backends.base.Watching`."""

    def __init__(self, function: Any, plan: Planner) -> None:
        check_paddle()
        super().__init__(function, plan, _Hook, partial_program)


class _Hook(PartialProgramLayerHook):
    """Between the making of a program and its split; in front of the hook that Paddle may have there."""

    def __init__(self, partial: PartialProgramLayer, plan: Planned) -> None:
        self._partial, self._plan = partial, plan
        self._given: Tuple[str, ...] = ()  # names of the inputs of the call that is going on
        self._inner = partial._hooker  # Paddle's own does nothing, and gives nothing back
        partial.set_hooker(self)
        self._planned = Replanned()
        partial._prepare_inputs = self._inputs
        self._runs_in_one = RunsInOne(partial, partial, ('_restore_out',), self._ahead, self._check)
        partial._prepare_attributes = self._attributes
        partial.prepare_gradient_aggregation = self._aggregated
        forget_programs(partial, _MADE)

    def remove(self) -> None:
        self._partial.set_hooker(self._inner)
        for own in _OWN:
            del self._partial.__dict__[own]
        self._runs_in_one.remove()
        forget_programs(self._partial, _MADE)

    def before_append_backward(self, program: Any) -> Any:
        return self._inner.before_append_backward(program) if self._inner else program

    def after_infer(self, program: Any) -> Any:
        return self._inner.after_infer(program) if self._inner else program

    def after_append_backward(self, program: Any, start: int) -> Tuple[Any, int]:
        if self._inner:
            program, start = self._inner.after_append_backward(program, start)
        outputs = [v for v in self._partial._outputs.tolist() if isinstance(v, Variable)]
        gradients = self._partial._grad_var_names
        kept = [v.name for v in outputs
               ] + [name for kind in ('param', 'x', 'out') for name in gradients.get(kind, [])]
        # Paddle counts results that are no tensors, too, but makes no gradients of them.
        forward_end = start - len(self._partial._outputs.tolist())
        between = (forward_end, forward_end + len(outputs))
        self._aggregate(program, forward_end, start)
        has_backward = between[1] < len(program.global_block().ops)
        inputs = (v for v in self._partial._inputs.tolist() if isinstance(v, Variable))
        target = JointProgram(program, between, frozenset(kept),
                              self._plan.written_elsewhere((*inputs, *self._partial._params)))
        self._planned = self._planned.and_also(
            self._plan.plan(JointPrograms(), target,
                            self._traced('train' if has_backward else 'no grad'),
                            made_of(self._partial)))
        return program, start

    def _aggregate(self, program: Any, forward_end: int, start: int) -> None:
        """Has Paddle add the gradient that the caller gives of an output to what the program makes of it. It does so behind this hook, and
        overlooks the first op of the backward part: which that is may not depend on a plan."""
        forward = program.block(0).ops[:forward_end]
        made_of_forward = SimpleNamespace(block=lambda _: SimpleNamespace(ops=forward))
        PartialProgramLayer.prepare_gradient_aggregation(self._partial, start + 1, made_of_forward,
                                                         program)

    def _aggregated(self, start: int, main_program: Any, program: Any) -> None:
        """In the place of Paddle's own: it is done."""

    def _attributes(self, force_not_use_pt: bool = False) -> Any:
        """Paddle translates stretches to PIR: then they would run in an order of its own, and end the process where a clone reads
        state that nobody has made."""
        partial = self._partial
        partial.forward_program  # who asks for a program has it made, and planned
        ordered = self._planned.changed and partial.training
        if partial.training:
            self._plan.ran(made_of(partial).program)
        return PartialProgramLayer._prepare_attributes(partial, force_not_use_pt or ordered)

    def _inputs(self, given: Any) -> Tuple[Any, Any]:
        tensors, names = PartialProgramLayer._prepare_inputs(self._partial, given)
        self._given = tuple(names)
        return tensors, names

    def _ahead(self, inputs: Any, parameters: Any) -> List[Seen]:
        if not self._partial.training:
            return []
        return seen_ahead(self._planned.again,
                          [*zip(self._given, inputs), *((p.name, p) for p in parameters)])

    def _check(self, seen: List[Seen], outputs: Any) -> None:
        made = self._partial._outputs
        read = (*self._given, *(p.name for p in self._partial._params))
        check_unchanged(seen, self._planned.again, read,
                        [(made[at].name, out) for at, out in zip(made.var_ids, outputs)])

    def _traced(self, mode: str) -> Traced:
        return traced(mode, (v for v in self._partial._inputs if isinstance(v, Variable)))
