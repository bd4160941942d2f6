"""Paddle 2.6's static programs as a back end: live ones, and serialized ones."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, Iterator, List, Optional, Tuple

from paddle.base import framework

from transpiler.analysis.cost import CostModel
from transpiler.backends.base import Origins
from transpiler.backends.paddle2 import environment
from transpiler.backends.paddle2.calibration import cached_cost_model
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.framing import check_blocks, check_frame
from transpiler.backends.paddle2.guard import merged_variables
from transpiler.backends.paddle2.importer import ImportedProgram, import_message, parse
from transpiler.backends.paddle2.live_program import message_of, replace_contents
from transpiler.backends.paddle2.shapes import Inferred
from transpiler.errors import VerificationError
from transpiler.ir import Graph
from transpiler.runtime import COLLECTING, RETAINING, Runtime


class Programs:
    """What all programs have in common, wherever they are kept."""

    @property
    def runtime(self) -> Runtime:
        return COLLECTING if environment.collects_garbage() else RETAINING

    @property
    def cost(self) -> Optional[CostModel]:
        return cached_cost_model()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        environment.check_paddle()
        with environment.static_mode():
            yield

    def write(self,
              imported: ImportedProgram,
              graph: Graph,
              held: FrozenSet[int] = frozenset(),
              done: str = '') -> EmittedProgram:
        return emit(imported, graph, done, held)

    def reread(self, imported: ImportedProgram, written: EmittedProgram) -> Tuple[Graph, Origins]:
        fetched = [v.name for v in imported.graph.values if v.fetched]
        # What is proved does not depend on the shapes of the new program, nor on who made its ops.
        message = parse(written.message.SerializeToString())
        check_blocks(imported.message, message)
        again = import_message(message, fetched, inferred=lambda _: Inferred({}, {}), labels=False)
        _check_names_kept(imported, written)
        origins = _origins(again, written)
        check_frame(imported, again, origins, written.renamed)
        for value in again.graph.values:  # what has a new name is what it was before anyone writes it, too
            value.name = written.stands_for.get(value.name, value.name)
        return again.graph, origins


class LivePrograms(Programs):
    """Targets are `paddle.static.Program`s."""

    def read(self, target: framework.Program, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        imported = import_message(message_of(target), fetched, skipped)
        return replace(imported, gone=merged_variables(target))

    def apply(self, target: framework.Program, written: EmittedProgram) -> None:
        replace_contents(target, written)


@dataclass
class Serialized:
    """The bytes of a program, which another program's may take the place of."""

    contents: bytes


class SerializedPrograms(Programs):
    """Targets are `Serialized`."""

    def read(self, target: Serialized, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        return import_message(parse(target.contents), fetched, skipped)

    def apply(self, target: Serialized, written: EmittedProgram) -> None:
        target.contents = written.message.SerializeToString()


def _origins(again: ImportedProgram, written: EmittedProgram) -> Dict[int, int]:
    origins: Dict[int, int] = {}
    for block, region in again.block_regions.items():
        new_ops: List[int] = again.graph.regions[region].ops
        if len(new_ops) != len(written.origins[block]):
            raise VerificationError(f'block {block} has another number of operators')
        origins.update(
            (new, old) for new, old in zip(new_ops, written.origins[block]) if old is not None)
    return origins


def _check_names_kept(imported: ImportedProgram, written: EmittedProgram) -> None:
    """Variables that are fed, fetched or kept from run to run are still declared by their names."""
    had = {v.name for v in imported.message.blocks[0].vars}
    protected = {
        v.name
        for v in imported.graph.values
        if v.region == 0 and v.name in had and (v.fed or v.fetched or v.persistable)
    }
    lost = sorted(protected.difference(v.name for v in written.message.blocks[0].vars))
    if lost:
        raise VerificationError(f'variable {lost[0]!r} is gone')
