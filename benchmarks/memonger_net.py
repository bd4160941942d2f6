"""Importer of the Caffe2 nets in `shared/memonger-nets`, and a checker of plans for them.

The planner knows no Paddle; reading another framework's nets is what proves it. `check_plan` reads
the net file and the plan alone and shares no code with the planner.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

import numpy as np

from transpiler.assignment import Net, NetOp


@dataclass(frozen=True)
class MemongerNet:
    """One net file.

    Attributes:
        name: e.g. "resnet50_infer_b8".
        net: its ops over blob indices.
        blobs: blob names by index.
        document: the JSON document itself, with memonger's results and the lower bounds.
    """
    name: str
    net: Net
    blobs: Tuple[str, ...]
    document: Dict[str, Any]

    def memonger(self, prefix: str = "") -> Optional[Tuple[int, str, int]]:
        """(bytes, algorithm, critical path in ops) of its smallest plan of that prefix."""
        found = [(result["intermediate_bytes"], name, result["critical_path_ops"])
                 for name, result in self.document["memonger"].items()
                 if name.startswith(prefix) and result.get("intermediate_bytes")]
        return min(found) if found else None


def load(path: Path) -> MemongerNet:
    """Read a net file.

    Raises:
        ValueError: if the file is not a net, or an op names a blob that the file does not list.
    """
    try:
        document = json.loads(Path(path).read_text())
        blobs = tuple(document["blobs"])
        index = {name: i for i, name in enumerate(blobs)}
        fixed = set(document["external_inputs"]) | set(document["external_outputs"])
        ops = tuple(
            NetOp(tuple(index[b]
                        for b in _reads(op, index)), tuple(index[b]
                                                           for b in op["outputs"]))
            for op in document["ops"])
        details = [document["blobs"][name] for name in blobs]
        sizes = np.array([blob["bytes"] for blob in details], dtype=np.int64)
        movable = np.array([
            blob["kind"] == "intermediate" and name not in fixed
            for name, blob in zip(blobs, details)
        ])
        return MemongerNet(document["name"], Net(ops, sizes, movable), blobs, document)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a net file: {error!r}") from error


def _reads(op: Dict[str, Any], known: Iterable[str]) -> List[str]:
    """An op's inputs and what its step nets capture of the outer net."""
    captured: Set[str] = set()
    for subnet in op.get("subnets", {}).values():
        captured.update(subnet["external_inputs"])
    captured &= set(known)
    captured -= set(op["inputs"]) | set(op["outputs"])
    return list(op["inputs"]) + sorted(captured)


def load_all(folder: Path) -> List[MemongerNet]:
    """Every net file of `folder`, by name; ValueError if there is none."""
    paths = sorted(Path(folder).glob("*.json"))
    if not paths:
        raise ValueError(f"no net files (*.json) in {folder}")
    return [load(path) for path in paths]


class PlanError(AssertionError):
    """A plan that would compute something else, or that miscounts its bytes."""


def check_plan(document: Dict[str, Any], plan: Dict[str, Any]) -> int:
    """Run the plan symbolically, once on shared storages and once in the arena.

    Memory holds (blob, how often it was written); each read must find what the same read finds in
    program order with every blob in its own memory.

    Args:
        document: a net file's JSON.
        plan: `order` (op indices), `storage` {blob: integer}, `offset` {blob: bytes},
            `arena_bytes`.

    Returns:
        Bytes of all storages together.

    Raises:
        PlanError: for anything wrong.
    """
    blobs = document["blobs"]
    fixed = set(document["external_inputs"]) | set(document["external_outputs"])
    ours = {b for b, info in blobs.items() if info["kind"] == "intermediate"} - fixed
    order = plan["order"]
    if sorted(order) != list(range(len(document["ops"]))):
        raise PlanError("order: not every op exactly once")
    for part in ("storage", "offset"):
        if set(plan[part]) != ours:
            raise PlanError(f"{part}: blobs {sorted(set(plan[part]) ^ ours)[:5]} too few or many")
    for blob in ours:
        if not 0 <= plan["offset"][blob] <= plan["arena_bytes"] - blobs[blob]["bytes"]:
            raise PlanError(f"offset: {blob} is outside the arena")
    sharing: Dict[int, Set[str]] = {}
    for blob, storage in plan["storage"].items():
        sharing.setdefault(storage, set()).add(blob)
    whole = {blob: sharing[plan["storage"][blob]] - {blob} for blob in ours}
    spans = [(plan["offset"][b], plan["offset"][b] + blobs[b]["bytes"], b) for b in sorted(ours)]
    arena = {
        blob: {
            other
            for low, high, other in spans
            if other != blob and max(low, begin) < min(high, end)
        } for begin, end, blob in spans
    }
    for clashing in (whole, arena):
        _run(document, order, clashing)
    return sum(max(blobs[b]["bytes"] for b in tenants) for tenants in sharing.values())


def _expected_reads(document: Dict[str, Any]) -> List[Dict[str, int]]:
    """For each op, the version (writes so far) that program order gives each blob it reads."""
    version: Dict[str, int] = {}
    result = []
    for op in document["ops"]:
        result.append({b: version.get(b, 0) for b in _reads(op, document["blobs"])})
        for blob in op["outputs"]:
            version[blob] = version.get(blob, 0) + 1
    return result


def _run(document: Dict[str, Any], order: List[int], clashing: Dict[str, Set[str]]) -> None:
    """Run in `order`, where writing a blob destroys the blobs in `clashing[blob]`."""
    expected = _expected_reads(document)
    version: Dict[str, int] = {}
    destroyed: Set[str] = set()
    for index in order:
        op = document["ops"][index]
        for blob, wanted in expected[index].items():
            if blob in destroyed or version.get(blob, 0) != wanted:
                raise PlanError(f"op {index} ({op['type']}) reads a wrong {blob}")
        for blob in op["outputs"]:
            version[blob] = version.get(blob, 0) + 1
            destroyed.discard(blob)
            destroyed |= clashing.get(blob, set())
        for blob in list(expected[index]) + list(op["outputs"]):
            if blob in destroyed:
                raise PlanError(f"op {index} ({op['type']}) overwrites {blob}, which it uses")
