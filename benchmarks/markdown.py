"""The table of README: what the process grew by first, what the tensors took second; untouched and optimized side by side."""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from benchmarks.runner import EQUAL, Spread, Summary, reference_key
from benchmarks.spec import Spec

MIB = 2.0**20
_HEAD = ("program", "process: untouched", "optimized", "tensors, first / later: untouched",
         "optimized", "first run, s", "bytes")


def markdown(summaries: Sequence[Summary]) -> str:
    """A row for each program that was measured untouched and optimized; peaks are the lowest of the repeats, growth and the time
    of the first run the median."""
    plain: Dict[Spec, Summary] = {
        _likeness(each.spec): each
        for each in summaries
        if not each.spec.optimized and each.failure is None
    }
    rows = [
        _row(plain[_likeness(each.spec)], each)
        for each in summaries
        if each.spec.optimized and each.failure is None and _likeness(each.spec) in plain
    ]
    return "\n".join(
        "| {} |".format(" | ".join(cells)) for cells in (_HEAD, ("---",) * len(_HEAD), *rows))


def _likeness(spec: Spec) -> Spec:
    """What the two of a row have in common."""
    return replace(reference_key(spec), executor=spec.executor, collection=spec.collection)


def _row(untouched: Summary, optimized: Summary) -> List[str]:
    spec = optimized.spec
    options = ", ".join("{} {}".format(key.replace("_", " "), value) for key, value in spec.options)
    collection = "" if spec.collection else ", collection off"
    both = (untouched, optimized)
    return [
        "`{}`: {}, {} steps{}".format(spec.program, options, spec.steps, collection),
        *("{:.0f}".format(each.growth.median / MIB) for each in both),
        *("{} / {}".format(_lowest(each.first_peak), _lowest(each.later_peak)) for each in both),
        " -> ".join("{:.1f}".format(each.first_seconds.median) for each in both),
        "equal" if optimized.verdict == EQUAL else str(optimized.verdict)
    ]


def _lowest(peak: Optional[Spread]) -> str:
    return "-" if peak is None else "{:.1f}".format(peak.minimum / MIB)
