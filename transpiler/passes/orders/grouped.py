"""Updates of several ops as one: who looks for orders then finds those that it finds for updates of one op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set

from transpiler.passes.orders.order_problem import Order, OrderProblem
from transpiler.passes.orders.simulator import peak_bytes


@dataclass(frozen=True)
class Groups:
    """Ops that run one right after the other, by group, and by group the groups that come before it."""

    members: List[Order]
    before: List[List[int]]

    def expanded(self, order: Sequence[int]) -> Order:
        """Of the ops, what is an order of the groups."""
        return [op for group in order for op in self.members[group]]


def groups_of(problem: OrderProblem, chains: Sequence[int]) -> Groups:
    """Each op with those of its chain, which is what `update_chains` found; it stands where the last of them did."""
    found: Dict[int, Order] = {}
    for op, update in enumerate(chains):
        found.setdefault(op if update < 0 else update, []).append(op)
    members = [found[head] for head in sorted(found)]
    number = {op: at for at, ops in enumerate(members) for op in ops}
    before = [
        sorted({number[p]
                for op in ops
                for p in problem.before[op]} - {at})
        for at, ops in enumerate(members)
    ]
    return Groups(members, before)


def updates_as_one(problem: OrderProblem, groups: Groups) -> Optional[OrderProblem]:
    """The problem of ordering `groups`; None if all have one op. What a group needs for itself is known for the order that was given: an
    order that is found is to be judged by `problem`."""
    if all(len(ops) == 1 for ops in groups.members):
        return None
    inside = _inside(problem, groups)
    touches = [
        tuple(c
              for c in dict.fromkeys(c
                                     for op in ops
                                     for c in problem.touches[op])
              if c not in inside)
        for ops in groups.members
    ]
    return OrderProblem(
        before=groups.before,
        touches=touches,
        sizes=problem.sizes,
        from_start=problem.from_start,
        to_end=problem.to_end,
        pairs=[
            tuple(pair
                  for op in ops
                  for pair in problem.pairs[op]
                  if inside.isdisjoint(pair))
            for ops in groups.members
        ],
        transient=[
            problem.transient[ops[0]] if len(ops) == 1 else _needed(problem, ops, inside)
            for ops in groups.members
        ],
        leaves=[sum(problem.leaves[op] for op in ops) for ops in groups.members],
        collects=[sum(problem.collects[op] for op in ops) for ops in groups.members])


def _inside(problem: OrderProblem, groups: Groups) -> Set[int]:
    """Cells that are there within one group alone."""
    number = {op: at for at, ops in enumerate(groups.members) for op in ops}
    return {
        cell for cell, users in enumerate(problem.users)
        if users and not problem.from_start[cell] and not problem.to_end[cell] and
        len(groups.members[number[users[0]]]) > 1 and len({number[op] for op in users}) == 1
    }


def _needed(problem: OrderProblem, ops: Order, inside: Set[int]) -> int:
    """The most that the cells inside of a group of `ops` need; what goes on in memory from outside that ends there needs none."""
    cells = sorted({c for op in ops for c in problem.touches[op]} & inside)
    number, own = {c: i for i, c in enumerate(cells)}, set(ops)
    sizes = [problem.sizes[c] for c in cells]
    for a, b in (pair for op in ops for pair in problem.pairs[op]):
        if b in inside and a not in inside and problem.users[a][-1] in own:
            sizes[number[b]] = max(0, problem.sizes[b] - problem.sizes[a])
    rows = {
        name: [getattr(problem, name)[op] for op in ops]
        for name in ('transient', 'leaves', 'collects')
    }
    alone = OrderProblem(
        before=[[] for _ in ops],
        touches=[tuple(number[c] for c in problem.touches[op] if c in inside) for op in ops],
        sizes=sizes,
        from_start=[False] * len(cells),
        to_end=[False] * len(cells),
        pairs=[
            tuple((number[a], number[b])
                  for a, b in problem.pairs[op]
                  if a in inside and b in inside)
            for op in ops
        ],
        **rows)
    return peak_bytes(alone, range(len(ops)))
