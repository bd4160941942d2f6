"""Programs of fleet's, run by two workers over gloo."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.two_workers import found_by, start

WORKER = Path(__file__).with_name("fleet_worker.py")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    """What each of them found."""
    return found_by(start(WORKER, tmp_path_factory.mktemp("fleet")))


def test_each_worker_gets_the_bytes_of_the_untouched_program(workers: List[Dict[str, Any]]) -> None:
    for each in workers:
        for seen in ("losses", "state", "names"):
            assert each["optimized"][seen] == each["untouched"][seen]
        assert each["said"]["changed"]
    first, second = (each["untouched"] for each in workers)
    assert first["losses"] != second["losses"]  # they had inputs of their own,
    assert first["state"] == second["state"]  # and the same gradients


def test_fused_gradients_are_promised_half_and_no_run_needs_more_than_is_sure(
        workers: List[Dict[str, Any]]) -> None:
    """What is measured where the collector is in time: test_slices.py. Here two workers share the machine with other tests."""
    for each in workers:
        assert each["said"]["predicted"] < each["untouched"]["peak"] / 2
        assert each["optimized"]["peak"] <= each["said"]["sure"]


def test_workers_measure_together_and_refuse_together(workers: List[Dict[str, Any]]) -> None:
    """Of an argument that is wrong on one of them, and of numbers of runs that differ, all hear before anything runs."""
    for rank, each in enumerate(workers):
        found = each["said"]["measured"]
        assert found["equal"] and found["runs"] == 2 and found["states"] > 12 and not found["note"]
        numbers, feed = found["refused"]
        assert "verify_runs is 1 on worker 0, 2 on worker 1" in numbers
        assert "no input 'y'" in feed and feed.startswith("shared=True: worker 1") == (rank == 0)
        for side in ("untouched", "optimized"):
            assert found[side]["first_peak_bytes"] > 0 and found[side]["growth_bytes"] is None


def test_workers_with_other_hints_and_hash_seeds_plan_alike(workers: List[Dict[str, Any]]) -> None:
    first, second = (each["said"] for each in workers)
    assert first["dims"] and first["dims"] == second["dims"]
    for same in ("program", "predicted", "sure"):
        assert first[same] == second[same]


def test_collectives_take_no_memory_of_their_own_and_reports_know(
        workers: List[Dict[str, Any]]) -> None:
    for each in workers:
        assert len(each["workspaces"]) == 8 and not any(each["workspaces"].values())
        assert not each["said"]["unknown"]


def test_collectives_are_those_of_the_untouched_program_in_their_order(
        workers: List[Dict[str, Any]]) -> None:
    assert all(each["said"]["kept"] and each["said"]["collectives"] > 1 for each in workers)
