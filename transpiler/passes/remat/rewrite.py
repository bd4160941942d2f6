"""Writes a rematerialization plan into a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Tuple

from transpiler.ir import Graph, Op
from transpiler.passes.cloning import Cloner
from transpiler.passes.remat.remat_problem import RematProblem
from transpiler.passes.replay import add_replay, replayed
from transpiler.passes.remat.steps import RematPlan, Step

_MAIN = 0


def apply_plan(graph: Graph, problem: RematProblem, plan: RematPlan) -> Graph:
    """`graph`, changed: the main region runs the steps of `plan`."""
    return _Rewriter(graph, problem, plan).run()


class _Rewriter:

    def __init__(self, graph: Graph, problem: RematProblem, plan: RematPlan) -> None:
        self._graph = graph
        self._problem = problem
        self._plan = plan
        self._cell = {storage: cell for cell, storage in enumerate(problem.cells)}
        self._value: Dict[int, int] = {}  # by instance that is no cell's own
        self._cloner = Cloner(graph, _MAIN)
        self._scratch: Dict[int, int] = {}  # stand-in for state, by the value that holds it

    def run(self) -> Graph:
        ops: List[int] = []
        for step in self._plan.steps:
            ops.extend(self._clones(step) if step.clone else [self._original(step)])
        self._graph.regions[_MAIN].ops = ops
        return self._graph

    def _original(self, step: Step) -> int:
        op = self._graph.ops[self._problem.ops[step.op]]
        copies = self._bindings(step.reads)
        if copies:
            operands = tuple(copies.get(self._cell_of(v), v) for v in op.operands)
            self._graph.ops[op.id] = replace(op, operands=operands)
        return op.id

    def _clones(self, step: Step) -> List[int]:
        op = self._graph.ops[self._problem.ops[step.op]]
        read = self._bindings(step.reads)
        for instance in step.writes:
            own = self._problem.cells[self._plan.cell_of[instance]]
            self._value[instance] = self._cloner.value(own)
        written = self._bindings(step.writes)
        if op.facts.replay is None:
            return [self._clone(op, read, written)]
        (operand, _), result = replayed(op, op.facts.replay)
        return add_replay(self._graph, self._cloner, op, read.get(self._cell_of(operand), operand),
                          written[self._cell_of(result)])

    def _clone(self, op: Op, read: Dict[int, int], written: Dict[int, int]) -> int:
        state = dict(op.facts.updates)
        operands = [
            self._stand_in(v) if i in state else read.get(self._cell_of(v), v)
            for i, v in enumerate(op.operands)
        ]
        carried = {j: operands[i] for i, j in op.facts.updates}
        carried.update((j, op.results[j]) for j in op.left_as_it_is())
        results = [
            carried[j] if j in carried else self._result(v, written)
            for j, v in enumerate(op.results)
        ]
        return self._cloner.again(op, operands, results)

    def _result(self, value: int, written: Dict[int, int]) -> int:
        if value < 0:
            return value
        cell = self._cell_of(value)
        return written[cell] if cell in written else self._cloner.value(value)

    def _stand_in(self, value: int) -> int:
        if value not in self._scratch:
            self._scratch[value] = self._cloner.value(value)
        return self._scratch[value]

    def _bindings(self, instances: Tuple[int, ...]) -> Dict[int, int]:
        """Values by cell, for the instances that are no cell's own."""
        return {
            self._plan.cell_of[i]: self._value[i] for i in instances if i >= len(self._problem.cells)
        }

    def _cell_of(self, value: int) -> int:
        return self._cell.get(self._graph.values[value].storage, -1) if value >= 0 else -1
