"""Generated programs of many kinds of operators give equal bytes; what the importer owes to them."""
from __future__ import annotations

import contextlib
import io
import re
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, List, Sequence, Tuple

import paddle
import pytest

from benchmarks.apart import apart
from tests.builds import NO_FLOAT32
from tests.harness import executor_mode, fingerprint, new_programs
from tests.processor import NO_BFLOAT16, has_bfloat16
from tests.scenarios.common import data
from tests.wild import trial
from tests.wild.__main__ import main
from tests.wild.children import Ended, in_child
from tests.wild.programs import build
from tests.wild.recipes import recipe
from tests.wild.seen import NAMES
from transpiler import MemoryBudgetError, memory_optimize
from transpiler.analysis.timeline import Timeline
from transpiler.backends.paddle2.importer import import_program
from transpiler.backends.settings import has_cpu_kernels_alone
from transpiler.planning import OPTIMIZE, PlanOptions, plan
from transpiler.planning.planner import tried_plans
from transpiler.planning.runner import Runner
from transpiler.runtime import COLLECTING

# More of them: python -m tests.wild.
_PARTS, _SEEDS = 12, 25
# Seeds of programs that did, by what the model had left out.
_BROKE_A_PROMISE = {
    'what is left to the collector': '6,10,18,53,54',
    'other sizes than that of the plan': '34,51',
    'the index of nanmedian': '13,49',
    'sizes that the data decides': '8,56',
    'what only some runs need': '26,115,6024',
    'buffers, by the rules of others': '6191:hold,6296,6410:serial,7133:default,7349:default',
    'what a kernel takes for half done': '20727',
    'memory that its next tenant outgrows': '210:serial',
    'memory that a kernel does not take for its result': '25365',
    'scopes of a loop that the run before has left': '30214:hold',
    'a buffer that the second of its names still has': '30307:hold',
    'copies in other layouts that are not there': '22083',
    'buffers that are kept in place of such copies': '22141',
    'what is computed again where nothing else is changed': '22778',
    'what a release leaves the type of': '9855:hold,10418,22847:hold',
    'what stands beside a result that nobody knows the size of': '230101:hold',
    'a name that was let go of, whose memory another has': '232666:seq',
    'plans for a budget that need more elsewhere': '20983,21193,21538,21672:hold',
    'what is chosen for a branch that is not taken': '61139',
    'bounds where a branch is not taken': '8101796',
    'names that a branch which is not taken leaves as they are': '8507644:seq',
    'what a smaller batch has left of a result that is made last': '8517830:hold',
    'what may have any size': '8519078:hold',
    'what a kernel may take hides what others need': '8519659:seq',
    'the least budget, as it was named to who asked for less': '8100785:hold',
    'trips in a first run that holds them': '72003:hold,80079:hold',
    'slices of a flat parameter': '70588:hold',
    'parameters that are as large as one of slices': '8302218:seq',
    'orders beside releases in bfloat16': '72067',
    'clones in place on what is read in another layout': '72052,80569',
    'orders behind what oneDNN reads under another name': '151669:serial',
    'branches and loops that run side by side': '150331:hold',
    'what loops compute again, where the collector is late': '8536304',
    'what branches may work on in place is read in another layout': '8535443',
    'plans that were made for no budget': '6020,9110:serial,9139:hold,9168',
}


def _ended(words: Sequence[str]) -> Tuple[int, str]:
    """What `python -m tests.wild` ends with and says, in a process that has run nothing yet."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        return main(words), said.getvalue()


def _wild(*words: str) -> str:
    """What the command says; its failures stand in it line by line. Its process is a fork of one that has Paddle: importing it
    anew takes as long as some programs."""
    status, said = apart(_ended, words)
    assert status == 0, said
    return said


@pytest.mark.parametrize('part', range(_PARTS))
def test_generated_programs_give_equal_bytes_and_keep_what_is_promised(part: int) -> None:
    first = part * _SEEDS
    said = _wild('--seeds', f'{first}..{first + _SEEDS}', '--modes', 'one')
    whole, kinds = map(int, re.search(r'(\d+) programs ran whole.*; (\d+) kinds', said).groups())
    assert whole >= _SEEDS * 3 // 4 and kinds >= 60


@pytest.mark.parametrize('seeds', _BROKE_A_PROMISE.values(), ids=_BROKE_A_PROMISE.keys())
def test_generated_programs_that_broke_a_promise_once_keep_it(seeds: str) -> None:
    chosen = [seed for seed in seeds.split(',') if has_bfloat16() or _scaling(seed) != 'bf16']
    if not chosen:
        pytest.skip(NO_BFLOAT16)
    said = _wild('--seeds', ','.join(chosen), '--modes', 'seq', '--verbose')
    left_out = re.findall(r'^(\d+): not run', said, re.MULTILINE)
    if left_out:  # not even untouched
        assert not has_cpu_kernels_alone() and set(map(_scaling, left_out)) == {'loss_scaling'}
    assert f'{len(chosen) - len(left_out)} programs ran whole' in said
    if len(left_out) == len(chosen):
        pytest.skip(NO_FLOAT32)


def _scaling(seed: str) -> Any:
    return recipe(int(seed.partition(':')[0])).scaling


def test_programs_that_were_seen_to_fail_do_so_no_more() -> None:
    assert f'{len(NAMES)} programs ran whole' in _wild('--seen')


def test_what_is_computed_again_leaves_no_more_to_a_late_collector_than_no_plan_does() -> None:
    program = import_program(fingerprint(build(recipe(8536304)).case.main))
    dims = dict.fromkeys(program.symbols(), 3)
    runner = Runner(program.graph, COLLECTING, dims, PlanOptions())
    refused = [
        each for each in tried_plans(runner, OPTIMIZE)
        if each.after.lagging_peak_bytes > each.before.lagging_peak_bytes
    ]
    done = plan(program.graph, COLLECTING, dims)
    assert done.after.lagging_peak_bytes <= done.before.lagging_peak_bytes
    assert min(each.after.peak_bytes for each in refused) < done.after.peak_bytes


def _peak(main: Any, rows: int) -> int:
    program = import_program(fingerprint(main))
    return Timeline(program.graph, COLLECTING, dict.fromkeys(program.symbols(), rows)).peak_bytes


def test_an_input_that_no_operator_reads_counts_from_its_feeding_on() -> None:
    peaks = []
    for unread in (False, True):
        with new_programs() as (main, _):
            paddle.mean(data('x', -1, 8))
            if unread:
                data('label', -1, 3, dtype='int64')
        peaks.append(_peak(main, rows=5))
    assert peaks[1] - peaks[0] == 5 * 3 * 8


@pytest.mark.parametrize('value', ['inf', '-inf', 'nan'])
def test_a_constant_that_is_no_number_is_no_shape(value: str) -> None:
    with new_programs() as (main, _):
        limit = paddle.full([2], float(value))
        paddle.maximum(paddle.tanh(data('x', -1, 2)), limit)
    before = fingerprint(main)
    assert memory_optimize(main, batch_size=4).changed == (fingerprint(main) != before)


@pytest.mark.parametrize('seed', [16, 23, 26, 28])
def test_a_generated_program_gets_the_least_budget_that_a_plan_keeps(seed: int) -> None:
    """Or nothing that it needs more than is said could break it."""
    built = build(recipe(seed))
    with executor_mode(trial.MODES['hold']):
        budget = trial.budget_with(built, 0.0)
        roomy = trial.budget_with(built, 1.0)
        with pytest.raises(MemoryBudgetError):
            trial._optimize(built, {'budget': budget * 9 // 10})
        report = trial._optimize(built, {'budget': budget})
    assert report.resting_bytes + report.sure_bytes <= budget < roomy * 3 // 4


@pytest.mark.parametrize('too_little, failures', [(True, ['REFUSED seq room=0.0: 7']), (False, [])])
def test_a_budget_that_is_refused_though_it_was_said_to_be_kept_is_a_failure(
        too_little: bool, failures: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if nothing less would do either: as where memory piles up from run to run."""
    ran = Ended(asdict(trial.Run({}, 0, 40, 40)), '')
    told = {
        'changed': False,
        'budget': 7,
        'traded': False,
        'runs': None,
        'failures': [''],
        'too_little': too_little
    }
    monkeypatch.setattr(trial, '_run', lambda *_: ran)
    monkeypatch.setattr(trial, 'in_child', lambda *_, **__: Ended(told, ''))
    verdict = trial.Verdict(1)
    trial._try_modes(SimpleNamespace(case=None), ['seq'], 0.0, None, verdict)
    assert verdict.failures == failures


@pytest.mark.parametrize('which, untouched, optimized, above', [
    ('later', [50], [90, 80, 70, 60, 55, 50], False),
    ('later', [50, 40, 60, 30], [70, 65, 80, 60], False),
    ('later', [50], [51], True),
    ('first', [50], [51, 52, 51, 51, 50], True),
])
def test_a_peak_is_above_if_no_try_is_as_low_as_the_highest_of_the_untouched_program(
        which: str, untouched: Sequence[int], optimized: Sequence[int], above: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries by turns, the last figure again and again."""
    turns = {
        False: iter([*untouched, *[untouched[-1]] * 99]),
        True: iter([*optimized, *[optimized[-1]] * 99])
    }
    monkeypatch.setattr(trial, '_run', lambda *_: Ended({which: next(turns[False])}, ''))
    monkeypatch.setattr(
        trial, 'in_child',
        lambda *_, **__: Ended({
            'runs': [{
                which: next(turns[True])
            }],
            'failures': ['']
        }, ''))
    judge = trial._Judge(SimpleNamespace(case=None), None, trial.Run({}, 0, 40, 40), None, True,
                         False, False, 0)
    assert judge._is_above(which, 0, None, [{which: 99}]) is above


@pytest.mark.parametrize('untouched, kinds',
                         [('', ['CRASH', 'PEAK-later']), ('ended with status 11', ['PEAK-later']),
                          ('ended with status 6', ['PEAK-later']),
                          ('RuntimeError: no memory at trial.py:1', ['PEAK-later'])])
def test_a_program_that_ends_at_another_try_has_failed_if_the_untouched_one_does_not(
        untouched: str, kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = trial.Run({}, 0, 40, 40), trial.Run({}, 0, 40, 90)
    monkeypatch.setattr(trial, '_run', lambda *_: Ended(asdict(before), untouched))
    monkeypatch.setattr(
        trial, 'in_child',
        lambda *_, **__: Ended(None, 'RuntimeError: optimized: ended with status 11'))
    judge = trial._Judge(SimpleNamespace(case=None), None, before, None, True, False, False, 99)
    assert sorted(kind for kind, _ in judge.wrong(after, False)) == kinds


@pytest.mark.parametrize('seed', [trial._PLANNED_APART * 3, trial._PLANNED_APART * 3 + 1])
def test_a_plan_is_made_once_for_all_modes_that_collect_but_of_some_programs_for_each(
        seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def try_modes(plain: Any, names: Sequence[str], *_: Any) -> str:
        tried.append(tuple(names))
        return f'plan of {names[0]}'

    monkeypatch.setattr(trial, '_try_modes', try_modes)
    failures = trial._trial(recipe(seed), list(trial.MODES), False)['failures']
    apart = seed % trial._PLANNED_APART == 0
    assert sorted(tried) == sorted([(name,) for name in trial.MODES] if apart else [(
        'seq', 'default', 'serial'), ('hold',)])
    assert failures == (['PLANS differ between modes'] if apart else [])


@pytest.mark.parametrize('failure, excused', [('ended with status 256', False),
                                              ('ValueError: other', False),
                                              ('RuntimeError: this at trial.py:7', True)])
def test_a_program_that_ended_with_an_error_has_not_failed_only_if_the_untouched_one_ends_with_that(
        failure: str, excused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, '_run', lambda *_: Ended(None, 'RuntimeError: this at trial.py:1'))
    assert trial._fails_at_times(None, None, failure) is excused


@pytest.mark.parametrize('through', [True, False])
def test_a_program_that_was_killed_has_not_failed_only_if_untouched_it_never_runs(
        through: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([
        'RuntimeError: this', 'ended with status 6', '' if through else 'ended with status 139',
        *['Error'] * 9
    ])
    monkeypatch.setattr(trial, '_run', lambda *_: Ended(None, next(ends)))
    assert trial._fails_at_times(None, None, 'ended with status 11') is not through


@pytest.mark.parametrize('first, piles_up, kinds', [(40, False, ['SURE']), (40, True, []),
                                                    (90, True, ['SURE'])])
def test_what_piles_up_from_run_to_run_may_pass_what_is_sure_in_later_runs_alone(
        first: int, piles_up: bool, kinds: Sequence[str]) -> None:
    before = trial.Run({}, 0, first, 99)
    judge = trial._Judge(None, None, before, None, True, False, False, 50, piles_up)
    assert [kind for kind, _ in judge.wrong(trial.Run({}, 0, first, 99), False)] == kinds


def test_a_child_that_cannot_say_what_it_found_speaks_to_nobody_else() -> None:
    ended = in_child(lambda: in_child(object, 20.)._asdict(), 40.)
    assert ended == Ended({'value': None, 'failure': 'ended with status 256'}, '')


@pytest.mark.parametrize('alone, failures', [('ended with status 11', []),
                                             ('longer than 60 s', ['TRIAL ended with status 11']),
                                             ('', ['TRIAL ended with status 11'])])
def test_a_trial_that_ended_has_not_failed_only_if_to_build_the_program_ends_likewise(
        alone: str, failures: List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([Ended(None, 'ended with status 11'), Ended(None if alone else True, alone)])
    monkeypatch.setattr(trial, 'in_child', lambda *_, **__: next(ends))
    verdict = trial.trial(5, ['seq'])
    assert verdict.failures == failures and bool(verdict.why_not) != bool(failures)
