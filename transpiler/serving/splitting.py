"""Which operators to run in parts: chosen by the timeline, step by step at the peak, and kept where the bytes stay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import (Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set,
                    Tuple)

from paddle.base.proto import framework_pb2

from transpiler.analysis.cost import CostModel
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.windows import Window, Windows
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.backends.paddle2.run_once import RUNS_BLOCK
from transpiler.errors import InvalidProgramError
from transpiler.ir import Size, Value, ValueKind
from transpiler.ir.symbols import is_batch
from transpiler.serving.in_parts import Chain, key_of, run_in_parts
from transpiler.serving.inputs import held_name
from transpiler.serving.row_wise import Shape, row_operands

_PARTS = (2, 4, 8)
_INNER = 1  # the block that enclosing makes
# A split has to lower the peak to this share of it, and twice the parts to that share of what half of them reach.
_WORTH = 0.98
_WORTH_MORE_PARTS = 0.8
_MOST_CHAINS = 16
_MOST_PROBES = 10

# What the blocks around an operator take, each time that it runs (2.6.2, one thread); more than two parts may take
# this share of the time that their operators take by the cost model.
_SECONDS_A_RUN = 50e-6
_MOST_EXTRA_TIME = 0.5

Message = framework_pb2.ProgramDesc
Measured = Tuple[ImportedProgram, Timeline]  # a program when enclosed
# What of a program differs if these chains run in parts, if anything does.
Differs = Callable[[Sequence[Chain]], Optional[str]]
_Found = Tuple[Window, int, Size]  # with the number of parts, and of rows
_PROOF = (
    'That their parts give the same bytes was tried on this machine with one thread, at this batch '
    'size; on another kind of machine, `check` repeats that.')


@dataclass(frozen=True)
class Split:
    """What is run in parts, and why the rest is not: one sentence for each operator."""

    chains: Tuple[Chain, ...] = ()
    refused: Tuple[str, ...] = ()

    def __str__(self) -> str:
        run = [
            f'{len(c.ops)} operators from {c.ops[0][0]} to {c.ops[-1][0]} in {c.parts} parts'
            for c in self.chains
        ]
        done = f'Run in parts: {"; ".join(run)}. {_PROOF}' if run else 'Nothing is run in parts.'
        return ' '.join([done, *(f'Not in parts: {reason}.' for reason in self.refused)])


def split(message: Message, measure: Callable[[Message], Measured], differs: Differs) -> Split:
    """Chains of `message` that lower its predicted peak and give the same bytes in parts.

    Args:
        message: the program before it is enclosed.
        measure: what becomes of a program by enclosing it.
        differs: runs the chains on this machine.
    """
    search = _Search(message, measure)
    for _ in range(_MOST_PROBES):
        chains = search.run()
        try:
            different = differs(chains) if chains else None
        except InvalidProgramError as error:
            return Split((), (f'it cannot be tried: {error}',))
        if different is None:
            left = [search.stopped_at] if search.stopped_at else []
            return Split(tuple(chains), (*search.reasons, *left))
        if not search.refuse(different, chains):
            return Split((), tuple(search.reasons))
    return Split((), (*search.reasons, 'too many operators differ'))


class _Search:
    """The greedy choice, again after each refusal."""

    def __init__(self, message: Message, measure: Callable[[Message], Measured]) -> None:
        self._message = message
        self._measure = measure
        self._given = measure(message)
        self._shapes = RowView(self._given[0]).shapes
        self._differing: Set[Tuple[str,
                                   int]] = set()  # signatures of operators, and numbers of parts
        self.reasons: List[str] = []
        self.stopped_at = ''

    def run(self) -> List[Chain]:
        """Splits at the peak as long as that gets lower; several peaks of one height need several steps."""
        chains: List[Chain] = []
        program, timeline = self._given
        lowest, kept = timeline.peak_bytes, 0
        self.stopped_at = ''
        while len(chains) < _MOST_CHAINS:
            view = RowView(program)
            found = self._best(view, timeline)
            if found is None:
                self.stopped_at = view.why_whole(timeline.peak.op)
                break
            chains.append(found)
            program, timeline = self._measure(run_in_parts(self._message, chains))
            if timeline.peak_bytes <= _WORTH * lowest:
                lowest, kept = timeline.peak_bytes, len(chains)
        return chains[:kept]

    def refuse(self, name: str, chains: Sequence[Chain]) -> bool:
        """Notes who made `name`: in a chain, or behind it, where the layout of what it reads is another one.

        False if no chain can be the reason.
        """
        ops = list(self._message.blocks[0].ops)
        order = {key_of(op): i for i, op in enumerate(ops)}
        at = next(i for i, op in enumerate(ops) if name in key_of(op))
        before = [c for c in chains if order[c.ops[0]] <= at]
        if not before:
            self.reasons.append(f'{ops[at].type} that makes {name}, as each run gives other bytes')
            return False
        chain = max(before, key=lambda c: order[c.ops[0]])
        culprit = ops[min(at, order[chain.ops[-1]])]
        self._differing.add((_signature(culprit, self._shapes), chain.parts))
        self.reasons.append(
            f'{culprit.type} that makes {key_of(culprit)[0]}, as {chain.parts} parts of '
            f'it give other bytes' + (f' in {name}' if at > order[key_of(culprit)] else ''))
        return True

    def _best(self, view: RowView, timeline: Timeline) -> Optional[Chain]:
        """The split that brings most at the peak, in few parts."""
        enough = _WORTH * timeline.peak_bytes
        found = [f for f in self._all(view, timeline) if f[0].inside <= enough]
        if all(window.peak > enough for window, _, _ in found):
            # Another peak is as high: its turn is next.
            found = [(replace(w, peak=w.inside), p, rows) for w, p, rows in found]
        chosen: Optional[_Found] = None
        for parts in sorted({p for _, p, _ in found}):
            best = min((f for f in found if f[1] == parts),
                       key=lambda f: (f[0].peak, f[0].last - f[0].first))
            if chosen is None or (best[0].peak <= _WORTH_MORE_PARTS * chosen[0].peak and
                                  view.is_quick(best[0], parts, timeline)):
                chosen = best
        return view.chain(*chosen) if chosen else None

    def _all(self, view: RowView, timeline: Timeline) -> Iterator[_Found]:
        """Windows around the peak."""
        for rows in view.sources:
            ops = view.row_wise(rows)
            for parts in (p for p in _PARTS if p <= timeline.evaluate(rows)):
                allowed = {at: op for at, op in ops.items() if self._allows(op.desc, parts)}
                windows = Windows(view.program.graph, timeline, view.region, parts, {
                    at: op.sliced for at, op in allowed.items()
                }, {
                    at: op.shared for at, op in allowed.items()
                })
                yield from ((window, parts, rows) for window in windows.around_peak())

    def _allows(self, desc: framework_pb2.OpDesc, parts: int) -> bool:
        """Whether parts of as many rows, or more, did not differ."""
        if not self._differing:
            return True
        signature = _signature(desc, self._shapes)
        return not any(s == signature and parts >= fewest for s, fewest in self._differing)


@dataclass(frozen=True)
class RowOp:
    """An operator whose rows are independent; values that have the rows, and others that it reads."""

    desc: framework_pb2.OpDesc
    sliced: FrozenSet[int]
    shared: FrozenSet[int]


class RowView:
    """What an enclosed program has that may run in parts."""

    def __init__(self, program: ImportedProgram) -> None:
        self.program = program
        self.region = program.block_regions[_INNER]
        homes = (0, self.region)
        self._values: Dict[str, Value] = {
            v.name: v
            for v in program.graph.values
            if v.region in homes and v.kind is ValueKind.DENSE and not v.lod_level
        }
        self.shapes: Mapping[str, Shape] = {n: v.shape for n, v in self._values.items()}
        self._persistable = {n for n, v in self._values.items() if v.persistable}
        descs = program.descs.values()
        self._read = {n for desc in descs for s in desc.inputs for n in s.arguments}
        self._writers = Counter(n for d in descs if d.type != RUNS_BLOCK for n in key_of(d))

    @property
    def sources(self) -> Dict[Size, str]:
        """By number of rows, an input that has as many."""
        found: Dict[Size, str] = {}
        for name, value in self._values.items():
            rows = value.shape[0] if value.fed and value.shape else Size.of(1)
            symbols = sorted(rows.dims)
            if len(symbols) == 1 and is_batch(symbols[0]) and rows == Size.dim(symbols[0]):
                held = held_name(name)
                found.setdefault(rows, held if held in self._values else name)
        return found

    def row_wise(self, rows: Size) -> Dict[int, RowOp]:
        """By position, the operators whose operands and results have these rows."""
        found = {}
        for position, desc in self._alone():
            operands = row_operands(desc, self.shapes, rows, self._persistable, self._read)
            if operands is not None and self._is_only_writer(desc):
                names = {n for s in desc.inputs for n in s.arguments}
                others = names - operands - self._persistable
                found[position] = RowOp(desc, self._ids(operands), self._ids(others))
        return found

    def _is_only_writer(self, desc: framework_pb2.OpDesc) -> bool:
        """Whether its results are nobody else's. What is written in turns is known by the order of its writers alone."""
        written = [n for n in key_of(desc) if n not in self._persistable]
        return all(n in self._values and self._writers[n] == 1 for n in written if n in self._read)

    def chain(self, window: Window, parts: int, rows: Size) -> Chain:
        """The ops of `window`, as the program that is not enclosed has them."""
        ops = self.row_wise(rows)
        inside = [ops[p] for p in range(window.first, window.last + 1)]
        made = {n for op in inside for n in key_of(op.desc)}
        sliced = {self.program.graph.values[v].name for op in inside for v in op.sliced} - made
        return Chain(tuple(key_of(op.desc) for op in inside), parts, frozenset(sliced),
                     self.sources[rows])

    def why_whole(self, op: int) -> str:
        """Why `op`, which is at the peak, is not run in parts; nothing if it is."""
        for position, desc in self._alone():
            if self.program.graph.regions[self.region].ops[position] == op:
                independent = any(position in self.row_wise(rows) for rows in self.sources)
                reason = ('that would not lower the peak'
                          if independent else 'its rows are not known to be independent')
                return f'{desc.type} that makes {key_of(desc)[0]}, as {reason}'
        return ''

    def is_quick(self, window: Window, parts: int, timeline: Timeline) -> bool:
        """Whether starting so many more operators takes little of the time that they compute."""
        graph, cost = self.program.graph, CostModel()
        ops = graph.regions[self.region].ops[window.first:window.last + 1]
        seconds = sum(
            cost.region_seconds(graph, r, timeline.dims)
            for op in ops
            for r in graph.ops[op].regions)
        return (parts - 1) * len(ops) * _SECONDS_A_RUN <= _MOST_EXTRA_TIME * seconds

    def _alone(self) -> Iterator[Tuple[int, framework_pb2.OpDesc]]:
        """By position, each operator that has a block for itself."""
        graph = self.program.graph
        for position, op in enumerate(graph.region_ops(self.region)):
            inner = [i for r in op.regions for i in graph.region_ops(r)]
            if len(inner) == 1 and not inner[0].regions:
                yield position, self.program.descs[inner[0].id]

    def _ids(self, names: Set[str]) -> FrozenSet[int]:
        return frozenset(self._values[n].id for n in names if n in self._values)


def _signature(desc: framework_pb2.OpDesc, shapes: Mapping[str, Shape]) -> str:
    """The same for operators that run the same kernel on tensors of the same shapes."""
    attributes = sorted(str(a) for a in desc.attrs if not a.name.startswith(('@', 'op_')))
    named = [(s.parameter, [shapes.get(n)
                            for n in s.arguments])
             for s in list(desc.inputs) + list(desc.outputs)]
    return f'{desc.type} {named} {attributes}'
