"""Two saved programs, run side by side: the same bytes, and which memory each needs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np

from transpiler.backends.paddle2.importer import declared, import_program, parse
from transpiler.errors import InvalidArgumentError
from transpiler.request import Request, check_names
from transpiler.serving.apart import RunSpec
from transpiler.serving.files import SavedProgram, read_program
from transpiler.serving.given import check_fetched, check_same_inputs
from transpiler.serving.requests import RequestSpec, serve_apart
from transpiler.serving.rows import Row, read_inputs
from transpiler.serving.running import SETTINGS, make_feed, read_state, run_apart
from transpiler.serving.settings import serve_settings
from transpiler.serving.trial import try_import


@dataclass(frozen=True)
class _Way:
    """A program with settings of the predictor and what its process has in its environment."""

    saved: SavedProgram
    settings: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = ''

    @property
    def title(self) -> str:
        return ' '.join([str(self.saved.path), *([self.name] if self.name else self.settings)])


def compare(source: str,
            target: str,
            feed: Optional[str],
            fetch: List[str],
            batch_size: int,
            every_setting: bool,
            advance: Callable[[float], None],
            requests: int = 0) -> List[Row]:
    """Runs both; raises TranspilerError if one does not run or the inputs do not fit.

    `advance` is told which share of the runs is done. With `requests` both are also served so many, and the second with what
    serve-settings names.
    """
    old, new = read_program(source), read_program(target)
    if old.for_inference != new.for_inference:
        raise InvalidArgumentError('one of the two is an inference program, the other is not')
    if not old.for_inference and (requests or not fetch):
        raise InvalidArgumentError(f'{old.path} has no fetch operator: ' + (
            'no predictor serves it' if requests else 'name with --fetch what to compare'))
    _check_agreement(old, new, fetch)
    ways = _ways(old, new, every_setting, bool(requests))
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'feed.npz')
        np.savez(path, **_inputs(old, feed, fetch, batch_size))
        for way in ways:
            program, settings = str(way.saved.path), list(way.settings)
            result = run_apart(RunSpec(program, path, fetch, settings), way.environment)
            equal = (result.results == rows[0].result.results
                     if rows else len(set(result.digests)) == 1 or not old.for_inference)
            growth = _growth(program, path, settings, requests, way.environment)
            rows.append(Row(way.title, result, equal, growth))
            advance(len(rows) / len(ways))
    return rows


def _ways(old: SavedProgram, new: SavedProgram, every_setting: bool, served: bool) -> List[_Way]:
    settings = SETTINGS if every_setting and old.for_inference else SETTINGS[:1]
    ways = [_Way(old), *(_Way(new, each) for each in settings)]
    if served:
        advice = serve_settings(new)
        ways.append(_Way(new, advice.switches, advice.variables, 'serve-settings'))
    return ways


def _growth(program: str, feed: str, settings: List[str], requests: int,
            environment: Mapping[str, str]) -> Optional[int]:
    if not requests:
        return None
    served = serve_apart(RequestSpec(program, [feed], [0] * requests, settings), environment)
    return served.growth_bytes


def _check_agreement(old: SavedProgram, new: SavedProgram, fetch: List[str]) -> None:
    """Raises TranspilerError unless both can be run, are fed the same, and have what is to be fetched."""
    for saved in (old, new):
        try_import(saved)
        read_state(saved)
        check_names(declared(parse(saved.serialized)), frozenset(fetch))
        if saved.for_inference:
            check_fetched(saved, fetch)
    check_same_inputs(old, new, (old.feeds, new.feeds))


def _inputs(saved: SavedProgram, feed: Optional[str], fetch: List[str],
            batch_size: int) -> Dict[str, np.ndarray]:
    program = import_program(saved.serialized, fetch)
    dims, _ = Request(batch_size=batch_size).sizes(program.graph, program.inputs)
    shapes = {v.name: v.shape for v in program.graph.values if _is_input(v, saved)}
    if feed is None:
        sizes = {n: tuple(d.evaluate(dims) for d in shape or ()) for n, shape in shapes.items()}
        return make_feed(saved, sorted(shapes), sizes)
    return read_inputs(feed, shapes)


def _is_input(value: Any, saved: SavedProgram) -> bool:
    return value.region == 0 and (value.name in saved.feeds if saved.feeds else value.fed)
