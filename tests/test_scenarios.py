"""Every program on which memory optimizers before this one failed, or passed: equal bytes, in every mode."""
from __future__ import annotations

import inspect
from dataclasses import replace
from types import ModuleType
from typing import Any, Callable, Dict, List

import numpy as np
import paddle
import pytest

from tests.harness import (ALL_MODES, BASIC_MODES, DEFAULT_MODE, Build, Case, Mode,
                           assert_same_bytes, check, difference, fingerprint, fresh_scope,
                           least_peak, measure_peak, optimise_in_place, run_case, untouched)
from tests.scenarios import branches, dynamic_rnn, loops, optimizers, recurrent, straight


def _builds(module: ModuleType) -> List[Any]:
    """The module's scenarios: its public functions that return a Case and need no argument."""
    return [
        pytest.param(build, id=f"{module.__name__.split('.')[-1]}.{name}")
        for name, build in inspect.getmembers(module, inspect.isfunction)
        if build.__module__ == module.__name__ and not name.startswith("_") and _makes_a_case(build)
    ]


def _makes_a_case(build: Any) -> bool:
    signature = inspect.signature(build)
    needed = [p for p in signature.parameters.values() if p.default is p.empty]
    return signature.return_annotation == "Case" and not needed


SCENARIOS = [
    build for module in (straight, optimizers, branches, loops, recurrent, dynamic_rnn)
    for build in _builds(module)
]

# The scope makes the tests of one scenario follow each other: its plain program runs once for them.
each_scenario = pytest.mark.parametrize("build", SCENARIOS, scope="module")


@each_scenario
def test_untouched_program_repeats_to_the_byte(build: Build) -> None:
    """Two that were built one after the other; the first is the one that the tests below compare with."""
    assert_same_bytes(untouched(build), run_case(build()))


@each_scenario
def test_optimised_program_gives_equal_bytes_in_every_mode_and_a_second_call_changes_nothing(
        build: Build) -> None:
    check(build, _optimise_twice)


def _optimise_twice(case: Case) -> Any:
    """The second call says that it changes nothing, too."""
    report = optimise_in_place(case)
    once = fingerprint(case.main)
    assert not optimise_in_place(case).changed
    assert fingerprint(case.main) == once
    return report


@each_scenario
def test_level_one_gives_equal_bytes(build: Build) -> None:
    from transpiler import memory_optimize
    check(build,
          lambda case: memory_optimize(case.main, level=1, fetch_list=list(case.fetch)),
          modes=BASIC_MODES,
          steps=3)


@each_scenario
def test_gradients_may_be_reused_as_well(build: Build) -> None:
    from transpiler import memory_optimize
    check(build,
          lambda case: memory_optimize(case.main, skip_grads=False, fetch_list=list(case.fetch)),
          modes=BASIC_MODES,
          steps=3)


@each_scenario
def test_plan_for_a_runtime_that_holds_is_right_wherever_it_runs(build: Build) -> None:
    """Priced for collection off, where the pool pays most, and run with collection on too."""
    from transpiler import memory_optimize

    def optimise(case: Case) -> Any:
        return memory_optimize(case.main, fetch_list=list(case.fetch), runtime="predictor")

    check(build, optimise, modes=BASIC_MODES, steps=3)


@each_scenario
def test_release_memory_gives_equal_bytes(build: Build) -> None:
    from transpiler import release_memory
    check(build,
          lambda case: release_memory(case.main, skip_opt_set=list(case.fetch)),
          modes=BASIC_MODES,
          steps=3)


# ---------------------------------------------------------------------------------------------------
# What users do with the program around the call

CHAIN = straight.chain_without_extra_fetches
MERGING = straight.inference_chain


def _intermediates(case: Case) -> List[str]:
    block = case.main.global_block()
    written = {name for op in block.ops for name in op.output_arg_names}
    return sorted(name for name in written if not block.var(name).persistable)


def _refused(case: Case, names: List[str]) -> Dict[str, str]:
    """Which of the names cannot be fetched any more, and what the error says."""
    errors = {}
    for name in names:
        try:
            run_case(case, steps=1, fetch=[name])
        except Exception as error:  # Whatever it is, the tests below judge what it says.
            errors[name] = str(error)
    return errors


def _hold_everything(case: Case, **options: Any) -> Any:
    """Optimises for a runtime that holds: there a chain of equal sizes always has something to merge."""
    from transpiler import memory_optimize
    return memory_optimize(case.main, fetch_list=list(case.fetch), runtime="predictor", **options)


def test_fetching_an_intermediate_is_right_or_an_error_that_points_to_fetch_list() -> None:
    for build in (MERGING, CHAIN):
        plain, case = build(), _optimised(build())
        names = _intermediates(plain)
        refused = _refused(case, names)
        assert refused
        for name, message in refused.items():
            assert name in message and "fetch_list" in message
        kept = [name for name in names if name not in refused]
        assert_same_bytes(run_case(plain, fetch=kept), run_case(case, fetch=kept))


def test_every_intermediate_fetched_keeps_its_value() -> None:

    def build() -> Case:
        case = MERGING()
        return replace(case, fetch=_intermediates(case))

    check(build, _hold_everything, modes=BASIC_MODES)


@pytest.mark.parametrize("form", [list, tuple, set, frozenset])
def test_skip_set_of_names_is_honoured(form: Any) -> None:
    _assert_skipped_names_survive(lambda case, names: form(names))


def test_skip_set_of_variables_is_honoured() -> None:
    block_of = lambda case: case.main.global_block()
    _assert_skipped_names_survive(lambda case, names: [block_of(case).var(n) for n in names])


def _assert_skipped_names_survive(skip_set_of: Callable[[Case, List[str]], Any]) -> None:
    plain, case = MERGING(), MERGING()
    lost = sorted(_refused(_optimised(MERGING()), _intermediates(plain)))
    assert lost
    _hold_everything(case, skip_opt_set=skip_set_of(case, lost))
    fetch = lost + list(case.fetch)
    assert_same_bytes(run_case(plain, fetch=fetch), run_case(case, fetch=fetch))


def _optimised(case: Case) -> Case:
    _hold_everything(case)
    return case


def test_skip_set_given_as_one_name_is_that_name() -> None:
    plain, case = MERGING(), MERGING()
    name = sorted(_refused(_optimised(MERGING()), _intermediates(plain)))[0]
    _hold_everything(case, skip_opt_set=name)
    assert_same_bytes(run_case(plain, fetch=[name]), run_case(case, fetch=[name]))


def test_unknown_name_in_the_skip_set_is_an_error_that_names_it() -> None:
    case = MERGING()
    before = fingerprint(case.main)
    with pytest.raises(Exception, match="no_such_variable"):
        _hold_everything(case, skip_opt_set={"no_such_variable"})
    assert fingerprint(case.main) == before


def test_program_that_ran_before_the_call_runs_on_with_equal_bytes() -> None:
    plain, case = CHAIN(), CHAIN()
    run_case(case)
    _hold_everything(case)
    assert_same_bytes(run_case(plain), run_case(case))


def test_one_executor_notices_that_its_program_was_optimised() -> None:
    """Three steps, the call, three more steps in the same scope and executor."""
    expected = run_case(CHAIN(), steps=6)
    case, executor = CHAIN(), paddle.static.Executor(paddle.CPUPlace())
    paddle.seed(20180628)
    losses = []
    with fresh_scope():
        executor.run(case.startup)
        for step in range(6):
            if step == 3:
                _hold_everything(case)
            losses.append(executor.run(case.main, feed=case.feed(step), fetch_list=case.fetch)[0])
    assert [float(loss) for loss in losses] == expected.scalars(case.fetch[0])


def test_clone_of_an_optimised_program_gives_equal_bytes() -> None:
    for build in (CHAIN, loops.gathered_sequence, branches.nested, straight.dropout_and_batch_norm):
        plain, case = build(), build()
        _hold_everything(case)
        assert_same_bytes(run_case(plain), run_case(case, program=case.main.clone()))


def test_parameters_stay_parameters() -> None:
    plain, case = CHAIN(), _optimised(CHAIN())
    names = lambda program: sorted(parameter.name for parameter in program.all_parameters())
    assert names(case.main) == names(plain.main)
    with fresh_scope():
        paddle.static.Executor(paddle.CPUPlace()).run(case.startup)
        assert sorted(case.main.state_dict("param")) == names(plain.main)


def test_tensor_that_was_fed_is_not_written() -> None:
    case = straight.same_tensor_fed_again()
    before = np.array(case.feed(0)["x"]).tobytes()
    _hold_everything(case)
    for mode in ALL_MODES:
        run_case(case, mode=mode)
        assert np.array(case.feed(0)["x"]).tobytes() == before


def test_batch_hint_is_a_hint_only() -> None:
    """Planned for one batch size, run at five others."""
    from transpiler import memory_optimize
    for build in (straight.batch_size_changes, straight.several_unknown_dims):
        check(
            build, lambda case: memory_optimize(
                case.main, level=1, fetch_list=list(case.fetch), batch_size=64))


def test_trip_hint_is_a_hint_only() -> None:
    """Planned for 80 trips, run with none, one, and up to five."""
    from transpiler import memory_optimize
    for build in (loops.number_of_trips_is_fed, loops.zero_trips_without_gradient):
        check(build,
              lambda case: memory_optimize(case.main, fetch_list=list(case.fetch), trip_count=80))


@pytest.mark.parametrize("recompute", ["auto", "cheap", "max", False])
@pytest.mark.parametrize("build", _builds(loops), scope="module")
def test_recomputing_in_loops_gives_equal_bytes(build: Build, recompute: Any) -> None:
    from transpiler import memory_optimize

    def optimise(case: Case) -> Any:
        return memory_optimize(case.main, fetch_list=list(case.fetch), recompute=recompute)

    check(build, optimise, modes=BASIC_MODES, steps=3)


# ---------------------------------------------------------------------------------------------------
# The harness itself: what it cannot see, no test here can


def _emptied(build: Build) -> Case:
    return dynamic_rnn.with_emptied_arrays(build())


@pytest.mark.parametrize("build", _builds(dynamic_rnn))
def test_one_executor_suffices_for_a_dynamic_rnn_whose_arrays_are_emptied(build: Build) -> None:
    """The cure of Paddle's own fault, for sentences whose number of words changes from step to step."""
    lengths = (dynamic_rnn.LENGTHS, (3, 2, 4, 1))
    names = list(build().feed(0))

    def feed(step: int) -> Dict[str, Any]:
        fed = dynamic_rnn.feed_sentences(step, lengths[step % 2])
        return {name: fed[name] for name in names}

    right = run_case(dynamic_rnn.with_fresh_executors(build()), feed=feed)
    assert_same_bytes(right, run_case(_emptied(build), feed=feed))


def _wrong_in_one_place(case: Case) -> None:
    """An optimizer's classic fault: one reader gets another value of the same size."""
    ops = [op for op in case.main.global_block().ops if op.type == "tanh_grad"]
    ops[0].desc.set_input("Out", ops[1].desc.input("Out"))


def test_harness_sees_a_wrong_value_in_one_gradient() -> None:
    with pytest.raises(AssertionError, match="persistable after the last step|fetched at step"):
        check(CHAIN, _wrong_in_one_place, modes=[DEFAULT_MODE])


def test_harness_sees_one_flipped_bit() -> None:
    value = run_case(CHAIN(), steps=1).fetched[0][CHAIN().fetch[0]]
    flipped = type(value)(value.dtype, value.shape, value.lod,
                          bytes([value.data[0] ^ 1]) + value.data[1:])
    assert difference(value, value) is None
    assert "1 of 1 elements differ" in str(difference(value, flipped))


def test_collection_and_order_flags_take_effect() -> None:
    """Measured: what is held without collection, and what is hoisted without an order."""
    program, in_order = "tests.scenarios.measured:hoisted", Mode(order="sequential")
    default = measure_peak(program, False).later
    holding = measure_peak(program, False, replace(in_order, collect=False)).later
    enough = min(holding / 2, default / 1.3)
    ordered = least_peak(program, enough, False, of=lambda peak: peak.later, mode=in_order).later
    assert ordered < enough
