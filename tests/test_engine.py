"""Paddle's auto-parallel Engine with our pass among its fused ones: two workers over gloo."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from benchmarks.workers import environment, free_ports, lines_of

WORKER = Path(__file__).with_name("engine_worker.py")
WORKERS, SECONDS = 2, 200


def _started(folder: Path, *arguments: str) -> List[Any]:
    master, *ports = free_ports(1 + WORKERS)
    return [
        subprocess.Popen([sys.executable, str(WORKER), *arguments],
                         env={
                             **environment(rank, master, ports), "PYTHONHASHSEED": str(rank + 1)
                         },
                         cwd=folder,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT,
                         text=True) for rank in range(WORKERS)
    ]


def _found(jobs: List[Any]) -> List[Dict[str, Any]]:
    said = [lines_of(each, SECONDS) for each in jobs]
    if not any("MET" in lines for lines in said):
        pytest.skip(f"two workers cannot meet over gloo on this machine: {said[0][-1:]}")
    found = [line for lines in said for line in lines if line.startswith("FOUND ")]
    assert len(found) == WORKERS, said
    return [json.loads(line[len("FOUND "):]) for line in found]


def test_the_engine_trains_to_the_bytes_of_the_untouched_program(tmp_path: Path) -> None:
    jobs = _started(tmp_path), _started(tmp_path, "optimized")
    untouched, optimized = map(_found, jobs)
    assert untouched[0]["losses"] != untouched[1]["losses"]  # they had batches of their own
    for plain, ours in zip(untouched, optimized):
        assert plain["names"] and plain["collectives"] > 1
        for seen in ("losses", "names", "state", "collectives"):
            assert ours[seen] == plain[seen]
        assert ours["program"] != plain["program"]
        for same in ("state", "program"):  # and the same gradients
            assert ours[same] == optimized[0][same]
