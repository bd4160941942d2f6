"""Programs of Paddle 2 as the search for what runs in parts sees them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import read_by, value_of
from transpiler.backends.paddle2.importer import ImportedProgram
from transpiler.backends.paddle2.run_once import RUNS_BLOCK
from transpiler.serving.inputs import held_name
from transpiler.serving.row_view import RowView, key_of
from transpiler.serving.row_wise import Shape

_INNER = 1  # the block that enclosing makes
# What the blocks around an operator take, each time that it runs (2.6.2, one thread).
_SECONDS_A_RUN = 50e-6


class Described:
    """An operator, by what describes it. See `row_wise.Operator`."""

    def __init__(self, desc: framework_pb2.OpDesc) -> None:
        self._desc = desc

    @property
    def kind(self) -> str:
        kind: str = self._desc.type
        return kind

    @property
    def results(self) -> Sequence[Tuple[str, str]]:
        return [(s.parameter, n) for s in self._desc.outputs for n in s.arguments]

    @property
    def reads(self) -> List[str]:
        return read_by(self._desc)

    def attribute(self, name: str, default: Any) -> Any:
        found = next((value_of(a) for a in self._desc.attrs if a.name == name), None)
        return default if found is None else found

    def operands(self, *slots: str) -> List[str]:
        return [n for s in self._desc.inputs if s.parameter in slots for n in s.arguments]

    def signature(self, shapes: Mapping[str, Shape]) -> str:
        """The same for operators that run the same kernel on tensors of the same shapes."""
        desc = self._desc
        attributes = sorted(str(a) for a in desc.attrs if not a.name.startswith(('@', 'op_')))
        named = [(s.parameter, [shapes.get(n)
                                for n in s.arguments])
                 for s in list(desc.inputs) + list(desc.outputs)]
        return f'{desc.type} {named} {attributes}'


def operators_of(message: framework_pb2.ProgramDesc) -> List[Described]:
    """Those of the main block."""
    return [Described(op) for op in message.blocks[0].ops]


def row_view(program: ImportedProgram) -> RowView:
    """Of an enclosed program."""
    region, graph = program.block_regions[_INNER], program.graph
    operators = dict(_alone(program, region))
    descs = [Described(desc) for desc in program.descs.values()]
    return RowView(graph,
                   region,
                   operators, {
                       at: frozenset(op.reads) for at, op in operators.items()
                   },
                   read=frozenset(n for op in descs for n in op.reads),
                   writers=Counter(n for op in descs if op.kind != RUNS_BLOCK for n in key_of(op)),
                   seconds_a_run=_SECONDS_A_RUN,
                   held={v.name: held_name(v.name) for v in graph.values if v.fed})


def signatures(message: framework_pb2.ProgramDesc, view: RowView) -> Dict[Tuple[str, ...], str]:
    """Of the operators of `message`, which `view` shows."""
    return {key_of(op): op.signature(view.shapes) for op in operators_of(message)}


def _alone(program: ImportedProgram, region: int) -> Iterator[Tuple[int, Described]]:
    """By position, each operator that has a block for itself."""
    graph = program.graph
    for position, op in enumerate(graph.region_ops(region)):
        inner = [i for r in op.regions for i in graph.region_ops(r)]
        if len(inner) == 1 and not inner[0].regions:
            yield position, Described(program.descs[inner[0].id])
