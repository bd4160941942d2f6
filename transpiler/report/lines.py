"""Source lines as Paddle writes them, in fewer letters."""

from __future__ import annotations

import re
from typing import Match

_FRAME = re.compile(r'File "(?P<path>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')


def short_lines(text: str) -> str:
    """`text` with each 'File "/a/b/model.py", line 7, in build' as 'model.py:7 in build'."""
    return _FRAME.sub(_short, text)


def _short(frame: Match[str]) -> str:
    name = frame['path'].replace('\\', '/').rsplit('/', 1)[-1]
    return f'{name}:{frame["line"]}' + (f' in {frame["function"]}' if frame['function'] else '')
