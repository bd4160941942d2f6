"""Programs that `paddle.jit.to_static` makes of a layer, as a back end: forward and backward in one desc, before Paddle splits it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, Optional, Tuple

from paddle.base import framework

from transpiler.backends.base import Origins
from transpiler.backends.paddle2.emitter import EmittedProgram
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.backends.paddle2.live_program import replace_contents
from transpiler.ir import Graph
from transpiler.ir.boundary import divide
from transpiler.runtime import Can, Runtime

# Paddle runs both parts in the order of their ops (`used_for_jit`). What variables are called is known outside, and what the forward
# part would release its caller still holds.
_CAN = frozenset({Can.PIN, Can.NO_COPY})


@dataclass
class JointProgram:
    """A program of Paddle; the range of its ops that make what the backward part is given, empty if there is none; and the
    names of what the caller holds at the end, and of what others may write before the backward part runs."""

    program: framework.Program
    between: Tuple[int, int] = (0, 0)
    kept: FrozenSet[str] = frozenset()
    others: FrozenSet[str] = frozenset()


class JointPrograms(LivePrograms):
    """Targets are `JointProgram`s."""

    def __init__(self) -> None:
        self._target: Optional[JointProgram] = None

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, can=_CAN, in_place=frozenset(), bears_delays=True)

    def read(self, target: JointProgram, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        imported = super().read(target.program, fetched, skipped)
        _cut(imported.graph, target)
        self._target = target
        return imported

    def reread(self, imported: ImportedProgram, written: EmittedProgram) -> Tuple[Graph, Origins]:
        graph, origins = super().reread(imported, written)
        assert self._target is not None
        _cut(graph, self._target)
        return graph, origins

    def apply(self, target: JointProgram, written: EmittedProgram) -> None:
        replace_contents(target.program, written)


def _cut(graph: Graph, target: JointProgram) -> None:
    """No part has what stands between them: it makes what the caller gives the second."""
    ops, (start, end) = list(graph.region_ops(0)), target.between
    for op in ops[start:end]:
        op.facts = replace(op.facts, boundary=True)
    divide(graph, target.kept, target.others)
