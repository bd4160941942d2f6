"""Whether parts give the same bytes on this machine: a program whole and in parts, run side by side in a fresh process.

How a kernel orders its additions depends on shapes, threads and the processor, not on values. So equal results of some
draws, at the batch size of the hint and with the weights that will be served, say that the order is the same. All that
the operators compute is compared, not only what is fetched, so that no difference hides behind a maximum or a relu.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Container, Mapping, Optional, Sequence

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import read_by, replace_ops, written_by
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.ir import ValueKind
from transpiler.serving.chains import Chain
from transpiler.serving.comparing import differing_output
from transpiler.serving.enclosure import enclose
from transpiler.serving.files import SavedProgram
from transpiler.serving.in_parts import run_in_parts
from transpiler.serving.layouts import MODEL, PARAMETERS
from transpiler.serving.predictor import FusedProgram
from transpiler.serving.running import make_feed


class Probe:
    """Tries chains of one program.

    Args:
        fused: the program before it is enclosed, and its parameters.
        enclosed: the same, enclosed.
        saved: whose inputs are drawn.
        dims: sizes of the inputs.
    """

    def __init__(self, fused: FusedProgram, enclosed: ImportedProgram, saved: SavedProgram,
                 dims: Mapping[str, int]) -> None:
        self._parameters = fused.parameters
        values = [v for v in enclosed.graph.values if v.kind is ValueKind.DENSE]
        named = {v.name for v in values if v.size and not v.lod_level and not v.persistable}
        read = set(read_by(*enclosed.descs.values()))
        self._whole = _fetching(fused.message, named & read)
        shapes = {v.name: v.shape for v in values if v.name in saved.feeds}
        self._inputs = {n: tuple(d.evaluate(dims) for d in s or ()) for n, s in shapes.items()}
        self._saved = saved

    def __call__(self, chains: Sequence[Chain]) -> Optional[str]:
        """The first result, in program order, whose bytes differ if `chains` run in parts.

        Raises:
            InvalidProgramError: the program does not run on inputs that are drawn.
        """
        both = (self._whole, run_in_parts(self._whole, chains))
        whole, parts = (enclose(message).SerializeToString() for message in both)
        with tempfile.TemporaryDirectory() as folder:
            parameters = Path(folder) / f'all{PARAMETERS}'
            parameters.write_bytes(self._parameters)
            return differing_output(
                (whole, parts), MODEL, str(parameters),
                lambda seed: make_feed(self._saved, sorted(self._inputs), self._inputs, seed),
                str(self._saved.path))


def _fetching(message: framework_pb2.ProgramDesc,
              compared: Container[str]) -> framework_pb2.ProgramDesc:
    """The same program, whose operators' results are all fetched, in program order."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    block = result.blocks[0]
    fetches = [op for op in block.ops if op.type in ('fetch', 'fetch_v2')]
    fetched = set(read_by(*fetches))
    made = written_by(*(op for op in block.ops if op not in fetches))
    names = [n for n in dict.fromkeys(made) if n in compared or n in fetched]
    ops = [op for op in block.ops if op not in fetches]
    ops += [_fetch(fetches[0], name, column) for column, name in enumerate(names)]
    replace_ops(block, ops)
    return result


def _fetch(like: framework_pb2.OpDesc, name: str, column: int) -> framework_pb2.OpDesc:
    op = framework_pb2.OpDesc()
    op.CopyFrom(like)
    op.inputs[0].arguments[:] = [name]
    for attribute in op.attrs:
        if attribute.name == 'col':
            attribute.i = column
    return op
