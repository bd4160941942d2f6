"""`python -m benchmarks.workers`: what it counts as whole, on paper, and one launch."""
from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest
from click.testing import CliRunner

from benchmarks.workers import FOUND, drawn, faults, main

ALIKE = [replace(each, collection=True) for each in drawn(0, 2)]
RUN = {"losses": ["00", "01"], "state": "ab"}
GOOD: Dict[str, Any] = {
    "dims": {
        "N": ALIKE[0].rows
    },
    "program": "p",
    "budget": 100,
    "most": 90,
    "optimized": RUN,
    "untouched": RUN
}


def said(*found: Dict[str, Any]) -> List[List[str]]:
    return [["something else", FOUND + json.dumps(each)] for each in found]


def test_equal_workers_are_whole_and_so_are_those_that_all_refuse() -> None:
    assert faults(ALIKE, said(GOOD, GOOD)) == []
    assert faults(ALIKE, said({"refused": "MemoryBudgetError"}, {"refused": "x"})) == []


@pytest.mark.parametrize("path, value, words", [
    (("optimized", "losses"), ["00", "02"], "other losses"),
    (("optimized", "state"), "cd", "other state"),
    (("dims", "N"), 3, "sizes of its own"),
    (("program",), "q", "another program than worker 0"),
    (("most",), 101, "101 bytes of 100"),
    (("refused",), "MemoryBudgetError", "worker 0 goes on"),
])
def test_what_differs_is_no_whole_launch(path: Tuple[str, ...], value: Any, words: str) -> None:
    other = json.loads(json.dumps(GOOD))  # a deep copy would keep the two runs one object
    at = other
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    wrong = faults(ALIKE, said(GOOD, other))
    assert any(words in each for each in wrong), wrong


def test_another_state_than_the_others_have_is_found_where_untouched_has_it_too() -> None:
    own = {"losses": ["00", "01"], "state": "cd"}
    assert faults(ALIKE, said(GOOD, {
        **GOOD, "optimized": own,
        "untouched": own
    })) == ["worker 1: state of its own"]


def test_one_who_says_nothing_is_named() -> None:
    assert "worker 1 found nothing" in faults(ALIKE, [*said(GOOD), ["an error"]])[0]


def test_workers_of_a_job_differ_in_all_that_they_may() -> None:
    jobs = [drawn(seed, 4) for seed in range(50)]
    assert jobs == [drawn(seed, 4) for seed in range(50)]
    for name in ("rows", "share", "collection", "executor", "hash_seed", "calibrated",
                 "max_overhead"):
        assert any(len({getattr(each, name) for each in job}) > 1 for job in jobs), name


@pytest.mark.parametrize("seed, counted", [(1, "0 of them"), (3, "1 of them")])
def test_a_launch_is_whole_and_none_goes_on_alone(seed: int, counted: str) -> None:
    """Of the second, some workers hold all until the end of a run and cannot keep the budget; the others could."""
    done = CliRunner().invoke(main, ["--launches", "1", "--seed", str(seed)])
    assert f"1 of 1 launches of 4 workers were whole, {counted}" in done.output, done.output
