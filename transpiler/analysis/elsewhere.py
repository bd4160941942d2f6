"""Other values of the open dims, and other ways through a program, than those that a plan is made for: no plan may be worse at
them than no plan."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import (Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple)

from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, Graph, Op, RegionKind, Size
from transpiler.ir.symbols import is_trip

_MORE = 4
_SHARES = 8
_MOST_ALONE = 6
_MOST_BRANCHES = 8
_MOST_CONDITIONS = 3
_MOST_UNKNOWN = 8


def other_sizes(dims: Mapping[str, int]) -> List[Dict[str, int]]:
    """Eighths of all dims but the trips of loops, their roots, 1, and larger ones; and each dim alone at 1."""
    ways: List[Callable[[int], int]] = [lambda d, k=k: d * k // _SHARES for k in range(_SHARES)]
    ways += [math.isqrt, lambda d: d * _MORE]
    rows = [s for s in sorted(dims) if not is_trip(s)]
    found = [{**dims, **{s: max(1, way(dims[s])) for s in rows}} for way in ways]
    found += [{**dims, s: 1} for s in rows[:_MOST_ALONE]]
    different = {tuple(sorted(each.items())): each for each in found}
    different.pop(tuple(sorted(dims.items())), None)
    return list(different.values())


def some_sizes(dims: Mapping[str, int]) -> List[Dict[str, int]]:
    """Fewer: halves of all dims but the trips of loops, their roots, 1, and larger ones."""
    ways: Tuple[Callable[[int], int],
                ...] = (lambda d: d // 2, math.isqrt, lambda d: 1, lambda d: d * _MORE)
    found = [{s: d if is_trip(s) else max(1, way(d)) for s, d in dims.items()} for way in ways]
    return [each for i, each in enumerate(found) if each != dims and each not in found[:i]]


def unknown_results(graph: Graph) -> List[Dict[int, Size]]:
    """What ops make and nobody knows how large it becomes before a run: all of it as large as what the op reads, or as what it may work
    on in place, and some alone."""
    found = _as_large_as(graph, lambda op, _: op.reads())
    in_place = _as_large_as(graph, _worked_on)
    alone = [{value: size} for value, size in list(found.items())[:_MOST_UNKNOWN]]
    every = [found] if len(found) > 1 else []
    return every + alone + ([in_place] if in_place != found else [])


def _as_large_as(graph: Graph, read: Callable[[Op, int], Sequence[int]]) -> Dict[int, Size]:
    """Sizes of results that have none: that of what is `read` for each, by its position."""
    found: Dict[int, Size] = {}
    for op in graph.walk():
        for at, result in enumerate(op.results):
            if result >= 0 and graph.values[result].unsized:
                sizes = (found.get(v, graph.values[v].bound) for v in read(op, at))
                found.setdefault(result, Size.total(size for size in sizes if size is not None))
    return found


def _worked_on(op: Op, result: int) -> Sequence[int]:
    pairs = [op.operands[i] for i, j in op.facts.in_place if j == result and op.operands[i] >= 0]
    return pairs[:1] or op.reads()


def alike_at_one(graph: Graph, sizes: Iterable[Mapping[str, int]]) -> List[FrozenSet[str]]:
    """Which open dims are 1 at some of `sizes`, if an op may work in place there on what is as large as its result only then."""
    pairs = {(op.operands[i], op.results[j])
             for op in graph.walk()
             for i, j in op.facts.in_place
             if op.operands[i] >= 0 <= op.results[j]}
    both = [(graph.values[a].size, graph.values[b].size) for a, b in pairs]
    differ = [(a, b) for a, b in both if a is not None and b is not None and a != b]
    ones = dict.fromkeys(
        frozenset(s for s, n in each.items() if n == 1 and not is_trip(s)) for each in sizes)
    return [
        names for names in ones if any(a.with_ones(names) == b.with_ones(names) for a, b in differ)
    ]


def other_ways(graph: Graph) -> List[FrozenSet[int]]:
    """Branches of `graph` that may not be taken, with their gradients: each alone, if there are not too many, and all; and those
    that are not where each condition is true or false, if these are few."""
    branches = [r.id for r in graph.regions if r.kind is RegionKind.BRANCH]
    gradients = {r.forward: r.id for r in graph.regions if r.kind is RegionKind.BRANCH_GRADIENT}
    ways = [frozenset({b, gradients.get(b, b)}) for b in branches]
    if not ways:
        return []
    every = frozenset().union(*ways)
    return list(dict.fromkeys([*ways[:_MOST_BRANCHES], every, *_by_condition(graph, gradients)]))


def _by_condition(graph: Graph, gradients: Mapping[int, int]) -> Iterator[FrozenSet[int]]:
    conditions = sorted({value for region in graph.regions for value, _ in region.when})
    if len(conditions) > _MOST_CONDITIONS:
        return
    for truths in itertools.product((True, False), repeat=len(conditions)):
        chosen = set(zip(conditions, truths))
        left_out = [r.id for r in graph.regions if not r.when <= chosen]
        if left_out:
            yield frozenset(r for b in left_out for r in (b, gradients.get(b, b)))


def without(graph: Graph, branches: FrozenSet[int]) -> Graph:
    """`graph` when `branches` are not taken: what they alone make is not there, and what is chosen for their gradients, which
    are zeros, is not made. What they would have read is kept until they are passed by, and so is what a name that they would have
    written to has from before."""
    left_out = _left_out(graph, branches)
    ops, inside = list(graph.ops), _read_inside(graph)
    for op in left_out.values():
        ops[op.id] = replace(op, operands=(*op.operands, *_read_from_around(graph, op, inside)))
    regions = [replace(r, ops=[]) if r.id in branches else r for r in graph.regions]
    never = _never_made(Graph(graph.values, ops, regions), left_out)
    values = [replace(v, size=Size(), at_most=None) if v.id in never else v for v in graph.values]
    return Graph(values, ops, regions)


class NotRun(NamedTuple):
    """What does not run when branches are not taken: regions, and storages that ops in them make, or their own."""

    regions: FrozenSet[int]
    storages: FrozenSet[int]


def not_run(graph: Graph, branches: FrozenSet[int]) -> Optional[NotRun]:
    """What does not run `without` these branches; None where loops count by trips what is there."""
    inside = set(branches)
    for region in graph.regions:  # inner ones come after those around them
        if region.parent in inside:
            inside.add(region.id)
    if any(graph.regions[r].kind.is_loop for r in inside) or inside & graph.in_loops():
        return None
    regions = [replace(r, ops=[]) if r.id in branches else r for r in graph.regions]
    made = _never_made(Graph(graph.values, graph.ops, regions), _left_out(graph, branches))
    for region in inside:
        made.update(v for op in graph.region_ops(region) for v in op.writes())
    made.update(value.id for value in graph.values if value.region in inside)
    return NotRun(frozenset(inside), frozenset(graph.values[v].storage for v in made))


def there_at(timeline: Timeline, op: int) -> List[Tuple[Tuple[int, ...], int]]:
    """The storages that have each memory which exists while `op` runs in turn, and its bytes."""
    lifetimes, values = timeline.lifetimes.by_region, timeline.graph.values
    found = []
    for each in timeline.residents(op):
        lifetime = lifetimes[values[each.storage].region].get(each.storage)
        storages = lifetime.storages if lifetime else (each.storage,)
        found.append((storages, timeline.evaluate(each.size) * timeline.evaluate(each.count)))
    return found


def _left_out(graph: Graph, branches: FrozenSet[int]) -> Dict[int, Op]:
    """By branch: the op that runs it."""
    return {r: graph.ops[graph.regions[r].op] for r in branches}


def _never_made(changed: Graph, left_out: Mapping[int, Op]) -> Set[int]:
    """What is not made where the branches of `left_out`, which have no ops any more, are not taken."""
    branches = (op for r, op in left_out.items() if changed.regions[r].kind is RegionKind.BRANCH)
    never = {v for op in branches for v in op.writes()}
    return never | _never_chosen(changed, {op.id for op in left_out.values()})


def _never_chosen(graph: Graph, left_out: Set[int]) -> Set[int]:
    """Of the results of ops that choose one, those that nobody reads but ops of `left_out`."""
    choices = {v for op in graph.walk() if op.facts.chooses for v in op.results}
    if not choices:
        return choices
    read = (op.reads() for op in graph.walk() if op.kind != RELEASE and op.id not in left_out)
    return choices.difference(*read)


def _read_inside(graph: Graph) -> List[Set[int]]:
    """By region: what its ops read, and those inside them."""
    found: List[Set[int]] = [set() for _ in graph.regions]
    for region in reversed(graph.regions):  # inner ones come after those around them
        for op in graph.region_ops(region.id):
            found[region.id].update(op.reads(), *(found[inner] for inner in op.regions))
    return found


def _read_from_around(graph: Graph, op: Op, inside: Sequence[Set[int]]) -> Iterator[int]:
    """What ops inside of `op` read of the regions around it, and it does not name; `inside` is what each region reads."""
    around, region = set(), op.region
    while region >= 0:
        around.add(region)
        region = graph.regions[region].parent
    read: Set[int] = set().union(*(inside[region] for region in op.regions))
    return (v for v in sorted(read.difference(op.operands)) if graph.values[v].region in around)
