"""Operators of Paddle 3 as the table of those with independent rows has them, and programs as the search for chains sees them."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import Handle, ImportedProgram
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.operators import former_name
from transpiler.ir import Op
from transpiler.serving.pir.in_parts import is_constant
from transpiler.serving.row_view import RowView
from transpiler.serving.row_wise import Shape

# What the runtime takes to start an operator again (3.3.1, one thread).
_SECONDS_A_RUN = 10e-6
# What 2.6 calls operators, besides those of which the back end says it.
_CALLED: Mapping[str, str] = MappingProxyType({
    **{k: f'reduce_{k}' for k in ('mean', 'sum', 'max', 'min', 'prod')},
    **{k: f'{k}2' for k in ('transpose', 'reshape', 'squeeze', 'unsqueeze')},
    'flatten': 'flatten_contiguous_range',
    'split_with_num': 'split',
    'hardswish': 'hard_swish',
    'hardsigmoid': 'hard_sigmoid',
})  # yapf: disable
# Operands and attributes that have other names there: by (operator of 2.6, its word), else by the word.
_SLOTS: Mapping[Any, str] = MappingProxyType({
    ('lookup_table_v2', 'Ids'): 'x',
    ('conv2d_transpose', 'Input'): 'x'
})
_ATTRIBUTES: Mapping[Any, str] = MappingProxyType({
    ('transpose2', 'axis'): 'perm',
    ('squeeze2', 'axes'): 'axis',
    ('unsqueeze2', 'axes'): 'axis',
    'dim': 'axis',
    'trans_x': 'transpose_x',
})
# Slots of 2.6 for what is an attribute there, or computed: by slot, the operand.
_COMPUTED: Mapping[str, str] = MappingProxyType({
    'AxisTensor': 'axis', 'AxesTensor': 'axis', 'Shape': 'shape', 'StartsTensor': 'starts', 'EndsTensor': 'ends'
})  # yapf: disable
_OF_MAKING = ('op_callstack', 'struct_name', 'stop_gradient')
# They go on from what an operator before them computes, and the predictor makes one operator of both.
_FUSED = ('batch_norm', 'relu', 'relu6', 'add', 'sigmoid', 'tanh', 'gelu', 'leaky_relu', 'swish', 'silu', 'mish',
          'hardswish', 'hardsigmoid', 'elu', 'clip', 'scale', 'multiply')  # yapf: disable


class Operator:
    """An op of a program, by its handle. See `row_wise.Operator`."""

    def __init__(self, read: ImportedProgram, names: Sequence[str], handle: Handle) -> None:
        self._program = read.program  # whose ops are gone with it
        self._op, self._names = handle.op, names
        self._operands, self._results = handle.operands, handle.results
        self._in, self._out = handle.op.get_input_names(), handle.op.get_output_names()
        former = former_name(bare_kind(handle.op))
        self.kind = _CALLED.get(former, former)

    @property
    def results(self) -> Sequence[Tuple[str, str]]:
        return [(_camel(slot), self._names[i])
                for slot, made in zip(self._out, self._results)
                for i in made
                if i >= 0]

    @property
    def reads(self) -> List[str]:
        return [self._names[i] for slot in self._operands for i in slot if i >= 0]

    def operands(self, *slots: str) -> List[str]:
        found: List[str] = []
        for slot in slots:
            if slot in _COMPUTED:
                if self._constant(_COMPUTED[slot]) is None:
                    found += self._named(_COMPUTED[slot])
            else:
                found += self._named(_SLOTS.get((self.kind, slot), _snake(slot)))
        return found

    def attribute(self, name: str, default: Any) -> Any:
        called = _ATTRIBUTES.get((self.kind, name)) or _ATTRIBUTES.get(name, name)
        given = given_attributes(self._op)
        found = given[called] if called in given else self._constant(called)
        if found is None:
            return default
        return [int(found)] if isinstance(default, list) and not isinstance(found, list) else found

    def signature(self, shapes: Mapping[str, Shape]) -> str:
        """The same for operators that run the same kernel on tensors of the same shapes."""
        numbers = [self._constant(name) for name in self._in]
        named = [shapes.get(n) for n in (*self.reads, *(n for _, n in self.results))]
        return f'{self.kind} {named} {attributes_of(self._op)} {numbers}'

    def _named(self, operand: str) -> List[str]:
        if operand not in self._in:
            return []
        return [self._names[i] for i in self._operands[self._in.index(operand)] if i >= 0]

    def _constant(self, operand: str) -> Any:
        """The number, or the list of them, that an operand is; None if it is computed, or there is none."""
        value = self._op.operand_source(self._in.index(operand)) if operand in self._in else None
        maker = value.get_defining_op() if value is not None and value.initialized() else None
        if maker is None or not is_constant(maker):
            return None
        found = given_attributes(maker)['value']
        return list(found) if isinstance(found, (list, tuple)) else int(found)


def attributes_of(op: Any) -> List[Tuple[str, str]]:
    """Those that say what it computes."""
    return sorted((k, str(v)) for k, v in given_attributes(op).items() if k not in _OF_MAKING)


def _snake(slot: str) -> str:
    return ''.join(f'_{c.lower()}' if c.isupper() else c for c in slot).lstrip('_')


def _camel(slot: str) -> str:
    return ''.join(word.capitalize() for word in slot.split('_'))


def operators_of(read: ImportedProgram) -> Dict[int, Operator]:
    """By position in the main block, those that work on tensors alone."""
    found, names = {}, [v.name for v in read.graph.values]
    for position, op in enumerate(read.graph.region_ops(0)):
        handle = read.handles.get(op.id)
        if handle is not None and handle.op.name().startswith('pd_op.') and not op.regions:
            found[position] = Operator(read, names, handle)
    return found


def row_view(read: ImportedProgram) -> RowView:
    """Of a program whose numbers are made first."""
    graph, operators = read.graph, operators_of(read)
    ops = list(graph.region_ops(0))
    fixed = {at: op for at, op in operators.items() if _has_fixed_rows(read, ops[at])}
    return RowView(graph,
                   0,
                   fixed, {
                       at: frozenset(op.reads) for at, op in fixed.items()
                   },
                   read=frozenset(graph.values[v].name for op in graph.walk() for v in op.reads()),
                   writers=Counter(n for op in operators.values() for _, n in op.results),
                   seconds_a_run=_SECONDS_A_RUN,
                   joined=frozenset(at for at, op in enumerate(ops) if op.kind in _FUSED))


def _has_fixed_rows(read: ImportedProgram, op: Op) -> bool:
    """Whether a row of each result has as many elements whenever it runs: a place for them is made ahead."""
    made = [read.values[v] for v in op.writes() if v in read.values]
    return all(d >= 0 for v in made if v.is_dense_tensor_type() for d in v.shape[1:])
