"""Which open dims are one, by the ops that accept or reject the dims of probes."""

from __future__ import annotations

from itertools import combinations
from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Sequence, Tuple

from transpiler.backends.ties import tied_together
from transpiler.ir.symbols import BATCH, WORDS, is_length

At = Tuple[int, int]  # block, and op
_FEW = 6  # open dims that an op wants to be equal


def names_of(symbols: Sequence[str], ties: Iterable[Iterable[str]]) -> Dict[str, str]:
    """A name for each symbol, the same for those that are tied, as an op forces them to be equal, or broadcasts them.

    The largest group of rows is the batch, N; where no input has open rows, the largest group of dims is.
    """
    groups = sorted(map(sorted, tied_together(symbols, ties)), key=lambda g: (-len(g), g))
    names: Dict[str, str] = {}
    for group in groups:
        rows = [s for s in group if s.startswith(f'{BATCH}(')]
        is_batch_like = rows or not any(s.startswith((f'{BATCH}(', f'{WORDS}(')) for s in symbols)
        name = BATCH if is_batch_like and BATCH not in names.values() else (rows or group)[0]
        names.update(dict.fromkeys(group, name))
    return names


def tied_by_ops(failed: FrozenSet[At], alone: Mapping[str, FrozenSet[At]],
                together: Callable[[FrozenSet[str]], FrozenSet[At]]) -> List[FrozenSet[str]]:
    """Symbols that are one dim.

    An op that accepts equal values, and rejects the change of one of two symbols, whichever it is, says that they are. Of more than
    two it may be rows and rows, words and words: those whose change together it accepts are one.

    Args:
        failed: ops that reject equal values of all.
        alone: by symbol, those that reject its change.
        together: gives those that reject the change of some.
    """
    seen: Dict[FrozenSet[str], FrozenSet[At]] = {}
    found: Dict[FrozenSet[str], None] = {}
    for op, symbols in by_op({s: ops - failed for s, ops in alone.items()}).items():
        left = frozenset(symbols)
        for some in _in_question(symbols) if len(symbols) > 2 else ():
            if some <= left:
                if some not in seen:
                    seen[some] = together(some)
                if op not in seen[some]:
                    found[some] = None
                    left -= some
        if len(left) > 1 or len(left) == len(symbols):
            found[left] = None
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
