"""Which operators to run in parts: chosen by the timeline, step by step at the peak, and kept where the bytes stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.analysis.timeline import Timeline
from transpiler.analysis.windows import Window, Windows
from transpiler.ir import Size, Value, ValueKind
from transpiler.ir.symbols import is_batch
from transpiler.program_desc.importer import ImportedProgram
from transpiler.program_desc.in_parts import Chain, key_of, run_in_parts
from transpiler.program_desc.inputs import held_name
from transpiler.program_desc.row_wise import Shape, row_operands

_PARTS = (2, 4, 8)
_INNER = 1  # the block that enclosing makes
# A split has to lower the peak to this share of it, and twice the parts to that share of what half of them reach.
_WORTH = 0.98
_WORTH_MORE_PARTS = 0.8
_MOST_CHAINS = 16
_MOST_PROBES = 10

Message = framework_pb2.ProgramDesc
Measured = Tuple[ImportedProgram, Timeline]  # a program when enclosed
# What of a program differs if these chains run in parts, if anything does.
Probe = Callable[[Sequence[Chain]], Optional[str]]


@dataclass(frozen=True)
class Split:
    """What is run in parts, and why the rest is not: one sentence for each operator."""

    chains: Tuple[Chain, ...] = ()
    refused: Tuple[str, ...] = ()


@dataclass
class _Refusals:
    """Operators that gave other bytes in so many parts, by kind, attributes and shapes."""

    known: Set[Tuple[str, int]] = field(default_factory=set)
    reasons: List[str] = field(default_factory=list)

    def allow(self, signature: str, parts: int) -> bool:
        return not any(s == signature and parts >= fewest for s, fewest in self.known)


def split(message: Message, measure: Callable[[Message], Measured], probe: Probe,
          batch_size: int) -> Split:
    """Chains of `message` that lower its predicted peak and give the same bytes in parts.

    Args:
        message: the program before it is enclosed.
        measure: what becomes of a program by enclosing it.
        probe: runs the chains.
        batch_size: no chain has more parts.
    """
    refusals = _Refusals()
    search = _Search(message, measure, [p for p in _PARTS if p <= batch_size], refusals)
    for _ in range(_MOST_PROBES):
        chains = search.run()
        different = probe(chains) if chains else None
        if different is None:
            left = [search.stopped_at] if search.stopped_at else []
            return Split(tuple(chains), (*refusals.reasons, *left))
        search.refuse(different, chains)
    return Split((), (*refusals.reasons, 'nothing is run in parts: too many operators differ'))


class _Search:
    """The greedy choice, again after each refusal."""

    def __init__(self, message: Message, measure: Callable[[Message], Measured],
                 parts: Sequence[int], refusals: _Refusals) -> None:
        self._message = message
        self._measure = measure
        self._parts = parts
        self._refusals = refusals
        self._given = measure(message)
        self._shapes = _RowView(self._given[0]).shapes
        self.stopped_at = ''

    def run(self) -> List[Chain]:
        """Splits at the peak as long as that gets lower; several peaks of one height need several steps."""
        chains: List[Chain] = []
        program, timeline = self._given
        lowest, kept = timeline.peak_bytes, 0
        while len(chains) < _MOST_CHAINS:
            found = self._best(program, timeline)
            if found is None:
                break
            chains.append(found)
            program, timeline = self._measure(run_in_parts(self._message, chains))
            if timeline.peak_bytes <= _WORTH * lowest:
                lowest, kept = timeline.peak_bytes, len(chains)
        self.stopped_at = _where(program, timeline)
        return chains[:kept]

    def refuse(self, name: str, chains: Sequence[Chain]) -> None:
        """Notes who made `name`: in a chain, or behind it, where the layout of what it reads is another one."""
        ops = list(self._message.blocks[0].ops)
        order = {key_of(op): i for i, op in enumerate(ops)}
        at = next(i for i, op in enumerate(ops) if name in key_of(op))
        before = [c for c in chains if order[c.ops[0]] <= at] or list(chains)
        chain = max(before, key=lambda c: order[c.ops[0]])
        culprit = ops[min(at, order[chain.ops[-1]])]
        self._refusals.known.add((_signature(culprit, self._shapes), chain.parts))
        self._refusals.reasons.append(f'{ops[at].type} that makes {name}: other bytes if '
                                      f'{culprit.type} runs in {chain.parts} parts')

    def _best(self, program: ImportedProgram, timeline: Timeline) -> Optional[Chain]:
        """The split that brings most at the peak, in few parts."""
        view = _RowView(program)
        enough = _WORTH * timeline.peak_bytes
        found = [(w, parts, rows)
                 for rows in view.sources
                 for parts in self._parts
                 for w in self._windows(view, timeline, rows, parts)
                 if w.inside <= enough]
        if not found:
            return None
        if all(w.peak > enough for w, _, _ in found):  # another peak is as high: it is the next one's turn
            found = [(Window(w.first, w.last, w.inside, w.inside), p, r) for w, p, r in found]
        least = {p: min(w.peak for w, q, _ in found if q == p) for _, p, _ in found}
        chosen = min(least)
        for parts in sorted(least):
            if least[parts] <= _WORTH_MORE_PARTS * least[chosen]:
                chosen = parts
        window, parts, rows = min((f for f in found if f[1] == chosen),
                                  key=lambda f: (f[0].peak, f[0].last - f[0].first))
        return view.chain(window, parts, rows)

    def _windows(self, view: _RowView, timeline: Timeline, rows: Size,
                 parts: int) -> Iterator[Window]:
        ops = {
            position: op for position, op in view.row_wise(rows).items()
            if self._refusals.allow(_signature(op.desc, view.shapes), parts)
        }
        return Windows(view.program.graph, timeline, view.region, parts,
                       {p: op.sliced for p, op in ops.items()},
                       {p: op.shared for p, op in ops.items()}).around_peak()


@dataclass(frozen=True)
class _RowOp:
    """An operator whose rows are independent; values that have the rows, and others that it reads."""

    desc: framework_pb2.OpDesc
    sliced: FrozenSet[int]
    shared: FrozenSet[int]


class _RowView:
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
        self._read = {
            n for desc in program.descs.values() for s in desc.inputs for n in s.arguments
        }

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

    def row_wise(self, rows: Size) -> Dict[int, _RowOp]:
        """By position, the operators whose operands and results have these rows."""
        found = {}
        for position, desc in self._alone():
            operands = row_operands(desc, self.shapes, rows, self._persistable, self._read)
            if operands is not None:
                names = {n for s in desc.inputs for n in s.arguments}
                others = names - operands - self._persistable
                found[position] = _RowOp(desc, self._ids(operands), self._ids(others))
        return found

    def chain(self, window: Window, parts: int, rows: Size) -> Chain:
        """The ops of `window`, as the program that is not enclosed has them."""
        ops = self.row_wise(rows)
        inside = [ops[p] for p in range(window.first, window.last + 1)]
        made = {n for op in inside for n in key_of(op.desc)}
        sliced = {self.program.graph.values[v].name for op in inside for v in op.sliced} - made
        return Chain(tuple(key_of(op.desc) for op in inside), parts, frozenset(sliced),
                     self.sources[rows])

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
    named = [(s.parameter, [shapes.get(n) for n in s.arguments])
             for s in list(desc.inputs) + list(desc.outputs)]
    return f'{desc.type} {named} {attributes}'


def _where(program: ImportedProgram, timeline: Timeline) -> str:
    """The operator at the peak."""
    op = timeline.peak.op
    return program.graph.ops[op].kind if op >= 0 else ''
