"""Clones of ops, as the recompute passes add them: which ops may have one, and how it is made."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Callable, Dict, List, Sequence

from transpiler.analysis.cost import is_heavy
from transpiler.ir import Graph, Op, OpFacts, ValueKind


def may_be_cloned(graph: Graph, op: Op, writers: Callable[[int], int], cheap: bool) -> bool:
    """Whether a clone of `op` can make all again that `op` makes, but for state that it updates: what it writes are ordinary
    tensors of its region, and no other op writes them.

    Args:
        writers: how many ops write a value.
        cheap: ops that compute much may not be cloned.
    """
    replay = op.facts.replay
    if op.regions or op.id != op.origin or (cheap and is_heavy(op)):
        return False
    if op.facts.ordered and replay is None:
        return False
    if (op.facts.updates or replay is not None) and not graph.trains:
        return False  # a test program has the clone, which reads statistics there, or a mask that nobody makes
    made = made_again(op)
    return all(
        _is_plain(graph, op, value) and value not in op.reads() and writers(value) == 1
        for value in made)


def made_again(op: Op) -> List[int]:
    """What a clone of `op` makes: not the state that it updates, or names as a result and leaves as it is."""
    state = {j for _, j in op.facts.updates} | op.left_as_it_is()
    return [v for j, v in enumerate(op.results) if v >= 0 and j not in state]


def _is_plain(graph: Graph, op: Op, value: int) -> bool:
    facts = graph.values[value]
    return (facts.kind is ValueKind.DENSE and facts.region == op.region and
            facts.storage == value and not facts.persistable and not facts.fed)


class Races:
    """Whether nothing would order a clone and others: what a kernel with a layout of its own reads is a copy that has another name in the
    same memory. So it may be where a clone works in place, or where a parameter is updated that such a clone reads.

    Of a graph as it is: clones are like what they are clones of.
    """

    def __init__(self, graph: Graph) -> None:
        self._values = graph.values
        converting = [op for op in graph.walk() if op.facts.converts]
        # By storage: ops that read a copy of it.
        self._copied = Counter(
            s for op in converting for s in {graph.values[v].storage for v in op.reads()})
        self._updated = {
            graph.values[v].storage
            for op in graph.walk()
            for v in op.writes()
            if graph.values[v].persistable
        } if converting else set()

    def of_clone(self, op: Op) -> bool:
        own = int(op.facts.converts)
        taken = {self._values[v].storage for v in op.given_in_place()}
        return any(self._copied[s] > own for s in taken) or op.facts.converts and any(
            self._values[v].storage in self._updated for v in op.reads())


class Cloner:
    """Adds clones of ops to one region, and values for what they write.

    A clone belongs to the backward part of the program, if it has one, whatever its origin does.
    """

    def __init__(self, graph: Graph, region: int, suffix: str = '@REBUILT') -> None:
        self._graph = graph
        self._region = region
        self._suffix = suffix
        self._names = {v.name for v in graph.values}
        self._used: Dict[str, int] = {}  # last number by name without it
        self._backward = graph.trains

    def of(self, region: int) -> Cloner:
        """The same for `region`: no name is given twice."""
        found = copy.copy(self)
        found._region = region
        return found

    def value(self, like: int) -> int:
        """A new value that looks like `like`."""
        return self._graph.clone_value(like, self._fresh_name(like), self._region).id

    def op(self, origin: Op, operands: Sequence[int], results: Sequence[int]) -> int:
        """A clone of `origin`, which the caller still has to put in its place."""
        clone = self._graph.new_op(origin.kind,
                                   self._region,
                                   operands=tuple(operands),
                                   results=tuple(results),
                                   facts=origin.facts,
                                   origin=origin.origin,
                                   label=origin.label,
                                   site=origin.site,
                                   backward=self._backward,
                                   workspace=origin.workspace,
                                   bounded=origin.bounded)
        self._graph.regions[self._region].ops.pop()
        self._link_slices(origin, operands, results)
        return clone.id

    def _link_slices(self, origin: Op, operands: Sequence[int], results: Sequence[int]) -> None:
        """What was a slice of an operand is one of what the clone reads in its place."""
        values = self._graph.values
        for had, made in zip(origin.results, results):
            whole = values[had].buffer if had >= 0 and made not in (-1, had) else -1
            if whole != had and whole in origin.operands:
                read = operands[origin.operands.index(whole)]
                for value in (made, read):
                    self._graph.change(value, buffer=read)

    def again(self, origin: Op, operands: Sequence[int], results: Sequence[int]) -> int:
        """The same of a clone that computes what `origin` computes, too."""
        clone = self.op(origin, operands, results)
        self._graph.ops[clone].again = True
        return clone

    def added(self, kind: str, operands: Sequence[int], result: int, facts: OpFacts) -> int:
        """An op that stands for none of the program, which the caller still has to put in its place."""
        op = self._graph.new_op(kind,
                                self._region,
                                operands=tuple(operands),
                                results=(result,),
                                facts=facts,
                                origin=None,
                                backward=self._backward)
        self._graph.regions[self._region].ops.pop()
        return op.id

    def _fresh_name(self, value: int) -> str:
        name = stem = self._graph.values[value].name + self._suffix
        number = self._used.get(stem, 0)
        while name in self._names:
            number += 1
            name = f'{stem}{number}'
        self._names.add(name)
        self._used[stem] = number
        return name
