"""Names are text, alone or in lists: what a terminal would act on, or not show, is written out."""

from __future__ import annotations

import difflib
from typing import Any, Iterable, Iterator

_MOST_MEANT = 3


def printable(text: str) -> str:
    """`text` in one line, without control characters, marks that turn its direction, and halves of characters."""
    if text.isprintable():
        return text
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names those of `known` that look like `name`; '' if none does."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=_MOST_MEANT)
    close = close or [each for each in names if name.lower() in each.lower()][:_MOST_MEANT]
    return f' Did you mean {" or ".join(map(repr, close))}?' if close else ''


def meant_or_some(name: str, known: Iterable[str]) -> str:
    """The same, or some of `known` if none looks like it; '' if there are none."""
    names = sorted(known)
    some = f' It has {quoted(names, _MOST_MEANT)}.' if names else ''
    return did_you_mean(name, names) or some


def flat(given: Any) -> Iterator[Any]:
    """What is in `given`, which may be a set, a list or a tuple, in such ones in it, and so on; no None."""
    pending, seen = [given], set()
    while pending:
        item = pending.pop()
        if isinstance(item, (set, frozenset, list, tuple)):
            if id(item) not in seen:  # a list may hold itself
                pending.extend(item)
            seen.add(id(item))
        elif item is not None:
            yield item


def quoted(names: Iterable[str], most: int) -> str:
    """The first `most` of `names`, sorted, each in quotes."""
    each = sorted(names)
    return ', '.join(map(repr, each[:most])) + (', ...' if each[most:] else '')


def and_more(names: Iterable[str], most: int) -> str:
    """The first `most` of `names`, and how many others there are."""
    each = list(names)
    return ', '.join(each[:most]) + (f' and {len(each) - most} more' if each[most:] else '')
