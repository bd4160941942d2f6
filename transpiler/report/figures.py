"""A MemoryReport as a matplotlib figure."""

from __future__ import annotations

from typing import Any

from transpiler.report.picture import Picture

_MIB = 2**20


def figure(before: Picture, after: Picture) -> Any:
    """Bytes over ops, before and after on one scale, peaks marked; a `matplotlib.figure.Figure`."""
    from matplotlib.figure import Figure
    result = Figure(figsize=(10, 4), layout='constrained')
    axes = result.subplots()
    for title, picture, colour in (('before', before, 'tab:red'), ('after', after, 'tab:blue')):
        sizes = [b / _MIB for b in picture.bytes]
        label = f'{title}: peak {picture.peak_bytes / _MIB:.2f} MiB'
        axes.fill_between(range(len(sizes)),
                          sizes,
                          step='mid',
                          alpha=0.35,
                          color=colour,
                          label=label)
        if sizes:
            axes.plot([picture.peak], [sizes[picture.peak]], 'v', color=colour)
    axes.set_xlabel('operator, in the order of execution')
    axes.set_ylabel('MiB above resting')
    axes.legend()
    return result
