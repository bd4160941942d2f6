"""Seeded random problems and nets for the tests."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from transpiler.assignment import Net, NetOp

SHARED = Path(__file__).resolve().parents[3] / "shared"


def random_problem(generator: np.random.RandomState,
                   count: int,
                   span: int = 12,
                   largest: int = 12) -> Tuple[np.ndarray, np.ndarray]:
    """(ranges, sizes) of `count` values within about `span` positions, sizes 1..largest."""
    first = generator.randint(0, span, count)
    length = generator.randint(0, max(1, span // 2), count)
    return np.stack([first, first + length], axis=1), generator.randint(1, largest + 1, count)


def random_net(generator: np.random.RandomState, count: int, in_place: float = 0.3) -> Net:
    """`count` ops; some write a blob again, in place or anew; blob 0 is a parameter."""
    sizes, ops = [4], []
    for _ in range(count):
        reads = set(generator.randint(0, len(sizes), generator.randint(0, 3)).tolist())
        if len(sizes) > 1 and generator.rand() < in_place:
            written = int(generator.randint(1, len(sizes)))
            if generator.rand() < 0.7:
                reads.add(written)
        else:
            written = len(sizes)
            sizes.append(int(generator.randint(1, 20)))
        ops.append(NetOp(tuple(sorted(reads)), (written,)))
    movable = np.ones(len(sizes), dtype=bool)
    movable[0] = False
    return Net(tuple(ops), np.array(sizes, dtype=np.int64), movable)


def net_document(net: Net, name: str) -> Dict[str, Any]:
    """`net` in the format of `shared/memonger-nets` (with no memonger results)."""
    from transpiler.assignment import live_max_bytes, live_ranges, sharing_bound
    blobs, ranges = live_ranges(net)
    names = ["blob{}".format(i) for i in range(len(net.sizes))]
    return {
        "name": name,
        "ops": [{
            "i": i,
            "type": "Op",
            "inputs": [names[b] for b in op.reads],
            "outputs": [names[b] for b in op.writes]
        } for i, op in enumerate(net.ops)],
        "blobs": {
            names[b]: {
                "bytes": int(net.sizes[b]),
                "kind": "intermediate" if net.movable[b] else "param"
            } for b in range(len(names))
        },
        "external_inputs": [names[b] for b in range(len(names)) if not net.movable[b]],
        "external_outputs": [],
        "lower_bounds": {
            "live_max_bytes": live_max_bytes(ranges, net.sizes[blobs]),
            "buffer_sharing_bytes": sharing_bound(ranges, net.sizes[blobs])
        },
        "memonger": {}
    }


def net_folder(folder: Path) -> Path:
    """The recorded nets where they are beside the checkout, else generated ones in `folder`."""
    recorded = SHARED / "memonger-nets"
    if recorded.is_dir():
        return recorded
    for seed in range(4):
        net = random_net(np.random.RandomState(seed), 30, in_place=0.0)
        document = net_document(net, "generated_{}".format(seed))
        (folder / "generated_{}.json".format(seed)).write_text(json.dumps(document))
    return folder
