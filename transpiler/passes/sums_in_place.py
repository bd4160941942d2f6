"""Sums are added up where their first term is: what a loop carries on, and gradients with what decays the weight.

A runtime that frees late still holds the sums of trips before; these it need not free.

Needs: a runtime in which two names can be one variable. Keeps: the order of ops. Changes: storages of what loops hand on, and of sums.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, Tuple

from transpiler.analysis.carried_sums import carried_sums
from transpiler.ir import MEMORY_KINDS, Graph, Op, Value, ValueKind
from transpiler.passes.context import PassContext


def add_up_in_place(graph: Graph, context: PassContext) -> Graph:
    """Has each sum take the memory of the one before, or of the gradient. Not of that where the runtime keeps what is dead: a later run
    needs more then (drawn program 17 of Paddle 3, 380 bytes)."""
    terms = _decayed_gradients(graph) if context.runtime.collects else ()
    for argument, result in (*carried_sums(graph), *terms):
        graph.change(result, storage=graph.values[argument].storage)
    return graph


def _decayed_gradients(graph: Graph) -> Iterator[Tuple[int, int]]:
    """First terms that nobody but their maker and a sum of the main block names, and the sums, which an update reads. Other sums are left
    as they are: in one memory with its first term a sum leaves fewer orders to choose from."""
    if all(not op.facts.onto for op in graph.region_ops(0)):
        return
    named = Counter(v for op in graph.walk() if op.kind not in MEMORY_KINDS
                    for v in op.reads() + op.writes())
    updating = {v for op in graph.region_ops(0) if _updates(graph, op) for v in op.operands}
    makers: Dict[int, Op] = {v: op for op in graph.region_ops(0) for v in op.writes()}
    for op in graph.region_ops(0):
        for i, j in op.facts.onto:
            term, total = op.operands[i], op.results[j]
            maker = makers.get(term)
            if (maker is not None and maker.makes_memory and named[term] == 2 and
                    total in updating and op.operands.count(term) == 1 and
                    all(_is_own(graph.values[v]) for v in (term, total))):
                yield term, total


def _updates(graph: Graph, op: Op) -> bool:
    """Whether `op` carries on what is kept from run to run."""
    return any(graph.values[v].persistable for v in op.results if v in op.operands)


def _is_own(value: Value) -> bool:
    return (value.kind is ValueKind.DENSE and value.region == 0 and value.storage == value.id and
            not value.may_be_asked_for and not value.lasting and value.buffer < 0)
