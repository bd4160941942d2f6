"""Two workers of a job, over gloo on CPUs, that print what they found."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from benchmarks.workers import FOUND, lines_of, started

WORKERS, SECONDS = 2, 200
Job = List["subprocess.Popen[str]"]


def start(worker: Path, folder: Path, *arguments: str) -> Job:
    """Two processes of a script that prints MEETING before, and MET after the workers meet; in between is Paddle's code alone."""
    hash_seeds = [{"PYTHONHASHSEED": str(rank + 1)} for rank in range(WORKERS)]
    return started([[str(worker), *arguments]] * WORKERS, folder, hash_seeds)


def found_by(job: Job) -> List[Dict[str, Any]]:
    """What each found. Skips the test where workers cannot meet: what fails before, or after one has met, is ours."""
    said = [lines_of(each, SECONDS) for each in job]
    assert all("MEETING" in lines for lines in said), said
    if not any("MET" in lines for lines in said):
        pytest.skip(f"two workers cannot meet over gloo on this machine: {said[0][-1:]}")
    found = [[line for line in lines if line.startswith(FOUND)] for lines in said]
    assert [len(lines) for lines in found] == [1] * WORKERS, said
    return [json.loads(line[len(FOUND):]) for line, in found]
