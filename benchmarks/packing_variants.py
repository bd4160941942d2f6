"""Packing problems whose capacity is known to suffice, made by a seed from recorded ones or from nothing.

Each change keeps what was feasible feasible, so that whoever packs the recorded problem into its capacity knows that the
variant fits: shuffled (other order, time mirrored), scaled (sizes and capacity times a number), split (a buffer into two that
lie on each other, or into two that follow each other and may keep its offset), thinned (buffers left out). `mixed` is
all of them. `cut` needs no recorded problem: a full rectangle of time and bytes, cut into buffers, so that no byte is to spare.
"""
from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Callable, List, Mapping, Sequence, Tuple

import numpy as np

LARGEST_FACTOR = 1000
CUT_COUNTS = (100, 400)
CUT_SPANS = (20, 200)
CUT_HEIGHTS = (64, 4096)


@dataclass(frozen=True)
class Instance:
    """Values to pack: `ranges` int64 (n, 2) inclusive, `sizes` int64 (n,), and a `capacity` known to suffice, in bytes."""
    name: str
    ranges: np.ndarray
    sizes: np.ndarray
    capacity: int


Change = Callable[[np.random.RandomState, Instance], Instance]


def shuffled(generator: np.random.RandomState, instance: Instance) -> Instance:
    """The same values in another order, in half of the cases seen from the end."""
    ranges = instance.ranges
    if generator.rand() < 0.5:
        ranges = ranges.max() - ranges[:, ::-1] + ranges.min()
    order = generator.permutation(len(ranges))
    return Instance(instance.name, ranges[order], instance.sizes[order], instance.capacity)


def scaled(generator: np.random.RandomState, instance: Instance) -> Instance:
    """Sizes and capacity times one number."""
    factor = int(generator.randint(2, LARGEST_FACTOR + 1))
    return Instance(instance.name, instance.ranges, instance.sizes * factor,
                    instance.capacity * factor)


def split(generator: np.random.RandomState, instance: Instance) -> Instance:
    """One in ten to one in two values in two parts: by bytes, or by time."""
    share = generator.uniform(0.1, 0.5)
    rows: List[Tuple[int, int, int]] = []
    for (first, last), size in zip(instance.ranges.tolist(), instance.sizes.tolist()):
        halved = generator.rand() < share
        if halved and size > 1 and generator.rand() < 0.5:
            part = int(generator.randint(1, size))
            rows += [(first, last, part), (first, last, size - part)]
        elif halved and last > first:
            middle = int(generator.randint(first, last))
            rows += [(first, middle, size), (middle + 1, last, size)]
        else:
            rows.append((first, last, size))
    table = np.array(rows, dtype=np.int64)
    return Instance(instance.name, table[:, :2], table[:, 2], instance.capacity)


def thinned(generator: np.random.RandomState, instance: Instance) -> Instance:
    """Without one in twenty to three in ten of the values."""
    kept = generator.rand(len(instance.sizes)) >= generator.uniform(0.05, 0.3)
    return Instance(instance.name, instance.ranges[kept], instance.sizes[kept], instance.capacity)


def mixed(generator: np.random.RandomState, instance: Instance) -> Instance:
    """Thinned, split, scaled and shuffled."""
    for change in (thinned, split, scaled, shuffled):
        instance = change(generator, instance)
    return instance


def drawn_cut(generator: np.random.RandomState) -> Instance:
    """`cut` of a size that is drawn, too."""
    return cut(
        generator,
        *(int(generator.randint(low, high + 1))
          for low, high in (CUT_COUNTS, CUT_SPANS, CUT_HEIGHTS)))


def cut(generator: np.random.RandomState, count: int, span: int, height: int) -> Instance:
    """A full rectangle of `span` positions and `height` bytes in `count` pieces, rather the larger ones cut; full."""
    pieces = [(0, span, 0, height)]
    while len(pieces) < count:
        areas = np.array([(right - left) * (high - low) for left, right, low, high in pieces])
        # One of area 1 cannot be cut.
        chances = np.where(areas > 1, areas, 0) / areas[areas > 1].sum()
        at = int(generator.choice(len(pieces), p=chances))
        pieces[at:at + 1] = _halves(generator, *pieces[at])
    table = np.array(pieces, dtype=np.int64)[generator.permutation(len(pieces))]
    return Instance("cut", np.stack([table[:, 0], table[:, 1] - 1], axis=1),
                    table[:, 3] - table[:, 2], height)


def _halves(generator: np.random.RandomState, left: int, right: int, low: int,
            high: int) -> List[Tuple[int, int, int, int]]:
    """A piece (left, right, low, high) of area above 1 in two, across time or across bytes."""
    if high - low == 1 or (right - left > 1 and generator.rand() < 0.5):
        middle = int(generator.randint(left + 1, right))
        return [(left, middle, low, high), (middle, right, low, high)]
    middle = int(generator.randint(low + 1, high))
    return [(left, right, low, middle), (left, right, middle, high)]


CHANGES: Mapping[str, Change] = MappingProxyType({
    "shuffled": shuffled,
    "scaled": scaled,
    "split": split,
    "thinned": thinned,
    "mixed": mixed
})


def variants(bases: Sequence[Instance], count: int, seed: int) -> List[Instance]:
    """`count` instances, the kinds in turn (each of `CHANGES`, then `cut`), the bases in turn; the same for the same seed.

    Each has a random stream of its own, so that the first ones do not depend on `count`.
    """
    kinds = (*CHANGES, "cut") if bases else ("cut",)
    made = []
    for number in range(count):
        generator = np.random.RandomState((seed * 1_000_003 + number) % 2**32)
        kind, base = kinds[number % len(kinds)], number // len(kinds)
        if kind == "cut":
            instance = drawn_cut(generator)
        else:
            instance = CHANGES[kind](generator, bases[base % len(bases)])
        name = f"{number}.{instance.name}.{kind}" if kind != "cut" else f"{number}.cut"
        made.append(Instance(name, instance.ranges, instance.sizes, instance.capacity))
    return made
