"""How Paddle says what takes rows of a tensor, numbers them, and adds to them: `slice`, `assign_value` and `index_add`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Dict, Mapping, Optional, Tuple

from paddle.base.proto import framework_pb2

_INT32 = framework_pb2.VarType.INT32
# Operators that take rows or make numbers of them, if their attributes say so.
BY_ROWS = frozenset({'slice', 'assign_value'})
ROW_SUM = 'index_add'
ROW_SUM_ATTRIBUTES: Mapping[str, object] = MappingProxyType({'axis': 0})


def row_attributes(first: int, end: int) -> Dict[str, object]:
    """Of the op that takes the rows from `first` to before `end`."""
    return {
        'axes': [0],
        'starts': [first],
        'ends': [end],
        'infer_flags': [1],
        'decrease_axis': [],
    }


def row_number_attributes(first: int, end: int) -> Dict[str, object]:
    """Of the op that makes the numbers of the rows from `first` to before `end`."""
    return {'shape': [end - first], 'dtype': _INT32, 'int32_values': list(range(first, end))}


def rows_of(desc: framework_pb2.OpDesc) -> Optional[Tuple[int, int]]:
    """The rows that it takes, or makes the numbers of; None if it is another kind of op, or its attributes may mean more."""
    if desc.type not in BY_ROWS:
        return None
    given = {a.name: list(a.ints) for a in desc.attrs if a.type == framework_pb2.INTS}
    if desc.type == 'slice':
        first, end = given.get('starts'), given.get('ends')
        if not first or not end or given.get('axes') != [0] or given.get('decrease_axis'):
            return None
        return (first[0], end[0]) if 0 <= first[0] < end[0] else None
    numbers = given.get('int32_values')
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return numbers[0], numbers[0] + len(numbers)
