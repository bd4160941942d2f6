"""Memory optimizer for PaddlePaddle static-graph programs."""

from transpiler.api import memory_optimize, release_memory
from transpiler.assignment import pack
from transpiler.errors import (InvalidArgumentError, InvalidProgramError, MemoryBudgetError,
                               MergedVariableError, TranspilerError, UnknownVariableError,
                               UnsupportedPaddleError, VerificationError)
from transpiler.program_desc.calibration import calibrate
from transpiler.report import MemoryReport

__all__ = [
    'InvalidArgumentError', 'InvalidProgramError', 'MemoryBudgetError', 'MemoryReport',
    'MergedVariableError', 'TranspilerError', 'UnknownVariableError', 'UnsupportedPaddleError',
    'VerificationError', 'calibrate', 'memory_optimize', 'pack', 'release_memory'
]
