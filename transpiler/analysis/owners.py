"""Which of the user's layers an op belongs to, told by the parameters that it reads.

Programs name parameters as layers do, whoever traced them. An op that reads none stands between two that do: it belongs to what both
are in, as code between two calls of layers is that of a layer around both.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from transpiler.analysis.kept import boundary_of, kept_bytes
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op

Chain = Tuple[str, ...]  # paths of layers, each in the one before


def layers_of_ops(graph: Graph, holders: Mapping[str, Chain], around: Chain) -> Dict[int, str]:
    """By op: the path of the innermost layer that it is sure to be in. What stands behind a boundary is told by itself, as gradients
    are made in the opposite order, and so is each region.

    Args:
        graph: as it was read, in the order of the user's code.
        holders: by name of a parameter: the layers that it is in.
        around: the layers that the whole function is in.
    """
    told = _Told(
        {v.id: holders[v.name] for v in graph.values if v.persistable and v.name in holders})
    found: Dict[int, Chain] = {}
    inner = (list(graph.region_ops(region.id)) for region in graph.regions[1:])
    for ops in (*_parts(graph), *inner):
        told.add(ops)
        read = [None if op.id in told.prepared else told.layers.get(op.id) for op in ops]
        earlier = _carried(read, around)
        later = _carried(read[::-1], around)[::-1]
        found.update((op.id, _common((a, b))) for op, a, b in zip(ops, earlier, later))
    found.update(told.layers)
    found.update(_of_gradients(graph, told))
    return {op: chain[-1] if chain else '' for op, chain in found.items()}


def kept_by_layer(graph: Graph, timeline: Timeline, layers: Mapping[int, str],
                  otherwise: str) -> Dict[str, int]:
    """By layer: the bytes of `kept_bytes` that it makes. What the caller gives is `otherwise`'s.

    Args:
        graph: the one that `layers` is of, or one planned from it.
        layers: by op of the graph that was read.
    """
    makers = _Makers(graph, timeline, layers, otherwise, boundary_of(graph))
    return makers.shares(kept_bytes(graph, timeline).items())


def peak_by_layer(graph: Graph, timeline: Timeline, layers: Mapping[int, str],
                  otherwise: str) -> Dict[str, int]:
    """By layer: of the bytes that exist at the peak, those that it has made. They add up to the peak. The arguments are those of
    `kept_by_layer`."""
    if timeline.peak.op < 0:
        return {}
    at = graph.ops[timeline.peak.op]
    while at.region:
        at = graph.ops[graph.regions[at.region].op]
    makers = _Makers(graph, timeline, layers, otherwise, at)
    return makers.shares(
        (each.storage, timeline.evaluate(each.size) * timeline.evaluate(each.count))
        for each in timeline.residents(timeline.peak.op))


class _Makers:
    """By storage: the layer that has made what is in it when `last`, an op of the main region, has run."""

    def __init__(self, graph: Graph, timeline: Timeline, layers: Mapping[int, str], otherwise: str,
                 last: Optional[Op]) -> None:
        self._graph, self._lifetimes, self._otherwise = graph, timeline.lifetimes, otherwise
        self._made: Dict[int, str] = {}
        for op in graph.region_ops(0):
            layer = layers.get(op.id if op.origin is None else op.origin, otherwise)
            for each in (*graph.inside(op), op):
                self._made.update((graph.values[v].storage, layer) for v in each.writes())
            if op is last:
                break

    def shares(self, sizes: Iterable[Tuple[int, int]]) -> Dict[str, int]:
        """Bytes by layer, of bytes by storage."""
        found: Dict[str, int] = {}
        for storage, size in sizes:
            maker = self._maker(storage)
            found[maker] = found.get(maker, 0) + size
        return found

    def _maker(self, storage: int) -> str:
        """The last to work in place has made what is there."""
        region = self._graph.values[storage].region
        lifetime = self._lifetimes.by_region[region].get(storage)
        tenants = lifetime.storages if lifetime else (storage,)
        return next((self._made[each] for each in reversed(tenants) if each in self._made),
                    self._otherwise)


class _Told:
    """What parameters tell: the layers of ops that read them, and which ops have read nothing else (`prepared`), as casts do.
    `owned` are parameters, and what was made of them alone."""

    def __init__(self, owned: Dict[int, Chain]) -> None:
        self.layers: Dict[int, Chain] = {}
        self.prepared: Set[int] = set()
        self.owned = owned

    def add(self, ops: Sequence[Op]) -> None:
        """Looks at further ops."""
        owned, constants = self.owned, set()
        for op in ops:
            chains = [owned[v] for v in op.reads() if v in owned]
            if not op.reads():
                constants.update(op.writes())
            if not chains:
                continue
            self.layers[op.id] = _common(chains)
            if all(v in owned or v in constants for v in op.reads()):
                self.prepared.add(op.id)
                owned.update((v, self.layers[op.id]) for v in op.writes() if v not in owned)


def _of_gradients(graph: Graph, told: _Told) -> Dict[int, Chain]:
    """By op behind the boundary that finishes a parameter's gradient, as one that adds up those of several uses: the parameter's
    layers. It reads what was made behind the boundary alone, and what it makes has the parameter's shape and stays."""
    behind = _parts(graph)[1:]
    makers: Dict[int, Op] = {}
    found: Dict[int, Chain] = {}
    for op in (op for ops in behind for op in ops):
        shapes = [graph.values[v].shape for v in op.writes() if graph.values[v].fetched]
        if shapes and op.id not in told.layers:
            owners = _owners(graph, told, makers, op)
            fitting = [chain for shape, chain in owners if shape is not None and shape in shapes]
            if fitting:
                found[op.id] = _common(fitting)
        makers.update((v, op) for v in op.writes())
    return found


def _owners(graph: Graph, told: _Told, makers: Mapping[int, Op],
            last: Op) -> List[Tuple[object, Chain]]:
    """Shapes and layers of the parameters that were read by what `last` is made of, if nothing else was read on the way."""
    found: List[Tuple[object, Chain]] = []
    pending, seen = [last], {last.id}
    while pending:
        op = pending.pop()
        if op.id in told.layers:
            found += [(graph.values[v].shape, told.owned[v]) for v in op.reads() if v in told.owned]
            continue
        if not op.reads() or any(v not in makers for v in op.reads()):
            return []
        for maker in (makers[v] for v in op.reads()):
            if maker.id not in seen:
                seen.add(maker.id)
                pending.append(maker)
    return found


def _parts(graph: Graph) -> List[List[Op]]:
    """The ops ahead of the boundary and those behind it; of a graph without one, all."""
    parts: List[List[Op]] = [[]]
    for op in graph.region_ops(0):
        if op.facts.boundary and len(parts) == 1:
            parts.append([])
        elif not op.facts.boundary:
            parts[-1].append(op)
    return parts


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
