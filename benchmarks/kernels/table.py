"""The table of workspaces: made from observations, kept as JSON."""

from __future__ import annotations

import json
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from benchmarks.kernels.alone import Observation
from benchmarks.kernels.fit import Sample, fit, sample
from transpiler.backends.paddle2.workspaces import Case, workspace


class Miss(NamedTuple):
    """A kernel that allocated something else than the table says: bytes."""

    kind: str
    said: int
    seen: int


def make_table(observations: Iterable[Observation]) -> Dict[str, Tuple[Case, ...]]:
    """Cases by kind of operator."""
    by_kind: Dict[str, List[Observation]] = {}
    for seen in observations:
        by_kind.setdefault(seen.desc.type, []).append(seen)
    return {
        kind: fit(list(map(sample, each)), [s.desc for s in each])
        for kind, each in sorted(by_kind.items())
    }


def text(table: Mapping[str, Sequence[Case]]) -> str:
    """`table` as JSON, a kind a line."""
    lines = (f'{json.dumps(kind)}: {json.dumps(list(map(_plain, cases)))}'
             for kind, cases in sorted(table.items()))
    return '{\n' + ',\n'.join(lines) + '\n}\n'


def _plain(case: Case) -> Dict[str, object]:
    found: Dict[str, object] = {'when': list(case.when)} if case.when else {}
    found['bytes'] = case.bytes
    if case.at_most:
        found['at_most'] = True
    return found


def misses(table: Mapping[str, Tuple[Case, ...]],
           observations: Iterable[Observation]) -> List[Miss]:
    """Observations that `table` does not give: to the byte, or, where it gives a bound, within it."""
    found = []
    for seen in map(sample, observations):
        said = _said(table, seen)
        if not said.at_most and said.seen != said.said or said.seen > said.said:
            found.append(Miss(seen.kernel.kind, said.said, said.seen))
    return found


class _Said(NamedTuple):
    said: int
    seen: int
    at_most: bool


def _said(table: Mapping[str, Tuple[Case, ...]], seen: Sample) -> _Said:
    cases = table.get(seen.kernel.kind, ())
    size = workspace(seen.kernel, cases)
    return _Said(-1 if size is None else size.evaluate({}), seen.bytes,
                 any(c.at_most for c in cases))
