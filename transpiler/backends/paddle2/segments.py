"""A main block in segments: blocks that run once each, in place of the ops that they have.

The executor keeps something for each pair of ops of a block that it runs as it finds ops ready, and nothing for those of a
segment (`run_once`). What one segment alone names, and writes before it reads it, is declared there, and freed there after its
last use; everything else stays in the main block, where it is fed, fetched, saved and found by name.
"""

from __future__ import annotations

from collections import Counter
from typing import Collection, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import ROLE, declare_vector, read_by, role_of, runs_blocks, written_by
from transpiler.backends.paddle2.frames import without_ops
from transpiler.backends.paddle2.naming import INNER_LISTS
from transpiler.backends.paddle2.pinning import pin, unpinned
from transpiler.backends.paddle2.registry import EMPTY_NAME
from transpiler.backends.paddle2.run_once import BLOCK, RUNS_BLOCK, SEGMENTED, is_segmented, run_block_always
from transpiler.errors import VerificationError

_SCOPE = 'transpiler.segment.{}'
_FORWARD, _BACKWARD = 0, 1
_LATER = 1 | 2 | 16  # bits of the role of what `clone(for_test=True)` takes out
_GRADIENT = '@GRAD'
_VarType = framework_pb2.VarType
_LOCAL = (_VarType.LOD_TENSOR, _VarType.SELECTED_ROWS)
_NAMED = (framework_pb2.VAR, framework_pb2.VARS)

Message = framework_pb2.ProgramDesc
Spans = Sequence[Tuple[int, int]]  # first and last position in the main block


class _Named(NamedTuple):
    """Names of variables that an op reads, attributes that point to them counted, and that it writes; and those of both that are some."""

    read: Set[str]
    written: Set[str]
    every: Set[str]


def cut(message: Message, spans: Spans,
        kept: FrozenSet[str]) -> Tuple[Message, Dict[int, Tuple[int, int]]]:
    """A program like `message`, with the ops of each span of the main block in a block of its own, which runs once.

    The order of these blocks, and of the main block, is pinned.

    Args:
        kept: names that stay in the main block, whoever uses them.

    Returns:
        It, and by index of the new block, the span of the ops that it has, in whose place the main block has one.
    """
    named = [_named(op) for op in message.blocks[0].ops]
    homes = _homes(message, named, spans, kept)
    declared = {v.name: v for v in message.blocks[0].vars if v.name in homes}
    result, old = _framed(message, frozenset(homes)), message.blocks[0].ops
    main = result.blocks[0]
    declare_vector(main, SEGMENTED, 1, _VarType.BOOL)
    made: Dict[int, Tuple[int, int]] = {}
    position = 0
    for number, (first, last) in enumerate(spans):
        main.ops.extend(old[position:first])
        block = result.blocks.add(idx=len(result.blocks), parent_idx=0)
        block.ops.extend(old[first:last + 1])
        block.vars.extend(v for name, v in declared.items() if homes[name] == number)
        main.ops.append(_runs(result, block, named[first:last + 1], number))
        made[block.idx] = (first, last)
        position = last + 1
    main.ops.extend(old[position:])
    for index in (0, *made):
        pin(result, index)
    return result, made


def join(message: Message) -> Message:
    """A message of its own: the program that `cut` made this one of, but for what holds its order; a copy of one without segments.

    Raises:
        VerificationError: it is not what `cut` makes.
    """
    if not is_segmented(message):
        copy = Message()
        copy.CopyFrom(message)
        return copy
    inner = {block.idx: block for block in segments_in(message)}
    _check(message, inner)
    result = joined(message)
    del result.blocks[len(result.blocks) - len(inner):]
    return result


def joined(message: Message) -> Message:
    """The same program without segments, whatever Paddle, or the user, has made of it since it was cut. Their blocks stay, with
    nothing in them."""
    runs = [op for op in message.blocks[0].ops if SEGMENTED in read_by(op)]
    ours = {n for op in runs for s in op.outputs if s.parameter == 'Scope' for n in s.arguments}
    emptied = frozenset(block_run(op) for op in runs)
    result = _framed(message, frozenset({SEGMENTED, *ours}), emptied)
    main = result.blocks[0]
    for run in runs:
        main.vars.extend(message.blocks[block_run(run)].vars)
    main.ops.extend(message.blocks[block].ops[at] for block, at in joined_ops(message))
    return result


def joined_ops(message: Message) -> List[Tuple[int, int]]:
    """Where the ops of the main block of what is `joined` stand in `message`: by position, the block and the position there."""
    found: List[Tuple[int, int]] = []
    for at, op in enumerate(message.blocks[0].ops):
        if SEGMENTED in read_by(op):
            inner = block_run(op)
            found += [(inner, i) for i in range(len(message.blocks[inner].ops))]
        elif SEGMENTED not in _named(op).every:
            found.append((0, at))
    return found


def _framed(message: Message,
            dropped: FrozenSet[str],
            emptied: FrozenSet[Optional[int]] = frozenset()) -> Message:
    """`message` with nothing in its main block but the variables that are not `dropped`, and nothing in `emptied` ones."""
    result = without_ops(message, declared=False)
    main = message.blocks[0]
    result.blocks[main.idx].vars.extend(v for v in main.vars if v.name not in dropped)
    for old in (b for b in message.blocks[1:] if b.idx not in emptied):
        result.blocks[old.idx].vars.extend(old.vars)
        result.blocks[old.idx].ops.extend(old.ops)
    return result


def segments_in(message: Message) -> List[framework_pb2.BlockDesc]:
    """The blocks that are segments, in the order in which the main block runs them: the last ones of the program.

    Raises:
        VerificationError: they are not.
    """
    found = [block_run(op) for op in message.blocks[0].ops if SEGMENTED in read_by(op)]
    end = len(message.blocks)
    if found != list(range(end - len(found), end)) or not found:
        raise VerificationError('the segments are not the last blocks, in their order')
    return [message.blocks[index] for index in found]


def _check(message: Message, inner: Dict[int, framework_pb2.BlockDesc]) -> None:
    """Raises VerificationError unless each segment is run by what `cut` writes, and what it declares is its own."""
    main = message.blocks[0]
    scratch = framework_pb2.ProgramDesc()
    declare_vector(scratch.blocks.add(idx=0, parent_idx=-1), SEGMENTED, 1, _VarType.BOOL)
    named = {block.idx: [_named(op) for op in block.ops] for block in message.blocks}
    if sum(SEGMENTED in each.every for block in named.values() for each in block) != len(inner):
        raise VerificationError('others name what the segments are known by')
    declared = {v.name: v for v in main.vars}
    if declared.get(SEGMENTED) != scratch.blocks[0].vars[0]:
        raise VerificationError('what the segments are known by is declared otherwise')
    runs = [op for op in main.ops if block_run(op) in inner]
    naming = Counter(n for block in message.blocks for n in set(_names_in(block, named[block.idx])))
    for number, (op, block) in enumerate(zip(runs, inner.values())):
        expected = _runs(scratch, block, named[block.idx], number)
        if block.parent_idx != 0 or block.forward_block_idx >= 0:
            raise VerificationError(f'segment {number} is in another block')
        scope = declared.get(_SCOPE.format(number))
        if unpinned(op) != expected or scope != scratch.blocks[0].vars[number + 1]:
            raise VerificationError(f'segment {number} is run otherwise than it has to be')
        _check_own(block, named[block.idx], declared.keys(), naming)


def _check_own(block: framework_pb2.BlockDesc, named: Sequence[_Named], others: Collection[str],
               naming: Mapping[str, int]) -> None:
    """What `block` declares nobody else names or declares, and it is written before it is read. `naming`: by name, in how many blocks
    it stands."""
    own = [v.name for v in block.vars]
    for name, count in Counter(own).items():
        if count > 1 or name in others:
            raise VerificationError(f'variable {name!r} is declared twice')
    lost = [name for name in own if naming[name] > 1]
    if lost:
        raise VerificationError(f'variable {sorted(lost)[0]!r} is used outside of its segment')
    early = set(own).difference(_written_first(named))
    if early:
        raise VerificationError(
            f'variable {sorted(early)[0]!r} is read before its segment makes it')
    if any(v.persistable or v.need_check_feed or v.type.type not in _LOCAL for v in block.vars):
        raise VerificationError('a segment declares what has to be in the main block')


def _homes(message: Message, named: Sequence[_Named], spans: Spans,
           kept: FrozenSet[str]) -> Dict[str, int]:
    """By name, the number of the segment that is to declare it. `named` is what the ops of the main block name."""
    main = message.blocks[0]
    number_at = {at: i for i, (first, last) in enumerate(spans) for at in range(first, last + 1)}
    found: Dict[str, int] = {}
    elsewhere = {
        n for block in message.blocks[1:] for n in _names_in(block, map(_named, block.ops))
    }
    for at, op in enumerate(main.ops):
        if at not in number_at:
            elsewhere.update(_names_of(op, named[at]))
            continue
        for name in named[at].every:
            if found.setdefault(name, number_at[at]) != number_at[at]:
                elsewhere.add(name)
    written = [_written_first(named[first:last + 1]) for first, last in spans]
    may = {
        v.name
        for v in main.vars
        if v.type.type in _LOCAL and not (v.persistable or v.need_check_feed)
    }
    may -= elsewhere | kept
    return {n: home for n, home in found.items() if n in may and n in written[home]}


def _runs(message: Message, block: framework_pb2.BlockDesc, named: Sequence[_Named],
          number: int) -> framework_pb2.OpDesc:
    """The op that runs `block`, whose ops name what is `named`, one of the main block of `message`, which gets its scope."""
    own = {v.name for v in block.vars}
    outside: Set[str] = set().union(*(each.every for each in named)) - own
    written: Set[str] = set().union(*(each.written for each in named))
    op = run_block_always(message.blocks[0], block.idx, outside, written, _SCOPE.format(number))
    later = all((role_of(each) or _FORWARD) & _LATER for each in block.ops)
    op.attrs.add(name=ROLE, type=framework_pb2.INT, i=_BACKWARD if later else _FORWARD)
    return op


def _written_first(ops: Iterable[_Named]) -> Set[str]:
    """Names that are written before any of these ops reads them."""
    seen: Set[str] = set()
    found: Set[str] = set()
    for op in ops:
        found.update(op.written - seen - op.read)
        seen |= op.every
    return found


def _names_in(block: framework_pb2.BlockDesc, named: Iterable[_Named]) -> Iterator[str]:
    for op, names in zip(block.ops, named):
        yield from _names_of(op, names)
    yield from (v.name for v in block.vars)


def _names_of(op: framework_pb2.OpDesc, named: _Named) -> Iterator[str]:
    """What `op` names, `named` and in lists, and what the runtime makes of that by itself where it runs a block."""
    lists = [
        n for a in op.attrs if a.type == framework_pb2.STRINGS and a.name in INNER_LISTS
        for n in a.strings
    ]
    with_gradients = op.type != RUNS_BLOCK and runs_blocks(op)
    for name in (*named.every, *lists):
        yield name
        if with_gradients:
            yield name + _GRADIENT


def _named(op: framework_pb2.OpDesc) -> _Named:
    read, written = {*read_by(op), *_attributes(op)}, set(written_by(op))
    return _Named(read, written, (read | written) - {EMPTY_NAME})


def _attributes(op: framework_pb2.OpDesc) -> Iterator[str]:
    """Variables that attributes point to."""
    for attribute in op.attrs:
        if attribute.type in _NAMED:
            yield from attribute.vars_name or [attribute.var_name]


def block_run(op: framework_pb2.OpDesc) -> Optional[int]:
    """The block that `op` runs once, if it does."""
    return next((a.block_idx for a in op.attrs if a.name == BLOCK and op.type == RUNS_BLOCK), None)
