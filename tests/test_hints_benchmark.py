"""Plans without a hint, on benchmark programs whose plan depends on the batch: held against those made with the right one."""
from __future__ import annotations

import pytest

from benchmarks.hints import BATCH, SIZES, TRIPS, Row, row, table
from benchmarks.programs import Options, build
from transpiler.planning import OPTIMIZE, PlanOptions, plan
from transpiler.backends.installed import live_programs
from transpiler.runtime import COLLECTING

A_TENTH = 1.1


@pytest.mark.parametrize('name', ['fc_chain', 'gru_loop'])
def test_without_a_batch_the_peak_is_within_a_tenth_of_that_with_it(name: str) -> None:
    found = row(name, build(name, Options(optimizer='momentum')), 'collecting', BATCH, SIZES)
    assert found is not None and tuple(found.hinted) == SIZES
    assert found.worst <= A_TENTH
    assert all(found.without[size] <= found.untouched[size] for size in SIZES)
    assert all(found.overhead[size] <= PlanOptions().max_overhead for size in SIZES if size >= 32)
    assert name in str(table([found]).columns[0]._cells)


def test_the_plan_for_one_row_is_not() -> None:
    """What was taken before: so the programs above are examples."""
    for name in ('fc_chain', 'gru_loop'):
        case = build(name, Options(optimizer='momentum'))
        graph = live_programs(case.main).read(case.main, frozenset(case.fetch), frozenset()).graph
        trips = case.trip_count or 1
        at = lambda rows: {s: rows if s[0] == 'N' else trips for s in graph.symbols()}
        one_row = plan(graph, COLLECTING, at(1), PlanOptions(), OPTIMIZE)
        right = plan(graph, COLLECTING, at(256), PlanOptions(), OPTIMIZE)
        assert one_row.after.at(at(256)).peak_bytes > A_TENTH * right.after.peak_bytes


def test_ratios_are_of_the_peaks_and_programs_with_nothing_open_have_no_row() -> None:
    found = Row('p', 'collecting', BATCH, {
        8: 11,
        32: 5
    }, {
        8: 10,
        32: 10
    }, {
        8: 20,
        32: 20
    }, {}, 0.0, 0.0)
    assert found.ratios == {8: 1.1, 32: 0.5} and found.worst == 1.1
    case = build('tanh_chain', Options(optimizer='momentum', static_batch=True))
    assert row('tanh_chain', case, 'collecting', BATCH, SIZES) is None
    assert row('tanh_chain', case, 'collecting', TRIPS, SIZES) is None
