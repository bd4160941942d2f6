"""Names of values. Paddle names inputs, parameters and states alone; others are called after the op that makes them.

`matmul.12` is made by a matmul and is `%12` where the program is printed.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from transpiler.backends.paddle3.aliases import in_place_results
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.errors import InvalidArgumentError, InvalidProgramError
from transpiler.plain import flat

DECLARATIONS = frozenset({'builtin.parameter', 'builtin.constant', 'pd_op.data', 'pd_op.feed'})
PARAMETER = 'builtin.parameter'
# They make a list of tensors, and take all, or one, out of it.
COMBINE, SPLIT, SLICE = 'builtin.combine', 'builtin.split', 'builtin.slice'
_GIVEN = {PARAMETER: 'parameter_name', 'builtin.constant': 'value', 'pd_op.data': 'name',
          'pd_op.feed': 'name'}  # yapf: disable


def bare_kind(op: Any) -> str:
    """The operator without its dialect, and without the mark of those that work in place."""
    name: str = op.name().split('.', 1)[-1]
    return name.rstrip('_')


def declared_name(op: Any) -> str:
    """The name that a declaration gives what it declares; '' if it has none."""
    given = given_attributes(op).get(_GIVEN[op.name()], '')
    return given if isinstance(given, str) else ''


def taken_out(op: Any) -> List[Tuple[int, Any]]:
    """What `op`, which takes a list apart, calls members of it, by their places there."""
    named = list(enumerate(op.results())) if op.name() == SPLIT else [
        (given_attributes(op)['index'], op.result(0))]  # yapf: disable
    return [(at, member) for at, member in named if member.initialized()]


def value_names(program: Any) -> Dict[str, str]:
    """By the id of a value of the main block, or of a parameter of any block: the name of its memory, which no other has. What an op writes
    over is called what it was."""
    found = list(_values(program.global_block()))
    declared = [(op, value) for _, op, value in found] + list(
        declared_inside(program.global_block()))
    owners = {value.id: (own, _owner(op, value))
              for op, value in declared for own in [_own_name(op)] if own}  # yapf: disable
    names = {value: own for value, (own, _) in owners.items()}
    taken = set(names.values())
    if len(taken) < len(set(owners.values())):
        raise InvalidProgramError('two inputs, parameters or states of the program have one name')
    for number, op, value in found:
        over = _written_over(op, value)
        if over is not None:
            names[value.id] = names[over.id]
        elif value.id not in names:
            name = f'{bare_kind(op) if op is not None else "input"}.{number}'
            while name in taken:
                name += '_'
            taken.add(name)
            names[value.id] = name
    return names


def _own_name(op: Any) -> str:
    return declared_name(op) if op is not None and op.name() in DECLARATIONS else ''


def _owner(op: Any, value: Any) -> Any:
    """Layers that share a weight by its name declare one parameter each."""
    return (value.dtype, tuple(value.shape)) if op.name() == PARAMETER else op.id()


def declared_inside(block: Any) -> Iterator[Tuple[Any, Any]]:
    """Parameters of the loops and branches of `block`."""
    for inner in (inner for op in block.ops for inner in op.blocks()):
        yield from ((op, op.result(0)) for op in inner.ops if op.name() == PARAMETER)
        yield from declared_inside(inner)


def _written_over(op: Any, value: Any) -> Any:
    """The operand of `op` that its result `value` is, or the member of it that `value` is; None if there is none."""
    if op is not None and op.name() in (SPLIT, SLICE):
        return _member_written_over(op, value)
    aliases = in_place_results(op) if op is not None else {}
    for slot, operand in aliases.items():
        if op.result(slot).initialized() and op.result(slot).id == value.id:
            source = op.operand_source(operand)
            return source if source.initialized() else None
    return None


def _member_written_over(taker: Any, value: Any) -> Any:
    """What the member of a list was called before all of that was written over."""
    written = taker.operand_source(0)
    over = _written_over(written.get_defining_op(), written)
    while over is not None and not _is_made_of_members(over):
        over = _written_over(over.get_defining_op(), over)
    if over is None:
        return None
    place = next(at for at, member in taken_out(taker) if member.is_same(value))
    return over.get_defining_op().operand_source(place)


def _is_made_of_members(value: Any) -> bool:
    maker = value.get_defining_op()
    return maker is not None and maker.name() == COMBINE


def _values(block: Any) -> Iterator[Tuple[int, Any, Any]]:
    """(number, op, value) of all that `block` is given, and that its ops make; results that are not made count."""
    number = 0
    for value in (*block.args(), *block.kwargs().values()):
        yield number, None, value
        number += 1
    for op in block.ops:
        for value in op.results():
            if value.initialized():
                yield number, op, value
            number += 1


def named(program: Any, argument: str, given: Any) -> Any:
    """`given` with the names of `program`'s values in place of the values, in lists as they are.

    Raises:
        InvalidArgumentError: a value is of another program, or of a block inside.
    """
    values = [each for each in flat(given) if _is_value(each)]
    if not values:
        return given
    names = value_names(program)
    for value in values:
        if not value.initialized() or value.id not in names:
            raise InvalidArgumentError(
                f'{argument}: a value of another program, or of the inside of a loop or branch; '
                'it takes values of the main block, or their names')
    return [names[each.id] if _is_value(each) else each for each in flat(given)]


def _is_value(given: Any) -> bool:
    return type(given).__name__ == 'Value' and hasattr(given, 'get_defining_op')
