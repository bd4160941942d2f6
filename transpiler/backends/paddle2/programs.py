"""Paddle 2.6's static programs as a back end: live ones, and serialized ones."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from paddle.base import framework

from transpiler.analysis.cost import CostModel
from transpiler.analysis.segments import Segments
from transpiler.backends.base import Origins, Packed
from transpiler.backends.calibration import cached_cost_model
from transpiler.backends.paddle2 import environment
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.framing import check_blocks, check_frame
from transpiler.backends.paddle2.guard import keep, merged_variables
from transpiler.backends.paddle2.importer import ImportedProgram, import_message, parse
from transpiler.backends.paddle2.live_program import Stacks, message_of, replace_contents
from transpiler.backends.paddle2.registry import OpRegistry
from transpiler.backends.paddle2.run_once import is_segmented
from transpiler.backends.paddle2.segments import block_run, join, segments_in
from transpiler.backends.paddle2.shapes import Inferred
from transpiler.backends.settings import collects_garbage, static_mode
from transpiler.backends.workers import rank_over_gloo
from transpiler.errors import VerificationError
from transpiler.ir import Graph
from transpiler.ir.columns import Columns
from transpiler.runtime import COLLECTING, RETAINING, Can, Runtime

_SECTION = (
    'it sends to one other worker, or receives from it, as a section of a pipeline does, whose parts fleet runs for several small '
    'batches at a time; give the program that fleet has cut, whose section it is')
_PEER = 'peer'  # an attribute: the other worker


class Programs:
    """What all programs have in common, wherever they are kept."""

    @property
    def runtime(self) -> Runtime:
        found = COLLECTING if collects_garbage() else RETAINING
        return found if environment.runs_blocks() else replace(found, can=found.can - {Can.SEGMENT})

    @property
    def cost(self) -> Optional[CostModel]:
        return cached_cost_model()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        environment.check_paddle()
        with static_mode():
            yield

    def run_kernels(self, imported: ImportedProgram) -> None:
        """Not one: the table of workspaces has told."""

    def write(self,
              imported: ImportedProgram,
              graph: Graph,
              held: FrozenSet[int] = frozenset(),
              done: str = '',
              segments: Segments = ()) -> EmittedProgram:
        return emit(imported, graph, done, held, segments)

    def kept(self, written: EmittedProgram) -> Callable[[], EmittedProgram]:
        return Columns(written).again

    def reread(self, imported: ImportedProgram, written: EmittedProgram) -> Tuple[Graph, Origins]:
        fetched = [v.name for v in imported.graph.values if v.fetched]
        # What is proved does not depend on the shapes of the new program, nor on who made its ops.
        message = join(written.message)
        check_blocks(imported.message, message)
        again = import_message(message,
                               fetched,
                               inferred=lambda _: Inferred({}, {}, {}),
                               figures=False,
                               registry=imported.registry)
        _check_names_kept(imported, written)
        origins = _origins(again, _joined_origins(written))
        check_frame(imported, again, origins, written.renamed)
        for value in again.graph.values:  # what has a new name is what it was before anyone writes it, too
            value.name = written.stands_for.get(value.name, value.name)
        return again.graph, origins


class LivePrograms(Programs):
    """Targets are `paddle.static.Program`s."""

    def read(self, target: framework.Program, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        environment.check_executor()
        imported = self.imported(target, fetched, skipped)
        return replace(imported, closed=_SECTION if _has_peer(imported) else '')

    def imported(self, target: framework.Program, fetched: FrozenSet[str],
                 skipped: FrozenSet[str]) -> ImportedProgram:
        """What is in `target`, with the places where the user wrote its ops, whatever runs it."""
        stacks: Stacks = {}
        imported = import_message(message_of(target, stacks),
                                  fetched,
                                  skipped,
                                  registry=OpRegistry(rank_over_gloo()))
        for op, place in imported.places().items():
            site = imported.graph.ops[op].site
            imported.graph.ops[op].site = site._replace(frames=stacks.get(place, ()))
        return replace(imported, gone=merged_variables(target))

    def named(self, target: framework.Program, argument: str, given: Any) -> Any:
        """`given`: variables have names."""
        return given

    def apply(self, target: framework.Program, written: EmittedProgram) -> None:
        replace_contents(target, written)

    def pack(self, target: framework.Program, fetched: Sequence[str] = ()) -> Packed:
        return Packed(message_of(target).SerializeToString(), list(fetched))

    def pack_written(self, imported: ImportedProgram, written: EmittedProgram,
                     fetched: Sequence[str]) -> Packed:
        return Packed(written.message.SerializeToString(), list(fetched))

    def unpack(self, packed: Packed) -> Tuple[framework.Program, List[str]]:
        return framework.Program.parse_from_string(packed.contents), packed.handles

    def packs(self, target: framework.Program) -> bool:
        """All programs of Paddle 2 are bytes."""
        return True

    def copied(self, target: framework.Program,
               fetched: Sequence[str]) -> Tuple[framework.Program, List[str]]:
        return self.unpack(self.pack(target, fetched))

    def copied_written(self, imported: ImportedProgram, written: EmittedProgram,
                       fetched: Sequence[str]) -> Tuple[framework.Program, List[str]]:
        return self.unpack(self.pack_written(imported, written, fetched))

    def keep(self, target: framework.Program, keeper: Any) -> bool:
        """Whether `keeper.before_run()` is called ahead of each run of `target` from now on."""
        keep(target, keeper)
        return True


@dataclass
class Serialized:
    """The bytes of a program, which another program's may take the place of."""

    contents: bytes


def _has_peer(imported: ImportedProgram) -> bool:
    return any(a.name == _PEER for desc in imported.descs.values() for a in desc.attrs)


class SerializedPrograms(Programs):
    """Targets are `Serialized`."""

    def read(self, target: Serialized, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        return import_message(parse(target.contents), fetched, skipped)

    def apply(self, target: Serialized, written: EmittedProgram) -> None:
        target.contents = written.message.SerializeToString()


def _joined_origins(written: EmittedProgram) -> List[List[Optional[int]]]:
    """What the ops of `written` stand for, block by block, if its segments were joined."""
    if not is_segmented(written.message):
        return written.origins
    inner = [b.idx for b in segments_in(written.message)]
    joined: List[Optional[int]] = []
    for op, origin in zip(written.message.blocks[0].ops, written.origins[0]):
        index = block_run(op)
        joined += written.origins[index] if index in inner else [origin]
    return [joined, *written.origins[1:inner[0]]]


def _origins(again: ImportedProgram, written: List[List[Optional[int]]]) -> Dict[int, int]:
    origins: Dict[int, int] = {}
    for block, region in again.block_regions.items():
        new_ops: List[int] = again.graph.regions[region].ops
        if len(new_ops) != len(written[block]):
            raise VerificationError(f'block {block} has another number of operators')
        origins.update((new, old) for new, old in zip(new_ops, written[block]) if old is not None)
    return origins


def _check_names_kept(imported: ImportedProgram, written: EmittedProgram) -> None:
    """Variables that are fed, fetched or kept from run to run are still declared by their names."""
    had = {v.name for v in imported.message.blocks[0].vars}
    protected = {
        v.name for v in imported.graph.values if v.region == 0 and v.name in had and v.known_outside
    }
    lost = sorted(protected.difference(v.name for v in written.message.blocks[0].vars))
    if lost:
        raise VerificationError(f'variable {lost[0]!r} is gone')
