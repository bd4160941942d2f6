"""`python -m benchmarks.workers`: what it counts as whole, on paper, and one launch."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from click.testing import CliRunner

from benchmarks.workers import FOUND, drawn, faults, launched, main

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


def test_a_launch_is_whole() -> None:
    done = CliRunner().invoke(main, ["--launches", "1", "--seed", "1"])
    assert "1 of 1 launches of 4 workers were whole, 0 of them" in done.output, done.output


def test_none_goes_on_where_one_cannot_keep_its_budget(tmp_path: Path) -> None:
    free = replace(ALIKE[0], share=None)
    settings = [free, replace(free, share=0.01), free]
    said = launched(settings, tmp_path, seconds=240)
    refused = [sum('"refused"' in line for line in lines) for lines in said]
    assert (refused, faults(settings, said)) == ([1, 1, 1], []), said
