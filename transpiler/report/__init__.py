"""What memory_optimize did and why, as text and as plain data."""

from transpiler.report.data import BlockReport, LoopReport, PeakVariable, ReuseReport
from transpiler.report.memory_report import MemoryReport

__all__ = ['BlockReport', 'LoopReport', 'MemoryReport', 'PeakVariable', 'ReuseReport']
