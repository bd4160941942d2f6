"""Puts clones of forward ops into a gradient region."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, Iterator

from transpiler.ir import KEEP, Graph, Op
from transpiler.passes.cloning import Cloner
from transpiler.passes.inner_remat.inner_problem import InnerProblem, clone_operands, clone_results
from transpiler.passes.loop_copies import seen_by_gradient
from transpiler.passes.replay import add_replay


class Rebuilder:
    """Puts clones into the gradient region, each right before the first op that needs it. What the runtime keeps for nobody (KEEP)
    stays what it was: a clone stands in for it with readers alone."""

    def __init__(self, graph: Graph, problem: InnerProblem, rebuilt: FrozenSet[int],
                 cloner: Cloner) -> None:
        self._graph = graph
        self._problem = problem
        self._rebuilt = rebuilt
        self._clone_of: Dict[int, int] = {}
        self._cloner = cloner.of(problem.gradient.id)
        self._copies = dict(problem.forward.arguments)

    def run(self) -> None:
        old_ops, new_ops = list(self._problem.gradient.ops), []
        # An array has the trip's element only before the gradient has counted back.
        for value in sorted(v for v in self._rebuilt if self._problem.producer[v].origin is None):
            new_ops.extend(self._build(value))
        for op_id in old_ops:
            op = self._graph.ops[op_id]
            readers = [
                each for each in (op, *self._graph.inside(op))
                if not self._rebuilt.isdisjoint(each.reads()) and each.kind != KEEP
            ]
            wanted = dict.fromkeys(
                v for reader in readers for v in reader.reads() if v in self._rebuilt)
            for value in wanted:
                new_ops.extend(self._build(value))
            for reader in readers:
                self._redirect(reader)
            new_ops.append(op_id)
        self._problem.gradient.ops = new_ops

    def _build(self, value: int) -> Iterator[int]:
        """Ids of the new ops that make `value` available, operands first."""
        if value in self._clone_of:
            return
        op = self._problem.producer[value]
        for operand in clone_operands(op):
            if operand in self._rebuilt:
                yield from self._build(operand)
        for result in clone_results(op):
            self._clone_of[result] = self._cloner.value(result)
        if op.facts.replay is not None:
            operand, _ = clone_operands(op)
            yield from add_replay(self._graph, self._cloner, op, self._in_gradient(operand),
                                  self._clone_of[value])
            return
        yield self._cloner.again(op, [self._in_gradient(v) for v in op.operands],
                                 [self._clone_of.get(v, -1) for v in op.results])

    def _in_gradient(self, value: int) -> int:
        if value < 0:
            return value
        if value in self._rebuilt:
            return self._clone_of[value]
        if self._graph.values[value].region == self._problem.forward.id:
            return value
        if value in self._copies:
            return self._copies[value]
        return seen_by_gradient(self._graph, value, self._problem.forward)

    def _redirect(self, op: Op) -> None:
        operands = tuple(self._clone_of[v] if v in self._rebuilt else v for v in op.operands)
        self._graph.ops[op.id] = replace(op, operands=operands)
