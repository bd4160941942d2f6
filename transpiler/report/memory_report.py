"""MemoryReport: the answer of memory_optimize and release_memory."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from typing import Any

from transpiler import arguments
from transpiler.report.data import ReportData
from transpiler.report.figures import figure
from transpiler.report.html import page
from transpiler.report.text import after, before, reasons


@dataclass
class MemoryReport(ReportData):
    """What memory_optimize predicted, did and left alone, as `ReportData` says field by field, and the ways to look at it."""

    def plot(self) -> Any:
        """Live bytes over ops, before and after: a `matplotlib.figure.Figure`."""
        return figure(self.picture_before, self.picture_after)

    def to_html(self, title: str = 'the program') -> str:
        """The picture as one page that needs no network."""
        return page(self, arguments.text('title', title))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        drawn = io.BytesIO()
        self.plot().savefig(drawn, format='svg')
        return f'<pre>{html.escape(str(self))}</pre>' + drawn.getvalue().decode()

    def write_curve(self, writer: Any, tag: str = 'memory') -> None:
        """Bytes above resting, step by step in the order of execution, as scalars `tag`/before and `tag`/after.

        Args:
            writer: has `add_scalar(tag, value, step)`: `visualdl.LogWriter`, TensorBoard's SummaryWriter.

        Raises:
            InvalidArgumentError: it has not.
        """
        arguments.scalar_writer(writer)
        arguments.text('tag', tag)
        for side, picture in zip(('before', 'after'), self.pictures):
            for step, size in enumerate(picture.bytes):
                writer.add_scalar(f'{tag}/{side}', size, step)

    def explain(self, variable: Any) -> str:
        """Why `variable` is in memory when it is, before and after, and why it does not share that.

        Args:
            variable: its name, or the Variable.

        Raises:
            InvalidArgumentError: it is neither.
            UnknownVariableError: the program has no such variable.
        """
        return self.explained(arguments.name_of('variable', variable))

    def why(self) -> str:
        """The ten things that would lower the peak most, the largest first, with their bytes. Some are planned anew for that."""
        return reasons(self.weighed())

    def __str__(self) -> str:
        return after(self)

    def as_it_is(self) -> str:
        """What the program needs without any change, and what a change would bring."""
        return before(self)
