"""Memory optimizer for PaddlePaddle static-graph programs.

Names are loaded when they are asked for: the graph, its passes and solvers, and the command line's help need no Paddle.
"""
from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping

if TYPE_CHECKING:
    from transpiler.api import memory_optimize, release_memory
    from transpiler.assignment import pack
    from transpiler.backends.calibration import calibrate
    from transpiler.errors import (InvalidArgumentError, InvalidProgramError, MemoryBudgetError,
                                   MergedVariableError, TranspilerError, UnknownVariableError,
                                   UnsupportedPaddleError, VerificationError)
    from transpiler.report import MemoryReport

__all__ = [
    'InvalidArgumentError', 'InvalidProgramError', 'MemoryBudgetError', 'MemoryReport',
    'MergedVariableError', 'TranspilerError', 'UnknownVariableError', 'UnsupportedPaddleError',
    'VerificationError', 'calibrate', 'memory_optimize', 'pack', 'release_memory'
]

_HOMES: Mapping[str, str] = MappingProxyType({
    'MemoryReport': 'transpiler.report',
    'calibrate': 'transpiler.backends.calibration',
    'memory_optimize': 'transpiler.api',
    'pack': 'transpiler.assignment',
    'release_memory': 'transpiler.api',
})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(_HOMES.get(name, 'transpiler.errors')), name)


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
