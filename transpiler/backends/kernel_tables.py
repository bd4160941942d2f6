"""Tables of what kernels allocate for themselves, whichever Paddle they are of.

For each kind of operator a table has cases, of which the first whose conditions hold gives the bytes: a formula, see `formulas`.
Conditions are `last @axis` (the attribute is the last dim of the first operand), `@name = value` in JSON, `has SLOT`,
`rows SLOT` (selected rows), `alike SLOT SLOT` (of one type), `SLOT of FP32`, `SLOT dims 4`, `negative @name` (one of its numbers is),
or two formulas that are equal; `not` turns each around.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from transpiler.backends.formulas import Slots, evaluate
from transpiler.ir import Size

# What the Paddles call the slot of the first operand.
_FIRST = ('X', 'Input', 'x', 'input')


class Case(NamedTuple):
    """Bytes of the kernels for which all of `when` hold. `at_most`: a bound, where no formula gives them to the byte."""

    when: Tuple[str, ...]
    bytes: str
    at_most: bool = False


Cases = Tuple[Case, ...]
# Of kernels that allocate nothing, whatever they work on.
NONE: Cases = (Case((), '0'),)


class Kernel(NamedTuple):
    """An operator about to run: its attributes, and the tensors of its slots, inputs before outputs."""

    kind: str
    attributes: Callable[[str], Any]
    slots: Slots


def parse(text: str) -> Mapping[str, Cases]:
    """The table that `text` holds as JSON: cases by kind of operator."""
    found: Dict[str, Cases] = {}
    for kind, cases in json.loads(text).items():
        found[kind] = tuple(
            Case(tuple(c.get('when', ())), c['bytes'], c.get('at_most', False)) for c in cases)
    return MappingProxyType(found)


def attributes_asked(cases: Cases) -> Tuple[str, ...]:
    """Names of the attributes that the conditions of `cases` ask for."""
    words = (word for case in cases for condition in case.when for word in condition.split())
    return tuple(word[1:] for word in words if word.startswith('@'))


def case_of(kernel: Kernel, cases: Cases) -> Optional[Case]:
    """The first of `cases` whose conditions hold for `kernel`."""
    return next((case for case in cases if all(holds(c, kernel) for c in case.when)), None)


def by_cases(kernel: Kernel, cases: Cases) -> Optional[Size]:
    """Bytes that `kernel` allocates besides its results, by `cases`; None if they don't tell."""
    case = case_of(kernel, cases)
    return None if case is None else evaluate(case.bytes, kernel.slots)


def is_bound(kernel: Kernel, cases: Cases) -> bool:
    """Whether it may be less than `by_cases` says."""
    case = case_of(kernel, cases)
    return case is not None and case.at_most


def holds(condition: str, kernel: Kernel) -> bool:
    """Whether `condition` does for `kernel`; one about a dim that nobody knows does not."""
    if condition.startswith('not '):
        return not holds(condition[4:], kernel)
    words = condition.split()
    if words[0] == 'last':
        return _is_last(kernel, words[1][1:])
    if words[0] == 'negative':
        return any(number < 0 for number in kernel.attributes(words[1][1:]) or ())
    if words[0] == 'has':
        return bool(kernel.slots.get(words[1]))
    if words[0] == 'rows':
        return any(t.rows for t in kernel.slots.get(words[1], ()))
    if words[0] == 'alike':
        one, other = ({t.dtype for t in kernel.slots.get(slot, ())} for slot in words[1:])
        return one == other
    if words[1] == 'dims':
        first = kernel.slots.get(words[0], ())
        return bool(first) and first[0].shape is not None and len(first[0].shape) == int(words[2])
    if words[1] == 'of':
        return any(t.dtype == words[2] for t in kernel.slots.get(words[0], ()))
    left, right = condition.split(' = ')
    if left.startswith('@'):
        return rounded(kernel.attributes(left[1:])) == json.loads(right)
    sides = evaluate(left, kernel.slots), evaluate(right, kernel.slots)
    return None not in sides and sides[0] == sides[1]


def _is_last(kernel: Kernel, name: str) -> bool:
    axis = kernel.attributes(name)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    first = next((kernel.slots[slot] for slot in _FIRST if kernel.slots.get(slot)), ())
    if isinstance(axis, list) or axis is None or not first or first[0].shape is None:
        return False
    return axis in (-1, len(first[0].shape) - 1)


def rounded(value: Any) -> Any:
    """As conditions write numbers."""
    return round(value, 6) if isinstance(value, float) else value
