"""What would lower the peak further, each with its bytes: what the caller allows, hints, and what the sharing rule forbids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from transpiler.analysis.interference import Interference
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op
from transpiler.ir.symbols import is_batch, is_trip, is_words
from transpiler.plain import and_more, printable
from transpiler.planning import Plan, PlanOptions, plan as plan_anew
from transpiler.report.data import human
from transpiler.report.explain import tenants_at, why_alone
from transpiler.report.picture import doing_op
from transpiler.runtime import Runtime

MOST = 10
_NAMED = 3
_FROM_CURVE = 3


@dataclass(frozen=True)
class Lever:
    """`bytes` by which the predicted peak falls; `exact` is False where that is the most that it can be."""

    bytes: int
    what: str
    exact: bool

    def __str__(self) -> str:
        return printable(f'{"" if self.exact else "at most "}{human(self.bytes)}: {self.what}')


def levers(decided: Plan,
           runtime: Runtime,
           dims: Mapping[str, int],
           options: Optional[PlanOptions] = None) -> List[Lever]:
    """The `MOST` that would lower the peak most, the largest first. Plans anew for what can be tried.

    `options` are those of the plan; None for a program of a predictor, of which no option is asked.
    """
    found = [*_smaller(decided, dims), *_standing(decided)]
    if options is not None:
        found += [*_curve(decided), *_tried(decided, runtime, dims, options)]
    best: Dict[str, Lever] = {}
    for lever in found:
        if lever.bytes > best.get(lever.what, Lever(0, '', True)).bytes:
            best[lever.what] = lever
    return sorted(best.values(), key=lambda lever: -lever.bytes)[:MOST]


def _curve(decided: Plan) -> Iterator[Lever]:
    """Plans for the same order that compute more again than the overhead allows."""
    done, step = decided.recomputed, decided.step_seconds
    if done is None or not step:
        return
    lower = sorted((seconds, peak)
                   for peak, seconds in done.curve
                   if peak < decided.after.peak_bytes and seconds > 0)
    for seconds, peak in lower[:_FROM_CURVE]:
        yield Lever(decided.after.peak_bytes - peak,
                    f'a larger max_overhead: {seconds / step:.2f} of the step in the main block',
                    True)


def _tried(decided: Plan, runtime: Runtime, dims: Mapping[str, int],
           options: PlanOptions) -> Iterator[Lever]:
    free = replace(options, budget=None, segments=False)
    now = decided.after.peak_bytes
    for what, graph, changed in _choices(decided.original, free):
        again = plan_anew(graph, runtime, dims, changed)
        cost = ''
        if again.recomputed is not None and again.step_seconds and changed.recompute == 'max':
            cost = f' ({again.recomputed.seconds / again.step_seconds:.0%} of the step more)'
        yield Lever(now - again.after.peak_bytes, what + cost, True)


def _choices(graph: Graph, options: PlanOptions) -> Iterator[Tuple[str, Graph, PlanOptions]]:
    if options.recompute != 'max':
        yield "recompute='max': whatever lowers the peak runs again", graph, replace(
            options, recompute='max')
    if options.parallel:
        yield 'parallel=False: ops may be moved', graph, replace(options, parallel=False)
    if options.level == 0:
        yield 'level=1: smaller memory may be taken over, and grow', graph, replace(options,
                                                                                    level=1)
    if options.skip_grads:
        yield 'skip_grads=False: the memory of gradients may be taken over', graph, replace(
            options, skip_grads=False)
    bound = {value.id for value in graph.known_by_name()}
    bound.update(v.id
                 for v in graph.values
                 if v.skipped and v.buffer >= 0)  # by what einsum keeps, not by the user
    skipped = [v.name for v in graph.values if v.skipped and v.id not in bound]
    if skipped:
        free = graph.copy()
        for value in free.values:
            value.skipped = value.id in bound
        yield f'nothing in skip_opt_set ({_some(skipped)})', free, options


def _smaller(decided: Plan, dims: Mapping[str, int]) -> Iterator[Lever]:
    """The plan that there is, for half the rows, or half the trips."""
    kinds: Tuple[Tuple[str, Callable[[str], bool]],
                 ...] = (('the rows of a batch', lambda s: is_batch(s) or is_words(s)),
                         ('the trips of loops', is_trip))
    for what, is_kind in kinds:
        half = {s: max(1, n // 2) if is_kind(s) else n for s, n in dims.items()}
        if half != dims:
            peak = Timeline(decided.graph, decided.after.lifetimes.runtime, half).peak_bytes
            yield Lever(decided.after.peak_bytes - peak, f'half {what}', True)


def _standing(decided: Plan) -> Iterator[Lever]:
    """What stands at the peak, by the rule that holds it there."""
    graph, after = decided.graph, decided.after
    # What passes add, releases above all, is no reason; a served program is another graph.
    rules = graph if decided.served else decided.original
    known, peak = Interference(rules), graph.ops[after.peak.op]
    held = tenants_at(graph, after, peak.id)
    groups: Dict[str, List[Tuple[int, str]]] = {}
    for resident in after.residents(peak.id):
        value = held.get(resident.storage, resident.storage)
        size = after.evaluate(resident.size) * after.evaluate(resident.count)
        why = _held_by(graph, rules, known, value, peak)
        groups.setdefault(why, []).append((size, graph.values[value].name))
    for why, members in groups.items():
        names = [name for _, name in sorted(members, reverse=True)]
        yield Lever(sum(size for size, _ in members), f'{why}: {_some(names)}', False)


def _held_by(graph: Graph, rules: Graph, known: Interference, value: int, peak: Op) -> str:
    if value in peak.reads() + peak.writes():
        return f'the op at the peak, {doing_op(graph, peak.id).kind}, works on them'
    copied = graph.values[value].copy_of
    alone = why_alone(known, copied if copied >= 0 else value)
    if not alone:
        later = any(op.backward for op in graph.walk() if value in op.reads())
        return 'the backward part reads them' if later else 'ops behind the peak read them'
    unknown = sorted({
        op.kind for op in rules.walk() if not op.facts.known and value in op.reads() + op.writes()
    })
    return alone + (f' ({_some(unknown)})' if unknown else '')


def _some(names: Iterable[str]) -> str:
    return and_more(dict.fromkeys(names), _NAMED)
