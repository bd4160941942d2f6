"""Which open dims are one, by the ops that accept or reject the dims of probes."""

from __future__ import annotations

from itertools import combinations
from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Sequence, Tuple

from transpiler.backends.ties import tied_together
from transpiler.ir.symbols import BATCH, is_batch, is_length, is_words

At = Tuple[int, int]  # block, and op
_FEW = 6  # open dims that an op wants to be equal


def names_of(symbols: Sequence[str], ties: Iterable[Iterable[str]]) -> Dict[str, str]:
    """A name for each symbol, the same for those that are tied, as an op forces them to be equal, or broadcasts them.

    The largest group of rows is the batch, N, unless one is called so already; where no input has open rows, the largest group of dims is.
    """
    groups = sorted(map(sorted, tied_together(symbols, ties)),
                    key=lambda g: (BATCH not in g, -len(g), g))
    any_rows = any(is_batch(s) or is_words(s) for s in symbols)
    names: Dict[str, str] = {}
    for group in groups:
        rows = list(filter(is_batch, group))
        is_batch_like = (rows or not any_rows) and BATCH not in names.values()
        names.update(dict.fromkeys(group, BATCH if is_batch_like else (rows or group)[0]))
    return names


def tied_by_ops(failed: FrozenSet[At], alone: Mapping[str, FrozenSet[At]],
                together: Callable[[FrozenSet[str]], FrozenSet[At]]) -> List[FrozenSet[str]]:
    """Symbols that are one dim.

    An op that accepts equal values, and rejects the change of one of them, whichever it is, says so of those whose change together it
    accepts: it may be rows and rows, words and words. Two dims of one input are not one because it wants their product to be that of others.

    Args:
        failed: ops that reject equal values of all.
        alone: by symbol, those that reject its change.
        together: gives those that reject the change of some.
    """
    seen: Dict[FrozenSet[str], FrozenSet[At]] = {}
    found: Dict[FrozenSet[str], None] = {}
    for op, symbols in by_op({s: ops - failed for s, ops in alone.items()}).items():
        left = frozenset(symbols)
        for some in (*_in_question(symbols), left):
            if some <= left and len(some) > 1:
                if some not in seen:
                    seen[some] = together(some)
                if op not in seen[some]:
                    found[some] = None
                    left -= some
    return list(found)


def _in_question(symbols: Sequence[str]) -> Iterator[FrozenSet[str]]:
    """What might be one dim of these: two that are the same dim of their inputs, all of which that is so, any two. Two alone where they
    are few: of many inputs there are as many pairs as the square."""
    pairs = [frozenset(pair) for pair in combinations(symbols, 2)] if len(symbols) <= _FEW else []
    yield from (pair for pair in pairs if len(set(map(_place, pair))) == 1)
    places = sorted(set(map(_place, symbols)))
    yield from (frozenset(s for s in symbols if _place(s) == place) for place in places)
    yield from pairs


def _place(symbol: str) -> str:
    """Which dim of an input it is; rows are the first."""
    return symbol[symbol.rindex('['):] if is_length(symbol) else ''


def by_op(failed: Mapping[str, FrozenSet[At]]) -> Dict[At, List[str]]:
    """For each op the symbols of which it rejects the change of one."""
    found: Dict[At, List[str]] = {}
    for symbol, ops in failed.items():
        for op in ops:
            found.setdefault(op, []).append(symbol)
    return found
