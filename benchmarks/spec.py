"""What travels between the command and its measuring child processes, as JSON."""
from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional, Tuple

OptionValues = Tuple[Tuple[str, Any], ...]


def _executor(serial: str, sequential: str) -> Mapping[str, str]:
    return MappingProxyType({
        "FLAGS_new_executor_serial_run": serial,
        "FLAGS_new_executor_sequential_run": sequential
    })


# FLAGS of each mode: `serial` runs whatever is ready on one thread, `ordered` the program's order.
EXECUTORS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "default": _executor("0", "0"),
    "serial": _executor("1", "0"),
    "ordered": _executor("1", "1"),
})


@dataclass(frozen=True)
class Spec:
    """One measurement: a program with its options, what is done to it and how it is run."""
    program: str
    options: OptionValues = ()
    optimized: bool = False
    collection: bool = True
    executor: str = "default"
    steps: int = 5
    level: int = 0
    # memory_optimize's `recompute`, `off` for False; None leaves its default.
    recompute: Optional[str] = None
    # memory_optimize's `max_overhead` and `budget`; None leaves its default.
    max_overhead: Optional[float] = None
    budget: Optional[int] = None
    # release_memory in the place of memory_optimize.
    released: bool = False
    # Look at the bytes held all the time as well: see measure.Watcher.
    watched: bool = False

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready; the options as an object."""
        return {**asdict(self), "options": dict(self.options)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Spec:
        """The inverse of to_dict."""
        return Spec(**{**values, "options": tuple(sorted(values["options"].items()))})

    def flags(self) -> Dict[str, Any]:
        """Paddle's, for the executor that is asked for."""
        flags: Dict[str, Any] = {
            name: value == "1" for name, value in EXECUTORS[self.executor].items()
        }
        flags["FLAGS_eager_delete_tensor_gb"] = 0.0 if self.collection else -1.0
        return flags

    def environment(self) -> Dict[str, str]:
        """What must be set before Paddle is imported, and the flags."""
        flags = {name: str(int(value)) for name, value in self.flags().items()}
        return {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOG_minloglevel": "2", **flags}


@dataclass(frozen=True)
class Prediction:
    """What memory_optimize said; bytes above resting, at the case's batch size and trips."""
    changed: bool
    peak_bytes_before: int
    peak_bytes_after: int
    lower_bound_bytes: int
    planning_seconds: float
    # The peak after, with what kernels allocate for themselves.
    needed_bytes: int = 0
    # The same, with what a late collector may still hold.
    sure_bytes: int = 0
    # The least that a budget can be for this plan.
    budget_bytes: int = 0
    resting_bytes: int = 0
    # CPU time, which other processes on the machine do not add to.
    planning_cpu_seconds: float = 0.0
    clones: int = 0
    # Predicted extra time of a step, as a share of it; and (peak bytes, the same) of all plans there were.
    overhead: float = 0.0
    curve: Tuple[Tuple[int, float], ...] = ()

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Prediction:
        """The inverse of asdict."""
        return Prediction(**{**values, "curve": tuple(map(tuple, values["curve"]))})


@dataclass(frozen=True)
class Result:
    """What one process saw. Peaks are bytes above `resting_bytes`, one for each run."""
    spec: Spec
    ops: int
    resting_bytes: int
    peak_bytes: Tuple[int, ...]
    held_bytes: int
    max_rss_bytes: int
    step_seconds: Tuple[float, ...]
    fetched: Tuple[Tuple[str, ...], ...]
    state_sha256: str
    prediction: Optional[Prediction] = None
    training: bool = True
    # CPU time of all threads, which other processes on the machine do not add to.
    step_cpu_seconds: Tuple[float, ...] = ()
    # What measure.grown says of a process of its own; 0 where nobody asked.
    growth_bytes: int = 0
    anonymous_growth_bytes: int = 0

    @property
    def first_peak_bytes(self) -> int:
        """Peak of the first run, bytes above resting."""
        return self.peak_bytes[0]

    @property
    def later_peak_bytes(self) -> Optional[int]:
        """Highest peak of the later runs, bytes above resting; None after a single run."""
        return max(self.peak_bytes[1:], default=None)

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return {
            **asdict(self), "spec": self.spec.to_dict(),
            "first_peak_bytes": self.first_peak_bytes,
            "later_peak_bytes": self.later_peak_bytes
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Result:
        """The inverse of to_dict."""
        known = {each.name: values[each.name] for each in fields(Result)}
        known["spec"] = Spec.from_dict(values["spec"])
        known["fetched"] = tuple(tuple(step) for step in values["fetched"])
        known["peak_bytes"] = tuple(values["peak_bytes"])
        known["step_seconds"] = tuple(values["step_seconds"])
        known["step_cpu_seconds"] = tuple(values["step_cpu_seconds"])
        if values["prediction"] is not None:
            known["prediction"] = Prediction.from_dict(values["prediction"])
        return Result(**known)
