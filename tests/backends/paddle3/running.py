"""Programs of Paddle 3, built twice and run: what they give, what they leave behind, what they need meanwhile."""
from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
import paddle

from benchmarks.measure import state_names
from benchmarks.programs.case import Case
from transpiler.backends.scopes import fresh_scope
from tests import settled
from transpiler import MemoryReport, memory_optimize

paddle.enable_static()
MIB = float(1 << 20)
FLAG = 'FLAGS_enable_pir_in_executor_trace_run'
COLLECTS = 'FLAGS_eager_delete_tensor_gb'
Build = Callable[[], Case]


@dataclass(frozen=True)
class Seen:
    """Bytes that were fetched in each run, SHA-256 of the bytes of each parameter and state after the last (the bytes themselves
    are 100 MB and more, of each program that tests compare with), MiB above resting at most."""
    fetched: Tuple[bytes, ...]
    kept: Tuple[bytes, ...]
    peaks: Tuple[float, ...]


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Every program runs in the order of its ops, as a user may ask for."""
    paddle.set_flags({FLAG: True})
    try:
        yield
    finally:
        paddle.set_flags({FLAG: False})


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Paddle's collector frees nothing of programs that were planned for one which does: so late may it be."""
    was = paddle.get_flags([COLLECTS])
    paddle.set_flags({COLLECTS: -1.0})
    try:
        yield
    finally:
        paddle.set_flags(was)


def run(case: Case, steps: int = 5, program: Any = None, fetch: Any = None) -> Seen:
    """Runs `case` from its start in a scope of its own, with the same random numbers each time."""
    program = program or case.main
    with fresh_scope():
        paddle.seed(case_seed())
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        fetched: List[bytes] = []
        peaks: List[float] = []
        resting = settled.at_rest()
        for step in range(steps):
            feed, out = case.feed(step), []
            peak = settled.peak_of(lambda: out.extend(
                executor.run(program, feed=feed, fetch_list=list(fetch or case.fetch))))
            peaks.append((peak - resting) / MIB)
            fetched.append(b''.join(np.ascontiguousarray(o).tobytes() for o in out))
            del out
        scope = paddle.static.global_scope()
        kept = tuple(
            hashlib.sha256(np.array(scope.find_var(n).get_tensor()).tobytes()).digest()
            for n in state_names(program))
        executor.close()
    return Seen(tuple(fetched), kept, tuple(peaks))


def run_planned(case: Case, report: MemoryReport, steps: int = 5) -> Seen:
    """As users do. What was left as it is runs in its order by a flag: nobody else holds it, and random numbers are drawn as it happens."""
    with contextlib.nullcontext() if report.changed else in_order():
        return run(case, steps)


def first_peak(build: Build,
               enough: float,
               ordered: bool = False,
               rewrite: Callable[[Case], Any] = lambda case: None) -> float:
    """The least of the first runs of several programs, each in an executor of its own, until one needs no more than `enough`: on
    a busy machine Paddle's collector, a thread, is late in most."""

    def read() -> Tuple[float]:
        case = build()
        rewrite(case)
        with in_order() if ordered else contextlib.nullcontext():
            return (run(case, 1).peaks[0],)

    return settled.least(read, (enough,), ordered=ordered)[0]


def case_seed() -> int:
    return 11


def optimized(case: Case, **options: Any) -> MemoryReport:
    """`case`, rewritten in place."""
    return memory_optimize(case.main,
                           fetch_list=list(case.fetch),
                           batch_size=case.batch_size,
                           trip_count=case.trip_count,
                           **options)


def assert_equal(plain: Seen, other: Seen) -> None:
    """All that was fetched, and all that was left, to the last byte; and that no two runs give the same."""
    assert len(set(plain.fetched)) > 1
    assert_same(plain, other)


def assert_same(plain: Seen, other: Seen) -> None:
    """The same of a program that may give one result for all inputs."""
    assert plain.fetched and all(plain.fetched) and plain.kept
    assert other.fetched == plain.fetched and other.kept == plain.kept


def kept_uncollected(build: Build) -> List[str]:
    """Kinds of the ops of the main block of what `build` makes, with as much computed again as can be; that it gives the bytes of the untouched
    program and needs no more than is sure, where the collector never comes, is checked."""
    with in_order():
        plain = run(build())
    case = build()
    report = optimized(case, recompute='max')
    with uncollected():
        seen = run(case)
    assert_equal(plain, seen)
    assert max(seen.peaks) * MIB <= report.sure_bytes
    return [op.name() for op in case.main.global_block().ops]
