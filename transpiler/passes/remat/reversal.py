"""Which stages are kept and which run again: the least time under a limit, for all limits at once, by dynamic programming.

For chains this is revolve (Griewank and Walther, Algorithm 799, 2000); with stages that differ in time and size, and of which
either what crosses or all that is saved can be kept, it is rotor's (Beaumont et al., Optimal checkpointing for heterogeneous
chains, 2019). Here a gradient may read what its stage made, what is kept beside a checkpoint is any part of the stretch, not
its first stage alone, and what is live without being kept differs from place to place.

Bytes are counted in units, rounded to the nearest: whoever uses a schedule counts what its plan really needs.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy

from transpiler.passes.remat.stages import Cells, Stage

_NONE: Cells = frozenset()
Holds = Dict[int, Cells]  # what is in memory when the gradients of a stage begin, by stage


class _Checkpoint(NamedTuple):
    """One way to keep something behind a stage; units by (stretch's first stage, stage): what crosses the cut before the
    stretch is there in any case."""

    cells: List[Cells]
    sizes: numpy.ndarray
    seconds: numpy.ndarray  # to make it from what crosses the cut before
    serves: bool  # the gradients of the stage need nothing else


class Reversal:
    """The tables for `stages`, for every limit up to `most` bytes in so many `units`.

    `sizes` are those of cells. O(stages ** 3 * units).
    """

    def __init__(self, stages: Sequence[Stage], sizes: Sequence[int], most: float,
                 units: int) -> None:
        self._stages = stages
        self._count = len(stages)
        self._sizes = numpy.array(sizes, float)
        self._given = self._matrix([_NONE, *(s.crossing for s in stages[:-1])])
        self._least = min(s.before for s in stages if s.group[0] < s.group[1])
        widths = [sum(sizes[c] for c in s.crossing) for s in stages]
        self._unit = _unit(widths, most - self._least, units)
        self._levels = numpy.arange(int((most - self._least) / self._unit) + 2)
        self._kinds = [
            self._checkpoint([s.crossing | s.saved for s in stages], [s.whole for s in stages],
                             True)
        ]
        self._on_seconds = numpy.concatenate(([0.0], numpy.cumsum([s.on for s in stages])))
        if any(not s.saved <= s.crossing for s in stages):
            self._kinds.append(
                self._checkpoint([s.crossing for s in stages], [s.on for s in stages], False))
        self._sweep, self._needed = self._thresholds()
        shape = (self._count + 1, self._count + 1, len(self._levels))
        # By length, first stage, level.
        self._again = numpy.full(shape, numpy.inf, numpy.float32)
        self._again[0] = 0
        self._choice = numpy.zeros(shape, numpy.int16)
        for length in range(1, self._count + 1):
            self._solve(length)
        self._first_run()

    def schedules(self, most: int, lowest: float = 0) -> Iterator[Holds]:
        """From the largest limit to the least with which there is a schedule and that is not below `lowest`, at most so many."""
        seconds = self._first[0]
        start = max(0, round((lowest - self._least) / self._unit))
        changes = [
            at for at in range(len(self._levels))
            if numpy.isfinite(seconds[at]) and (at == start or seconds[at] < seconds[at - 1])
        ]
        picked = numpy.linspace(0, len(changes) - 1, min(most, len(changes))).round().astype(int)
        for at in picked[::-1].tolist():
            holds: Holds = {}
            self._emit_first(changes[at], holds)
            yield holds

    # -- sizes ------------------------------------------------------------------------------------

    def _checkpoint(self, cells: List[Cells], seconds: List[float], serves: bool) -> _Checkpoint:
        mine = self._matrix(cells)
        sizes = numpy.rint((mine.sum(1) - self._given @ (mine > 0).T) / self._unit).astype(int)
        return _Checkpoint(cells, sizes, numpy.array(seconds), serves)

    def _matrix(self, sets: Sequence[Cells]) -> numpy.ndarray:
        """Bytes by (set, cell)."""
        found = numpy.zeros((len(sets), len(self._sizes)))
        for row, cells in zip(found, sets):
            at = list(cells)
            row[at] = self._sizes[at]
        return found

    def _level(self, levels: numpy.ndarray) -> numpy.ndarray:
        return numpy.rint((levels - self._least) / self._unit)

    def _thresholds(self) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """By (first stage, stage): bytes that it takes to go on from before the one to behind the other, and levels that the
        gradients of the other need; what crosses the cut before the first is counted elsewhere."""
        sweep = numpy.array([s.sweep for s in self._stages]) - self._given @ (self._given > 0).T
        numpy.fill_diagonal(sweep, [s.sweep_given for s in self._stages])
        sweep = numpy.maximum.accumulate(numpy.triu(sweep), axis=1)
        saved = self._matrix([s.saved for s in self._stages])
        needed = numpy.array([s.held for s in self._stages]) - self._given @ (saved > 0).T
        return sweep, self._level(needed)

    # -- computing again --------------------------------------------------------------------------

    def _solve(self, length: int) -> None:
        """All stretches of so many stages, from what crosses the cut before them."""
        starts = numpy.arange(self._count - length + 1)
        ends = starts + length - 1
        options = [self._plainly(length, starts, ends)[None]]
        if length > 1:
            options += [self._kept(kind, length, starts, ends) for kind in self._kinds]
        together = numpy.concatenate(options)
        choice = together.argmin(0)
        self._again[length, starts] = numpy.take_along_axis(together, choice[None], 0)[0]
        self._choice[length, starts] = choice

    def _plainly(self, length: int, starts: numpy.ndarray, ends: numpy.ndarray) -> numpy.ndarray:
        """Nothing is kept on the way to the last stage."""
        needed = self._needed[starts, ends]
        waiting = numpy.array([self._stages[end].before for end in ends])
        own = numpy.array([self._stages[end].own for end in ends])
        empty = numpy.array([s.group[0] >= s.group[1] for s in self._stages])[ends]
        seconds = numpy.where(empty, 0, self._on_seconds[ends] - self._on_seconds[starts] + own)
        level = numpy.maximum(self._level(waiting + self._sweep[starts, ends]), needed)
        level = numpy.where(empty, 0, numpy.where(seconds > 0, level, needed))
        found = seconds[:, None] + self._again[length - 1, starts]
        return numpy.where(self._levels >= level[:, None], found, numpy.inf)

    def _kept(self, kind: _Checkpoint, length: int, starts: numpy.ndarray,
              ends: numpy.ndarray) -> numpy.ndarray:
        """A checkpoint behind each of the stages but the last: (stage, first stage, level)."""
        offsets = numpy.arange(length - 1)[:, None]
        at = starts + offsets
        left = self._levels - kind.sizes[starts, at][..., None]
        behind = self._again[(length - 1 - offsets)[..., None], (at + 1)[..., None],
                             numpy.maximum(left, 0)]
        before = self._again[:length - 1, starts] if kind.serves else self._again[1:length, starts]
        waiting = numpy.array([self._stages[end].before for end in ends])
        level = self._level(waiting + self._sweep[starts, at])
        if kind.serves:
            level = numpy.maximum(level, self._needed[starts, at])
        seconds = self._on_seconds[at] - self._on_seconds[starts] + kind.seconds[at]
        found = seconds[..., None].astype(numpy.float32) + behind + before
        found[(self._levels < level[..., None]) | (left < 0)] = numpy.inf
        return found

    # -- the program's own run --------------------------------------------------------------------

    def _first_run(self) -> None:
        """The same for the first time through: what is made there costs nothing extra."""
        count, levels = self._count, len(self._levels)
        self._first = numpy.full((count + 1, levels), numpy.inf)
        self._first_choice = numpy.zeros((count, levels), int)
        needed = self._needed
        own = self._level(numpy.array([s.first for s in self._stages]))
        for start in range(count - 1, -1, -1):
            level = max(own[start:].max(), needed[start, count - 1])
            options = [
                numpy.where(self._levels >= level, self._again[count - start - 1, start], numpy.inf)
            ]
            for kind in self._kinds:
                for stage in range(start, count - 1):
                    found = numpy.full(levels, numpy.inf)
                    _shift(self._first[stage + 1], int(kind.sizes[start, stage]), found)
                    found += self._again[stage - start + (not kind.serves), start]
                    level = max(own[start:stage + 1].max(), needed[start,
                                                                   stage] if kind.serves else 0)
                    options.append(numpy.where(self._levels >= level, found, numpy.inf))
            together = numpy.stack(options)
            self._first_choice[start] = together.argmin(0)
            self._first[start] = together.min(0)

    # -- schedules --------------------------------------------------------------------------------

    def _emit_first(self, level: int, holds: Holds) -> None:
        start, end, held = 0, self._count - 1, _NONE
        pending = []
        while True:
            choice = int(self._first_choice[start, level])
            if choice == 0:
                break
            kind, offset = self._option(choice, end - start)
            pending.append((start, start + offset - kind.serves, level, held))
            held, level = self._behind_it(kind, start, offset, held, level)
            if kind.serves:
                holds[start + offset] = held
            start += offset + 1
        holds[end] = held
        self._emit(start, end - 1, level, held, holds)
        for stretch in reversed(pending):
            self._emit(*stretch, holds)

    def _emit(self, start: int, end: int, level: int, held: Cells, holds: Holds) -> None:
        """The stages from `start` to `end`, by what is held besides."""
        while end >= start:
            choice = int(self._choice[end - start + 1, start, level])
            if choice == 0:
                holds[end] = held
                end -= 1
                continue
            kind, offset = self._option(choice, end - start)
            inner, left = self._behind_it(kind, start, offset, held, level)
            self._emit(start + offset + 1, end, left, inner, holds)
            end = start + offset
            if kind.serves:
                holds[end] = inner
                end -= 1

    def _option(self, choice: int, places: int) -> Tuple[_Checkpoint, int]:
        number, offset = divmod(choice - 1, places)
        return self._kinds[number], offset

    def _behind_it(self, kind: _Checkpoint, start: int, offset: int, held: Cells,
                   level: int) -> Tuple[Cells, int]:
        return held | kind.cells[start + offset], level - int(kind.sizes[start, start + offset])


def _shift(seconds: numpy.ndarray, taken: int, into: numpy.ndarray) -> None:
    """`seconds` by level where so much is taken away."""
    into[:taken] = numpy.inf
    into[taken:] = seconds[:max(0, len(seconds) - taken)]


def _unit(sizes: List[int], room: float, units: int) -> float:
    """About `room` over `units`, and the size that is most usual a whole number of it."""
    unit = max(1.0, room / units)
    usual = float(numpy.median([size for size in sizes if size] or [1]))
    return usual / int(usual / unit) if usual >= unit else unit
