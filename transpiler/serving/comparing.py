"""A program whole and in parts, run side by side in a fresh process: the first output whose bytes differ.

`python -m transpiler.serving.comparing` reads a ProbeSpec as JSON from stdin and prints the name of that output, or null.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from transpiler.serving.apart import answer, answer_apart, digest, predictor_of

_DRAWS = 3


@dataclass(frozen=True)
class ProbeSpec:
    """Two programs with the same outputs.

    Attributes:
        whole, parts: what Paddle Inference is told to load.
        feeds: paths of `.npz` files with inputs.
        settings: those of predictors, under each of which both run.
        first: outputs that are compared before all others, in this order.
    """

    whole: List[str]
    parts: List[str]
    feeds: List[str]
    settings: Sequence[Sequence[str]] = ((),)
    first: List[str] = field(default_factory=list)


def differing_output(
    programs: Tuple[bytes, bytes],
    suffix: str,
    parameters: str,
    draw: Callable[[int], Dict[str, np.ndarray]],
    named: str,
    settings: Sequence[Sequence[str]] = ((),),
    first: Sequence[str] = ()) -> Optional[str]:
    """The first output that differs between `programs`, whole and in parts, over some draws.

    Args:
        suffix: of their files.
        parameters: the file of those of both; '' if they have none.
        draw: makes inputs, by a seed.
        named: what an error calls the program.
        settings, first: see ProbeSpec.

    Raises:
        InvalidProgramError: the program does not run on inputs that are drawn.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) + suffix for name in ('whole', 'parts')]
        for path, contents in zip(paths, programs):
            Path(path).write_bytes(contents)
        feeds = [str(Path(folder) / f'{seed}.npz') for seed in range(_DRAWS)]
        for seed, feed in enumerate(feeds):
            np.savez(feed, **draw(seed))
        whole, parts = ([path, parameters] for path in paths)
        question = asdict(ProbeSpec(whole, parts, feeds, settings, list(first)))
        found: Optional[str] = answer_apart('transpiler.serving.comparing', question, named)
        return found


def compare(spec: ProbeSpec) -> Optional[str]:
    """Runs both programs in this process; the first output that differs."""
    places = {name: place for place, name in enumerate(spec.first)}
    for settings in spec.settings:
        whole, parts = (
            list(_digests(location, spec.feeds, settings)) for location in (spec.whole, spec.parts))
        for name in sorted(whole[0], key=lambda output: places.get(output, len(places))):
            if any(one[name] != other.get(name) for one, other in zip(whole, parts)):
                return name
    return None


def _digests(location: List[str], feeds: Sequence[str],
             settings: Sequence[str]) -> Iterator[Dict[str, str]]:
    """What every output is, draw by draw. One array is copied at a time: together they are large."""
    predictor = predictor_of(location, settings)
    for feed in feeds:
        with np.load(feed) as arrays:
            for name in predictor.get_input_names():
                predictor.get_input_handle(name).copy_from_cpu(arrays[name])
        predictor.run()
        names = predictor.get_output_names()
        yield {n: digest([predictor.get_output_handle(n).copy_to_cpu()]) for n in names}


if __name__ == '__main__':
    answer(lambda said: compare(ProbeSpec(**said)))
