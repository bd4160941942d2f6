"""`python -m benchmarks.layers`: a process for each way, steps in turn, and a table that says what differs."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from click.testing import CliRunner

from benchmarks.layers.__main__ import main
from benchmarks.layers.figures import conditions, failures, table
from benchmarks.layers.trainer import WAYS, environment
from benchmarks.layers.training import Way, ways

ROW: Dict[str, Any] = {'network': 'net', 'paddle': '2.6.2', 'mode': 'ast', 'way': 'to_static',
                       'peak': 4 << 20, 'kept': 2 << 20, 'grown': 9_000_000,
                       'wall': [30.0, 10.0, 20.0], 'cpu': [10.0, 20.0, 40.0],
                       'losses': ['aa', 'bb'], 'state': 'cc', 'failure': '', 'date': '2026-11-23',
                       'loads': [1.0, 2.0]}  # yapf: disable


def row(**changes: Any) -> Dict[str, Any]:
    return {**ROW, **changes}


def test_a_row_has_least_and_median_and_is_compared_with_what_paddle_makes_static() -> None:
    ours = row(way='ours, max', cpu=[15.0, 20.0, 60.0], wall=[7.0])
    lines = table([ours, row()]).splitlines()
    assert lines[2] == ('| net | 2.6.2 | ast | ours, max | 4.0 | 2.0 | 9 | 7 / 7 | -30 % / -65 % '
                        '| 15 / 20 | +50 % / +0 % | equal |')
    assert lines[3].endswith('| 10 / 20 | +0 % / +0 % | 10 / 20 | +0 % / +0 % | equal |')
    assert not failures([ours, row()])


def test_rows_are_compared_with_those_of_their_paddle_and_of_what_it_traces() -> None:
    rows = [row(way='eager', mode=''), row(), row(mode='sot', losses=['ab', 'bb'])]
    rows += [row(mode='sot', way='ours, max'), row(paddle='3.3.1', way='ours, max')]
    ends = [line.rsplit('|', 2)[1].strip() for line in table(rows).splitlines()[2:]]
    assert ends == ['equal', 'equal', 'equal', 'losses differ', '-']
    assert failures(rows) == ['net, Paddle 2.6.2, sot: losses differ (ours, max)']


def test_a_way_that_fails_is_a_row_and_fails_the_command_if_it_is_ours() -> None:
    failed: Dict[str, Any] = {'failure': 'ends with status 1', 'losses': [], 'wall': [], 'cpu': []}
    rows = [row(), row(way='enable_auto_recompute', **failed)]
    assert table(rows).splitlines()[3].endswith('| enable_auto_recompute |' + ' - |' * 7 +
                                                ' ends with status 1 |')
    assert not failures(rows)
    assert failures([*rows,
                     row(way='ours, auto',
                         **failed)]) == ['net, Paddle 2.6.2, ast: ends with status 1 (ours, auto)']


def test_when_and_beside_what_it_was_measured_is_said() -> None:
    assert conditions([row(), row(loads=[0.5, 1.0])]) == '2026-11-23, load 0.5 to 2.0'
    assert conditions([row(),
                       row(date='2026-11-24')]) == '2026-11-23 to 2026-11-24, load 1.0 to 2.0'


@pytest.mark.parametrize('changes, words', [({
    'losses': ['aa', 'bc']
}, 'losses differ'), ({
    'state': 'dd'
}, 'states differ')])
def test_what_of_ours_differs_fails_the_command(changes: Any, words: str) -> None:
    ours, theirs = row(way='ours, auto', **changes), row(way='eager', **changes)
    assert words in table([row(), ours])
    assert failures([row(), ours]) == [f'net, Paddle 2.6.2, ast: {words} (ours, auto)']
    assert not failures([row(), theirs])


def test_only_paddles_own_recomputation_needs_an_environment() -> None:
    assert [way for way in WAYS if environment(way)] == ['enable_auto_recompute']


def test_every_way_is_measured_in_its_modes_and_in_those_alone_that_are_asked_for() -> None:
    asked = ways(tuple(WAYS), ('ast', 'sot'))
    assert len(set(asked)) == len(asked) == 9 and {each.name for each in asked} == set(WAYS)
    assert [each.name for each in asked if not each.mode] == ['eager', 'fleet.utils.recompute']
    assert ways(('eager', 'to_static', 'enable_auto_recompute'),
                ('sot',)) == (Way('eager', ''), Way('to_static', 'sot'))


def test_ways_train_in_turn_in_processes_of_their_own_and_figures_are_taken_up_again(
        tmp_path: Path) -> None:
    figures = tmp_path / 'figures.json'
    arguments = ['tiny', '--ast', '--way', 'to_static', '--way', 'ours, max', '--steps', '3',
                 '--json', str(figures), '--resume']  # yapf: disable
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0, said.output
    written = figures.read_text()
    plain, ours = json.loads(written)
    assert plain['losses'] == ours['losses'] and plain['state'] == ours['state']
    assert len(set(plain['losses'])) == 3 and len(plain['cpu']) == 1
    assert ours['grown'] > 0 and ours['kept'] < plain['kept'] <= plain['peak']
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0 and figures.read_text() == written
    assert table([plain, ours]) in said.output and table([plain, ours]) in again.output
