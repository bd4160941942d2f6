"""memory_optimize(verify_runs=N): both programs run apart, before anything is applied."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from tests.harness import Case, fingerprint, fresh_scope, new_programs
from tests.scenarios import straight
from tests.scenarios.common import data, fc, floats, random_feed, square_loss, train
from tests.test_hostile_arguments import values
from transpiler import (InvalidArgumentError, InvalidProgramError, TranspilerError,
                        UnknownVariableError, VerificationError, memory_optimize)
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.serving.apart import digest
from transpiler.trials import trial
from transpiler.trials.running import Ran, _contents

ROWS, TRIPS = 64, 24


def loop_of_layers() -> Case:
    """A trained loop behind a layer with dropout, whose gradients are Momentum's."""
    with new_programs() as (main, startup):
        x = data('x', -1, 256)
        state = paddle.nn.functional.dropout(fc(x, 256, 'relu'), 0.2)
        weights = paddle.create_parameter([256, 256], 'float32')
        count, end = (paddle.full([1], value, 'int64') for value in (0, TRIPS))
        _, state = paddle.static.nn.while_loop(
            lambda i, s: i < end, lambda i, s:
            [i + 1, paddle.tanh(paddle.nn.functional.sigmoid(paddle.matmul(s, weights)) * s)],
            [count, state])
        loss = square_loss(state)
        train(loss, paddle.optimizer.Momentum(0.1))
    return Case(main, startup, random_feed(x=floats(ROWS, 256)), [loss.name])


def feeds(case: Case, number: int) -> List[Dict[str, Any]]:
    return [case.feed(step) for step in range(number)]


def held(scope: Any, main: paddle.static.Program) -> Dict[str, bytes]:
    names = [v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name)]
    return {name: np.array(scope.find_var(name).get_tensor()).tobytes() for name in names}


def test_what_was_predicted_is_measured_and_nothing_of_the_process_has_changed() -> None:
    case = loop_of_layers()
    with fresh_scope() as scope:
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        before, dice = held(scope, case.main), paddle.get_cuda_rng_state()
        flags = paddle.get_flags(['FLAGS_eager_delete_tensor_gb'])
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=ROWS,
                                 trip_count=TRIPS,
                                 verify_runs=3,
                                 verify_feed=feeds(case, 3))
        assert before and held(scope, case.main) == before
        assert dice == paddle.get_cuda_rng_state()
        assert flags == paddle.get_flags(list(flags))
        assert np.isfinite(
            executor.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch))[0])
    found = report.measured
    assert report.changed and found.runs == 3 and found.equal and not found.note
    assert found.states == len(before)
    # A collector that is late needs more, never less.
    assert found.untouched.first_peak_bytes >= 0.99 * report.peak_bytes_before
    first, later = found.optimized.first_peak_bytes, found.optimized.later_peak_bytes
    assert 0.99 * report.needed_bytes <= first
    assert max(first, later) <= report.sure_bytes < report.peak_bytes_before
    assert found.optimized.growth_bytes > 0 and found.optimized.cpu_seconds > 0
    text = str(report)
    assert 'Measured in 3 runs' in text and f'{len(before)} parameters or states: equal' in text
    assert report.to_dict()['measured']['optimized']['growth_bytes'] == found.optimized.growth_bytes


def test_other_bytes_raise_and_the_program_is_as_it_was(monkeypatch: Any) -> None:
    """In a program that starts from its default startup program, run nowhere."""
    case = straight.chain_without_extra_fetches()
    pack = LivePrograms.pack

    def tampered(self: LivePrograms, imported: Any, written: Any, fetched: Any) -> Any:
        """That of the program as it is, whose loss is doubled."""
        whole = pack(self, case.main, fetched)
        other = paddle.static.Program.parse_from_string(whole.contents)
        with paddle.static.program_guard(other):
            block = other.global_block()
            out = block.var(fetched[0])
            block.append_op(type='scale',
                            inputs={'X': out},
                            outputs={'Out': out},
                            attrs={'scale': 2.0})
        return replace(whole, contents=other.desc.serialize_to_string())

    monkeypatch.setattr(LivePrograms, 'pack_written', tampered)
    before = fingerprint(case.main)
    with paddle.static.program_guard(case.main, case.startup), fresh_scope() as scope:
        with pytest.raises(VerificationError) as raised:
            memory_optimize(case.main,
                            fetch_list=list(case.fetch),
                            runtime='predictor',
                            batch_size=ROWS,
                            verify_runs=1,
                            verify_feed=case.feed(0))
        assert not held(scope, case.main)
    assert 'run 1' in str(raised.value) and repr(case.fetch[0]) in str(raised.value)
    assert fingerprint(case.main) == before


def test_a_program_that_differs_from_itself_says_nothing_of_the_other(monkeypatch: Any) -> None:
    case = straight.chain_without_extra_fetches()
    said: List[str] = []

    def run(spec: Any, what: str) -> Ran:
        said.append(what)
        return Ran(8, [8], 8, [1.0, 1.0], [str(len(said))] * 2, 'state')

    monkeypatch.setattr(trial, 'run_apart', run)
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             runtime='predictor',
                             batch_size=ROWS,
                             verify_runs=2,
                             verify_feed=case.feed(0))
    assert said == ['the program as it is', 'the rewritten program', 'the program as it is']
    assert report.changed and not report.measured.equal and 'each time it is run' in str(report)


def test_where_nothing_is_changed_the_program_as_it_is_is_measured(monkeypatch: Any) -> None:
    case = straight.chain_without_extra_fetches()
    monkeypatch.setattr(trial, 'run_apart', lambda spec, what: Ran(8, [], 8, [1.0], [''], ''))
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=ROWS)
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             batch_size=ROWS,
                             verify_runs=1,
                             verify_feed=case.feed(0))
    assert not report.changed and report.measured.optimized is None
    assert 'Measured in 1 run,' in str(report)


@pytest.mark.parametrize('wrong, error, said', [
    ({'verify_runs': -1}, InvalidArgumentError, 'verify_runs takes a whole number'),
    ({'verify_runs': True}, InvalidArgumentError, 'verify_runs takes a whole number'),
    ({'verify_runs': None}, InvalidArgumentError, 'verify_runs takes a whole number'),
    ({'verify_feed': {}}, InvalidArgumentError, 'verify_runs=2'),
    ({'verify_runs': 1, 'verify_feed': 3}, InvalidArgumentError, 'verify_feed takes a feed'),
    ({'verify_runs': 1, 'verify_feed': [3]}, InvalidArgumentError, 'verify_feed takes a feed'),
    ({'verify_runs': 1}, InvalidArgumentError, "no value for input 'x'"),
    ({'verify_runs': 1, 'verify_feed': {'y': 1}}, UnknownVariableError, "no input 'y'; its inputs are 'x'"),
    ({'verify_runs': 1, 'verify_feed': {'x': [object()]}}, InvalidArgumentError, "'x' is no array"),
])  # yapf: disable
def test_a_wrong_word_is_refused_and_nothing_runs(wrong: Dict[str, Any], error: type, said: str,
                                                  monkeypatch: Any) -> None:
    monkeypatch.setattr(trial, 'run_apart', lambda spec, what: pytest.fail('it was run'))
    case = straight.chain_without_extra_fetches()
    before = fingerprint(case.main)
    with pytest.raises(error) as raised:
        memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=ROWS, **wrong)
    assert said in str(raised.value) and fingerprint(case.main) == before


def test_any_value_is_taken_or_refused_in_one_line_that_names_the_argument(
        monkeypatch: Any) -> None:
    monkeypatch.setattr(trial, 'run_apart', lambda spec, what: Ran(8, [], 8, [1.0], [''], ''))
    case = straight.chain_without_extra_fetches()
    good = {'verify_runs': 1, 'verify_feed': case.feed(0)}
    ragged = [[1, 2], [3]]
    given = [{'verify_runs': value} for value in values()]
    given += [{'verify_feed': value} for value in values()]
    given += [{'verify_feed': {'x': value}} for value in [*values(), ragged]]
    refused = []
    for each in given:
        main = case.main.clone()
        try:
            memory_optimize(main, fetch_list=list(case.fetch), batch_size=ROWS, **{**good, **each})
        except TranspilerError as error:
            refused.append(str(error))
            assert len(str(error).splitlines()) == 1 and next(iter(each)) in str(error)
    assert len(refused) > len(given) // 2


def with_lengths(lengths: List[int]) -> Any:
    tensor = paddle.base.core.LoDTensor()
    tensor.set(np.ones((4, 1), 'float32'), paddle.CPUPlace())
    tensor.set_recursive_sequence_lengths([lengths])
    return tensor


def test_what_is_compared_has_lengths_and_every_tensor_of_an_array() -> None:

    def seen(fetched: Any) -> str:
        return digest(list(_contents(fetched)))

    one, other = with_lengths([1, 3]), with_lengths([2, 2])
    assert seen(one) == seen(with_lengths([1, 3])) != seen(other)
    short, array = paddle.base.core.LoDTensor(), paddle.base.core.LoDTensorArray()
    short.set(np.ones((2, 1), 'float32'), paddle.CPUPlace())
    for tensor in (one, short):
        array.append(tensor)
    assert len({seen(each) for each in (array, [one, other], [one, one], one)}) == 4


def test_parameters_without_values_are_named() -> None:
    """The default startup program is that of another program."""
    case = loop_of_layers()
    with fresh_scope(), new_programs(), pytest.raises(InvalidArgumentError) as raised:
        memory_optimize(case.main,
                        fetch_list=list(case.fetch),
                        verify_runs=1,
                        verify_feed=case.feed(0))
    assert 'has no value in the scope' in str(raised.value) and 'startup program' in str(
        raised.value)


def test_what_talks_to_other_workers_is_refused_where_they_would_not_come() -> None:
    with new_programs() as (main, startup):
        x = data('x', -1, 4)
        main.global_block().append_op(type='c_allreduce_sum',
                                      inputs={'X': x},
                                      outputs={'Out': x},
                                      attrs={'ring_id': 0})
        out = paddle.mean(x)
    before = fingerprint(main)
    with pytest.raises(InvalidArgumentError, match='shared=True on all of them') as raised:
        memory_optimize(main,
                        fetch_list=[out],
                        verify_runs=1,
                        verify_feed={'x': np.ones((2, 4), 'float32')})
    assert 'c_allreduce_sum' in str(raised.value) and fingerprint(main) == before


def test_what_only_this_process_can_run_is_refused_in_words() -> None:
    case = straight.python_function()
    before = fingerprint(case.main)
    with paddle.static.program_guard(case.main, case.startup), fresh_scope():
        with pytest.raises(InvalidProgramError) as raised:
            memory_optimize(case.main,
                            fetch_list=list(case.fetch),
                            verify_runs=1,
                            verify_feed=case.feed(0))
    assert 'functions in Python' in str(raised.value) and fingerprint(case.main) == before
