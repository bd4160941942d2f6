"""Whether parts give the same bytes on this machine, of a program of Paddle 3: run whole and in parts, side by side in a fresh process.

As `serving.probing`, but in two ways, for the predictor fuses operators when it loads a program: with all that operators compute given
out, which keeps it from that, and as the program is served. With oneDNN's kernels and without, since the file is for both.

`python -m transpiler.serving.pir.probing` reads a ProbeSpec as JSON from stdin and prints the name of the first output that differs, or
null.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

import numpy as np
import paddle
from paddle import _pir_ops, static
from paddle.base.libpaddle import pir as bindings

from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.packing import dump, load
from transpiler.errors import InvalidArgumentError
from transpiler.ir import ValueKind
from transpiler.serving.apart import answer, answer_apart, arrays_in, digest, predictor_of, served_once
from transpiler.serving.chains import Chain
from transpiler.serving.layouts import JSON, PARAMETERS
from transpiler.serving.pir.checking import draw
from transpiler.serving.pir.files import SavedModel
from transpiler.serving.pir.in_parts import is_constant, run_in_parts
from transpiler.serving.pir.sides import twins

_DRAWS = 3
_KERNELS = ((), ('no_onednn',))  # predictor settings: those that change which kernels run
_FETCH, _PREFIX = 'pd_op.fetch', 'transpiler.probe.'


@dataclass(frozen=True)
class ProbeSpec:
    """Paths of two programs with the same fetches, of their parameters ('' if there are none), and of .npz files with inputs."""

    whole: str
    parts: str
    parameters: str
    feeds: List[str]


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
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / name) + JSON for name in ('whole', 'parts')]
            for path, contents in zip(paths, (serialized, parts)):
                Path(path).write_bytes(contents)
            feeds = [str(Path(folder) / f'{seed}.npz') for seed in range(_DRAWS)]
            for seed, feed in enumerate(feeds):
                np.savez(feed, **draw(self._saved, self._batch_size, seed))
            parameters = self._saved.companions.get(PARAMETERS)
            spec = ProbeSpec(*paths, str(parameters.resolve()) if parameters else '', feeds)
            found: Optional[str] = answer_apart('transpiler.serving.pir.probing', asdict(spec),
                                                str(self._saved.path))
            return found


def _fetched(serialized: bytes) -> Dict[str, str]:
    """By output, the value that it gives."""
    read = import_program(load(serialized))
    values = read.graph.values
    return {
        given_attributes(handle.op)['name']: values[handle.operands[0][0]].name
        for handle in read.handles.values()
        if handle.op.name() == _FETCH
    }


def _opened(serialized: bytes, trainable: bool) -> tuple:
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


def compare(spec: ProbeSpec) -> Optional[str]:
    """Runs both programs in this process; the first output that differs, those that all kernels give first."""
    for settings in _KERNELS:
        both = [
            list(_digests([path, spec.parameters], spec.feeds, settings))
            for path in (spec.whole, spec.parts)
        ]
        names = sorted(both[0][0], key=_order)
        for name in names:
            if any(whole[name] != parts.get(name) for whole, parts in zip(*both)):
                return name
    return None


def _order(output: str) -> tuple:
    return (not output.startswith(_PREFIX),
            int(output[len(_PREFIX):] or 0) if output.startswith(_PREFIX) else 0)


def _digests(location: List[str], feeds: Sequence[str],
             settings: Sequence[str]) -> Iterator[Dict[str, str]]:
    """What every output is, draw by draw."""
    predictor = predictor_of(location, settings)
    for feed in feeds:
        outputs = served_once(predictor, arrays_in(feed))
        yield {n: digest([o]) for n, o in zip(predictor.get_output_names(), outputs)}


if __name__ == '__main__':
    answer(lambda said: compare(ProbeSpec(**said)))
