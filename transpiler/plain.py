"""Names are text: what a terminal would act on, or not show, is written out."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` in one line, without control characters, marks that turn its direction, and halves of characters."""
    if text.isprintable():
        return text
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)
