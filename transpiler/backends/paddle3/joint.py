"""Programs that `paddle.jit.to_static` makes of a layer, as a back end: forward and backward in one, before Paddle splits them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, Tuple

from transpiler.backends.paddle3.emitter import emit, printed
from transpiler.backends.paddle3.environment import ORDER_ALONE
from transpiler.backends.paddle3.importer import Cut, ImportedProgram, import_program
from transpiler.backends.paddle3.known_workspaces import look_up
from transpiler.backends.paddle3.naming import value_names
from transpiler.backends.paddle3.programs import LivePrograms, Written
from transpiler.runtime import Runtime


@dataclass
class JointProgram:
    """A program of Paddle; the range of its ops that stand between forward and backward, empty if it has no backward; names of what
    others may write before that runs; and when it has been read, the names that its values had then, by their ids."""

    program: Any
    between: Tuple[int, int] = (0, 0)
    others: FrozenSet[str] = frozenset()
    names: Dict[str, str] = field(default_factory=dict)


class JointPrograms(LivePrograms):
    """Targets are `JointProgram`s. Paddle runs both parts in the order of their ops (`used_for_jit`): nothing has to hold it."""

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, can=ORDER_ALONE, bears_delays=True, inputs_stay=False)

    def read(self, target: JointProgram, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        target.names = value_names(target.program)
        imported = import_program(target.program, fetched, skipped, cut=_cut(target))
        look_up(imported)
        return imported

    def apply(self, target: JointProgram, written: Written) -> None:
        emit(written.imported, written.graph, printed(written.program))
        if written.imported.cut is not None:
            first = written.imported.cut.between[0]
            at = [op.id() for op in target.program.global_block().ops].index(first)
            target.between = (at, at + len(written.imported.cut.between))


def _cut(target: JointProgram) -> Any:
    start, end = target.between
    if start == end:
        return None
    names, ops = target.names, target.program.global_block().ops
    # Gradients, which Paddle hands out when it has this program back, are read by nobody yet.
    kept = frozenset(
        names[v.id] for op in ops[end:] for v in op.results() if v.initialized() and v.use_empty())
    return Cut(tuple(op.id() for op in ops[start:end]), kept, target.others)
