"""The text of a graph (see `transpiler.ir.text`) is a program: it is planned, and the plan is text again.

Nothing runs such a program, so it says itself what everybody else's back end asks of somebody: the facts of its operators,
its sizes, and, as an argument, the runtime that it is planned for.
"""
from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import Callable, ContextManager, FrozenSet, Optional, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.segments import Segments
from transpiler.backends.base import OPTIMIZED, RELEASED, Declared, Origins
from transpiler.errors import VerificationError
from transpiler.ir import MEMORY_KINDS, Graph, Op, Value, leaves_out
from transpiler.ir.text import parse, printed
from transpiler.runtime import Runtime

_DONE = re.compile(r'^# (\S+)$', re.MULTILINE)


@dataclass
class TextProgram:
    """A program that is no more than its text, which another may take the place of."""

    text: str


@dataclass(frozen=True)
class ImportedText:
    """See `backends.base.Imported`. All that is needed to write it back is in the graph."""

    graph: Graph
    done: FrozenSet[str]
    closed: str = ''
    under_way: int = 0

    @property
    def declared(self) -> Declared:
        values = self.graph.values
        return Declared(frozenset(v.name for v in values if v.region == 0),
                        frozenset(v.name for v in values), {})

    @property
    def inputs(self) -> FrozenSet[str]:
        return frozenset(v.name for v in self.graph.values if v.fed)


@dataclass(frozen=True)
class TextPrograms:
    """A back end, see `backends.base.Backend`; targets are `TextProgram`s. Ops run in the order of their lines."""

    runtime: Runtime
    cost: Optional[CostModel] = None

    def session(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def read(self, target: TextProgram, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedText:
        graph = parse(target.text)
        for value in graph.values:
            value.skipped |= value.name in skipped
            if value.region == 0 and value.name in fetched:
                value.fetched = value.copied_out = True
        return ImportedText(graph, _done(target.text))

    def run_kernels(self, imported: ImportedText) -> None:
        """Not one: a text says it."""

    def write(self,
              imported: ImportedText,
              graph: Graph,
              held: FrozenSet[int] = frozenset(),
              done: str = '',
              segments: Segments = ()) -> str:
        """The text of `graph`; the order of all regions is kept, whether it is to be `held` or not."""
        if segments:
            raise VerificationError('a text has nothing to say that a main region runs in segments')
        notes = sorted(imported.done | ({done} if done else set()))
        return ''.join(f'# {note}\n' for note in notes) + printed(graph)

    def reread(self, imported: ImportedText, written: str) -> Tuple[Graph, Origins]:
        again = parse(written)
        _check_looks(imported.graph, again)
        origins = {op.id: op.origin for op in again.walk() if op.origin is not None}
        for op in again.walk():
            if op.id in origins:
                _check_facts(imported.graph, op)
        return again, origins

    def kept(self, written: str) -> Callable[[], str]:
        return lambda: written

    def apply(self, target: TextProgram, written: str) -> None:
        target.text = written


def _done(text: str) -> FrozenSet[str]:
    return frozenset((OPTIMIZED, RELEASED)).intersection(_DONE.findall(text))


def _check_looks(old: Graph, new: Graph) -> None:
    """Values and regions are what they were; one that was added looks like the one that it is a copy of."""
    if len(new.regions) != len(old.regions) or len(new.values) < len(old.values):
        raise VerificationError('a region or a value was lost or added')
    for value in new.values:
        same = value.id < len(old.values)
        source = value.id if same else value.copy_of
        if not same and not 0 <= source < len(old.values):
            continue  # made for an intrinsic, whose meaning the verifier knows
        was = _looks(old.values[source], same)
        if _looks(value, same) != was:
            raise VerificationError(f'value {value.name!r} is declared as something else')
    for before, after in zip(old.regions, new.regions):
        if (before.kind, before.parent, before.forward,
                before.trips) != (after.kind, after.parent, after.forward, after.trips):
            raise VerificationError(f'region {before.id} is another one')


def _looks(value: Value, same: bool) -> Value:
    """What must not change of a value; of an added one, what it is made of."""
    if same:
        # What nobody outside can see may be kept where all trips of a loop find it.
        region = value.region if value.may_be_asked_for else 0
        return replace(value, id=0, storage=0, copy_of=-1, region=region)
    return Value(0, '', 0, value.kind, value.dtype, value.shape, value.size, value.lod_level)


def _check_facts(old: Graph, op: Op) -> None:
    """What is said of an operator is what was said of it: the verifier believes it."""
    if op.kind in MEMORY_KINDS:
        return
    if not 0 <= op.origin < len(old.ops) or not _same_facts(old.ops[op.origin], op):
        raise VerificationError(f'{op.kind} (op {op.id}) has other facts than the operator that '
                                'it stands for')


def _same_facts(source: Op, op: Op) -> bool:
    """One that leaves out results may need less of its operands."""
    if not leaves_out(source, op):
        return op.facts == source.facts
    result, = (i for i, v in enumerate(op.results) if v >= 0)
    most = source.facts.alone(result)
    return op.facts.shape_only <= most.shape_only and most == replace(
        op.facts, shape_only=most.shape_only, separate=most.separate)
