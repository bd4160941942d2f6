"""Chains of operators whose rows are independent, run once for each part of the rows.

Each part is a block of its own: it cuts its rows out of what the chain reads, runs the chain, and hands out its rows of
the results; what it made in between is freed before the next part starts. The parts call their variables alike, since
oneDNN keeps a copy of a weight for each name of an input that it meets.

Where parts begin is computed as the program runs, from the number of rows that there are: with n rows, `parts` times
ceil(n / parts) of them. Of few rows the last parts repeat the last row, because most kernels refuse tensors of none; what
is too much stands at the end and is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Sequence, Tuple

from paddle.base.proto import framework_pb2

from transpiler.program_desc.enclosure import run_block, written_by
from transpiler.program_desc.importer import is_release
from transpiler.program_desc.part_names import joined, part_of, result_of

_PREFIX = 'transpiler.rows'
_SCOPE = 'transpiler.part'


@dataclass(frozen=True)
class Chain:
    """Neighbouring ops of the main block, by what they write, in order; `sliced` are operands that they share out by rows.

    `rows_of`: a fed variable that has as many rows.
    """

    ops: Tuple[Tuple[str, ...], ...]
    parts: int
    sliced: FrozenSet[str]
    rows_of: str


def run_in_parts(message: framework_pb2.ProgramDesc,
                 chains: Sequence[Chain]) -> framework_pb2.ProgramDesc:
    """The same program, to be enclosed, with `chains` in parts."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    if not chains:
        return result
    block = result.blocks[0]
    bounds = _Bounds(block)
    ops = _detached(block.ops)
    for index, chain in enumerate(chains):
        starts = [key_of(op) for op in ops].index(chain.ops[0])
        end = starts + len(chain.ops)
        splitter = _Splitter(result, chain, bounds, index)
        ops[starts:end] = splitter.split(ops[starts:end], ops[:starts] + ops[end:])
    at = 1 + max(i for i, op in enumerate(ops) if op.type == 'feed' or is_release(op))
    ops[at:at] = bounds.ops
    del block.ops[:]
    block.ops.extend(ops)
    return result


def key_of(op: framework_pb2.OpDesc) -> Tuple[str, ...]:
    """What `op` writes: no other op writes that."""
    return tuple(n for s in op.outputs for n in s.arguments)


def _detached(ops: Iterable[framework_pb2.OpDesc]) -> List[framework_pb2.OpDesc]:
    return [framework_pb2.OpDesc.FromString(op.SerializeToString()) for op in ops]


class _Bounds:
    """The ops that compute where parts begin and end, and the names of the results."""

    def __init__(self, block: framework_pb2.BlockDesc) -> None:
        self._block = block
        self._known: Dict[Tuple[str, int], Tuple[List[str], List[str]]] = {}
        self._rows: Dict[str, str] = {}
        self.ops: List[framework_pb2.OpDesc] = []

    def rows(self, source: str) -> str:
        """The name of the number of rows of `source`."""
        if source not in self._rows:
            name = f'{_PREFIX}.{source}'
            rank = next(
                len(v.type.lod_tensor.tensor.dims) for v in self._block.vars if v.name == source)
            self._add('shape', {'Input': [source]}, f'{name}.shape', rank)
            cut = {'axes': [0], 'starts': [0], 'ends': [1], 'infer_flags': [1]}
            self._add('slice', {'Input': [f'{name}.shape']}, name, 1, **cut)
            self._rows[source] = name
        return self._rows[source]

    def of(self, source: str, parts: int) -> Tuple[List[str], List[str]]:
        """The names of where each part begins, and of where each ends; the last may end behind the last row."""
        key = source, parts
        if key not in self._known:
            rows = self.rows(source)
            name = f'{rows}.{parts}'
            numbers = self._constant(f'{name}.numbers', list(range(parts)))
            count = self._constant(f'{name}.count', [parts])
            last = self._shifted(rows, f'{name}.last', -1)
            more = self._shifted(rows, f'{name}.more', parts - 1)
            size = self._binary('floordiv', more, count, f'{name}.size', 1)
            begins = self._binary('mul', numbers, size, f'{name}.begins', parts)
            starts = self._binary('min', begins, last, f'{name}.starts', parts)
            ends = self._binary('add', begins, size, f'{name}.ends', parts)
            self._known[key] = self._each(starts, parts), self._each(ends, parts)
        return self._known[key]

    def _constant(self, name: str, values: List[int]) -> str:
        return self._add('assign_value', {},
                         name,
                         len(values),
                         shape=[len(values)],
                         dtype=framework_pb2.VarType.INT32,
                         int32_values=values)

    def _shifted(self, source: str, name: str, by: int) -> str:
        return self._add('scale', {'X': [source]}, name, 1, scale=1.0, bias=float(by))

    def _binary(self, kind: str, x: str, y: str, name: str, length: int) -> str:
        return self._add(f'elementwise_{kind}', {'X': [x], 'Y': [y]}, name, length, axis=-1)

    def _each(self, source: str, parts: int) -> List[str]:
        names = [f'{source}.{part}' for part in range(parts)]
        for name in names:
            _declare_integers(self._block, name, 1)
        self.ops.append(make_op('split', {'X': [source]}, {'Out': names}, num=parts, axis=0))
        return names

    def _add(self, kind: str, inputs: Dict[str, List[str]], name: str, length: int,
             **attributes: object) -> str:
        _declare_integers(self._block, name, length)
        self.ops.append(make_op(kind, inputs, {'Out': [name]}, **attributes))
        return name


def _declare_integers(block: framework_pb2.BlockDesc, name: str, length: int) -> None:
    variable = block.vars.add(name=name)
    variable.type.type = framework_pb2.VarType.LOD_TENSOR
    variable.type.lod_tensor.tensor.data_type = framework_pb2.VarType.INT32
    variable.type.lod_tensor.tensor.dims.append(length)


class _Splitter:
    """One chain of a program."""

    def __init__(self, program: framework_pb2.ProgramDesc, chain: Chain, bounds: _Bounds,
                 index: int) -> None:
        self._program = program
        self._block = program.blocks[0]
        self._chain = chain
        self._bounds = bounds
        self._index = index
        self._variables = {v.name: v for v in self._block.vars}

    def split(self, chain: List[framework_pb2.OpDesc],
              others: List[framework_pb2.OpDesc]) -> List[framework_pb2.OpDesc]:
        """The ops that take the place of those of `chain`."""
        made = {n for n in written_by(chain) if not self._variables[n].persistable}
        read = {n for op in self._all(others) for s in op.inputs for n in s.arguments}
        handed_out = [n for op in chain for n in key_of(op) if n in made & read]
        ops = [self._part(part, chain, made, handed_out) for part in range(self._chain.parts)]
        for name in handed_out:
            maker = next(op for op in chain if name in key_of(op))
            ops += self._join(name, maker)
        self._undeclare(made - set(handed_out))
        return ops

    def _all(self, ops: List[framework_pb2.OpDesc]) -> List[framework_pb2.OpDesc]:
        return ops + [op for block in self._program.blocks[1:] for op in block.ops]

    def _part(self, part: int, chain: List[framework_pb2.OpDesc], made: set,
              handed_out: List[str]) -> framework_pb2.OpDesc:
        """The op that runs one part, in a new block."""
        parts = self._chain.parts
        block = self._program.blocks.add(idx=len(self._program.blocks), parent_idx=0)
        names = {n: part_of(n, parts) for n in made | self._chain.sliced}
        names.update({n: result_of(n, part, parts) for n in handed_out})
        for name in handed_out:
            self._declare(self._block, name, names[name])
        for name in sorted(set(names) - set(handed_out)):
            self._declare(block, name, names[name])
        sliced = set()
        for op in chain:
            wanted = [n for s in op.inputs for n in s.arguments if n in self._chain.sliced]
            for name in (n for n in dict.fromkeys(wanted) if n not in sliced):
                sliced.add(name)
                block.ops.append(self._slice(name, names[name], part, _uses_onednn(op)))
            block.ops.append(_renamed(op, names))
        inside = {v.name for v in block.vars}
        outside = {n for op in block.ops for s in op.inputs for n in s.arguments} - inside
        outside.update(names[n] for n in handed_out)
        return run_block(self._block, block.idx, outside, written_by(block.ops),
                         f'{_SCOPE}.{self._index}.{part}')

    def _slice(self, name: str, result: str, part: int, onednn: bool) -> framework_pb2.OpDesc:
        starts, ends = self._bounds.of(self._chain.rows_of, self._chain.parts)
        inputs = {'Input': [name], 'StartsTensor': [starts[part]], 'EndsTensor': [ends[part]]}
        return _slice_rows(inputs, result, -1, onednn)

    def _join(self, name: str, maker: framework_pb2.OpDesc) -> List[framework_pb2.OpDesc]:
        """The rows of all parts, and of these as many as there are."""
        onednn = _uses_onednn(maker)
        parts = [result_of(name, part, self._chain.parts) for part in range(self._chain.parts)]
        self._declare(self._block, name, joined(name))
        inputs = {'Input': [joined(name)], 'EndsTensor': [self._bounds.rows(self._chain.rows_of)]}
        return [
            make_op('concat', {'X': parts}, {'Out': [joined(name)]}, axis=0, use_mkldnn=onednn),
            _slice_rows(inputs, name, 0, onednn)
        ]

    def _declare(self, block: framework_pb2.BlockDesc, name: str, new: str) -> None:
        variable = block.vars.add()
        variable.CopyFrom(self._variables[name])
        variable.name = new
        variable.persistable = variable.need_check_feed = False
        dims = variable.type.lod_tensor.tensor.dims
        if dims:
            dims[0] = -1

    def _undeclare(self, names: set) -> None:
        kept = [
            framework_pb2.VarDesc.FromString(v.SerializeToString())
            for v in self._block.vars
            if v.name not in names
        ]
        del self._block.vars[:]
        self._block.vars.extend(kept)


def _slice_rows(inputs: Dict[str, List[str]], result: str, start: int,
                onednn: bool) -> framework_pb2.OpDesc:
    return make_op('slice',
                   inputs, {'Out': [result]},
                   axes=[0],
                   starts=[start],
                   ends=[-1],
                   infer_flags=[-1],
                   use_mkldnn=onednn)


def _uses_onednn(op: framework_pb2.OpDesc) -> bool:
    """Then what it reads and writes may have a layout that only oneDNN's kernels cut without a conversion."""
    return any(a.b for a in op.attrs if a.name == 'use_mkldnn')


def _renamed(op: framework_pb2.OpDesc, names: Dict[str, str]) -> framework_pb2.OpDesc:
    copy = framework_pb2.OpDesc.FromString(op.SerializeToString())
    for slot in list(copy.inputs) + list(copy.outputs):
        slot.arguments[:] = [names.get(n, n) for n in slot.arguments]
    return copy


def make_op(kind: str, inputs: Dict[str, List[str]], outputs: Dict[str, List[str]],
            **attributes: object) -> framework_pb2.OpDesc:
    """An op from plain Python values."""
    op = framework_pb2.OpDesc(type=kind)
    for slots, given in ((op.inputs, inputs), (op.outputs, outputs)):
        for parameter, arguments in given.items():
            slots.add(parameter=parameter, arguments=arguments)
    for name, value in attributes.items():
        if isinstance(value, bool):
            op.attrs.add(name=name, type=framework_pb2.BOOLEAN, b=value)
        elif isinstance(value, int):
            op.attrs.add(name=name, type=framework_pb2.INT, i=value)
        elif isinstance(value, float):
            op.attrs.add(name=name, type=framework_pb2.FLOAT, f=value)
        else:
            op.attrs.add(name=name, type=framework_pb2.INTS, ints=value)
    return op
