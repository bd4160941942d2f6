"""Paddle 3's live static programs as a back end."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.analysis.segments import Segments
from transpiler.backends.base import Origins, Packed
from transpiler.backends.calibration import cached_cost_model
from transpiler.backends.paddle3 import environment
from transpiler.backends.paddle3.emitter import Emitted, emit, printed
from transpiler.backends.paddle3.framing import check_frame
from transpiler.backends.paddle3.importer import Cut, ImportedProgram, import_program
from transpiler.backends.paddle3.known_workspaces import is_covered, look_up
from transpiler.backends.paddle3.naming import named
from transpiler.backends.paddle3.packing import (Place, dump_trained, load, places, places_in_copy,
                                                 trains_blocks, values_at)
from transpiler.backends.paddle3.pinning import hold_orders
from transpiler.backends.paddle3.symbolic import of_copy
from transpiler.backends.paddle3.workspaces import measure
from transpiler.backends.settings import static_mode
from transpiler.errors import VerificationError
from transpiler.ir import Graph
from transpiler.runtime import Runtime


@dataclass(frozen=True)
class Written:
    """A copy of a program, rewritten; and what it takes to do the same to the program itself."""

    imported: ImportedProgram
    graph: Graph
    program: Any
    emitted: Emitted
    kept: Dict[int,
               int]  # the op of the old graph, by id of an op of the copy that was there before
    cut: Optional[Cut]  # of the copy


class LivePrograms:
    """Targets are `paddle.static.Program`s of Paddle 3. See `backends.base.Backend`."""

    @property
    def runtime(self) -> Runtime:
        return environment.runtime()

    @property
    def cost(self) -> Optional[CostModel]:
        return cached_cost_model()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        environment.check_paddle()
        with static_mode():
            yield

    def named(self, target: Any, argument: str, given: Any) -> Any:
        """`given` with names in place of values of `target`."""
        return named(target, argument, given) if hasattr(target, 'global_block') else given

    def keep(self, target: Any, keeper: Any) -> bool:
        """Whether `keeper.before_run()` is called ahead of each run of `target`: not here."""
        return False

    def pack(self, target: Any, fetched: Sequence[str] = ()) -> Packed:
        return Packed(dump_trained(target), places(target, fetched) if fetched else [])

    def pack_written(self, imported: ImportedProgram, written: Written,
                     fetched: Sequence[str]) -> Packed:
        return Packed(dump_trained(written.program), _places(imported, written, fetched))

    def unpack(self, packed: Packed) -> Tuple[Any, List[Any]]:
        program = load(packed.contents)
        hold_orders()
        return program, values_at(program, packed.handles)

    def packs(self, target: Any) -> bool:
        """Paddle 3 cannot write the stacks of trained blocks."""
        return not trains_blocks(target)

    def copied(self, target: Any, fetched: Sequence[str]) -> Tuple[Any, List[Any]]:
        return _called_by(target.clone(), places(target, fetched))

    def copied_written(self, imported: ImportedProgram, written: Written,
                       fetched: Sequence[str]) -> Tuple[Any, List[Any]]:
        """A copy of the copy: Paddle adds ops that fetch to what is run."""
        return _called_by(written.program.clone(), _places(imported, written, fetched))

    def read(self, target: Any, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        imported = import_program(target, fetched, skipped)
        look_up(imported)
        if not is_covered():
            measure(imported)
        return imported

    def run_kernels(self, imported: ImportedProgram) -> None:
        measure(imported)

    def write(self,
              imported: ImportedProgram,
              graph: Graph,
              held: FrozenSet[int] = frozenset(),
              done: str = '',
              segments: Segments = ()) -> Written:
        """On a copy of the program; its order is held whether it must be or not, as Paddle's own is another one."""
        if segments:
            raise VerificationError('segments are blocks of Paddle 2')
        copy = imported.program.clone()
        known = imported.inferred and of_copy(imported.inferred, imported.program, copy)
        read = import_program(copy, cut=_cut_of(copy, imported), inferred=known)
        if [op.kind for op in read.graph.ops] != [op.kind for op in imported.graph.ops]:
            raise VerificationError('Paddle copies the program as another one')
        kept = {handle.op.id(): op for op, handle in read.handles.items()}
        return Written(imported, graph, copy, emit(read, graph), kept, read.cut)

    def reread(self, imported: ImportedProgram, written: Written) -> Tuple[Graph, Origins]:
        emitted = written.emitted
        again = import_program(written.program,
                               spare=frozenset(emitted.spare),
                               cut=written.cut,
                               added=frozenset(emitted.added))
        known = {**written.kept, **emitted.origins}
        named_by = {new: handle.op.id() for new, handle in again.handles.items()}
        origins = {new: known[made] for new, made in named_by.items() if made in known}
        check_frame(imported, again, origins, len(emitted.spare), emitted.added)
        _call_alike(imported, again, origins, written)
        return again.graph, origins

    def kept(self, written: Written) -> Callable[[], Written]:
        return lambda: written  # Paddle has what it is made of

    def apply(self, target: Any, written: Written) -> None:
        emit(written.imported, written.graph, printed(written.program))
        hold_orders()


def _places(imported: ImportedProgram, written: Written, fetched: Sequence[str]) -> List[Place]:
    """Where the values that have these names in what was read are in what was written of it."""
    copied = {op: copy for copy, op in written.kept.items()}
    copies = {handle.op.id(): copied[op] for op, handle in imported.handles.items()}
    found = places(imported.program, fetched)
    return places_in_copy(imported.program, written.program, found, copies)


def _called_by(program: Any, found: Sequence[Place]) -> Tuple[Any, List[Any]]:
    """`program`, whose order holds if it is marked, and the values at these places."""
    hold_orders()
    return program, values_at(program, found)


def _cut_of(copy: Any, imported: ImportedProgram) -> Optional[Cut]:
    """Where `copy` is cut, by the places at which the program that was read is."""
    if imported.cut is None:
        return None
    there, new = imported.program.global_block().ops, copy.global_block().ops
    between = frozenset(imported.cut.between)
    return replace(imported.cut,
                   between=tuple(b.id() for a, b in zip(there, new) if a.id() in between))


def _call_alike(imported: ImportedProgram, again: ImportedProgram, origins: Origins,
                written: Written) -> None:
    """Gives results of ops that were there the names and marks that they had, and those of clones names of their own."""
    old, new = imported.graph, again.graph
    makers = {op.result(0).id: op.id() for op in again.declarations}
    declared = {v: makers[value.id] for v, value in again.values.items() if value.id in makers}
    for op in (op for op in new.ops if op.id in again.handles):
        if op.id not in origins:
            for result in op.results:
                new.values[result].name = f'{new.values[result].name}@added{result}'
            continue
        was_there = again.handles[op.id].op.id() in written.kept
        for result, source in zip(op.results, old.ops[origins[op.id]].results):
            if result < 0 or result in declared:
                continue
            value, former = new.values[result], old.values[source]
            value.name = former.name if was_there else f'{former.name}@{op.id}'
            value.fetched = former.fetched and was_there
    for made, maker in declared.items():
        if maker in written.emitted.spare:  # numbers in names are others now: it may be called like something that was there
            new.values[made].name = f'{new.values[made].name}@spare{made}'
