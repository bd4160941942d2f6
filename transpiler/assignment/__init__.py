"""Which memory each value should have, given when it lives: the optimum, or how far from it.

Knows no Paddle. Two problems over the same inputs, int (n, 2) inclusive live ranges and int (n,)
bytes (`ranges.py` has the convention):

* `assign`: whole storages, what renaming can do; values alive together need different storages.
* `pack`: byte offsets in one arena; values alive together need disjoint bytes.

Both run a portfolio, keep the smallest result and give a lower bound with it. `net.py`,
`orders.py` and `parallel.py` work on straight-line programs: live ranges, orders that need less,
and the sharing that is safe under every order.

Names are loaded when they are asked for: who packs needs none of the rest.
"""
from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from transpiler.assignment.bounds import live_max_bytes, sharing_bound
    from transpiler.assignment.csv_format import (CsvFormatError, CsvProblem, read_problem,
                                                  write_solution)
    from transpiler.assignment.fits import Fits
    from transpiler.assignment.nested import Block, Flat, flattened
    from transpiler.assignment.net import (Net, NetOp, check_order, critical_path, live_ranges,
                                           predecessors)
    from transpiler.assignment.orders import OrderResult, best_order, heuristics
    from transpiler.assignment.packing import CapacityError, pack
    from transpiler.assignment.parallel import parallel_safe, parallel_safe_bound
    from transpiler.assignment.portfolio import assign, strategies
    from transpiler.assignment.ranges import Assignment, Packing
    from transpiler.assignment.sharing import Sharing

__all__ = [
    "Assignment", "Block", "CapacityError", "CsvFormatError", "CsvProblem", "Fits", "Flat", "Net",
    "NetOp", "OrderResult", "Packing", "Sharing", "assign", "best_order", "check_order",
    "critical_path", "flattened", "heuristics", "live_max_bytes", "live_ranges", "pack",
    "parallel_safe", "parallel_safe_bound", "predecessors", "read_problem", "sharing_bound",
    "strategies", "write_solution"
]

_HOMES: Mapping[str, str] = MappingProxyType({
    name: home for home, names in {
        'bounds': ('live_max_bytes', 'sharing_bound'),
        'csv_format': ('CsvFormatError', 'CsvProblem', 'read_problem', 'write_solution'),
        'fits': ('Fits',),
        'nested': ('Block', 'Flat', 'flattened'),
        'net': ('Net', 'NetOp', 'check_order', 'critical_path', 'live_ranges', 'predecessors'),
        'orders': ('OrderResult', 'best_order', 'heuristics'),
        'packing': ('CapacityError', 'pack'),
        'parallel': ('parallel_safe', 'parallel_safe_bound'),
        'portfolio': ('assign', 'strategies'),
        'ranges': ('Assignment', 'Packing'),
        'sharing': ('Sharing',),
    }.items() for name in names
})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
