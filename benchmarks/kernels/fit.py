"""From observations of a kernel to formulas of its tensors' sizes.

A formula is accepted if it gives every observation to the byte with few terms and plain coefficients. Kernels of one kind
that no formula covers are told apart by an attribute, a slot or a type, as often as it takes. What is left gets a bound.
"""

from __future__ import annotations

import json
import time
from fractions import Fraction
from itertools import combinations
from typing import (Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

import numpy as np
from ortools.linear_solver import pywraplp

from transpiler.backends.formulas import evaluate
from transpiler.backends.kernel_tables import NONE, Case, Cases, Kernel, case_of, holds, rounded

# What the search for one kind may take.
_SECONDS = 6.0
_MOST_TERMS = 3
_MOST_SPLITS = 4
_MOST_DENOMINATOR = 8
_MOST_COEFFICIENT = 64
# A formula must be seen this many times more than it has terms.
_SPARE = 2
_PARTS = ('[0]', '[1]', '[-1]', '[:-1]', '[1:]', '[2:]', '[:2]')
_FILTERS = ('Filter', 'weight', 'Weight', 'filter')


class Sample(NamedTuple):
    """A kernel that ran, what it allocated for itself, and the names of its attributes that may tell kernels apart."""

    kernel: Kernel
    bytes: int
    names: FrozenSet[str] = frozenset()


def fit(samples: Sequence[Sample], special: Mapping[str, Cases], bounds: bool) -> Cases:
    """Cases that cover all `samples` of one kind. `special` are guesses, by kind. Where no formula is found there are none, unless
    `bounds` will do: the closest for what was seen."""
    guessed = special.get(samples[0].kernel.kind)
    if guessed is not None and all(_explains(guessed, s) for s in samples):
        return guessed
    if not any(s.bytes for s in samples):
        return NONE
    return _Fit(samples).cases(bounds)


def _explains(cases: Cases, one: Sample) -> bool:
    case = case_of(one.kernel, cases)
    size = None if case is None else evaluate(case.bytes, one.kernel.slots)
    if size is None:
        return False
    said = size.evaluate({})
    return one.bytes <= said if case.at_most else one.bytes == said


class _Fit:
    """The search for one kind. Groups of samples are sets of their positions."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        everything = frozenset(range(len(samples)))
        parts = {
            c: frozenset(i for i, s in enumerate(samples) if holds(c, s.kernel))
            for c in _conditions(samples)
        }
        self._parts = {c: part for c, part in parts.items() if part and part != everything}
        self._formulas: Dict[FrozenSet[int], Optional[str]] = {}
        self._until = time.monotonic() + _SECONDS

    def cases(self, bounds: bool) -> Cases:
        everything = frozenset(range(len(self._samples)))
        for splits in range(_MOST_SPLITS + 1):
            found = self._tree(everything, splits)
            if found is not None:
                return tuple(found)
        return (Case((), _bound(self._samples), True),) if bounds else ()

    def _tree(self, group: FrozenSet[int], splits: int) -> Optional[List[Case]]:
        formula = self._formula(group)
        if formula is not None:
            return [Case((), formula)]
        if not splits:
            return None
        for condition, part in self._parts.items():
            inside, outside = group & part, group - part
            first = self._formula(inside) if inside and outside else None
            rest = self._tree(outside, splits - 1) if first is not None else None
            if rest is not None:
                return [Case((condition,), first)] + rest
        return None

    def _formula(self, group: FrozenSet[int]) -> Optional[str]:
        if group not in self._formulas:
            if time.monotonic() > self._until:
                return None
            self._formulas[group] = _formula([self._samples[i] for i in sorted(group)])
        return self._formulas[group]


def _conditions(samples: Sequence[Sample]) -> Iterator[str]:
    slots = sorted(set().union(*(s.kernel.slots for s in samples)))
    for slot in slots:
        yield f'rows {slot}'
        yield f'not has {slot}'
        yield f'has {slot}'
        for dtype in sorted(
            {t.dtype for s in samples for t in s.kernel.slots.get(slot, ()) if t.dtype}):
            yield f'{slot} of {dtype}'
    yield from ('negative @strides', 'not negative @strides', 'not negative @steps')
    for name in ('axis', 'dim'):
        yield f'last @{name}'
        yield f'not last @{name}'
    for one, other in combinations(slots, 2):
        yield f'#{one} = #{other}'
    yield from _by_attributes(samples)
    for one, other in combinations(slots, 2):
        yield f'not #{one} = #{other}'


def _by_attributes(samples: Sequence[Sample]) -> Iterator[str]:
    for name in sorted(frozenset().union(*(s.names for s in samples))):
        values = {json.dumps(rounded(s.kernel.attributes(name))) for s in samples}
        if 1 < len(values) <= 8:
            yield from (f'@{name} = {value}' for value in sorted(values))


def _formula(samples: Sequence[Sample]) -> Optional[str]:
    """The simplest formula that gives all `samples`."""
    wanted = np.array([s.bytes for s in samples], np.int64)
    if not wanted.any():
        return '0'
    if len(set(wanted)) == 1:
        return str(wanted[0]) if wanted[0] <= _MOST_COEFFICIENT else None
    names, columns = _features(samples, _candidates)
    different = len({tuple(row) for row in columns.T})
    for terms in range(1, _MOST_TERMS + 1):
        if different < terms + _SPARE and terms > 1:
            break
        for chosen in combinations(range(len(names)), terms):
            coefficients = _solve(columns[list(chosen)].T, wanted)
            if coefficients is not None:
                return _text(coefficients, [names[i] for i in chosen])
    return None


def _solve(columns: np.ndarray, wanted: np.ndarray) -> Optional[List[Fraction]]:
    """Plain positive coefficients with which `columns` add up to `wanted`."""
    matrix = columns.astype(np.float64)
    if len(columns) < columns.shape[1]:
        return None
    gram = matrix.T @ matrix
    if abs(np.linalg.det(gram / np.abs(gram).max())) < 1e-14:
        return None
    found = np.linalg.solve(gram, matrix.T @ wanted)
    if (found <= 0).any() or np.abs(matrix @ found - wanted).max() > 0.51:
        return None
    plain = [Fraction(float(c)).limit_denominator(_MOST_DENOMINATOR) for c in found]
    if any(not 0 < c <= _MOST_COEFFICIENT for c in plain):
        return None
    exact = sum(int(c * 840) * columns[:, i] for i, c in enumerate(plain))
    return plain if (exact == wanted * 840).all() else None


def _features(
        samples: Sequence[Sample],
        candidates: Callable[[Sequence[Sample]], Iterator[str]]) -> Tuple[List[str], np.ndarray]:
    """Formulas to combine, simplest first, and what each gives for each sample; equal ones only once."""
    names: List[str] = []
    rows: List[List[int]] = []
    seen: Set[Tuple[int, ...]] = set()
    for name in candidates(samples):
        row = []
        for s in samples:
            size = evaluate(name, s.kernel.slots)
            row.append(size.evaluate({}) if size is not None else 0)
        if any(row) and tuple(row) not in seen:
            seen.add(tuple(row))
            names.append(name)
            rows.append(row)
    return names, np.array(rows, np.int64)


def _whole_slots(samples: Sequence[Sample]) -> Iterator[str]:
    """The bytes of slots: what holds for them holds at other sizes, too."""
    return (s for s in samples[0].kernel.slots if any(x.kernel.slots.get(s) for x in samples))


def _candidates(samples: Sequence[Sample]) -> Iterator[str]:
    slots = [s for s in _whole_slots(samples) if all(x.kernel.slots.get(s) for x in samples)]
    yield from slots
    yield from (f'#{slot}' for slot in slots)
    yield '1'
    yield from (f'{slot}.item*{slot}{part}' for slot in slots for part in _PARTS)
    yield from (f'{slot}{part}' for slot in slots for part in _PARTS)
    for kernel in (s for s in slots if s in _FILTERS):
        yield from (f'{kernel}.item*{kernel}{part}*{other}[2:]' for part in ('', '[1:]', '[2:]')
                    for other in slots if other != kernel)


def _text(coefficients: Sequence[Fraction], names: Sequence[str]) -> str:
    return ' + '.join(
        str(c) if n == '1' else n if c == 1 else f'{c}*{n}' for c, n in zip(coefficients, names))


def _bound(samples: Sequence[Sample]) -> str:
    """The closest formula that gives no sample too little."""
    names, columns = _features(samples, _whole_slots)
    solver = pywraplp.Solver.CreateSolver('GLOP')
    weights = [solver.NumVar(0, _MOST_COEFFICIENT, name) for name in names]
    over = []
    for at, one in enumerate(samples):
        total = sum(int(columns[i][at]) * w for i, w in enumerate(weights))
        solver.Add(total >= one.bytes)
        over.append(total / max(1, one.bytes))
    solver.Minimize(sum(over))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return ''
    chosen = [
        (_above(w.solution_value()), n) for w, n in zip(weights, names) if w.solution_value() > 1e-9
    ]
    return _text(*zip(*chosen)) if chosen else '0'


def _above(value: float) -> Fraction:
    """A plain number that is not below `value`."""
    return Fraction(-int(-(value - 1e-9) * 16 // 1), 16)
