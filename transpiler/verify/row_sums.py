"""A sum of two that is made some rows at a time: what its steps must be for the whole to be the sum, to the bit.

Definitions: ('rows', first, end, of): those rows of a tensor that one of the definitions `of` made. ('row numbers', first, end).
('rows added', sum, end): the first operand of the sum, with the second added to the rows before `end`.
"""

from __future__ import annotations

from typing import FrozenSet, Optional, Tuple

from transpiler.errors import VerificationError
from transpiler.ir import Graph, Meaning, Op
from transpiler.verify.definitions import Definition

Definitions = FrozenSet[Definition]
_ROWS, _NUMBERS, _ADDED = 'rows', 'row numbers', 'rows added'


def is_row_sum(source: Op, op: Op) -> bool:
    """Whether `op` may be a step of the sum `source`."""
    return (source.facts.left_fold and op.facts.means is Meaning.ROWS_ADDED and
            len(source.operands) == 2 and len(op.operands) == 3 and
            len(op.results) == len(source.results) == 1 and
            min(op.operands + op.results + source.operands) >= 0)


def rows_of_sum(old: Graph, source: Op) -> int:
    """How many rows the sum has: its operands, and its result, are of one shape that is known."""
    shapes = {old.values[v].shape for v in source.operands + source.results}
    shape = shapes.pop()
    if shapes or not shape or not all(dim.is_constant for dim in shape):
        raise VerificationError(f'the shapes of {source.kind} (op {source.id}) are not known')
    return shape[0].evaluate({})


def taken(op: Op, operands: Tuple[Definitions, ...]) -> Optional[Definitions]:
    """What an added op makes, if it takes rows or numbers them."""
    if op.facts.rows is None:
        return None
    if op.facts.means is Meaning.ROWS and len(operands) == 1:
        return frozenset({(_ROWS, *op.facts.rows, operands[0])})
    if op.facts.means is Meaning.ROW_NUMBERS and not operands:
        return frozenset({(_NUMBERS, *op.facts.rows)})
    return None


def whole(op: Op, held: Definitions) -> Tuple[Definitions, Tuple]:
    """What the one operand of `op` is part of, if `op` computes each element by itself, and which rows it is; else the operand
    as it is, and nothing."""
    part = next(iter(held)) if len(held) == 1 else ()
    if op.facts.elementwise and len(op.operands) == 1 and part[:1] == (_ROWS,):
        return part[3], part[:3]
    return held, ()


def step(op: Op, origin: int, rows: int, total: Definitions, term: Definitions,
         numbers: Definitions) -> Tuple[bool, Definitions, Definition]:
    """Of a step of the sum `origin` of so many `rows`: whether it is the first, what its term is part of, and what it makes.

    Raises:
        VerificationError: it does not go on where the step before ended, or the numbers are not those of the rows.
    """
    part = next(iter(term)) if len(term) == 1 else ()
    done = next(iter(total)) if len(total) == 1 else ()
    begun = done[2] if done[:2] == (_ADDED, origin) else 0
    if part[:2] != (_ROWS, begun) or numbers != {(_NUMBERS, *part[1:3])} or part[2] > rows:
        raise VerificationError(
            f'{op.kind} (op {op.id}) would add other rows than those that are next')
    made: Definition = (origin, 0) if part[2] == rows else (_ADDED, origin, part[2])
    return not begun, part[3], made
