"""Names are text: what a terminal would act on, or not show, is written out."""

from __future__ import annotations

import difflib
from typing import Iterable

_MOST_MEANT = 3


def printable(text: str) -> str:
    """`text` in one line, without control characters, marks that turn its direction, and halves of characters."""
    if text.isprintable():
        return text
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names those of `known` that look like `name`, or some of them if none does; '' if there are none."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=_MOST_MEANT)
    close = close or [each for each in names if name.lower() in each.lower()][:_MOST_MEANT]
    if close:
        return f' Did you mean {" or ".join(map(repr, close))}?'
    shown = ', '.join(map(repr, names[:_MOST_MEANT]))
    return f' It has {shown}{", ..." if len(names) > _MOST_MEANT else ""}.' if names else ''
