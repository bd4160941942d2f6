"""The section of a program that one worker of fleet's pipeline runs, as a back end.

Paddle's section worker runs the ops of a section one after the other, by their roles: those of the forward part for one small batch
after the other, those of the backward part for each as its gradients come, and those of the optimizer when all are through. Each
small batch has variables of its own; gradients are added up in variables that all have in common.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from types import MappingProxyType
from typing import Any, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from paddle.base import framework
from paddle.base.proto import framework_pb2

from transpiler.analysis.segments import Segments
from transpiler.backends.base import Origins
from transpiler.backends.paddle2.descs import role_of
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.backends.paddle2.live_program import replace_contents
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.errors import VerificationError
from transpiler.ir import Graph
from transpiler.ir.boundary import divide
from transpiler.runtime import COLLECTING, Can, Delays, Runtime

# Of `_pipeline_opt`, which fleet gives a program that it has cut.
_SECTION, _BATCHES, _STAGE, _STAGES, _MODE = ('section_program', 'num_microbatches',
                                              'pipeline_stage', 'num_pipeline_stages',
                                              'schedule_mode')
_ALTERNATES = '1F1B'  # each stage begins with backward parts as soon as it can


class _Part(enum.IntEnum):
    """Of a section, in the order in which a small batch runs through them."""
    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


# What ops say of their role, by Paddle's OpRole: 256 is added for those that make the loss.
_PARTS: Mapping[int, _Part] = MappingProxyType({
    0: _Part.FORWARD,
    256: _Part.FORWARD,
    1: _Part.BACKWARD,
    257: _Part.BACKWARD,
    2: _Part.UPDATE
})
_ONCE = 16  # in the forward part of the first small batch, wherever it stands
# The order; what variables are called may be known to other sections.
_CAN = frozenset({Can.PIN})
_NO_PARTS = (
    "a section of a pipeline, whose operators fleet runs by their roles, has roles of other parts than forward, backward "
    'and update, or these parts mixed')


def section_of(program: framework.Program) -> framework.Program:
    """What a worker runs of a program that fleet's pipeline has cut."""
    return program._pipeline_opt[_SECTION]


def under_way(program: framework.Program) -> int:
    """Of how many small batches there is something at a time, at the most."""
    told = program._pipeline_opt
    if told.get(_MODE) != _ALTERNATES or not {_STAGE, _STAGES} <= told.keys():
        return told[_BATCHES]
    return min(told[_BATCHES], told[_STAGES] - told[_STAGE])


class SectionPrograms(LivePrograms):
    """Targets are `paddle.static.Program`s that fleet's pipeline has cut: what is rewritten is their section, for one small batch at a
    time. No op leaves its part; what the backward part reads may be made again there."""

    @property
    def runtime(self) -> Runtime:
        """One op after the other, as they stand; what is dead is freed before the next."""
        return replace(COLLECTING,
                       in_place=frozenset(),
                       delays=Delays(),
                       can=_CAN,
                       threads=1,
                       bears_delays=True)

    def read(self, target: framework.Program, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        section = section_of(target)
        here = {v.name for v in section.list_vars()}
        imported = self.imported(section, fetched & here, skipped & here)
        elsewhere = frozenset(v.name for v in target.list_vars()) - here
        imported = replace(imported, under_way=under_way(target), elsewhere=elsewhere)
        parts = _parts(imported.message)
        if parts is None:
            return replace(imported, closed=_NO_PARTS)
        _divide(imported.graph, parts)
        return imported

    def write(self,
              imported: ImportedProgram,
              graph: Graph,
              held: FrozenSet[int] = frozenset(),
              done: str = '',
              segments: Segments = ()) -> EmittedProgram:
        return emit(imported, graph, done)  # the order holds without being held

    def reread(self, imported: ImportedProgram, written: EmittedProgram) -> Tuple[Graph, Origins]:
        graph, origins = super().reread(imported, written)
        parts = _parts(written.message)
        if parts is None:
            raise VerificationError(_NO_PARTS)
        _divide(graph, parts)
        return graph, origins

    def apply(self, target: framework.Program, written: EmittedProgram) -> None:
        replace_contents(section_of(target), written)

    def keep(self, target: framework.Program, keeper: Any) -> bool:
        """Its section runs without asking anybody."""
        return False


def _parts(message: framework_pb2.ProgramDesc) -> Optional[List[Optional[_Part]]]:
    """By op of the main block, None for what runs once; None if it is no section: its parts are mixed, or other roles there."""
    roles = [role_of(op) for op in message.blocks[0].ops]
    if not {*_PARTS, _ONCE}.issuperset(roles):
        return None
    parts = [_PARTS.get(role) for role in roles]
    running = [part for part in parts if part is not None]
    return parts if running == sorted(running) else None


def _divide(graph: Graph, parts: Sequence[Optional[_Part]]) -> None:
    """The first op of a part is a boundary, which nothing crosses."""
    ops = list(graph.region_ops(0))
    if len(ops) != len(parts):
        raise VerificationError(
            'a section of a pipeline has operators that nobody runs by their role')
    for op, part in zip(ops, parts):
        if part is _Part.UPDATE:
            op.facts = replace(op.facts,
                               side_effect=True)  # a clone of it would be one of the backward part
        if part is None:
            for value in op.writes():
                graph.values[value].persistable = True  # all small batches have it in common
    for begun in (_Part.BACKWARD, _Part.UPDATE):
        first = next((op for op, part in zip(ops, parts) if part is begun), None)
        if first is not None:
            first.facts = replace(first.facts, boundary=True)
    if _Part.BACKWARD in parts:
        divide(graph, frozenset())
