"""Two workers, launched as users do, agree at once after fleet's meeting over gloo, whose server is on the store's port and ends late."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

WORKER = Path(__file__).with_name("fleet_meeting.py")
WORKERS, LAUNCHES, SECONDS = 2, 2, 150


def _launched(folder: Path) -> List[List[str]]:
    """The lines of each worker; a launch that hangs is ended with all that it has started."""
    path = os.pathsep.join([str(WORKER.parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(WORKERS)]
    command += ["--backend", "gloo", "--log_dir", str(folder / "log"), str(WORKER)]
    # Its workers are sessions of their own, and end with it where it is asked to end.
    launcher = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": path})
    try:
        launcher.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(timeout=60)
    return [
        (folder / "log" / f"workerlog.{rank}").read_text().splitlines() for rank in range(WORKERS)
    ]


@pytest.mark.parametrize("launch", range(LAUNCHES))
def test_workers_agree_right_after_the_meeting(launch: int, tmp_path: Path) -> None:
    said = _launched(tmp_path)
    found: List[Dict[str, Any]] = [
        json.loads(line[len("FOUND "):])
        for lines in said
        for line in lines
        if line.startswith("FOUND ")
    ]
    assert len(found) == WORKERS, (launch, said)
    for each in found:
        assert each["rows"] == {"N": 4}  # worker 0's hint, whatever their own
        assert len(each["optimized"]) == 3 and each["optimized"] == each["untouched"]
