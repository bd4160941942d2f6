"""`python -m benchmarks.layers`: a process for each way, steps in turn, and a table that says what differs."""
from __future__ import annotations

from typing import Any, Dict

import paddle
import pytest

from benchmarks.layers import __main__ as command
from benchmarks.layers.networks import NETWORKS
from benchmarks.layers.trainer import WAYS, Trainer, environment

ROW: Dict[str, Any] = {'network': 'net', 'way': 'to_static', 'peak': 4 << 20, 'kept': 2 << 20,
                       'grown': 9_000_000, 'wall': [30.0, 10.0, 20.0], 'cpu': [10.0, 20.0, 40.0],
                       'losses': ['aa', 'bb'], 'state': 'cc'}  # yapf: disable


def row(**changes: Any) -> Dict[str, Any]:
    return {**ROW, **changes}


def test_a_row_has_least_and_median_and_is_compared_with_what_paddle_makes_static() -> None:
    ours = row(way='ours, max', cpu=[15.0, 20.0, 60.0], wall=[7.0])
    lines = command.table([ours, row()]).splitlines()
    assert lines[
        2] == '| net | ours, max | 4.0 | 2.0 | 9 | 7 / 7 | 15 / 20 | +50 % / +0 % | equal |'
    assert lines[3].endswith('| 10 / 20 | 10 / 20 | +0 % / +0 % | equal |')
    assert not command.failures([ours, row()])


@pytest.mark.parametrize('changes, words', [({
    'losses': ['aa', 'bc']
}, 'losses differ'), ({
    'state': 'dd'
}, 'states differ')])
def test_what_of_ours_differs_fails_the_command(changes: Any, words: str) -> None:
    ours, theirs = row(way='ours, auto', **changes), row(way='eager', **changes)
    assert words in command.table([row(), ours])
    assert command.failures([row(), ours]) == [f'net: {words} (ours, auto)']
    assert not command.failures([row(), theirs])


def test_only_paddles_own_recomputation_needs_an_environment() -> None:
    assert [way for way in WAYS if environment(way)] == ['enable_auto_recompute']


def test_two_ways_train_in_turn_in_processes_of_their_own() -> None:
    plain, ours = command.timed('tiny', ('to_static', 'ours, max'), 'ast', equal=2, steps=1)
    assert plain['losses'] == ours['losses'] and plain['state'] == ours['state']
    assert len(set(plain['losses'])) == 2 and len(plain['cpu']) == 1
    assert ours['grown'] > 0


def test_what_is_kept_and_the_peak_of_a_step_are_seen() -> None:
    paddle.disable_static()
    try:
        plain, ours = (
            Trainer(NETWORKS['tiny'], way, True, True).step() for way in ('to_static', 'ours, max'))
    finally:
        paddle.enable_static()
    assert ours['kept'] < plain['kept'] <= plain['peak']
