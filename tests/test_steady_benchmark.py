"""The long runs of benchmarks: steps of changing batch sizes, and processor time in turns."""
from __future__ import annotations

import pytest

from benchmarks.apart import apart
from benchmarks.cpu import KINDS, UNTOUCHED, Times
from benchmarks.cpu import table as cpu_table
from benchmarks.cpu import train as train_timed
from benchmarks.programs import small_options
from benchmarks.steady import EARLY, Run, rows_of, table, train

_STEPS = 4


@pytest.mark.parametrize('most', [1, 2, 5, 8])
def test_every_batch_size_comes_before_one_comes_again(most):
    rows = [rows_of(step, most) for step in range(2 * most)]
    assert rows[:most] == rows[most:] and sorted(rows[:most]) == list(range(1, most + 1))


def test_untouched_and_optimized_train_on_the_same_changing_batches():
    options = small_options('fc_chain', optimizer='momentum')
    runs = [apart(train, 'fc_chain', options, kind, _STEPS) for kind in (False, True)]
    assert runs[0].losses == runs[1].losses and len(set(runs[0].losses)) == _STEPS
    for run in runs:
        assert len(run.resident_bytes) == _STEPS
        assert run.highest_bytes >= max(run.resident_bytes)


def test_late_change_is_of_all_that_is_resident():
    resident = tuple([100] * EARLY + [140])
    run = Run('net', True, 300, resident, 150, ())
    assert run.late_change == pytest.approx(0.1)
    assert list(table([run]).columns[-1].cells) == ['+10.0 %']


def test_processor_time_is_of_all_steps_and_shown_beside_the_untouched():
    times = train_timed('fc_chain', small_options('fc_chain'), UNTOUCHED, _STEPS)
    assert times.first >= 0 and times.later >= 0
    spent = {UNTOUCHED: (2.0, 4.0), 'default': (3.0, 5.0)}
    rows = [Times('net', kind, 1.0, each) for kind in KINDS for each in spent.get(kind, (1.0,))]
    shares = list(cpu_table(rows).columns[-1].cells)
    assert shares[0] == '1.000 / 1.000' and shares[-1] == '1.500 / 1.333'
