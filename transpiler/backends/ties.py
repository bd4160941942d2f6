"""Which of some names are one, where ties say it of some at a time."""

from __future__ import annotations

from typing import Iterable, List, Sequence, Set


def tied_together(symbols: Sequence[str], ties: Iterable[Iterable[str]]) -> List[Set[str]]:
    """The finest partition of `symbols` in which each of `ties` lies within one part."""
    part = {symbol: {symbol} for symbol in symbols}
    for tied in ties:
        joined = set().union(*(part.get(symbol, {symbol}) for symbol in tied))
        part.update((symbol, joined) for symbol in joined)
    return list({id(each): each for each in part.values()}.values())
