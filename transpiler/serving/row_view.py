"""What a program has that may run in parts: its operators whose rows are independent, by where they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, Mapping, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.windows import Window, Windows
from transpiler.ir import Graph, Size, Value, ValueKind
from transpiler.ir.symbols import is_batch
from transpiler.serving.chains import Chain
from transpiler.serving.row_wise import Operator, Shape, row_operands

# More than two parts may take this share of the time that their operators take by the cost model.
_MOST_EXTRA_TIME = 0.5


def key_of(operator: Operator) -> Tuple[str, ...]:
    """What it writes: no other operator writes that."""
    return tuple(name for _, name in operator.results)


@dataclass(frozen=True)
class RowOp:
    """An operator whose rows are independent; values that have the rows, and others that it reads."""

    operator: Operator
    sliced: FrozenSet[int]
    shared: FrozenSet[int]


@dataclass
class RowView:
    """A program, as its graph and its operators say.

    Attributes:
        graph: of the whole.
        region: in which operators may be in parts.
        operators: those that may be, by position in `region`.
        reads: names that each of them reads.
        read: names that any operator of the program reads, or hands on.
        writers: by name, how many operators write it.
        seconds_a_run: what the runtime takes to start one of them again.
        held: by name of an input, the name that it is held under.
        joined: positions of operators that the runtime makes one with what stands before them: no part begins there.
    """

    graph: Graph
    region: int
    operators: Mapping[int, Operator]
    reads: Mapping[int, FrozenSet[str]]
    read: FrozenSet[str]
    writers: Mapping[str, int]
    seconds_a_run: float
    held: Mapping[str, str] = field(default_factory=dict)
    joined: FrozenSet[int] = frozenset()

    def __post_init__(self) -> None:
        homes = (0, self.region)
        self._values: Dict[str, Value] = {
            v.name: v
            for v in self.graph.values
            if v.region in homes and v.kind is ValueKind.DENSE and not v.lod_level
        }
        self.shapes: Mapping[str, Shape] = {n: v.shape for n, v in self._values.items()}
        self._persistable = {n for n, v in self._values.items() if v.persistable}

    @property
    def sources(self) -> Dict[Size, str]:
        """By number of rows, an input that has as many."""
        found: Dict[Size, str] = {}
        for name, value in self._values.items():
            rows = value.shape[0] if value.fed and value.shape else Size.of(1)
            symbols = sorted(rows.dims)
            if len(symbols) == 1 and is_batch(symbols[0]) and rows == Size.dim(symbols[0]):
                held = self.held.get(name, name)
                found.setdefault(rows, held if held in self._values else name)
        return found

    def row_wise(self, rows: Size) -> Dict[int, RowOp]:
        """By position, the operators whose operands and results have these rows."""
        found = {}
        for position, operator in self.operators.items():
            operands = row_operands(operator, self.shapes, rows, self._persistable, self.read)
            if operands is not None and self._is_only_writer(operator):
                others = self.reads[position] - operands - self._persistable
                found[position] = RowOp(operator, self._ids(operands), self._ids(others))
        return found

    def windows(self, timeline: Timeline, parts: int, ops: Mapping[int, RowOp]) -> Windows:
        """Ways to run `ops` in parts."""
        return Windows(self.graph, timeline, self.region, parts,
                       {at: op.sliced for at, op in ops.items()},
                       {at: op.shared for at, op in ops.items()}, self.joined)  # yapf: disable

    def chain(self, window: Window, parts: int, rows: Size) -> Chain:
        """The ops of `window`, as the program has them that is not in parts."""
        ops = self.row_wise(rows)
        inside = [ops[p] for p in range(window.first, window.last + 1)]
        made = {n for op in inside for n in key_of(op.operator)}
        sliced = {self.graph.values[v].name for op in inside for v in op.sliced} - made
        return Chain(tuple(key_of(op.operator) for op in inside), parts, frozenset(sliced),
                     self.sources[rows])

    def why_whole(self, op: int) -> str:
        """Why `op`, which is at the peak, is not run in parts; nothing if it is, or stands in another loop or branch."""
        known = self.graph.ops[op]
        if known.region != self.region:
            return ''
        position = self.graph.regions[self.region].ops.index(op)
        independent = any(position in self.row_wise(rows) for rows in self.sources)
        reason = ('that would not lower the peak'
                  if independent else 'its rows are not known to be independent')
        made = ''.join(f' that makes {self.graph.values[v].name}' for v in known.results[:1])
        return f'{known.kind}{made}, as {reason}'

    def is_quick(self, window: Window, parts: int, timeline: Timeline) -> bool:
        """Whether starting so many more operators takes little of the time that they compute."""
        cost, ops = CostModel(), self.graph.regions[self.region].ops[window.first:window.last + 1]
        seconds = sum(
            cost.whole_seconds(self.graph, self.graph.ops[op], timeline.dims) for op in ops)
        return (parts - 1) * len(ops) * self.seconds_a_run <= _MOST_EXTRA_TIME * seconds

    def _is_only_writer(self, operator: Operator) -> bool:
        """Whether its results are nobody else's. What is written in turns is known by the order of its writers alone."""
        written = [n for n in key_of(operator) if n not in self._persistable]
        return all(n in self._values and self.writers[n] == 1 for n in written if n in self.read)

    def _ids(self, names: Iterable[str]) -> FrozenSet[int]:
        return frozenset(self._values[n].id for n in names if n in self._values)
