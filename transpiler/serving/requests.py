"""A predictor that serves request after request, and what its process grows by, as the operating system counts it.

`python -m transpiler.serving.requests` reads a RequestSpec as JSON from stdin and prints a Served as JSON. One process serves one
program under one set of settings.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import List, Mapping, Tuple

from transpiler.serving.apart import (answer, answer_apart, arrays_in, current_bytes, digest,
                                      forget_highest, peak_bytes, predictor_of, status)
from transpiler.serving.files import read_program


@dataclass(frozen=True)
class RequestSpec:
    """`order` says which of `feeds`, `.npz` files of inputs, each request sends; `settings` are names of apart.SWITCHES."""

    program: str
    feeds: List[str]
    order: List[int]
    settings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Served:
    """Of a process: resident `loaded_bytes` once the predictor is there; above that, after each request, what is resident
    and the highest so far. Of tensors: the most above what there was then. Of each request: processor time and a digest of
    its results.
    """

    loaded_bytes: int
    resident_bytes: List[int]
    highest_bytes: List[int]
    peak_bytes: int
    cpu_seconds: List[float]
    digests: List[str]

    @property
    def growth_bytes(self) -> int:
        """The highest of all requests."""
        return self.highest_bytes[-1]


def serve_apart(spec: RequestSpec, environment: Mapping[str, str] = MappingProxyType({})) -> Served:
    """Serves in a fresh process that has `environment` besides its own.

    Raises:
        InvalidProgramError: it fails, with its last line.
    """
    question = {
        **asdict(spec), 'program': os.path.abspath(spec.program),
        'feeds': [os.path.abspath(each) for each in spec.feeds]
    }
    return Served(
        **answer_apart('transpiler.serving.requests', question, spec.program, environment))


def serve(spec: RequestSpec) -> Served:
    """Serves in this process."""
    predictor = predictor_of(read_program(spec.program).location, spec.settings)
    inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
    outputs = [predictor.get_output_handle(name) for name in predictor.get_output_names()]
    forget_highest()
    resting, loaded = current_bytes(), status('VmRSS')
    after: List[Tuple[int, int, float, str]] = []
    for index in spec.order:
        arrays = arrays_in(spec.feeds[index])
        started = time.process_time()
        for name, handle in inputs.items():
            handle.copy_from_cpu(arrays[name])
        predictor.run()
        results = [handle.copy_to_cpu() for handle in outputs]
        seconds = time.process_time() - started
        after.append((status('VmRSS') - loaded, status('VmHWM') - loaded, seconds, digest(results)))
        del arrays, results
    resident, highest, spent, digests = map(list, zip(*after))
    return Served(loaded, resident, highest, peak_bytes() - resting, spent, digests)


if __name__ == '__main__':
    answer(lambda said: asdict(serve(RequestSpec(**said))))
