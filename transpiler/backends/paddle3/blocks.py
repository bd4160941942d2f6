"""Blocks inside of loops and branches, and the stacks that carry what a trip has made to its gradient.

A loop's body hands on by its `cf.yield`: first whether there is another trip, then what the next one begins with. What a trip
has made is pushed at its end, and popped, last trip first, where the gradient of that trip begins.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from transpiler.backends.paddle3.releases import is_release, unites
from transpiler.ir import Graph, Region, RegionKind

WHILE, IF, YIELD = 'pd_op.while', 'pd_op.if', 'cf.yield'
CREATE, PUSH, POP, HAS_MORE = 'cf.stack_create', 'cf.tuple_push', 'cf.tuple_pop', 'cf.has_elements'

_NESTED = (
    'a loop inside of a loop, with gradients: the first that Paddle 3 computes of the inner one '
    'uses up what all of its runs have kept')


class Unmodelled(Exception):
    """Why what a loop or a branch does is not known; in words that follow `it has`."""


class Link(NamedTuple):
    """A block, and the block that is its gradient: what the one pushes at its end the other pops."""

    push: Any
    pop: Any
    forward: int  # regions
    gradient: int
    doubt: str = ''  # why what is popped may be another trip's, in words that follow `it has`


class _End(NamedTuple):
    """A push or a pop, how many blocks down it stands, and the ids of the ops at the other end of its stack."""

    op: Any
    depth: int
    others: FrozenSet[int]


class Ends(NamedTuple):
    """Whether something of a trip of a block is there for its gradient; and the pop of what the block has kept that this one is the gradient
    of, None if it is no gradient. Where a branch has another one and no more in it, as in a `switch_case`, only the inner ones keep and
    take something: that counts for those around it."""

    keeps: bool
    taken: Optional[_End]


def blocks_of(op: Any) -> Tuple[Any, ...]:
    """The body of a loop; what a branch runs if its condition holds, and if not."""
    if op.name() == WHILE:
        return (op.as_while_op().body(),)
    branch = op.as_if_op()
    return (branch.true_block(), branch.false_block())


def has_blocks(block: Any) -> bool:
    """Whether there is a loop or a branch in it."""
    return any(op.num_regions() for op in block.ops)


def loses_what_is_named_behind(block: Any) -> bool:
    """Whether a loop, anywhere in `block`, begins with what ops behind it name: it lets go of that, unless its body names it, too."""
    behind: Set[int] = set()
    for op in reversed(block.ops):
        inside = _inside(op)
        if op.name() == WHILE and any(not users.isdisjoint(behind) and users.isdisjoint(inside)
                                      for users in map(_users,
                                                       op.operands_source()[1:])):
            return True
        if inside and any(map(loses_what_is_named_behind, blocks_of(op))):
            return True
        behind |= inside | {op.id()}
    return False


def names_inside(op: Any, value: Any) -> bool:
    """Whether anybody in the blocks of `op` names `value`."""
    return not _users(value).isdisjoint(_inside(op))


def _users(value: Any) -> Set[int]:
    """Ids of the ops that name `value`, but for those that let go of it."""
    return {user.id() for user in value.all_used_ops() if not (is_release(user) or unites(user))}


def _inside(op: Any) -> Set[int]:
    """Ids of the ops in its blocks, and in theirs."""
    inner = [inner for block in blocks_of(op) for inner in block.ops] if op.num_regions() else []
    return {each.id() for each in inner}.union(*map(_inside, inner))


def only_op(block: Any, name: str) -> Optional[Any]:
    """The op of that name that stands in `block` itself."""
    found = [op for op in block.ops if op.name() == name]
    if len(found) > 1:
        raise Unmodelled(f'a block with several {name}')
    return found[0] if found else None


def check_ends(block: Any) -> None:
    """A block ends with its yield, before that it pushes; if it pops, nothing asks that stack before."""
    ops = block.ops
    if not ops or ops[-1].name() != YIELD or only_op(block, YIELD) is None:
        raise Unmodelled('a block that does not end by handing on')
    push, pop = only_op(block, PUSH), only_op(block, POP)
    if push is not None and ops[-2].id() != push.id():
        raise Unmodelled('a block that goes on after what it keeps for its gradient')
    if pop is not None:
        stack = created(pop.operand_source(0)).result(0)
        early = ops[:[op.id() for op in ops].index(pop.id())]
        if any(op.name() == HAS_MORE and op.operand_source(0).is_same(stack) for op in early):
            raise Unmodelled('a gradient that asks for another trip before it has begun one')


def created(value: Any) -> Any:
    """The op that has made a stack, by one of its ends."""
    op = value.get_defining_op()
    if op is None or op.name() != CREATE:
        raise Unmodelled('a stack that comes from elsewhere')
    return op


def ends_inside(op: Any) -> Dict[Tuple[int, int], Ends]:
    """What the blocks of `op`, and those inside of them, keep for gradients and take as such; by the op that runs a block, and its
    number there."""
    found: Dict[Tuple[int, int], Ends] = {}
    _across(op, found)
    return found


def _across(op: Any, found: Dict[Tuple[int, int], Ends]) -> Dict[int, _End]:
    """The ends of stacks inside of `op` of which the other ends are not, by the ids of the ops."""
    every: Dict[int, _End] = {}
    for number, block in enumerate(blocks_of(op)):
        ends: Dict[int, _End] = {}
        for each in block.ops:
            if each.name() in (PUSH, POP):
                ends[each.id()] = _End(each, 0, _others(each))
            elif each.num_regions():
                ends.update((i, end._replace(depth=end.depth + 1))
                            for i, end in _across(each, found).items())
        ends = {i: end for i, end in ends.items() if end.others.isdisjoint(ends)}
        seen = [end for end in ends.values() if op.name() == IF or not end.depth]
        pops = [end for end in seen if end.op.name() == POP]
        found[op.id(), number] = Ends(any(end.op.name() == PUSH for end in seen),
                                      min(pops, key=lambda end: end.depth, default=None))
        every.update(ends)
    return every


def _others(end: Any) -> FrozenSet[int]:
    """Ids of the ops that work on the other end of a stack."""
    other = POP if end.name() == PUSH else PUSH
    ends = created(end.operand_source(0)).results()
    return frozenset(
        user.id() for value in ends for user in value.all_used_ops() if user.name() == other)


def kind_of(op: Any, ends: Ends) -> RegionKind:
    if op.name() == WHILE:
        return RegionKind.LOOP_GRADIENT if ends.taken else RegionKind.LOOP
    return RegionKind.BRANCH_GRADIENT if ends.taken else RegionKind.BRANCH


def pusher(pop: Any) -> Any:
    """The op that pushes what `pop` takes: each stack has one of either, with as many values."""
    stack, inlet, outlet = created(pop.operand_source(0)).results()
    pushes, pops = inlet.all_used_ops(), outlet.all_used_ops()
    asks = stack.all_used_ops()
    names = [op.name() for op in (*pushes, *pops, *asks)]
    if names != [PUSH, POP] + [HAS_MORE] * len(asks):
        raise Unmodelled('a stack that several blocks fill or empty')
    push = pushes[0]
    if push.num_operands() != pop.num_results() + 1:
        raise Unmodelled('a gradient that takes more or less than its block has kept')
    return push


def kept_for(pop: Any) -> Sequence[Any]:
    """What is pushed where `pop` takes it, in its order; nothing if that cannot be told."""
    try:
        return pusher(pop).operands_source()[1:]
    except Unmodelled:
        return ()


def ends_with_its_stack(loop: Any, pop: Any) -> bool:
    """Whether the gradient of a loop runs as long as there is something to pop: once for each trip."""
    stack = created(pop.operand_source(0)).result(0)
    body = blocks_of(loop)[0]
    conditions = (loop.operand_source(0), body.ops[-1].operand_source(0))
    asked = [value.get_defining_op() for value in conditions]
    if any(op is None or op.name() != HAS_MORE for op in asked):
        return False
    inside = {op.id() for op in body.ops}
    return (all(op.operand_source(0).is_same(stack) for op in asked) and
            [op.id() in inside for op in asked] == [False, True])


def has(block: Any, name: str) -> bool:
    return only_op(block, name) is not None


def checked_link(graph: Graph, op: Any, taken: _End, region: Region,
                 pushed: Mapping[int, Tuple[int, Any]], side: bool) -> Optional[Link]:
    """Links `region`, the gradient of a block that was read before, with that.

    A frame that is popped must be the one that the same trip has pushed. A loop's gradient runs until its stack is empty, so
    all that is there must be of that loop, as it ran last; a branch's gradient runs where the branch has. None for a gradient that
    pops only in branches inside.
    """
    pop, depth = taken.op, taken.depth
    push = pusher(pop)
    if push.id() not in pushed:
        raise Unmodelled('a gradient that comes before what it is the gradient of')
    forward = graph.regions[pushed[push.id()][0]]
    for _ in range(depth):
        forward = graph.regions[max(forward.parent, 0)]
    if forward.op < 0:
        raise Unmodelled('a gradient that stands deeper than what it is the gradient of')
    maker, gradient = graph.ops[forward.op], graph.ops[region.op]
    around = graph.regions[gradient.region]
    if maker.kind != gradient.kind or maker.region not in (around.id, around.forward):
        raise Unmodelled('a gradient that stands elsewhere than what it is the gradient of')
    if op.name() == WHILE:
        if not ends_with_its_stack(op, pop):
            raise Unmodelled('a gradient of a loop with an end of its own')
    elif (gradient.operands[0], side) not in forward.when:
        raise Unmodelled('a gradient of a branch with a condition of its own')
    region.forward = forward.id
    if depth:
        return None
    empties_all = op.name() == WHILE and maker.region != around.id
    doubt = _NESTED if empties_all and _in_a_loop(graph, maker.region) else ''
    return Link(push, pop, forward.id, region.id, doubt)


def _in_a_loop(graph: Graph, region: int) -> bool:
    while region >= 0 and graph.regions[region].kind is not RegionKind.LOOP:
        region = graph.regions[region].parent
    return region >= 0
