"""Where the user made an op, by the call stack that Paddle gave it."""

from __future__ import annotations

from typing import Sequence, Union


def source_line(callstack: Sequence[Union[str, bytes]]) -> str:
    """The innermost user frame of the call stack that an op carries; the innermost of all if none is the user's."""
    innermost = ''
    for line in reversed(callstack):
        frame = _text(line).strip()
        if frame.startswith('File'):
            if '/paddle/' not in frame and '/site-packages/' not in frame:
                return frame
            innermost = innermost or frame
    return innermost


def _text(read: Union[str, bytes]) -> str:
    """What protobuf read as a string. It leaves bytes where that is no UTF-8: a path in the encoding of a file system."""
    return read if isinstance(read, str) else read.decode('utf-8', 'replace')
