"""The table of whole scripts: it has what it must have, and a row that does not hold fails."""
from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from click.testing import CliRunner
from paddle.vision import models

from benchmarks.apart import apart
from benchmarks.spec import Spec
from benchmarks.wild import __main__ as command, child
from benchmarks.wild.figures import Outcome, Phase, Row
from benchmarks.wild.processes import Processes, ScriptError
from benchmarks.wild.registry import builder, builders
from benchmarks.wild.table import HEADS, cells, markdown
from tests.builds import needs_float32_from_amp
from tests.wild.programs import Built
from tests.wild.trial import budget_with
from transpiler import memory_optimize

PHASE = Phase(ordered=1000, first=1000, later=900, predicted=1000, changed=True)
OUTCOME = Outcome((PHASE,), 5000, (('a',), ('b',)), ('c', 'c'), True)
SOUND = Row('updates', 'sgd', OUTCOME, OUTCOME)


def test_every_network_of_paddle_vision_is_trained_and_served() -> None:
    found = builders()['vision']
    missing = [name for name in models.__all__ if name.islower() and name not in found]
    assert len(models.__all__) > 40 and not missing
    assert all(f'{name} served' in found for name in found if not name.endswith(' served'))


def test_there_are_more_than_forty_features_and_no_name_is_used_twice() -> None:
    found = builders()
    names = [name for group in found.values() for name in group]
    assert len(names) == len(set(names))
    assert sum(len(found[group]) for group in ('updates', 'layers', 'flow')) > 40
    assert {'bert', 'ernie', 'gpt'} <= set(found['language'])
    assert {'bisenet_v2', 'mobilevit'} <= set(found['networks'])


@pytest.fixture(scope='module')
def processes() -> Processes:
    return Processes({'PYTHONHASHSEED': '0', **Spec('').environment()})


@pytest.mark.parametrize('group, name',
                         [('updates', 'gan'), ('updates', 'save and load'), ('layers', 'conv3d'),
                          ('layers', 'lstm'), ('layers', 'sparse embedding, global norm'),
                          ('networks', 'bisenet_v2 served'), ('networks', 'mobilevit'),
                          pytest.param('updates', 'loss scaling', marks=needs_float32_from_amp)])
def test_a_script_runs_untouched_and_optimized_in_processes_of_their_own(
        group: str, name: str, processes: Processes) -> None:
    row = command.row(processes, group, name)
    assert row.failure is None and row.faults() == []
    assert row.optimized is not None and len(set(row.optimized.fetched)) > 1


def _at_the_least_budget(name: str, least: bool) -> Tuple[int, int, Any]:
    """Bytes above resting that a run may need, by the least budget if that is set, and that one needed; what the runs gave."""
    script = builder(name)()
    case, = script.cases
    allowed = 0
    if least:
        told = {'batch_size': case.batch_size}
        budget = budget_with(Built(case, told), 0.0)
        report = memory_optimize(case.main, fetch_list=list(case.fetch), budget=budget, **told)
        allowed = budget - report.resting_bytes
    runs = [child._run(script, *each, child._Growth()) for each in (('default', 3), ('ordered', 1))]
    highest = max(peak for peaks, _, _ in runs for step in peaks for peak in step)
    return allowed, highest, [given for _, *given in runs]


@pytest.mark.parametrize('name', ['bert', 'ernie', 'gpt', 'bisenet_v2', 'mobilevit'])
def test_language_models_and_networks_of_papers_keep_the_least_budget(name: str) -> None:
    _, untouched, expected = apart(_at_the_least_budget, name, False)
    allowed, highest, found = apart(_at_the_least_budget, name, True)
    assert found == expected
    assert highest <= allowed < untouched


def test_a_script_that_raises_says_so(processes: Processes) -> None:
    with pytest.raises(ScriptError, match="(?s)nonsense, untouched: .*KeyError: 'nonsense'"):
        processes.measure('nonsense', False)


@pytest.mark.parametrize('ordered, faults', [(980, []), (1030, []), (960, ['prediction']),
                                             (1040, ['prediction', 'higher than untouched'])])
def test_a_prediction_that_is_three_percent_off_is_a_fault(ordered: int, faults: list) -> None:
    plain = replace(OUTCOME, phases=(replace(PHASE, ordered=1035, predicted=None),))
    measured = replace(OUTCOME, phases=(replace(PHASE, ordered=ordered),))
    assert replace(SOUND, plain=plain, optimized=measured).faults() == faults


@pytest.mark.parametrize('change', [{'fetched': (('a',), ('x',))}, {'state': ('c', 'x')}], ids=str)
def test_other_bytes_are_a_fault(change: dict) -> None:
    row = replace(SOUND, optimized=replace(OUTCOME, **change))
    assert SOUND.faults() == [] and row.faults() == ['bytes differ']
    assert cells(row)[-1] == 'bytes differ'


@pytest.mark.parametrize('ordered, faults', [(700, []), (1000, []), (1020, []),
                                             (1040, ['prediction'])])
def test_of_what_depends_on_values_the_most_is_predicted(ordered: int, faults: List[str]) -> None:
    measured = replace(OUTCOME, phases=(replace(PHASE, ordered=ordered),), foreseeable=False)
    plain = replace(OUTCOME, phases=(replace(PHASE, ordered=1100),))
    assert replace(SOUND, plain=plain, optimized=measured).faults() == faults


def test_what_depends_on_values_need_not_be_predicted_but_may_not_be_higher() -> None:
    measured = replace(OUTCOME,
                       phases=(replace(PHASE, ordered=1200, predicted=1300),),
                       foreseeable=False)
    row = replace(SOUND, optimized=measured)
    assert row.faults() == ['higher than untouched']
    assert len(cells(row)) == len(HEADS) and 'by value' in markdown([row])


def test_a_script_that_fails_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(self: Processes, name: str, optimized: bool) -> Outcome:
        raise ScriptError(f'{name}: no reason')

    monkeypatch.setattr(Processes, 'measure', fail)
    result = CliRunner().invoke(command.main, ['sgd'])
    assert result.exit_code == 1
    assert 'sgd: no reason' in result.output and '1 of 1 scripts' in result.output


def test_a_name_that_no_script_has_is_said() -> None:
    result = CliRunner().invoke(command.main, ['nonsense'])
    assert result.exit_code == 1 and 'no script is called nonsense' in result.output


def test_what_was_measured_before_is_not_measured_again(tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """But what failed is; the table has all, in the order of --list."""
    figures, asked = tmp_path / 'figures.json', []
    failed = Row('flow', 'cond', failure='not done after 5 s')
    figures.write_text(json.dumps([asdict(failed), asdict(SOUND)]))

    def measured(processes: Processes, group: str, name: str) -> Row:
        asked.append(name)
        return replace(SOUND, group=group, name=name)

    monkeypatch.setattr(command, 'row', measured)
    table_file = tmp_path / 'table.md'
    options = ['--json', str(figures), '--resume', '--markdown', str(table_file)]
    result = CliRunner().invoke(command.main, ['cond', 'sgd', 'assert', *options])
    assert result.exit_code == 0, result.output
    assert asked == ['cond', 'assert']
    assert [each['name'] for each in json.loads(figures.read_text())] == ['sgd', 'cond', 'assert']
    assert table_file.read_text() == markdown([
        SOUND,
        replace(SOUND, group='flow', name='cond'),
        replace(SOUND, group='flow', name='assert')
    ])


def test_a_script_that_takes_too_long_is_a_failure() -> None:
    hurried = Processes({'PYTHONHASHSEED': '0', **Spec('').environment()}, seconds=0)
    with pytest.raises(ScriptError, match='sgd, untouched: not done after 0 s'):
        hurried.measure('sgd', False)
