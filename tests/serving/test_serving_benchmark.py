"""The serving benchmark's table says what was measured, and a difference is never called equal."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.programs import small_options
from benchmarks.saving import SERVED, save
from benchmarks.serving import WAYS, Peak, Row, measure, optimize, table, worst
from transpiler.serving.wanted import Serving

MB = 10**6


def peak(first: int, later: int, digest: str = 'a', way: str = 'default') -> Peak:
    return Peak(way, first * MB, later * MB, digest)


def row(**changes) -> Row:
    whole = Row('net', peak(100, 100), peak(50, 40), peak(60, 40), peak(35, 38), peak(30, 30),
                peak(20, 20), peak(10, 10), peak(5, 4), True)
    return replace(whole, **changes)


def cells(each: Row):
    return [list(column.cells)[0] for column in table([each]).columns]


def test_shares_are_of_the_highest_run_and_of_the_later_runs():
    shown = cells(row())
    assert shown[5] == '0.60 / 0.75' and shown[7] == '0.40 / 0.50'
    assert shown[9] == '0.20 / 0.25' and shown[11] == '0.10 / 0.10'


def test_different_bytes_are_shown():
    assert 'DIFFERENT' in cells(row(equal=False))[-1] and cells(row())[-1] == 'equal'


def test_the_worst_setting_counts_and_one_that_differs_spoils_the_digest():
    assert worst([peak(3, 1), peak(1, 2)]).highest == 3 * MB
    assert worst([peak(3, 1), peak(1, 2)]).later == 2 * MB
    assert worst([peak(1, 1), peak(1, 1, 'b')]).digest == 'differ'


def test_every_model_that_is_served_is_a_benchmark_program():
    assert all(small_options(name) for name in SERVED)


def test_a_saved_model_and_its_optimised_file_are_measured_to_equal_bytes(tmp_path):
    program = save(tmp_path, 'lstm', small_options('lstm'))
    feed = str(program) + '.npz'
    plain = measure(program, feed, (), 2)
    ours = measure(optimize(program, Serving(release_inputs=True), 2), feed, (), 2)
    assert ours.digest == plain.digest != 'differ' and ours.highest < plain.highest


def test_each_way_to_optimise_has_a_file_of_its_own(tmp_path):
    program = save(tmp_path, 'transformer', small_options('transformer'))
    paths = [optimize(program, way, 2) for _, way in WAYS]
    assert len(set(paths)) == len(WAYS)
    assert len({Path(f'{p}.pdmodel').read_bytes() for p in paths}) >= 2
