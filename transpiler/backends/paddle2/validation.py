"""Checks at the border: names that the caller gave, and messages that are about to be written."""

from __future__ import annotations

import difflib
from typing import Dict, FrozenSet, Iterable, List, Mapping

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.emitter import EmittedProgram
from transpiler.backends.paddle2.framing import check_blocks, check_frame
from transpiler.backends.paddle2.importer import ImportedProgram, import_message, parse
from transpiler.errors import (InvalidArgumentError, MergedVariableError, UnknownVariableError,
                               VerificationError)
from transpiler.ir import Graph
from transpiler.verify import verify

_MOST_LISTED = 5
_MOST_BYTES = 2**62  # sums of sizes are counted in 64 bits


def check_names(message: framework_pb2.ProgramDesc, fetched: FrozenSet[str],
                skipped: FrozenSet[str], merged: Mapping[str, str]) -> None:
    """Raises for a name to fetch or to skip that the program does not have, or has no more."""
    main = {v.name for v in message.blocks[0].vars}
    everywhere = {v.name for block in message.blocks for v in block.vars}
    for argument, names, known in (('fetch_list', fetched, main), ('skip_opt_set', skipped,
                                                                   everywhere)):
        for name in sorted(names - known):
            if name in merged:
                raise MergedVariableError(
                    f'{argument}: {name!r} is gone: an earlier call made it {merged[name]!r}. '
                    'Build the program again and name it in the first call.')
            raise UnknownVariableError(
                f'{argument}: the program has no variable {name!r}.{_meant(name, known)}')


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f' Did you mean {close[0]!r}?' if close else ''


def check_inputs(program: ImportedProgram, names: Iterable[str]) -> None:
    """Raises UnknownVariableError for a name in `batch_size` that is no input."""
    inputs = {v.name for v in program.graph.values if v.fed}
    inputs.update(v.name for v in program.message.blocks[0].vars if v.need_check_feed)
    inputs.update(n for op in program.message.blocks[0].ops
                  if op.type == 'feed' for s in op.outputs for n in s.arguments)
    for name in sorted(set(names) - inputs):
        raise UnknownVariableError(f'batch_size: the program has no input {name!r}; its inputs are '
                                   f'{_listed(inputs)}.{_meant(name, inputs)}')


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)[:_MOST_LISTED + 1]
    return ', '.join(map(repr, shown[:_MOST_LISTED])) + (', ...' if shown[_MOST_LISTED:] else '')


def check_sizes(graph: Graph, dims: Mapping[str, int]) -> None:
    """Raises InvalidArgumentError for a program whose variables have more bytes than anyone can count."""
    trips = {}
    for region in graph.regions:
        trips[region.id] = region.trips.evaluate(dims) * trips.get(region.parent, 1)
    total = sum(
        v.size.evaluate(dims) * trips.get(v.region, 1) for v in graph.values if v.size is not None)
    if total > _MOST_BYTES:
        exponent = len(str(total)) - 1
        raise InvalidArgumentError(
            f'the variables of the program take about 10**{exponent} bytes, more than there are: by '
            'their dims and by what batch_size and trip_count say')


def check_emitted(program: ImportedProgram, emitted: EmittedProgram) -> None:
    """Raises VerificationError unless the message, read again from its bytes, is proved equal."""
    fetched = [v.name for v in program.graph.values if v.fetched]
    # What is proved does not depend on the shapes of the new program, nor on who made its ops.
    message = parse(emitted.message.SerializeToString())
    check_blocks(program.message, message)
    again = import_message(message, fetched, infer=lambda _: {}, labels=False)
    _check_names_kept(program, emitted)
    origins = _origins(program, again, emitted)
    check_frame(program, again, origins, emitted.renamed)
    for value in again.graph.values:  # what has a new name is what it was before anyone writes it, too
        value.name = emitted.stands_for.get(value.name, value.name)
    verify(program.graph, again.graph, origins)


def _origins(program: ImportedProgram, again: ImportedProgram,
             emitted: EmittedProgram) -> Dict[int, int]:
    origins: Dict[int, int] = {}
    for block, region in again.block_regions.items():
        new_ops: List[int] = again.graph.regions[region].ops
        if len(new_ops) != len(emitted.origins[block]):
            raise VerificationError(f'block {block} has another number of operators')
        origins.update(
            (new, old) for new, old in zip(new_ops, emitted.origins[block]) if old is not None)
    return origins


def _check_names_kept(program: ImportedProgram, emitted: EmittedProgram) -> None:
    """Variables that are fed, fetched or kept from run to run are still declared by their names."""
    had = {v.name for v in program.message.blocks[0].vars}
    protected = {
        v.name
        for v in program.graph.values
        if v.region == 0 and v.name in had and (v.fed or v.fetched or v.persistable)
    }
    lost = sorted(protected.difference(v.name for v in emitted.message.blocks[0].vars))
    if lost:
        raise VerificationError(f'variable {lost[0]!r} is gone')
