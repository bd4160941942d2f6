"""Shapes as polynomials in the dims that a program leaves open, found with Paddle's own shape inference.

A desc says -1 for every open dim, so `[-1, 512]` may be N rows or N times the sequence length. Running
the registered shape inference with concrete values for the open dims of the inputs, and again with one
of them doubled, tells how each dim of each variable depends on them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from paddle.base import core

from transpiler.ir import Size

BATCH = 'N'
WORDS = 'L'  # rows of a LoD tensor: words, not sentences
# Divisible by all that reshapes usually divide by; far from any dim that a program fixes.
_PROBE = 55440

VariableKey = Tuple[int, str]  # (block index, name)
Shapes = Dict[VariableKey, Optional[Tuple[Size, ...]]]


def infer_shapes(serialized: bytes) -> Shapes:
    """Shape of every tensor variable; None where a dim depends on data or can't be inferred."""
    declared = _declared(core.ProgramDesc(serialized))
    if not any(-1 in shape for shape in declared.values()):
        return {key: tuple(map(Size.of, shape)) for key, shape in declared.items()}
    seeds = _open_inputs(core.ProgramDesc(serialized), declared)
    symbols = sorted({symbol for dims in seeds.values() for symbol in dims if symbol})
    base = _probe(serialized, seeds, {s: _PROBE for s in symbols})
    doubled = {
        s: _probe(serialized, seeds, {t: _PROBE * (2 if s == t else 1) for t in symbols})
        for s in symbols
    }
    return {key: _fit(base[key], {s: doubled[s][key] for s in symbols}) for key in declared}


def _tensor_variables(block: core.BlockDesc) -> List[core.VarDesc]:
    kinds = (core.VarDesc.VarType.LOD_TENSOR, core.VarDesc.VarType.SELECTED_ROWS)
    return [v for v in block.all_vars() if v.type() in kinds]


def _declared(program: core.ProgramDesc) -> Dict[VariableKey, Tuple[int, ...]]:
    return {
        (i, v.name()): tuple(v.shape()) for i in range(program.num_blocks())
        for v in _tensor_variables(program.block(i))
    }


def _written_names(program: core.ProgramDesc) -> Set[str]:
    names: Set[str] = set()
    for i in range(program.num_blocks()):
        block = program.block(i)
        for j in range(block.op_size()):
            if block.op(j).type() not in ('feed', 'read'):
                names.update(block.op(j).output_arg_names())
    return names


def _open_inputs(program: core.ProgramDesc,
                 declared: Mapping[VariableKey, Tuple[int, ...]]) -> Dict[str, List[Optional[str]]]:
    """For each variable that enters from outside with an open dim, a symbol (or None) per dim."""
    written = _written_names(program)
    seeds = {}
    for variable in _tensor_variables(program.block(0)):
        shape = declared[(0, variable.name())]
        if variable.persistable() or variable.name() in written or -1 not in shape:
            continue
        rows = WORDS if variable.lod_level() > 0 else BATCH
        seeds[variable.name()] = [
            None if d != -1 else rows if i == 0 else f'{variable.name()}[{i}]'
            for i, d in enumerate(shape)
        ]
    return seeds


def _probe(serialized: bytes, seeds: Mapping[str, Sequence[Optional[str]]],
           dims: Mapping[str, int]) -> Dict[VariableKey, Tuple[int, ...]]:
    """Shapes for concrete values of the open dims; -1 stays where inference can't tell."""
    program = core.ProgramDesc(serialized)
    for name, symbols in seeds.items():
        variable = program.block(0).find_var(name.encode())
        variable.set_shape([dims[s] if s else d for s, d in zip(symbols, variable.shape())])
    _infer_block(program, 0)
    return _declared(program)


def _infer_block(program: core.ProgramDesc, index: int) -> None:
    block = program.block(index)
    for j in range(block.op_size()):
        op = block.op(j)
        for name in op.attr_names():
            if op.attr_type(name) == core.AttrType.BLOCK:
                _infer_block(program, op._block_attr_id(name))
        before = _output_shapes(op, block)
        try:
            op.infer_shape(block)
        except Exception:  # the op rejects the probe: what was declared is all that is known
            for variable, shape in before:
                variable.set_shape(shape)


def _output_shapes(op: core.OpDesc, block: core.BlockDesc) -> List[Tuple[core.VarDesc, List[int]]]:
    tensors = {core.VarDesc.VarType.LOD_TENSOR, core.VarDesc.VarType.SELECTED_ROWS}
    found = (block.find_var_recursive(n.encode()) for n in op.output_arg_names())
    return [(v, v.shape()) for v in found if v is not None and v.type() in tensors]


def _fit(base: Sequence[int], doubled: Mapping[str, Sequence[int]]) -> Optional[Tuple[Size, ...]]:
    """Each dim as constant + sum of slope times symbol; None if one has no such form."""
    dims = []
    for i, at_base in enumerate(base):
        column = {s: shape[i] for s, shape in doubled.items() if len(shape) == len(base)}
        if at_base < 0 or len(column) < len(doubled):
            return None
        slopes = {s: Fraction(d - at_base, _PROBE) for s, d in column.items()}
        constant = at_base - sum(slopes.values()) * _PROBE
        if constant < 0 or any(slope < 0 for slope in slopes.values()):
            return None
        terms = {((s, 1),): slope for s, slope in slopes.items()}
        dims.append(Size({(): constant, **terms}))
    return tuple(dims)
