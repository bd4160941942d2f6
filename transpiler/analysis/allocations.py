"""Bytes over time of a region whose ops run nothing inside: sums over arrays that have an entry for each allocation."""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Collection, Dict, FrozenSet, List, Sequence

import numpy

from transpiler.analysis.lifetimes import Lifetime
from transpiler.ir import Size

# Sums of bytes up to here are numbers of the machine; beyond, numpy adds up numbers of Python's.
_MOST = 1 << 62


class Allocations:
    """Of one region with so many `ops`: where its allocations begin and end, and which of them have one size. Whatever the dims
    are, and however late it is freed, that is found once.

    Args:
        lifetimes: its allocations.
        ops: how many ops the region has.
        prompt: by position: whether what ends there is freed at once, however late the runtime is.
        release: where the program may let go of an allocation.
    """

    def __init__(self, lifetimes: Collection[Lifetime], ops: int, prompt: Sequence[bool],
                 release: Callable[[Lifetime], int]) -> None:
        numbers: Dict[Size, int] = {}
        self._ops = ops
        self._first, self._last, self._size = (numpy.array(column, numpy.int64) for column in (
            [l.first for l in lifetimes],
            [l.last for l in lifetimes],
            [numbers.setdefault(l.size, len(numbers)) for l in lifetimes],
        ))
        self._lifetimes, self._release = tuple(lifetimes), release
        self._sizes = list(numbers)
        self._prompt = numpy.array(prompt, bool)[self._last]

    @cached_property
    def _released_after(self) -> numpy.ndarray:
        """By allocation: the first op for which it is gone, if the program lets go of it. Few ask."""
        return numpy.array([self._release(each) for each in self._lifetimes], numpy.int64) + 1

    def live(self,
             evaluate: Callable[[Size], int],
             late: int = 0,
             released: FrozenSet[int] = frozenset()) -> List[int]:
        """Bytes while each op runs, if what ends is freed so many ops `late`, but for what is prompt, and what only `released`
        storages hold: that the program lets go of where it may."""
        sizes = [evaluate(size) for size in self._sizes]
        total = sum(
            map(int.__mul__, sizes,
                numpy.bincount(self._size, minlength=len(sizes)).tolist()))
        kind = numpy.int64 if total < _MOST else object
        amounts = numpy.array(sizes, kind)[self._size]
        ends = self._last + 1  # the first op for which it is gone
        if late:
            after = numpy.full(len(ends), self._ops + late)
            if released:
                gone = [released.issuperset(each.storages) for each in self._lifetimes]
                after = numpy.where(numpy.array(gone, bool), self._released_after, after)
            ends = numpy.where(self._prompt, ends, numpy.minimum(ends + late, after))
        changes = numpy.zeros(self._ops, kind)
        numpy.add.at(changes, self._first, amounts)
        ended = ends < self._ops
        numpy.subtract.at(changes, ends[ended], amounts[ended])
        return numpy.cumsum(changes).tolist()
