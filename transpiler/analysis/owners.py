"""Which of the user's layers an op belongs to, told by the parameters that it reads.

Programs name parameters as layers do, whoever traced them. An op that reads none stands between two that do: it belongs to what both
are in, as code between two calls of layers is that of a layer around both.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from transpiler.analysis.kept import kept_bytes
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op

Chain = Tuple[str, ...]  # paths of layers, each in the one before


def layers_of_ops(graph: Graph, holders: Mapping[str, Chain], around: Chain) -> Dict[int, str]:
    """By op ahead of the boundary: the path of the innermost layer that it is sure to be in.

    Args:
        graph: as it was read, in the order of the user's code.
        holders: by name of a parameter: the layers that it is in.
        around: the layers that the whole function is in.
    """
    ops = list(_forward(graph))
    told = _told(graph, ops, holders)
    read = [None if op.id in told.prepared else told.layers.get(op.id) for op in ops]
    earlier = _carried(read, around)
    later = _carried(read[::-1], around)[::-1]
    between = {op.id: _common((a, b)) for op, a, b in zip(ops, earlier, later)}
    return {op: chain[-1] if chain else '' for op, chain in {**between, **told.layers}.items()}


def kept_by_layer(graph: Graph, timeline: Timeline, layers: Mapping[int, str],
                  otherwise: str) -> Dict[str, int]:
    """By layer: the bytes of `kept_bytes` that it makes. What the caller gives is `otherwise`'s.

    Args:
        graph: the one that `layers` is of, or one planned from it.
        layers: by op of the graph that was read.
    """
    makers = {
        graph.values[v].storage: layers.get(op.id if op.origin is None else op.origin, otherwise)
        for op in _forward(graph) for v in op.writes()
    }
    found: Dict[str, int] = {}
    for storage, size in kept_bytes(graph, timeline).items():
        # The last to work in place has made what is kept; what trips of a loop leave is of another region.
        lifetime = timeline.lifetimes.by_region[0].get(storage)
        tenants = lifetime.storages if lifetime else (storage,)
        maker = next((makers[each] for each in reversed(tenants) if each in makers), otherwise)
        found[maker] = found.get(maker, 0) + size
    return found


class _Told:
    """What parameters tell: the layers of ops that read them, and which ops have read nothing else (`prepared`), as casts do."""

    def __init__(self) -> None:
        self.layers: Dict[int, Chain] = {}
        self.prepared: Set[int] = set()


def _told(graph: Graph, ops: Sequence[Op], holders: Mapping[str, Chain]) -> _Told:
    told = _Told()
    owned = {v.id: holders[v.name] for v in graph.values if v.persistable and v.name in holders}
    constants: Set[int] = set()
    for op in ops:
        chains = [owned[v] for v in op.reads() if v in owned]
        if not op.reads():
            constants.update(op.writes())
        if not chains:
            continue
        told.layers[op.id] = _common(chains)
        if all(v in owned or v in constants for v in op.reads()):
            told.prepared.add(op.id)
            owned.update((v, told.layers[op.id]) for v in op.writes() if v not in owned)
    return told


def _forward(graph: Graph) -> Iterator[Op]:
    for op in graph.region_ops(0):
        if op.facts.boundary:
            return
        yield op


def _carried(read: Sequence[Optional[Chain]], first: Chain) -> List[Chain]:
    """For each, the last that is not None."""
    found = []
    for each in read:
        first = first if each is None else each
        found.append(first)
    return found


def _common(chains: Sequence[Chain]) -> Chain:
    """The layers that all are in."""
    least, most = min(chains), max(chains)
    same = (at for at, pair in enumerate(zip(least, most)) if pair[0] != pair[1])
    return least[:next(same, min(len(least), len(most)))]
