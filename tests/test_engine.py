"""Paddle's auto-parallel Engine with our pass among its fused ones: two workers over gloo."""
from __future__ import annotations

from pathlib import Path

from tests.two_workers import found_by, start

WORKER = Path(__file__).with_name("engine_worker.py")


def test_the_engine_trains_to_the_bytes_of_the_untouched_program(tmp_path: Path) -> None:
    jobs = start(WORKER, tmp_path), start(WORKER, tmp_path, "optimized")
    untouched, optimized = map(found_by, jobs)
    assert untouched[0]["losses"] != untouched[1]["losses"]  # they had batches of their own
    for plain, ours in zip(untouched, optimized):
        assert plain["names"] and plain["collectives"] > 1
        for seen in ("losses", "names", "state", "collectives"):
            assert ours[seen] == plain[seen]
        assert ours["program"] != plain["program"]
        for same in ("state", "program"):  # and the same gradients
            assert ours[same] == optimized[0][same]
