"""Recomputing in the main block and early sums, run for real: every byte that a user can see stays as it was."""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base import core
from paddle.base.framework import IrGraph
from paddle.static.quantization import QuantizationTransformPass

from benchmarks.programs import Options
from benchmarks.programs import build as build_benchmark
from tests.builds import needs_cpu_build
from tests.harness import (Peak, ALL_MODES, DEFAULT_MODE, WITHOUT_INPLACE, Build, Case, Mode, check,
                           executor_mode, fingerprint, fresh_scope, least_peak, measure_peak,
                           new_programs)
from tests.scenarios.common import data, floats, integers, random_feed, square_loss
from transpiler import MemoryBudgetError, memory_optimize

ORDERED = Mode(order="sequential")
_FEW_BYTES = 64


def residual_batch_norms() -> Case:
    """Convolutions, batch norms and sums: running statistics are state that no clone may touch."""
    with new_programs() as (main, startup):
        hidden = paddle.static.nn.conv2d(data("x", -1, 3, 12, 12), 8, 3, padding=1)
        for _ in range(5):
            inner = paddle.nn.functional.relu(paddle.static.nn.batch_norm(hidden))
            hidden = hidden + paddle.static.nn.conv2d(inner, 8, 3, padding=1, bias_attr=False)
        pooled = paddle.nn.functional.adaptive_avg_pool2d(hidden, 1)
        loss = square_loss(pooled)
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Case(main, startup, random_feed(x=floats(6, 3, 12, 12)), [loss.name])


def _benchmark(name: str, **sizes: Any) -> Case:
    case = build_benchmark(name, Options(**sizes))
    # A fixed seed in the ops keeps dropout the same whatever the order of the two runs.
    case.main.random_seed = case.startup.random_seed = 7
    return Case(case.main, case.startup, case.feed, list(case.fetch))


def transformer_with_dropout() -> Case:
    return _benchmark("transformer_gelu",
                      batch_size=3,
                      length=12,
                      width=32,
                      heads=2,
                      layers=2,
                      vocabulary=50,
                      dropout=0.2)


def unrolled_translation() -> Case:
    return _benchmark("nmt", batch_size=3, length=4, width=16, vocabulary=20, layers=1, dropout=0.3)


def additive_attention() -> Case:
    return _benchmark("attention_steps", trip_count=5, width=64)


def unrolled_with_fetches() -> Case:
    """One weight for all steps, and what the middle step made is fetched."""
    with new_programs() as (main, startup):
        state = data("x", -1, 32)
        weight = paddle.create_parameter([32, 32], "float32")
        states = []
        for _ in range(8):
            state = paddle.tanh(paddle.matmul(state, weight)) + paddle.nn.functional.sigmoid(state)
            states.append(state)
        loss = square_loss(state)
        paddle.optimizer.Adam(0.01).minimize(loss)
    return Case(main, startup, random_feed(x=floats(4, 32)), [loss.name, states[4].name])


@lru_cache(maxsize=None)
def _aware_of_quantization() -> Tuple[bytes, bytes, str]:
    """Quantization-aware training: each value has running scales, whose names Paddle's pass gives in another order each time."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, 32)
        for _ in range(5):
            hidden = paddle.static.nn.fc(hidden, 32, activation="tanh")
        loss = square_loss(hidden)
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    with fresh_scope() as scope, paddle.utils.unique_name.guard():
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        graph = IrGraph(core.Graph(main.desc), for_test=False)
        QuantizationTransformPass(scope=scope,
                                  place=paddle.CPUPlace(),
                                  activation_quantize_type="moving_average_abs_max").apply(graph)
        aware, block = graph.to_program(), startup.global_block()
        for variable in aware.list_vars():
            if variable.persistable and not block.has_var(variable.name):
                start = np.array(scope.find_var(variable.name).get_tensor())
                made = block.create_var(name=variable.name,
                                        shape=start.shape,
                                        dtype=start.dtype,
                                        persistable=True)
                paddle.nn.initializer.Assign(start)(made, block)
    return aware.desc.serialize_to_string(), startup.desc.serialize_to_string(), loss.name


def aware_of_quantization() -> Case:
    main, startup = map(paddle.static.Program.parse_from_string, _aware_of_quantization()[:2])
    return Case(main, startup, random_feed(x=floats(64, 32)), [_aware_of_quantization()[2]])


# The last two get lower only by sums that are made early.
CASES: List[Any] = [
    residual_batch_norms, transformer_with_dropout, unrolled_translation,
    *(pytest.param(case, marks=needs_cpu_build)
      for case in (additive_attention, unrolled_with_fetches))
]


def _optimiser(reports: List[Any], **options: Any) -> Callable[[Case], Any]:

    def optimise(case: Case) -> Any:
        batch = next(iter(case.feed(0).values())).shape[0]
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=batch,
                                 **options)
        reports.append(report)
        return report

    return optimise


def _kinds_of_clones(program: paddle.static.Program) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for op in program.global_block().ops:
        if any("@REBUILT" in name for name in op.output_arg_names):
            found[op.type] = found.get(op.type, 0) + 1
    return found


@pytest.mark.parametrize("build", [*CASES, aware_of_quantization], ids=lambda b: b.__name__)
def test_the_lowest_peak_gives_equal_bytes_in_every_mode(build: Build) -> None:
    report = check(build, _optimiser([], recompute="max"), modes=WITHOUT_INPLACE)
    assert report.recompute is not None and report.recompute.clones > 0


@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
def test_a_budget_half_way_gives_equal_bytes_and_is_kept_in_the_prediction(build: Build) -> None:
    lowest = _optimiser([], recompute="max")(build())
    least, most = lowest.peak_bytes_after, lowest.peak_bytes_before
    budget = lowest.resting_bytes + (least + most) // 2
    modes = [DEFAULT_MODE, ORDERED]
    report = check(build, _optimiser([], budget=budget), modes=modes)
    assert report.resting_bytes + report.peak_bytes_after <= budget


def test_batch_norms_run_again_and_their_statistics_are_updated_once() -> None:
    case = residual_batch_norms()
    _optimiser([], recompute="max")(case)
    assert _kinds_of_clones(case.main)["batch_norm"] >= 2
    # Statistics are among the persistables that `check` compares; in-place kernels are the last way to break them.
    check(residual_batch_norms, _optimiser([], recompute="max"), modes=ALL_MODES[::3])


def test_a_batch_norm_in_training_does_not_depend_on_the_running_statistics() -> None:
    """What lets a clone carry on memory of no variable: its contents may be anything."""
    shown = []
    for filling in (0.0, np.nan):
        case = residual_batch_norms()
        with executor_mode(DEFAULT_MODE), fresh_scope() as scope:
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(case.startup)
            states = {
                n for op in case.main.global_block().ops if op.type == "batch_norm"
                for n in op.input("Mean") + op.input("Variance")
            }
            for name in states:
                tensor = scope.find_var(name).get_tensor()
                tensor.set(np.full(np.array(tensor).shape, filling, "float32"), paddle.CPUPlace())
            shown.append(executor.run(case.main, feed=case.feed(0), fetch_list=case.fetch)[0])
    assert shown[0].tobytes() == shown[1].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sum_operator_adds_from_left_to_right(dtype: str) -> None:
    """What lets a sum be split: to the bit, also for -0, infinities, NaN and numbers that lose digits."""
    random = np.random.RandomState(3)
    terms = [(random.standard_normal(4096) * 10.0**random.randint(-30, 30, 4096)).astype(dtype)
             for _ in range(9)]
    for term, special in zip(terms, (-0.0, np.inf, np.nan, 1e-40, -0.0)):
        term[random.randint(0, 4096, 300)] = special
    for term in terms:
        term[:50] = -0.0
    with new_programs() as (main, startup):
        inputs = [paddle.static.data(f"x{i}", [4096], dtype) for i in range(len(terms))]
        whole = paddle.add_n(inputs)
        total = inputs[0]
        for each in inputs[1:]:
            total = paddle.add_n([total, each])
    with fresh_scope():
        feed = {f"x{i}": term for i, term in enumerate(terms)}
        executor = paddle.static.Executor(paddle.CPUPlace())
        left, right = executor.run(main, feed=feed, fetch_list=[whole, total])
    assert left.tobytes() == right.tobytes()


def test_a_budget_that_nothing_meets_leaves_the_program_as_it_was() -> None:
    case = residual_batch_norms()
    before = fingerprint(case.main)
    with pytest.raises(MemoryBudgetError, match="the lowest peak reached is"):
        _optimiser([], budget="30KB")(case)
    assert fingerprint(case.main) == before


def factorization_machine() -> Case:
    """A sparse embedding that is read twice, by layers and by products of its rows."""
    with new_programs() as (main, startup):
        ids = data("ids", -1, 26, dtype="int64")
        rows = paddle.static.nn.embedding(ids, [500, 16], is_sparse=True)
        hidden = paddle.reshape(rows, [-1, 26 * 16])
        for _ in range(3):
            hidden = paddle.static.nn.fc(hidden, 128, activation="relu")
        pairs = paddle.square(paddle.sum(rows, 1)) - paddle.sum(paddle.square(rows), 1)
        loss = paddle.mean(hidden) + paddle.mean(pairs)
        paddle.optimizer.Adam(0.01, lazy_mode=True).minimize(loss)
    return Case(main, startup, random_feed(ids=integers(500, 256, 26)), [loss.name])


def test_the_least_budget_that_a_refusal_names_is_kept() -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        _optimiser([], budget=1)(factorization_machine())
    budget = refused.value.held_bytes + refused.value.best_bytes
    peak = measure_peak(f"{__name__}:factorization_machine",
                        True,
                        options={
                            "budget": budget,
                            "batch_size": 256
                        })
    assert max(peak.first, peak.later) <= budget


def wide_chain() -> Case:
    """Large enough that nothing but its values matters: 24 of 1 MiB, products and tanh in turn."""
    with new_programs() as (main, startup):
        hidden = data("x", 1024, 256)
        for _ in range(8):
            hidden = paddle.tanh(paddle.static.nn.fc(hidden, 256))
        loss = square_loss(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return Case(main, startup, random_feed(x=floats(1024, 256)), [loss.name])


@pytest.mark.parametrize("mode", [DEFAULT_MODE, ORDERED], ids=str)
def test_a_budget_is_met_by_the_measured_peak_of_every_run(mode: Mode) -> None:
    lowest = memory_optimize(wide_chain().main, recompute="max")
    budget = lowest.resting_bytes + (lowest.peak_bytes_after * 2 + lowest.peak_bytes_before) // 3
    peak = measure_peak("tests.test_recompute_runs:wide_chain",
                        True,
                        mode,
                        steps=4,
                        options={"budget": budget})
    assert max(peak.first, peak.later) <= budget


def gru_steps() -> Case:
    return _benchmark("gru_loop", trip_count=9, batch_size=8, width=32)


def test_what_runs_again_in_loops_stands_in_the_same_account() -> None:
    loops = {"trip_count": 9}
    account = _optimiser([], recompute="max", **loops)(gru_steps()).recompute
    assert account.clones == account.inner_clones > 0
    assert account.step_seconds > account.extra_seconds == account.inner_seconds > 0
    assert account.saved_seconds > 0
    assert f"{account.clones} operators" in " ".join(
        str(account).split()) and "loops" in str(account)
    report = _optimiser([], recompute="max", **loops)(gru_steps())
    assert str(report.recompute) in " ".join(str(report).split())
    assert _optimiser([], recompute=False, **loops)(gru_steps()).recompute is None


def test_a_budget_decides_how_much_runs_again_in_loops_too() -> None:
    """Nothing where dropping copies is enough, and whatever `max_overhead` says where that is needed."""
    loops = {"trip_count": 9}
    found = [
        _optimiser([], recompute=mode, **loops)(gru_steps()) for mode in (False, "auto", "max")
    ]
    free, usual, lowest = (report.budget_bytes for report in found)
    assert free > usual > lowest
    extras = []
    for peak in (free, usual, lowest):
        reports: List[Any] = []
        budget = peak + found[0].resting_bytes
        check(gru_steps, _optimiser(reports, budget=budget, **loops), modes=[DEFAULT_MODE, ORDERED])
        assert reports[0].sure_bytes <= peak
        extras.append(reports[0].recompute.extra_seconds if reports[0].recompute else 0.0)
    assert 0.0 == extras[0] < extras[1] < extras[2]
    with pytest.raises(MemoryBudgetError):
        _optimiser([], budget=lowest + found[0].resting_bytes - 1, **loops)(gru_steps())


def columns() -> Case:
    """Convolutions of one image: what their kernels lay it out in is as large as all that they make."""
    with new_programs() as (main, startup):
        hidden = data("x", 1, 16, 32, 32)
        for _ in range(6):
            inner = paddle.static.nn.conv2d(hidden, 16, 3, padding=1, bias_attr=False)
            hidden = paddle.tanh(paddle.static.nn.conv2d(inner, 16, 1, bias_attr=False))
        loss = square_loss(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return Case(main, startup, random_feed(x=floats(1, 16, 32, 32)), [loss.name])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_budget_bears_what_the_kernels_of_convolutions_take(share: float) -> None:
    case = columns()
    lowest = memory_optimize(case.main, fetch_list=list(case.fetch), recompute="max")
    assert lowest.needed_bytes > 1.5 * lowest.peak_bytes_after
    assert "workspaces" in str(lowest)
    budget = lowest.resting_bytes + int(lowest.budget_bytes + share *
                                        (lowest.peak_bytes_before - lowest.peak_bytes_after))
    peak = measure_peak("tests.test_recompute_runs:columns",
                        True,
                        ORDERED,
                        options={"budget": budget})
    # What is fetched, and a few more bytes, may still be there when the next run starts; on a machine that is busy enough, so
    # may the batch that was fed before: these runs take milliseconds, and nobody but the collector lets go of it.
    fed = sum(array.nbytes for array in case.feed(0).values())
    assert peak.first <= budget + _FEW_BYTES and peak.later <= budget + fed + _FEW_BYTES
    if not share:
        least = least_peak("tests.test_recompute_runs:columns",
                           lowest.needed_bytes,
                           of=Peak.first_above_resting,
                           mode=ORDERED,
                           options={"budget": budget})
        assert least.first == lowest.resting_bytes + lowest.needed_bytes


def test_plans_for_all_budgets_are_proved() -> None:
    """Releases that come in time must bear storages that are shared for the same reason, and the other way round."""

    def optimised(**options: Any) -> Any:
        case = build_benchmark("transformer_gelu", Options(length=512))
        return memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=8, **options)

    lowest = optimised(recompute="max")
    least, most, extras = lowest.budget_bytes, lowest.peak_bytes_before, []
    for share in range(9):
        budget = lowest.resting_bytes + least + (most - least) * share // 8
        report = optimised(budget=budget)
        assert report.resting_bytes + report.sure_bytes <= budget
        assert "proved equal" not in report.note
        extras.append(report.recompute.extra_seconds if report.recompute else 0.0)
    assert extras == sorted(extras, reverse=True) and extras[0] > 0


def recomputed_by_paddle() -> Case:
    """Paddle's recompute leaves blocks behind that no op runs, and that name what the main block declares."""
    with new_programs() as (main, startup):
        hidden, checkpoints = data("x", 64, 64), []
        for _ in range(12):
            hidden = paddle.tanh(paddle.static.nn.fc(hidden, 64))
            checkpoints.append(hidden)
        loss = square_loss(hidden)
        optimizer = paddle.incubate.optimizer.RecomputeOptimizer(paddle.optimizer.SGD(0.1))
        optimizer._set_checkpoints(checkpoints[1:-1:2])
        optimizer.minimize(loss)
    return Case(main, startup, random_feed(x=floats(64, 64)), [loss.name])


def test_programs_that_paddle_recomputes_keep_to_budgets_and_to_their_bytes() -> None:
    """What is released has other names than those blocks know: they find theirs declared."""
    case = recomputed_by_paddle()
    assert case.main.num_blocks > 1
    free = memory_optimize(case.main.clone(), fetch_list=list(case.fetch))
    budget = free.resting_bytes + free.budget_bytes
    reports: List[Any] = []
    check(recomputed_by_paddle,
          _optimiser(reports, budget=budget),
          modes=[DEFAULT_MODE, ORDERED],
          steps=3)
    assert reports[0].sure_bytes <= free.budget_bytes < reports[0].peak_bytes_before
    assert reports[0].changed and not reports[0].note


_HOLDING = Mode(collect=False)


@pytest.mark.parametrize("build", (residual_batch_norms, transformer_with_dropout),
                         ids=lambda b: b.__name__)
def test_with_collection_off_too_what_runs_again_gives_equal_bytes(build: Build) -> None:
    modes = [mode for mode in WITHOUT_INPLACE if not mode.collect]
    report = check(build, _optimiser([], runtime="retaining", recompute="max"), modes=modes)
    assert report.recompute is not None and report.recompute.clones > 0


def test_with_collection_off_what_runs_again_is_released_and_no_run_needs_more_than_is_sure(
) -> None:
    plain, found = (memory_optimize(wide_chain().main, runtime="retaining", recompute=recompute)
                    for recompute in (False, "max"))
    assert found.peak_bytes_after < 0.7 * plain.peak_bytes_after
    assert found.sure_bytes < plain.peak_bytes_after  # its order is held
    options = {"runtime": "retaining", "recompute": "max"}
    peak = measure_peak("tests.test_recompute_runs:wide_chain", True, _HOLDING, 4, options)
    assert found.peak_bytes_after <= peak.above_resting() <= found.sure_bytes
