"""One variable: what it is, when it is alive, whether it is there at the peak, and why it has the memory that it has."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from transpiler.analysis.interference import Interference
from transpiler.analysis.lifetimes import Lifetime
from transpiler.analysis.timeline import Timeline
from transpiler.errors import UnknownVariableError
from transpiler.ir import RELEASE, Graph, Op, Value
from transpiler.plain import meant_or_some, printable
from transpiler.planning import Plan
from transpiler.report.data import human
from transpiler.report.lines import short_lines
from transpiler.report.picture import computed_again, makers, op_text

_NAMED = 'its gradient, or a loop or branch, is found by its name: nobody moves in behind it'
_FREE = 'it may share memory with others; where it does not, that would not lower the peak'


def explain(plan: Plan, name: str) -> str:
    """Why the variable `name` is in memory when it is, as it was and as planned, in some lines.

    Raises:
        UnknownVariableError: the program has no such variable; the message names some that it has.
    """
    known = {value.name for value in plan.original.values}
    if name not in known:
        raise UnknownVariableError(
            f'the program has no variable {name!r}.{meant_or_some(name, known)}')
    lines = [f'{name}: {_looks(plan.original, plan.before, name)}']
    if all(value.persistable for value in _called(plan.original, name)):
        return printable(
            lines[0]) + '\nIt stays between runs: resting memory, which no plan makes less.'
    lines += _Side(plan.original, plan.before).lines('As it is', name)
    if plan.changed:
        lines += _Side(plan.graph, plan.after).lines('After optimize', name)
    lines += _taken_over(plan, name)
    lines += [f'Why it has the memory that it has: {why}' for why in _reasons(plan, name)]
    return '\n'.join(map(printable, lines))


def tenants_at(graph: Graph, timeline: Timeline, op: int) -> Dict[int, int]:
    """By storage that exists while `op` runs: the value that it holds then, the one that was written last."""
    order = {point.op: i for i, point in enumerate(timeline.points)}
    now, found = order.get(op, -1), {}
    written = {v: order[o.id] for o in graph.walk() if o.id in order for v in o.writes()}
    for value in sorted(graph.values, key=lambda v: written.get(v.id, -1)):
        if written.get(value.id, -1) <= now or value.storage not in found:
            found[value.storage] = value.id
    return found


def why_alone(known: Interference, value: int) -> str:
    """Why `value` has a memory of its own by the sharing rule; '' if nothing forbids to share it."""
    return known.alone.get(value, '') or (_NAMED if value in known.closed else '')


def _called(graph: Graph, name: str) -> List[Value]:
    return [value for value in graph.values if value.name == name]


def _looks(graph: Graph, timeline: Timeline, name: str) -> str:
    value = _called(graph, name)[0]
    if value.bound is None:
        return f'{value.kind.value}, {value.dtype}, of unknown size'
    shape = ', '.join(map(repr, value.shape)) if value.shape is not None else '?'
    least = 'at least ' if value.unsized else ''
    return (f'{value.dtype}[{shape}], {least}{human(timeline.evaluate(value.bound))} '
            f'({value.bound!r} bytes)')


class _Side:
    """The program before, or after."""

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._graph = graph
        self._timeline = timeline
        self._makers = makers(graph)
        self._order = {point.op: i for i, point in enumerate(timeline.points)}

    def lines(self, title: str, name: str) -> Iterator[str]:
        values = _called(self._graph, name)
        ours = [v for v in values if v.id in self._makers or v.fed]
        for value in ours or values[:1]:
            yield f'{title}: ' + '; '.join(self._told(value))

    def _told(self, value: Value) -> Iterator[str]:
        maker = self._makers.get(value.id)
        yield 'fed' if value.fed else f'made by {self._op(maker)}' if maker is not None else (
            'nobody makes it')
        readers = self._readers(value)
        if readers:
            shown = ', '.join(self._op(op.id) for op in readers[-1:])
            yield f'read by {shown}' if len(
                readers) == 1 else f'{len(readers)} ops read it, the last is {shown}'
        lifetime = self._lifetime(value)
        if lifetime is not None:
            yield from self._alive(value, lifetime, readers)

    def _alive(self, value: Value, lifetime: Lifetime, readers: List[Op]) -> Iterator[str]:
        ops = self._graph.regions[value.region].ops
        first, last = (ops[min(i, len(ops) - 1)] for i in (lifetime.first, lifetime.last))
        yield (f'its memory is there from step {self._order.get(first, 0)} to step '
               f'{self._order.get(last, 0)} of {len(self._order)}')
        peak = self._timeline.peak.op
        there = {r.storage: r for r in self._timeline.residents(peak)}
        resident = next((there[s] for s in lifetime.storages if s in there), None)
        if resident is None:
            yield f'not there at the peak (step {self._order.get(peak, 0)}, {self._op(peak)})'
            return
        size = self._timeline.evaluate(resident.size) * self._timeline.evaluate(resident.count)
        yield (f'there at the peak (step {self._order.get(peak, 0)}, {self._op(peak)}) with '
               f'{human(size)}, as {self._why_there(lifetime, readers, peak)}')

    def _why_there(self, lifetime: Lifetime, readers: List[Op], peak: int) -> str:
        if lifetime.kept:
            return 'each trip keeps it for the gradient'
        now = self._order.get(peak, 0)
        later = [op for op in readers if self._order.get(op.id, -1) > now and op.kind != RELEASE]
        if any(op.id == peak for op in readers):
            return 'the op at the peak reads it'
        if later:
            return f'{self._op(later[-1].id)} still reads it'
        return 'the runtime has not let go of it, or another variable has its memory by now'

    def _readers(self, value: Value) -> List[Op]:
        return [op for op in self._graph.walk() if value.id in op.reads() and op.kind != RELEASE]

    def _lifetime(self, value: Value) -> Optional[Lifetime]:
        own = self._timeline.lifetimes.by_region[value.region]
        return next((l for l in own.values() if value.storage in l.storages), None)

    def _op(self, op: Optional[int]) -> str:
        return short_lines(op_text(self._graph, -1 if op is None else op))


def _taken_over(plan: Plan, name: str) -> Iterator[str]:
    values = plan.graph.values
    for reuse in plan.reuses:
        if values[reuse.value].name == name:
            yield f'It takes over the memory of {values[reuse.storage].name} ({reuse.tier}).'
        elif values[reuse.storage].name == name:
            yield f'{values[reuse.value].name} takes over its memory ({reuse.tier}).'
    clones = [
        v for op in computed_again(plan.graph) for v in plan.graph.ops[op].writes()
        if values[v].copy_of >= 0 and values[values[v].copy_of].name == name
    ]
    if clones:
        yield f'It is computed again, {len(clones)} times, right before what reads it.'


def _reasons(plan: Plan, name: str) -> List[str]:
    """From the sharing rule, and from the passes that looked at it."""
    known = Interference(plan.original)
    found: Dict[str, None] = {}
    for value in _called(plan.original, name):
        said: Tuple[str, ...] = (why_alone(known, value.id), plan.left_alone.get(value.id, ''))
        found.update(dict.fromkeys(filter(None, said)))
    return list(found) or [_FREE]
