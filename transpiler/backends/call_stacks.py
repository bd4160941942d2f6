"""Where the user made an op, by the call stack that Paddle gave it."""

from __future__ import annotations

import sys
from typing import List, Sequence, Tuple, Union

_Line = Union[str, bytes]


def frames(callstack: Sequence[_Line]) -> Tuple[str, ...]:
    """All frames of the call stack that an op carries: the innermost of the user's first, then who called it, one after the other; last what it called, outermost first."""
    found = [f for f in (_text(line).strip() for line in callstack) if f.startswith('File')]
    own = next((at for at in range(len(found))[::-1] if _is_users(found[at])), len(found) - 1)
    ordered: List[str] = [*found[own::-1], *found[own + 1:]] if found else []
    return tuple(map(sys.intern, ordered))  # ops have most of theirs in common


def _is_users(frame: str) -> bool:
    return '/paddle/' not in frame and '/site-packages/' not in frame


def _text(read: _Line) -> str:
    """What protobuf read as a string. It leaves bytes where that is no UTF-8: a path in the encoding of a file system."""
    return read if isinstance(read, str) else read.decode('utf-8', 'replace')
