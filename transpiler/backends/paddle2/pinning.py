"""Holding the order of ops in the executor's default, multi-threaded mode.

The executor starts whatever is ready, on four threads on a CPU. What it respects are hazards on variable names, also
on names in slots that the operator does not know. So ops that must follow each other get an output slot of our own
with one shared variable, which no kernel ever sees: each op that writes it waits for the one before. Nothing is run,
allocated or kept alive for it, it works in blocks of loops and branches, in every executor mode, and it is part of the
program: clones, copies and saved programs carry it.

`op.dist_attr.scheduling_priority` is not enough (2.6.2): every op that waits for nothing becomes a task of its own, and
of the ops that follow a CPU op all but one do; priorities rank only what one thread finds ready.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import declare_vector, is_onednn

ORDER_SLOT = 'ExecutionOrder'
_NAME = 'execution_order@block_{}'
_PAIR = _NAME + '@{}'
# Paddle's graph passes know by this prefix what only orders ops. They drop it, and the order with it.
_DROPPED = '__control_var@'
_ACTIVATIONS = ('relu', 'scale', 'tanh')
# What BuildStrategy.fuse_elewise_add_act_ops makes one op of. It fails if the first has a result that is not the second's
# operand.
FUSED_GRADIENTS = frozenset({('relu_grad', 'elementwise_add_grad')})
_FUSED = frozenset({
    *(('elementwise_add', kind) for kind in _ACTIVATIONS),
    *((kind, 'elementwise_add') for kind in _ACTIVATIONS),
    *FUSED_GRADIENTS,
})


class _Named(NamedTuple):
    """What an op reads and writes, and whether its kernel is oneDNN's."""

    read: Set[str]
    written: Set[str]
    is_onednn: bool


def pin(message: framework_pb2.ProgramDesc, block: int) -> None:
    """Makes the executor run the ops of `block` in the order in which they stand.

    Two neighbours that a variable orders already need no more; the others write the block's order variable.
    """
    names = [_NAME.format(block)] * len(message.blocks[block].ops)
    _bind(message.blocks[block], dict(enumerate(names[1:], 1)))


def bind_to_next(message: framework_pb2.ProgramDesc, block: int, positions: Iterable[int]) -> None:
    """Makes the executor run each op of `block` at `positions` before the one that stands behind it.

    Each pair has a variable of its own: otherwise they would wait for each other.
    """
    end = len(message.blocks[block].ops) - 1
    _bind(message.blocks[block], {i + 1: _PAIR.format(block, i) for i in positions if i < end})


def chain(message: framework_pb2.ProgramDesc, block: int, positions: Sequence[int]) -> None:
    """Makes the executor run the ops of `block` at `positions` in the order in which they stand, whatever runs between them."""
    name = _NAME.format(block) + '@chain'
    for position in positions:
        _order_slot(message.blocks[block].ops[position].outputs).arguments.append(name)
    if positions:
        _declare(message.blocks[block], name)


def bind_to_reader(block: framework_pb2.BlockDesc, position: int) -> None:
    """Makes the executor run the op at `position` before the next that names its result; also in a program that went through
    Paddle's graphs, which keep a read behind a write, but not the second of two writes behind the first. That op may have no
    kernel: a kernel would look for what it reads."""
    name = _PAIR.format(block.idx, position) + '@read'
    results = names_in(block.ops[position].outputs)
    then = next(op for op in block.ops[position + 1:]
                if results & (names_in(op.inputs) | names_in(op.outputs)))
    _order_slot(block.ops[position].outputs).arguments.append(name)
    _order_slot(then.inputs).arguments.append(name)
    _declare(block, name)


def _bind(block: framework_pb2.BlockDesc, names: Mapping[int, str]) -> None:
    """Lets the ops at these positions wait for the ones before, which write the same variable, of that name."""
    ops = block.ops
    written: Dict[int, Set[str]] = {}
    named = list(map(_named, ops)) if names else []
    fused = {first for first, _, _ in _fused_pairs(ops, named)}
    for i, name in names.items():
        if not _ordered_by_names(named[i - 1], named[i]):
            name = name if fused.isdisjoint((i - 1, i)) else _DROPPED + name
            written.setdefault(i - 1, set()).add(name)
            written.setdefault(i, set()).add(name)
    for i in sorted(written):
        ops[i].outputs.add(parameter=ORDER_SLOT, arguments=sorted(written[i]))
    for name in sorted(set().union(*written.values())):
        _declare(block, name)


def _declare(block: framework_pb2.BlockDesc, name: str) -> None:
    declare_vector(block, name, 1).persistable = False


def fused_pairs(ops: Sequence[framework_pb2.OpDesc]) -> List[Tuple[int, int, str]]:
    """Positions of two ops that Paddle may make one of, and the result of the first that the second reads."""
    return _fused_pairs(ops, list(map(_named, ops)))


def _fused_pairs(ops: Sequence[framework_pb2.OpDesc],
                 named: Sequence[_Named]) -> List[Tuple[int, int, str]]:
    found: List[Tuple[int, int, str]] = []
    written_by: Dict[str, int] = {}
    kinds = [op.type for op in ops] if named else []
    seconds = {second for _, second in _FUSED}
    for i, (kind, names) in enumerate(zip(kinds, named)):
        if kind in seconds:
            makers = [(n, written_by[n]) for n in sorted(names.read) if n in written_by]
            found.extend((m, i, n) for n, m in makers if (kinds[m], kind) in _FUSED)
        written_by.update(dict.fromkeys(names.written, i))
    return found


def order(block: framework_pb2.BlockDesc, first: framework_pb2.OpDesc, then: framework_pb2.OpDesc,
          name: str) -> None:
    """Lets `then`, which has no kernel, read a new variable `name` that `first` writes."""
    name = f'{_NAME.format(block.idx)}@{name}'
    _order_slot(first.outputs).arguments.append(name)
    slots = sum(map(_is_order_slot,
                    then.inputs))  # of one variable each: of several, Paddle asks for their type
    then.inputs.add(parameter=f'{ORDER_SLOT}{slots or ""}', arguments=[name])
    _declare(block, name)


def uncopied(op: framework_pb2.OpDesc, name: str) -> None:
    """Makes `op` one without a kernel, that does nothing, reads the variable `name` and seems to write it."""
    op.type = 'depend'
    op.inputs.add(parameter='X', arguments=[name])
    op.inputs.add(parameter='Dep', arguments=[name])
    op.outputs.add(parameter='Out', arguments=[name])


def _is_order_slot(slot: framework_pb2.OpDesc.Var) -> bool:
    return slot.parameter.startswith(ORDER_SLOT)


def _order_slot(slots: Any) -> framework_pb2.OpDesc.Var:
    found = next((s for s in slots if s.parameter == ORDER_SLOT), None)
    return found or slots.add(parameter=ORDER_SLOT)


def unpin(message: framework_pb2.ProgramDesc) -> None:
    """Takes all that `pin` added out again, under whatever name an earlier version did."""
    for block in message.blocks:
        names = _order_variables(block)
        if names:
            kept = [v for v in block.vars if v.name not in names]
            del block.vars[:]
            block.vars.extend(kept)
        for op in block.ops:
            _remove_order_slot(op)


def unpinned(op: framework_pb2.OpDesc) -> framework_pb2.OpDesc:
    """A copy of `op` without what `pin` added."""
    plain = framework_pb2.OpDesc()
    plain.CopyFrom(op)
    _remove_order_slot(plain)
    return plain


def is_pinned(message: framework_pb2.ProgramDesc, block: int) -> bool:
    """Whether the order of `block` is held by `pin`."""
    name = _NAME.format(block)
    return not _order_variables(message.blocks[block]).isdisjoint((name, _DROPPED + name))


def _order_variables(block: framework_pb2.BlockDesc) -> Set[str]:
    found = {
        name for op in block.ops for slot in op.outputs if _is_order_slot(slot)
        for name in slot.arguments
    }
    return found.difference(*(names_in(op.outputs) for op in block.ops)) if found else found


def _remove_order_slot(op: framework_pb2.OpDesc) -> None:
    for had in (op.inputs, op.outputs):
        slots = [s for s in had if not _is_order_slot(s)]
        if len(slots) < len(had):
            del had[:]
            had.extend(slots)


def _named(op: framework_pb2.OpDesc) -> _Named:
    return _Named(names_in(op.inputs), names_in(op.outputs), is_onednn(op))


def _ordered_by_names(first: _Named, then: _Named) -> bool:
    """By names that the executor keeps: who writes over what oneDNN's kernel reads waits for whoever made the copy alone."""
    if first.written & then.read:
        return True
    if first.is_onednn or then.is_onednn:
        return False
    return bool(first.written & then.written or first.read & then.written)


def names_in(slots: Iterable[framework_pb2.OpDesc.Var]) -> Set[str]:
    """What an op reads, or writes, but for what only orders it."""
    return {n for s in slots if not _is_order_slot(s) for n in s.arguments}
