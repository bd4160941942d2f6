"""Whether parts give the same bytes on this machine, of a program of Paddle 3: run whole and in parts, side by side in a fresh process.

As `serving.probing`, but in two ways, for the predictor fuses operators when it loads a program: with all that operators compute given
out, which keeps it from that, and as the program is served. With oneDNN's kernels and without, since the file is for both.
"""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

from paddle import _pir_ops, static
from paddle.base.libpaddle import pir as bindings

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.packing import dump, load
from transpiler.ir import ValueKind
from transpiler.serving.chains import Chain
from transpiler.serving.comparing import differing_output
from transpiler.serving.layouts import JSON, PARAMETERS
from transpiler.serving.pir.checking import draw
from transpiler.serving.pir.files import SavedModel
from transpiler.serving.pir.in_parts import is_constant, run_in_parts
from transpiler.serving.pir.sides import twins

_KERNELS = ((), ('no_onednn',))  # predictor settings: those that change which kernels run
_FETCH, _PREFIX = 'pd_op.fetch', 'transpiler.probe.'


class Probe:
    """Tries chains of one program.

    Args:
        serialized: the program, which has numbers first.
        saved: whose parameters and inputs it has.
        batch_size: of the inputs that are drawn.
    """

    def __init__(self, serialized: bytes, saved: SavedModel, batch_size: int) -> None:
        self._saved, self._batch_size = saved, batch_size
        self._served, names = serialized, _fetched(serialized)
        self._open, opened = _opened(serialized, saved.trainable)
        self._names = {**names, **opened}
        self._first = sorted(opened, key=lambda output: int(output[len(_PREFIX):]))

    def __call__(self, chains: Sequence[Chain]) -> Optional[str]:
        """The first result whose bytes differ if `chains` run in parts.

        Raises:
            InvalidProgramError: the program does not run on inputs that are drawn.
        """
        for serialized in (self._open, self._served):
            different = self._differs(serialized, chains)
            if different is not None:
                return self._names[different]
        return None

    def _differs(self, serialized: bytes, chains: Sequence[Chain]) -> Optional[str]:
        """The first output that differs."""
        parts = dump(run_in_parts(serialized, chains).program, self._saved.trainable)
        parameters = self._saved.companions.get(PARAMETERS)
        return differing_output((serialized, parts), JSON,
                                str(parameters.resolve()) if parameters else '',
                                lambda seed: draw(self._saved, self._batch_size, seed),
                                str(self._saved.path), _KERNELS, self._first)


def _fetched(serialized: bytes) -> Dict[str, str]:
    """By output, the value that it gives."""
    read = import_program(load(serialized))
    values = read.graph.values
    return {
        given_attributes(handle.op)['name']: values[handle.operands[0][0]].name
        for handle in read.handles.values()
        if handle.op.name() == _FETCH
    }


def _opened(serialized: bytes, trainable: bool) -> Tuple[bytes, Dict[str, str]]:
    """The same program, which gives out all that its operators compute, too; and the values, by output."""
    program = load(serialized)
    read = import_program(program)
    given = {
        v for handle in read.handles.values() if handle.op.name() == _FETCH
        for v in handle.operands[0]
    }
    wanted = {v for op in read.graph.walk() for v in op.reads()} - given - twins(read).keys()
    names: Dict[str, str] = {}
    with static.program_guard(program):
        bindings.set_insertion_point_to_block_end(program.global_block())
        for op in list(read.graph.region_ops(0)):
            handle = read.handles.get(op.id)
            for v in op.writes() if handle is not None and not is_constant(handle.op) else ():
                value = read.graph.values[v]
                dense = value.kind is ValueKind.DENSE and not value.persistable and value.size
                if dense and v in wanted and v in read.values:
                    names[f'{_PREFIX}{v}'] = value.name
                    fetch = _pir_ops.fetch(read.values[v], f'{_PREFIX}{v}', len(names))
                    fetch.persistable = True
    return dump(program, trainable), names
