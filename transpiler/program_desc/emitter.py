"""From a rewritten Graph back to a ProgramDesc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List

from paddle.base.proto import framework_pb2

from transpiler.analysis.positions import spans
from transpiler.ir import Graph
from transpiler.program_desc.importer import ImportedProgram


@dataclass
class EmittedProgram:
    """The new message, the imported op that each of its ops stands for, and names that are gone.

    `origins` lists op ids block by block, in the order of the ops; `merged` maps each name that is gone to
    the name whose memory it uses now.
    """

    message: framework_pb2.ProgramDesc
    origins: List[List[int]]
    merged: Dict[str, str]


def emit(program: ImportedProgram, graph: Graph) -> EmittedProgram:
    """A message like that of `program`, with the order and the storages of `graph`."""
    names = storage_names(graph)
    message = framework_pb2.ProgramDesc()
    message.CopyFrom(program.message)
    origins: List[List[int]] = [[] for _ in message.blocks]
    merged = {v.name: names[v.id] for v in graph.values if names[v.id] != v.name}
    for block, region in program.block_regions.items():
        descs = [_emit_op(program, graph, op, names) for op in graph.regions[region].ops]
        origins[block] = [graph.ops[op].origin for op in graph.regions[region].ops]
        del message.blocks[block].ops[:]
        message.blocks[block].ops.extend(descs)
        gone = {v.name for v in graph.values if v.region == region and names[v.id] != v.name}
        kept = [v for v in message.blocks[block].vars if v.name not in gone]
        if gone:
            del message.blocks[block].vars[:]
            message.blocks[block].vars.extend(kept)
    return EmittedProgram(message, origins, merged)


def storage_names(graph: Graph) -> Dict[int, str]:
    """Name by value id: a storage is called after its last tenant.

    That name still gives the right contents when it is fetched; the others are gone, and fetching them fails.
    """
    names = {v.id: v.name for v in graph.values}
    found = spans(graph)
    for members in graph.storage_members().values():
        last = max(members, key=lambda v: (found[v].first, v))
        for value in members:
            names[value] = graph.values[last].name
    return names


def _emit_op(program: ImportedProgram, graph: Graph, op_id: int,
             names: Dict[int, str]) -> framework_pb2.OpDesc:
    op = graph.ops[op_id]
    desc = framework_pb2.OpDesc()
    desc.CopyFrom(program.descs[op.origin])
    _rename(desc.inputs, iter(op.operands), names)
    _rename(desc.outputs, iter(op.results), names)
    return desc


def _rename(slots: Iterable[framework_pb2.OpDesc.Var], values: Iterator[int],
            names: Dict[int, str]) -> None:
    for slot in slots:
        for i, old in enumerate(slot.arguments):
            value = next(values)
            if value >= 0 and names[value] != old:
                slot.arguments[i] = names[value]
