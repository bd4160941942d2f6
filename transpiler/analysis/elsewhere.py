"""Other values of the open dims than those that a plan is made for: no plan may be worse at them than no plan."""

from __future__ import annotations

import math
from typing import Callable, Dict, List, Mapping

from transpiler.ir.symbols import is_trip

_MORE = 4
_SHARES = 8
_MOST_ALONE = 6


def other_sizes(dims: Mapping[str, int]) -> List[Dict[str, int]]:
    """Eighths of all dims but the trips of loops, their roots, 1, and larger ones; and each dim alone at 1."""
    ways: List[Callable[[int], int]] = [lambda d, k=k: d * k // _SHARES for k in range(_SHARES)]
    ways += [math.isqrt, lambda d: d * _MORE]
    rows = [s for s in sorted(dims) if not is_trip(s)]
    found = [{**dims, **{s: max(1, way(dims[s])) for s in rows}} for way in ways]
    found += [{**dims, s: 1} for s in rows[:_MOST_ALONE]]
    different = {tuple(sorted(each.items())): each for each in found}
    different.pop(tuple(sorted(dims.items())), None)
    return list(different.values())
