"""The table of workspaces: made from observations, kept as JSON."""

from __future__ import annotations

import json
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from benchmarks.kernels.fit import Sample, fit
from transpiler.backends.kernel_tables import Case, Cases, Kernel, is_bound
from transpiler.ir import Size

# What a back end says of a kernel, by the cases of its kind.
Workspace = Callable[[Kernel, Cases], Optional[Size]]


class Miss(NamedTuple):
    """A kernel that allocated something else than the table says: bytes."""

    kind: str
    said: int
    seen: int


def make_table(samples: Iterable[Sample], special: Mapping[str, Cases],
               bounds: bool) -> Dict[str, Cases]:
    """Cases by kind of operator; `special` are guesses for some. There are none of a kind that no formula was found for (see `fit`),
    or whose results are other names of operands, so that it takes less than nothing, unless a guess bounds that."""
    by_kind: Dict[str, List[Sample]] = {}
    for seen in samples:
        by_kind.setdefault(seen.kernel.kind, []).append(seen)
    found: Dict[str, Cases] = {}
    for kind, each in sorted(by_kind.items()):
        is_bounded = any(case.at_most for case in special.get(kind, ()))
        less = any(one.bytes < 0 for one in each)
        found[kind] = () if less and not is_bounded else fit(each, special, bounds)
    return found


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


def misses(table: Mapping[str, Cases], samples: Iterable[Sample],
           workspace: Workspace) -> List[Miss]:
    """Those of which `workspace` does not say by `table` what they took: to the byte, or, where that has a bound, within it. Kinds
    without cases count as not known, kinds that `table` does not have as missed."""
    found = []
    for seen in samples:
        cases = table.get(seen.kernel.kind, ())
        size = workspace(seen.kernel, cases)
        if size is None and not cases and seen.kernel.kind in table:
            continue
        said = -1 if size is None else size.evaluate({})
        at_most = is_bound(seen.kernel, cases)
        if not at_most and seen.bytes != said or seen.bytes > said:
            found.append(Miss(seen.kernel.kind, said, seen.bytes))
    return found
