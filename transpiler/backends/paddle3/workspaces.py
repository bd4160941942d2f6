"""What kernels allocate for themselves: found out by running each alone, on operands like those that it has.

Paddle 3 can begin its count of the highest peak anew, so a program of one op tells. Nobody reads what that computes.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Hashable, Iterator, List, Mapping, Optional, Sequence

import paddle
from paddle import _C_ops, pir, static
from paddle.base import core
from paddle.base.libpaddle import pir as bindings

from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.brief_stacks import brief_stacks
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.importer import Handle, ImportedProgram
from transpiler.backends.paddle3.naming import COMBINE
from transpiler.backends.paddle3.tensors import dtype_of
from transpiler.backends.scopes import passing_scope
from transpiler.ir import NOTHING, Graph, Op, Size

_ALONE = (False, True, False)
_NUMBERS = ('full', 'full_int_array', 'assign_value')
_WHOLE = ('INT32', 'INT64')
_FLAGS = {'FLAGS_pir_apply_inplace_pass': False, 'FLAGS_enable_pir_in_executor_trace_run': True}
# What an open dim is taken for: what a kernel takes grows with it along a line, or is not known.
_TRIED = (2, 5, 8)


@brief_stacks()
def measure(imported: ImportedProgram) -> None:
    """Says of each op of the graph what its kernel allocates; of one that cannot be run alone what is known of it. Random numbers that are drawn later are those that they were."""
    found = _Kernels(imported.graph)
    with _undisturbed():
        for op, handle in imported.handles.items():
            taken = found.workspace(imported.graph.ops[op], handle)
            if taken is not None:
                imported.graph.ops[op].workspace, imported.graph.ops[op].bounded = taken, False


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    # `paddle.get_rng_state` of one device fails in 3.0.
    generator, flags = core.default_cpu_generator(), paddle.get_flags(list(_FLAGS))
    drawn = generator.get_state()
    paddle.set_flags(_FLAGS)
    try:
        yield
    finally:
        paddle.set_flags(flags)
        generator.set_state(drawn)


class _Kernels:
    """Runs each kernel once for operands of one sort."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: Dict[Hashable, Optional[int]] = {}

    def workspace(self, op: Op, handle: Handle) -> Optional[Size]:
        """Bytes that the kernel of `op` allocates besides what it reads and makes; None if that cannot be found out."""
        if handle.op.num_regions() or op.facts.side_effect or op.facts.boundary:
            return NOTHING
        values = [self._graph.values[v] for v in {*op.reads(), *op.writes()}]
        if not handle.op.name().startswith(DIALECT) or any(v.size is None for v in values):
            return None
        # What has no elements has no size in any dim, and may have open ones.
        sizes = (size for v in values for size in (v.size, *(v.shape or ())))
        names = sorted({name for size in sizes for name in size.dims})
        if not names:
            found = self._bytes(op, handle, {})
            return None if found is None else Size.of(found)
        if len(names) > 1:
            return None
        return _line(names[0], [self._bytes(op, handle, {names[0]: n}) for n in _TRIED])

    def _bytes(self, op: Op, handle: Handle, dims: Mapping[str, int]) -> Optional[int]:
        looks = tuple((v.dtype, v.kind, v.shape and tuple(s.evaluate(dims)
                                                          for s in v.shape))
                      for v in map(self._graph.values.__getitem__, op.reads()))
        key = (op.kind, looks, _given(handle.op))
        if key not in self._known:
            self._known[key] = self._own(op, handle, dims)
        return self._known[key]

    def _own(self, op: Op, handle: Handle, dims: Mapping[str, int]) -> Optional[int]:
        """By the lower of two runs, if there is any: what others of the process free or allocate meanwhile makes each higher."""
        there = sum(self._graph.values[v].size.evaluate(dims) for v in {*op.reads(), *op.writes()})
        taken = self._run(handle, dims)
        if taken is not None and taken > there:
            taken = min(taken, self._run(handle, dims) or taken)
        return None if taken is None else max(0, taken - there)

    def _run(self, handle: Handle, dims: Mapping[str, int]) -> Optional[int]:
        """Bytes at most that come while the kernel runs; None if it takes no such operands."""
        program = static.Program()
        try:
            with static.program_guard(program, static.Program()):
                mapping = self._operands(handle, dims)
                handle.op.clone(mapping, bindings.CloneOptions(*_ALONE))
            return _taken(program)
        except Exception:  # the bindings throw what the kernels' authors did
            return None

    def _operands(self, handle: Handle, dims: Mapping[str, int]) -> Any:
        mapping = pir.IrMapping()
        made: Dict[Any, Any] = {}
        for at, (source, slot) in enumerate(zip(handle.op.operands_source(), handle.operands)):
            if not source.initialized() or source.id in made:
                continue
            if at and self._may_decide(source, slot):  # the first is what it works on
                raise ValueError('numbers that only a run knows: others may lead anywhere')
            if source.is_combine():
                made[source.id] = self._list(source, slot, dims, made)
            else:
                made[source.id] = self._like(source, slot[0], dims)
            mapping.add(source, made[source.id])
        return mapping

    def _list(self, source: Any, slot: Any, dims: Mapping[str, int], made: Dict[Any, Any]) -> Any:
        maker, mapping = source.get_defining_op(), pir.IrMapping()
        if maker.name() != COMBINE:
            raise ValueError('a list that an op makes')
        for value, member in zip(maker.operands_source(), slot):
            if value.id not in made:
                made[value.id] = self._like(value, member, dims)
            mapping.add(value, made[value.id])
        return maker.clone(mapping, bindings.CloneOptions(*_ALONE)).result(0)

    def _may_decide(self, source: Any, slot: Sequence[int]) -> bool:
        """Whether a kernel may go by what these are, and that is not known: `strided_slice` is not through with steps of zero."""
        values = [self._graph.values[v] for v in slot if v >= 0]
        few = all(v.shape is not None and len(v.shape) <= 1 and v.dtype in _WHOLE for v in values)
        return bool(values) and few and constant_maker(source, *_NUMBERS) is None

    def _like(self, source: Any, value: int, dims: Mapping[str, int]) -> Any:
        """The number that it is, or numbers of its shape."""
        maker = constant_maker(source, *_NUMBERS)
        if maker is not None:
            return maker.clone(pir.IrMapping(), bindings.CloneOptions(*_ALONE)).result(0)
        like = self._graph.values[value]
        shape = [size.evaluate(dims) for size in like.shape]
        made = _C_ops.full(shape, 0.0, _type_of(source, like.dtype), core.CPUPlace())
        made.persistable = True  # or what the kernel looks at only for its shape is gone before it, in some runs
        return made


def _type_of(source: Any, dtype: str) -> Any:
    """That which `source` has in memory, which may be another than the program says."""
    return source.dtype if dtype_of(source) == dtype else getattr(paddle, dtype.lower())


def _taken(program: Any) -> int:
    """Bytes that are there at most while it runs, above those that are there before or, if others free some, after it."""
    before = _there()
    with passing_scope() as scope:
        peak = peak_while(program, scope)
    return peak - min(before, _there())


def peak_while(program: Any, scope: Any) -> int:
    """Bytes that are there at most while `program` runs. What runs it is gone, and has freed all, afterwards: Paddle's `Executor` keeps
    it, with the thread that frees, until Python looks for cycles."""
    plan = core.Plan([core.Job('default')], {'default': program})
    place = core.Place()  # 3.0 takes no other
    place.set_place(core.CPUPlace())
    runner = core.StandaloneExecutor(place, plan, scope)
    core.host_memory_stat_reset_peak_value('Allocated', 0)
    runner.run([], False)
    del runner, plan
    return int(core.host_memory_stat_peak_value('Allocated', 0))


def _there() -> int:
    return int(core.host_memory_stat_current_value('Allocated', 0))


def _given(op: Any) -> str:
    given = given_attributes(op)
    return repr([given[name] for name in op.get_attr_names()])


def _line(name: str, seen: List[Optional[int]]) -> Optional[Size]:
    """The bytes for all values of the open dim, if those that were seen are on one line; where that falls, the most."""
    if None in seen:
        return None
    (first, second, third), (a, b, c) = seen, _TRIED
    slope = (second - first) // (b - a)
    constant = first - slope * a
    if constant + slope * b != second or constant + slope * c != third or constant < 0:
        return None
    return Size.dim(name) * max(0, slope) + constant
