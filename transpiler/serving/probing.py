"""Whether parts give the same bytes on this machine: a program whole and in parts, run side by side in a fresh process.

How a kernel orders its additions depends on shapes, threads and the processor, not on values. So equal results of some
draws, at the batch size of the hint and with the weights that will be served, say that the order is the same. All that
the operators compute is compared, not only what is fetched, so that no difference hides behind a maximum or a relu.

`python -m transpiler.serving.probing` reads a ProbeSpec as JSON from stdin and prints the name of the first result
that differs, or null.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Container, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.ir import ValueKind
from transpiler.serving.apart import answer, answer_apart, digest
from transpiler.serving.enclosure import enclose
from transpiler.serving.files import SavedProgram
from transpiler.serving.chains import Chain
from transpiler.serving.in_parts import key_of, run_in_parts
from transpiler.serving.layouts import MODEL, PARAMETERS
from transpiler.serving.predictor import FusedProgram
from transpiler.serving.running import make_feed

_DRAWS = 3


@dataclass(frozen=True)
class ProbeSpec:
    """Paths of two programs with the same fetches, without suffix, and of .npz files with their inputs."""

    whole: str
    parts: str
    feeds: List[str]


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
        read = {n for d in enclosed.descs.values() for s in d.inputs for n in s.arguments}
        self._whole = _fetching(fused.message, named & read)
        shapes = {v.name: v.shape for v in values if v.name in saved.feeds}
        self._inputs = {n: tuple(d.evaluate(dims) for d in s or ()) for n, s in shapes.items()}
        self._saved = saved

    def __call__(self, chains: Sequence[Chain]) -> Optional[str]:
        """The first result, in program order, whose bytes differ if `chains` run in parts.

        Raises:
            InvalidProgramError: the program does not run on inputs that are drawn.
        """
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, message in (('whole', self._whole), ('parts',
                                                           run_in_parts(self._whole, chains))):
                paths.append(str(Path(folder) / name))
                Path(paths[-1] + MODEL).write_bytes(enclose(message).SerializeToString())
                Path(paths[-1] + PARAMETERS).write_bytes(self._parameters)
            drawn = [str(Path(folder) / f'{seed}.npz') for seed in range(_DRAWS)]
            for seed, path in enumerate(drawn):
                np.savez(path, **make_feed(self._saved, sorted(self._inputs), self._inputs, seed))
            question = asdict(ProbeSpec(paths[0], paths[1], drawn))
            return answer_apart('transpiler.serving.probing', question, str(self._saved.path))


def _fetching(message: framework_pb2.ProgramDesc,
              compared: Container[str]) -> framework_pb2.ProgramDesc:
    """The same program, whose operators' results are all fetched, in program order."""
    result = framework_pb2.ProgramDesc()
    result.CopyFrom(message)
    block = result.blocks[0]
    fetches = [op for op in block.ops if op.type in ('fetch', 'fetch_v2')]
    fetched = {n for op in fetches for s in op.inputs for n in s.arguments}
    made = [n for op in block.ops if op not in fetches for n in key_of(op)]
    names = [n for n in dict.fromkeys(made) if n in compared or n in fetched]
    ops = [op for op in block.ops if op not in fetches]
    ops += [_fetch(fetches[0], name, column) for column, name in enumerate(names)]
    ops = [framework_pb2.OpDesc.FromString(op.SerializeToString()) for op in ops]
    del block.ops[:]
    block.ops.extend(ops)
    return result


def _fetch(like: framework_pb2.OpDesc, name: str, column: int) -> framework_pb2.OpDesc:
    op = framework_pb2.OpDesc()
    op.CopyFrom(like)
    op.inputs[0].arguments[:] = [name]
    for attribute in op.attrs:
        if attribute.name == 'col':
            attribute.i = column
    return op


def compare(spec: ProbeSpec) -> Optional[str]:
    """Runs both programs in this process; the name of the first result that differs."""
    both = [list(_digests(path, spec.feeds)) for path in (spec.whole, spec.parts)]
    different = {
        position for whole, parts in zip(*both) for position, name in enumerate(whole)
        if whole[name] != parts.get(name)
    }
    return list(both[0][0])[min(different)] if different else None


def _digests(path: str, feeds: Sequence[str]) -> Iterator[Dict[str, str]]:
    """What every fetched result is, draw by draw. One array is copied at a time: together they are large."""
    from paddle import inference
    config = inference.Config(path + MODEL, path + PARAMETERS)
    config.disable_glog_info()
    predictor = inference.create_predictor(config)
    for feed in feeds:
        with np.load(feed) as arrays:
            for name in predictor.get_input_names():
                predictor.get_input_handle(name).copy_from_cpu(arrays[name])
        predictor.run()
        names = predictor.get_output_names()
        yield {n: digest([predictor.get_output_handle(n).copy_to_cpu()]) for n in names}


if __name__ == '__main__':
    answer(lambda said: compare(ProbeSpec(**said)))
