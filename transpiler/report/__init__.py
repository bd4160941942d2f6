"""What memory_optimize did and why, as text and as plain data."""

from transpiler.report.memory_report import BlockReport, LoopReport, MemoryReport, PeakVariable, ReuseReport

__all__ = ['BlockReport', 'LoopReport', 'MemoryReport', 'PeakVariable', 'ReuseReport']
