"""A MemoryReport as a matplotlib figure.

Paddle 2.6.2 brings a zlib of its own, whose names stand in for those of the system's: whoever compresses after Paddle is
imported ends the process. So what is saved here as PNG or PDF is not compressed.
"""

from __future__ import annotations

import binascii
import os
import struct
from typing import Any, Iterator

import numpy as np

from transpiler.errors import TranspilerError
from transpiler.report.picture import Picture

_MIB = 2**20


def figure(before: Picture, after: Picture) -> Any:
    """Bytes over ops, before and after on one scale, peaks marked; a `matplotlib.figure.Figure`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise TranspilerError(
            "matplotlib draws figures, and is not installed: pip install 'paddle-memory-transpiler[plot]'; "
            'to_html() needs nothing') from None
    result = Figure(figsize=(10, 4), layout='constrained')
    _canvas(result)
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


def _canvas(figure_: Any) -> Any:
    """The canvas of `figure_` from now on, which compresses nothing."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    class Canvas(FigureCanvasAgg):

        def print_png(self, filename_or_obj: Any, **_: Any) -> None:
            self.draw()
            width, height = self.get_width_height()
            _write(filename_or_obj, b''.join(_png(bytes(self.buffer_rgba()), width, height)))

        def print_pdf(self, filename: Any, metadata: Any = None, **_: Any) -> None:
            drawn = self.figure
            try:
                with rc_context({'pdf.compression': 0}):
                    FigureCanvasPdf(drawn).print_pdf(filename, metadata=metadata)
            finally:
                drawn.set_canvas(self)

    return Canvas(figure_)


def _write(target: Any, contents: bytes) -> None:
    if hasattr(target, 'write'):
        target.write(contents)
        return
    with open(os.fspath(target), 'wb') as stream:
        stream.write(contents)


def _png(pixels: bytes, width: int, height: int) -> Iterator[bytes]:
    """The parts of a PNG file of `pixels`, uint8 (height, width, 4), in stored blocks."""
    yield b'\x89PNG\r\n\x1a\n'
    yield _chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 6, 0, 0, 0))
    rows = [pixels[4 * width * i:4 * width * (i + 1)] for i in range(height)]
    yield _chunk(b'IDAT', _stored(b''.join(b'\0' + row for row in rows)))
    yield _chunk(b'IEND', b'')


def _chunk(kind: bytes, contents: bytes) -> bytes:
    return (struct.pack('>I', len(contents)) + kind + contents +
            struct.pack('>I', binascii.crc32(kind + contents)))


def _stored(contents: bytes) -> bytes:
    """A zlib stream (RFC 1950, 1951) in which nothing is compressed."""
    parts, most = [b'\x78\x01'], 65535
    for start in range(0, len(contents), most):
        block = contents[start:start + most]
        last = start + most >= len(contents)
        parts.append(struct.pack('<BHH', last, len(block), 65535 - len(block)) + block)
    return b''.join(parts) + struct.pack('>I', _adler(contents))


def _adler(contents: bytes) -> int:
    """RFC 1950's checksum, which is the sum of bytes and the sum of those sums."""
    low, high, prime = 1, 0, 65521
    for start in range(0, len(contents), 4096):
        block = np.frombuffer(contents[start:start + 4096], np.uint8).astype(np.int64)
        count = len(block)
        high = (high + count * low + int((block * np.arange(count, 0, -1)).sum())) % prime
        low = (low + int(block.sum())) % prime
    return high << 16 | low
