"""Runs the operators of a program of Paddle 3 one at a time, and sees what each allocates.

Each runs in a program of its own, on what those before it have given out: all of that stays in one scope. What the counter shows
above what stays allocated when the operator is through is its kernel's own.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import paddle
from paddle import _C_ops, pir
from paddle.base import core
from paddle.base.libpaddle import pir as bindings

from benchmarks.kernels.draw import Draw
from benchmarks.kernels.fit import Sample
from benchmarks.kernels.recipes import Recipe
from benchmarks.kernels.writing import written
from transpiler.backends.formulas import Tensor
from transpiler.backends.kernel_tables import Kernel
from transpiler.backends.paddle3.aliases import DIALECT, in_place_results
from transpiler.backends.paddle3.naming import COMBINE, SLICE, SPLIT
from transpiler.backends.paddle3.known_workspaces import NUMBERS, attributes_of, number_of
from transpiler.backends.paddle3.naming import DECLARATIONS, bare_kind, declared_name
from transpiler.backends.paddle3.tensors import dtype_of, item_bytes, short_name
from transpiler.backends.paddle3.workspaces import peak_while
from transpiler.backends.scopes import passing_scope
from transpiler.ir import Size
from transpiler.serving.apart import current_bytes

_FLAGS = {'FLAGS_pir_apply_inplace_pass': False, 'FLAGS_enable_pir_in_executor_trace_run': True}
_ALONE = (False, True, False)
# Shape and element type.
_Seen = Tuple[Tuple[int, ...], str]
_Slots = Mapping[str, Tuple[_Seen, ...]]
# Attributes that no kernel looks at.
_NOT_FACTS = frozenset({'place', 'op_callstack', 'stop_gradient', 'persistable', 'name'})


@dataclass(frozen=True)
class Observation:
    """What one run of one operator allocated for itself, in bytes; its attributes, and the tensors of its slots."""

    kind: str
    attributes: Mapping[str, Any]
    slots: _Slots
    own: int
    unlike: Mapping[
        str,
        str]  # types of results that are others than the program says; '' if they get no memory

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**self.__dict__}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Observation:
        """What `to_dict` made."""
        slots = {
            slot: tuple((tuple(shape), dtype) for shape, dtype in each)
            for slot, each in found['slots'].items()
        }
        return cls(found['kind'], found['attributes'], slots, found['own'], found['unlike'])


def sample(seen: Observation) -> Sample:
    """`seen`, with what it says of a kernel."""
    slots = {
        slot: tuple(Tensor(tuple(map(Size.of, shape)), item_bytes(dtype), dtype)
                    for shape, dtype in each)
        for slot, each in seen.slots.items()
    }  # yapf: disable
    names = frozenset(seen.attributes)
    return Sample(Kernel(seen.kind, seen.attributes.get, slots), seen.own, names)


def observe(recipe: Recipe, size: int) -> Iterator[Observation]:
    """What each operator of the program of `recipe`, with its gradients, allocates.

    Raises:
        whatever building or running it does.
    """
    with ready(recipe, Draw(size)) as (bench, program):
        yield from bench.run(program)


@contextmanager
def ready(recipe: Recipe, draw: Draw) -> Iterator[Tuple[Bench, Any]]:
    """A bench that has the parameters and inputs of the program of `recipe`, with its gradients, and that program."""
    main, startup = written(recipe, draw)
    flags = paddle.get_flags(list(_FLAGS))
    paddle.set_flags(_FLAGS)
    try:
        with passing_scope() as scope, paddle.static.scope_guard(scope):
            peak_while(startup, scope)
            for name, value in draw.feed.items():
                scope.var(name).get_tensor().set(value, core.CPUPlace())
            yield Bench(scope), main
    finally:
        paddle.set_flags(flags)


class Bench:
    """Runs operators alone, in one scope."""

    def __init__(self, scope: Any) -> None:
        self._scope = scope
        self._names: Dict[str, str] = {}  # by id of a value that is in the scope

    def run(self, program: Any) -> Iterator[Observation]:
        """What each operator of the main block allocates, in program order; those are left out that cannot run alone, or for which
        one of those before them was."""
        for op in program.global_block().ops:
            if op.name() in DECLARATIONS:
                self._names[op.result(0).id] = declared_name(op)
            elif op.name() == SPLIT or op.name() == SLICE or not op.name().startswith(DIALECT):
                continue
            elif op.num_regions() == 0 and all(map(self._is_there, op.operands_source())):
                seen = self._alone(op)
                # What is no tensor has no shape, and what nobody names none that is known.
                if all(dim >= 0
                       for each in seen.slots.values()
                       for shape, _ in each
                       for dim in shape):
                    yield seen

    def _is_there(self, value: Any) -> bool:
        if not value.initialized():
            return True
        if value.is_combine():
            maker = value.get_defining_op()
            return maker.name() == COMBINE and all(map(self._is_there, maker.operands_source()))
        return value.id in self._names or _is_number(value)

    def _alone(self, op: Any) -> Observation:
        """What it makes stays under names of ours. Members of a list can have none: they are copied, by another run."""
        if any(value.initialized() and value.is_combine() for value in op.results()):
            program, _ = self._program(op)
            before = current_bytes()
            own = peak_while(program, self._scope) - before
            program, copy = self._program(op)
            self._keep(program, op, copy)
            peak_while(program, self._scope)
            slots = self._slots(op)
            own -= sum(map(self._bytes, op.results()))
        else:
            program, copy = self._program(op)
            self._keep(program, op, copy)
            before = current_bytes()
            peak = peak_while(program, self._scope)
            own, slots = peak - max(before, current_bytes()), self._slots(op)
        find = attributes_of(op)
        numbers = (name for name in op.get_input_names() if number_of(op, name) is not None)
        attributes = {
            name: find(name) for name in (*op.get_attr_names(), *numbers) if name not in _NOT_FACTS
        }
        unlike = {
            name: each for name, value in zip(op.get_output_names(), op.results())
            for each in self._types(value)
            if each != dtype_of(value)
        }
        return Observation(bare_kind(op), attributes, slots, own, unlike)

    def _program(self, op: Any) -> Tuple[Any, Any]:
        """One of a copy of `op` alone, and the copy."""
        program = paddle.static.Program()
        mapping, made = pir.IrMapping(), {}  # type: Any, Dict[str, Any]
        with paddle.static.program_guard(program, paddle.static.Program()):
            for value in op.operands_source():
                if value.initialized() and value.id not in made:
                    made[value.id] = self._operand(value, made)
                    mapping.add(value, made[value.id])
            return program, op.clone(mapping, bindings.CloneOptions(*_ALONE))

    def _slots(self, op: Any) -> _Slots:
        found: Dict[str, Tuple[_Seen, ...]] = {}
        for names, values in ((op.get_input_names(), op.operands_source()), (op.get_output_names(),
                                                                             op.results())):
            for name, value in zip(names, values):
                found.setdefault(name, self._seen(value))
        return found

    def _operand(self, value: Any, made: Dict[str, Any]) -> Any:
        maker = value.get_defining_op()
        if value.is_combine():
            mapping = pir.IrMapping()
            for member in maker.operands_source():
                if member.id not in made:
                    made[member.id] = self._operand(member, made)
                mapping.add(member, made[member.id])
            return maker.clone(mapping, bindings.CloneOptions(*_ALONE)).result(0)
        if value.id not in self._names:
            found = maker.clone(pir.IrMapping(), bindings.CloneOptions(*_ALONE)).result(0)
        else:
            name = self._names[value.id]
            found = _C_ops.data(name, self._shape(name), value.dtype, core.Place())
        found.persistable = True
        return found

    def _keep(self, program: Any, op: Any, clone: Any) -> None:
        """Has what it makes stay in the scope, under names of ours."""
        aliases = in_place_results(op)
        for slot, value in enumerate(op.results()):
            if not value.initialized():
                continue
            if slot in aliases and op.operand_source(aliases[slot]).initialized():
                over = op.operand_source(aliases[slot])
                if over.id in self._names:
                    self._names[value.id] = self._names[over.id]
            elif value.is_combine():
                with paddle.static.program_guard(program, paddle.static.Program()):
                    self._keep_members(program, value, clone.result(slot))
            elif value.is_dense_tensor_type():
                self._keep_one(program, value, clone.result(slot))

    def _keep_members(self, program: Any, value: Any, copy: Any) -> None:
        for taker in value.all_used_ops():
            if taker.name() in (SPLIT, SLICE):
                mapping = pir.IrMapping()
                mapping.add(value, copy)
                parts = taker.clone(mapping, bindings.CloneOptions(*_ALONE))
                for member, part in zip(taker.results(), parts.results()):
                    if member.initialized():
                        self._keep_one(program, member, paddle.assign(part))

    def _keep_one(self, program: Any, value: Any, copy: Any) -> None:
        name = f'made{len(self._names)}'
        copy.persistable = True
        bindings.append_shadow_output(program, copy, name, len(program.global_block().ops))
        self._names[value.id] = name

    def made(self, op: Any) -> Iterator[Tuple[str, Any, int]]:
        """Of each result of `op` that has run, or member of one: what it is called, itself, and its bytes."""
        for name, value in zip(op.get_output_names(), op.results()):
            if value.initialized():
                for each in _members(value) if value.is_combine() else [value]:
                    if each.id in self._names:
                        yield name, each, self._bytes(each)

    def _bytes(self, value: Any) -> int:
        """That what an operator has made takes; 0 of what stands for an operand, or got no memory."""
        if value.initialized() and value.is_combine():
            return sum(map(self._bytes, _members(value)))
        tensor = self._tensor(value)
        if tensor is None or not tensor._is_initialized():
            return 0
        return math.prod(tensor.shape()) * item_bytes(short_name(tensor._dtype().name))

    def _types(self, value: Any) -> Iterator[str]:
        tensor = self._tensor(value)
        if tensor is not None and all(tensor.shape()):
            yield short_name(tensor._dtype().name) if tensor._is_initialized() else ''

    def _tensor(self, value: Any) -> Any:
        name = self._names.get(value.id) if value.initialized() else None
        return self._scope.find_var(name).get_tensor() if name else None

    def _shape(self, name: str) -> List[int]:
        return list(self._scope.find_var(name).get_tensor().shape())

    def _seen(self, value: Any) -> Tuple[_Seen, ...]:
        if not value.initialized():
            return ()
        if value.is_combine():
            return tuple(each for member in _members(value) for each in self._seen(member))
        tensor = self._tensor(value)
        if tensor is not None:
            own = tensor._is_initialized()
            dtype = short_name(tensor._dtype().name) if own else dtype_of(value)
            return ((tuple(tensor.shape()), dtype),)
        return ((tuple(value.shape), dtype_of(value)),)


def _members(value: Any) -> List[Any]:
    maker = value.get_defining_op()
    if maker.name() == COMBINE:
        return list(maker.operands_source())
    return [m for taker in value.all_used_ops() for m in taker.results()]


def _is_number(value: Any) -> bool:
    maker = value.get_defining_op()
    return maker is not None and bare_kind(maker) in NUMBERS and not maker.num_operands()
