"""What memory_optimize did and why, as text and as plain data."""

from transpiler.report.data import (BlockReport, HeapReport, LoopReport, MeasuredReport,
                                    PeakVariable, PipelineReport, ReuseReport, RunsReport)
from transpiler.report.memory_report import MemoryReport

__all__ = [
    'BlockReport', 'HeapReport', 'LoopReport', 'MeasuredReport', 'MemoryReport', 'PeakVariable',
    'PipelineReport', 'ReuseReport', 'RunsReport'
]
