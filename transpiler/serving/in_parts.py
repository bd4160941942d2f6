"""Chains of operators whose rows are independent, run once for each part of the rows.

The chain becomes a block that is run for one part after the other: it cuts the rows of the part out of what the chain reads,
and what it makes is freed before the next part starts, but for its rows of the results. All parts run the same block: a
predictor keeps some 70 kB for each op of a program, and oneDNN a copy of a weight for each name of an input it meets.

Where parts begin is computed as the program runs, from the number of rows that there are: each of n rows has
ceil(n / parts). Of few rows the last parts repeat the last row, because most kernels refuse tensors without rows, and
nothing of what they make is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import declare_vector, is_onednn, keep_variables, read_by, replace_ops, written_by
from transpiler.backends.paddle2.importer import is_release
from transpiler.backends.paddle2.making import make_op
from transpiler.backends.paddle2.part_names import part_of, result_of
from transpiler.backends.paddle2.run_once import run_block
from transpiler.serving.chains import Chain
from transpiler.serving.enclosure import CONDITION, outputs_of

_PREFIX = 'transpiler.rows'
_SCOPE = 'transpiler.part'


def run_in_parts(message: framework_pb2.ProgramDesc,
                 chains: Sequence[Chain]) -> framework_pb2.ProgramDesc:
    """The same program, to be enclosed, with `chains` in parts."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    if not chains:
        return result
    block = result.blocks[0]
    bounds = _Bounds(block)
    ops = list(block.ops)
    for index, chain in enumerate(chains):
        starts = [key_of(op) for op in ops].index(chain.ops[0])
        end = starts + len(chain.ops)
        splitter = _Splitter(result, chain, bounds, index)
        ops[starts:end] = splitter.split(ops[starts:end], ops[:starts] + ops[end:])
    at = 1 + max(i for i, op in enumerate(ops) if op.type == 'feed' or is_release(op))
    ops[at:at] = bounds.ops
    replace_ops(block, ops)
    return result


def key_of(op: framework_pb2.OpDesc) -> Tuple[str, ...]:
    """What `op` writes: no other op writes that."""
    return tuple(written_by(op))


@dataclass(frozen=True)
class _Parts:
    """Names of vectors with a number for each part: where it begins and ends, and the rows left from there on.

    The last part may end behind the last row, so ends are bounds, and so are the rows left.
    """

    starts: str
    ends: str
    left: str


class _Bounds:
    """The ops that compute where parts begin and end."""

    def __init__(self, block: framework_pb2.BlockDesc) -> None:
        self._block = block
        self._known: Dict[Tuple[str, int], _Parts] = {}
        self._rows: Dict[str, str] = {}
        self.ops: List[framework_pb2.OpDesc] = []

    def of(self, source: str, parts: int) -> _Parts:
        """The parts of as many rows as `source` has."""
        key = source, parts
        if key not in self._known:
            rows = self._count(source)
            name = f'{rows}.{parts}'
            numbers = self._constant(f'{name}.numbers', list(range(parts)))
            count = self._constant(f'{name}.count', [parts])
            none = self._constant(f'{name}.none', [0])
            last = self._shifted(rows, f'{name}.last', -1)
            more = self._shifted(rows, f'{name}.more', parts - 1)
            size = self._binary('floordiv', more, count, f'{name}.size', 1)
            begins = self._binary('mul', numbers, size, f'{name}.begins', parts)
            behind = self._binary('sub', rows, begins, f'{name}.behind', parts)
            self._known[key] = _Parts(self._binary('min', begins, last, f'{name}.starts', parts),
                                      self._binary('add', begins, size, f'{name}.ends', parts),
                                      self._binary('max', behind, none, f'{name}.left', parts))
        return self._known[key]

    def _count(self, source: str) -> str:
        """The name of the number of rows of `source`."""
        if source not in self._rows:
            name = self._rows[source] = f'{_PREFIX}.{source}'
            rank = next(
                len(v.type.lod_tensor.tensor.dims) for v in self._block.vars if v.name == source)
            self._add('shape', {'Input': [source]}, f'{name}.shape', rank)
            self.ops.append(_element(f'{name}.shape', 0, _declare_integers(self._block, name, 1)))
        return self._rows[source]

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

    def _add(self, kind: str, inputs: Dict[str, List[str]], name: str, length: int,
             **attributes: object) -> str:
        _declare_integers(self._block, name, length)
        self.ops.append(make_op(kind, inputs, {'Out': [name]}, **attributes))
        return name


def _element(vector: str, index: int, name: str) -> framework_pb2.OpDesc:
    """The op that makes `name` one number of `vector`."""
    return make_op('slice', {'Input': [vector]}, {'Out': [name]},
                   axes=[0],
                   starts=[index],
                   ends=[index + 1],
                   infer_flags=[1])


def _declare_integers(block: framework_pb2.BlockDesc, name: str, length: int) -> str:
    return declare_vector(block, name, length, framework_pb2.VarType.INT32).name


class _Splitter:
    """One chain of a program."""

    def __init__(self, program: framework_pb2.ProgramDesc, chain: Chain, bounds: _Bounds,
                 index: int) -> None:
        self._program = program
        self._block = program.blocks[0]
        self._chain = chain
        self._bounds = bounds
        self._index = index
        self._parts = chain.parts
        self._start, self._end, self._left = (_declare_integers(self._block,
                                                                f'{_PREFIX}.{index}.{name}', 1)
                                              for name in ('start', 'end', 'left'))
        self._variables = {v.name: v for v in self._block.vars}

    def split(self, chain: List[framework_pb2.OpDesc],
              others: List[framework_pb2.OpDesc]) -> List[framework_pb2.OpDesc]:
        """The ops that take the place of those of `chain`; `others` are all others of the main block."""
        declared = outputs_of(chain) & self._variables.keys()
        made = {n for n in declared if not self._variables[n].persistable}
        inner = [op for block in self._program.blocks[1:] for op in block.ops]
        read = set(read_by(*others, *inner))
        handed_out = [n for op in chain for n in key_of(op) if n in made & read]
        block = self._body(chain, made, handed_out)
        ops = [op for part in range(self._parts) for op in self._part(part, block, handed_out)]
        for name in handed_out:
            results = [result_of(name, part, self._parts) for part in range(self._parts)]
            ops.append(make_op('concat', {'X': results}, {'Out': [name]}, axis=0))
        unread = made - set(handed_out)
        keep_variables(self._block, (v.name for v in self._block.vars if v.name not in unread))
        return ops

    def _body(self, chain: List[framework_pb2.OpDesc], made: Set[str],
              handed_out: List[str]) -> framework_pb2.BlockDesc:
        """The block that all parts run."""
        block = self._program.blocks.add(idx=len(self._program.blocks), parent_idx=0)
        names = {n: part_of(n, self._parts) for n in made | self._chain.sliced}
        for name in sorted(names):
            self._declare(self._block if name in handed_out else block, name, names[name])
        sliced: Set[str] = set()
        for op in chain:
            wanted = [n for n in read_by(op) if n in self._chain.sliced]
            for name in (n for n in dict.fromkeys(wanted) if n not in sliced):
                sliced.add(name)
                inputs = {'Input': [name], 'StartsTensor': [self._start], 'EndsTensor': [self._end]}
                # What such an op reads may have a layout that only oneDNN's kernels cut without a conversion.
                block.ops.append(_slice_rows(inputs, names[name], -1, is_onednn(op)))
            block.ops.append(_renamed(op, names))
        return block

    def _part(self, part: int, block: framework_pb2.BlockDesc,
              handed_out: List[str]) -> Iterator[framework_pb2.OpDesc]:
        """Runs the body on one part, and copies what it hands out before the next part writes there."""
        bounds = self._bounds.of(self._chain.rows_of, self._parts)
        for vector, name in ((bounds.starts, self._start), (bounds.ends, self._end), (bounds.left,
                                                                                      self._left)):
            yield _element(vector, part, name)
        inside = {v.name for v in block.vars}
        outside = set(read_by(*block.ops)) - inside
        outside.update(part_of(n, self._parts) for n in handed_out)
        yield run_block(self._block, block.idx, outside, outputs_of(block.ops),
                        f'{_SCOPE}.{self._index}.{part}', CONDITION)
        for name in handed_out:
            result = result_of(name, part, self._parts)
            self._declare(self._block, name, result)
            # A kernel of oneDNN refuses to cut out nothing, which is what a part without rows of its own hands out.
            inputs = {'Input': [part_of(name, self._parts)], 'EndsTensor': [self._left]}
            yield _slice_rows(inputs, result, 0, onednn=False)

    def _declare(self, block: framework_pb2.BlockDesc, name: str, new: str) -> None:
        variable = block.vars.add()
        variable.CopyFrom(self._variables[name])
        variable.name = new
        variable.persistable = variable.need_check_feed = False
        dims = variable.type.lod_tensor.tensor.dims
        if dims:
            dims[0] = -1


def _slice_rows(inputs: Dict[str, List[str]], result: str, start: int,
                onednn: bool) -> framework_pb2.OpDesc:
    return make_op('slice',
                   inputs, {'Out': [result]},
                   axes=[0],
                   starts=[start],
                   ends=[-1],
                   infer_flags=[-1],
                   use_mkldnn=onednn)


def _renamed(op: framework_pb2.OpDesc, names: Dict[str, str]) -> framework_pb2.OpDesc:
    copy = framework_pb2.OpDesc.FromString(op.SerializeToString())
    for slot in list(copy.inputs) + list(copy.outputs):
        slot.arguments[:] = [names.get(n, n) for n in slot.arguments]
    return copy
