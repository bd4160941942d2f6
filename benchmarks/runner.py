"""Runs measurements one at a time in fresh processes and summarises their repeats."""
from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from benchmarks.apart import ApartError, apart
from benchmarks.spec import Result, Spec

EQUAL = "equal"


class MeasurementError(RuntimeError):
    """The measuring process failed; the message ends with what it said."""


def measure_in_child(spec: Spec) -> Result:
    """One fresh process, one measurement."""
    return _in_child("measure", spec)


def measure_with_growth(spec: Spec) -> Result:
    """The same, and in another process what that grows by."""
    result = measure_in_child(spec)
    growth, anonymous = _in_child("grown", spec)
    return replace(result, growth_bytes=growth, anonymous_growth_bytes=anonymous)


def _in_child(what: str, spec: Spec) -> Any:
    try:
        return apart(_measure, what, spec)
    except ApartError as error:
        raise MeasurementError("measuring {} failed:\n{}".format(spec.program, error)) from error


def _measure(what: str, spec: Spec) -> Any:
    # Here only: the process that asks needs no Paddle.
    import paddle

    from benchmarks import measure
    paddle.set_flags(spec.flags())
    return getattr(measure, what)(spec)


@dataclass(frozen=True)
class Spread:
    """Several figures of one kind. Of peaks the minimum is what the program needs: the executor's
    collector is a thread of its own, and what it frees late only adds to the others.
    """
    minimum: float
    median: float
    maximum: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of at least one figure."""
        return Spread(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Summary:
    """All repeats of one Spec, none if a process failed. Peaks: bytes above resting; times: s."""
    spec: Spec
    results: Tuple[Result, ...]
    # EQUAL, or where it first differs from the reference; None if it is the reference.
    verdict: Optional[str] = None
    failure: Optional[str] = None

    @property
    def sound(self) -> bool:
        """It was measured, and nothing differs from the reference."""
        return self.failure is None and self.verdict in (None, EQUAL)

    @property
    def growth(self) -> Spread:
        """By how much the process was at its highest above what it had after startup."""
        return Spread.of([each.growth_bytes for each in self.results])

    @property
    def anonymous_growth(self) -> Spread:
        """By how much its anonymous memory had grown since startup in the end."""
        return Spread.of([each.anonymous_growth_bytes for each in self.results])

    @property
    def first_seconds(self) -> Spread:
        """Time of the first run, in which the executor builds what it keeps of the program."""
        return Spread.of([each.step_seconds[0] for each in self.results])

    @property
    def first_peak(self) -> Spread:
        """Peaks of the first runs."""
        return Spread.of([each.first_peak_bytes for each in self.results])

    @property
    def later_peak(self) -> Optional[Spread]:
        """Peaks of the runs after the first."""
        later = [each for result in self.results for each in result.peak_bytes[1:]]
        return Spread.of(later) if later else None

    @property
    def step_seconds(self) -> Spread:
        """Time of the runs after the first, or of the first if it is the only one."""
        return Spread.of([
            each for result in self.results
            for each in result.step_seconds[1:] or result.step_seconds
        ])

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready, with every repeat in full."""
        if self.failure is not None:
            return {"spec": self.spec.to_dict(), "failure": self.failure}
        later = self.later_peak
        return {
            "spec": self.spec.to_dict(),
            "same_bytes_as_reference": self.verdict,
            "growth_bytes": vars(self.growth),
            "anonymous_growth_bytes": vars(self.anonymous_growth),
            "first_seconds": vars(self.first_seconds),
            "first_peak_bytes": vars(self.first_peak),
            "later_peak_bytes": None if later is None else vars(later),
            "step_seconds": vars(self.step_seconds),
            "results": [each.to_dict() for each in self.results],
        }


def difference(reference: Result, other: Result) -> str:
    """EQUAL, or the first thing that is not the same to the last bit."""
    for step, (expected, got) in enumerate(zip(reference.fetched, other.fetched)):
        if expected != got:
            return "fetched values differ at step {}".format(step)
    if reference.state_sha256 != other.state_sha256:
        return "parameters or statistics differ"
    return EQUAL


def reference_key(spec: Spec) -> Spec:
    """Specs with equal keys must give equal bytes."""
    return replace(spec,
                   optimized=False,
                   collection=True,
                   executor="default",
                   level=0,
                   recompute=None,
                   max_overhead=None,
                   budget=None,
                   released=False,
                   watched=False)


def summarize(spec: Spec, results: Sequence[Result], reference: Result) -> Summary:
    """The repeats of one spec, judged by the reference, which may be the first of them."""
    verdicts = [difference(reference, each) for each in results]
    worst = next((each for each in verdicts if each != EQUAL), EQUAL)
    alone = len(results) == 1 and reference is results[0]
    return Summary(spec, tuple(results), None if alone else worst)


def measure_all(specs: Sequence[Spec], repeats: int, done: Callable[[Spec], None]) -> List[Summary]:
    """Measure each spec `repeats` times; the first result of a program is its reference."""
    references: Dict[Spec, Result] = {}
    summaries: List[Summary] = []
    for spec in specs:
        results: List[Result] = []
        try:
            for _ in range(repeats):
                results.append(measure_with_growth(spec))
                done(spec)
        except MeasurementError as error:
            summaries.append(Summary(spec, (), failure=str(error)))
            continue
        reference = references.setdefault(reference_key(spec), results[0])
        summaries.append(summarize(spec, results, reference))
    return summaries
