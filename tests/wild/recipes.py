"""What a seed stands for: a program's layers, inputs, training, and the options of the call. Plain data."""
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from tests.wild import elementwise, networks, reductions, shapes
from tests.wild.layers import Catalogue

CATALOGUE: Catalogue = {
    **elementwise.CATALOGUE,
    **shapes.CATALOGUE,
    **reductions.CATALOGUE,
    **networks.CATALOGUE
}
_FAMILIES = (elementwise.CATALOGUE, shapes.CATALOGUE, reductions.CATALOGUE, networks.CATALOGUE)
OPTIMIZERS = ('sgd', 'momentum', 'adam', 'adamw', 'adagrad', 'adadelta', 'adamax', 'rmsprop',
              'lamb', 'lars')
CLIPS = (None, None, 'value', 'norm', 'global_norm')
DECAYS = (None, None, 'l1', 'l2')
SCALING = (None, None, None, 'loss_scaling', 'bf16')
UNREAD = ('image', 'sequence', 'double', 'flag')


@dataclass(frozen=True)
class Recipe:
    """`rows` are fed one after the other; `fixed` says that the program is built for their number.

    `room`: no budget if None, else how far it lies from the least that a plan keeps to what the plan for no budget needs.
    """

    seed: int
    width: int
    rows: Tuple[int, ...]
    fixed: bool
    layers: Tuple[str, ...]
    blocks: int
    unread: Tuple[str, ...]
    optimizer: Optional[str]
    clip: Optional[str]
    decay: Optional[str]
    scaling: Optional[str]
    averaged: bool
    fetches: int
    skips: int
    options: Dict[str, Any]
    room: Optional[float]


def recipe(seed: int) -> Recipe:
    rng = random.Random(seed)
    rows = _rows(rng)
    training = rng.random() < 0.7
    return Recipe(seed=seed,
                  width=rng.choice((16, 32, 32, 64, 128)),
                  rows=rows,
                  fixed=len(set(rows)) == 1 and rng.random() < 0.4,
                  layers=tuple(
                      rng.choice(sorted(rng.choice(_FAMILIES))) for _ in range(rng.randint(2, 12))),
                  blocks=rng.choice((0, 0, 0, 0, 1, 1, 2)),
                  unread=tuple(rng.sample(UNREAD, rng.choice((0, 0, 0, 1, 2)))),
                  optimizer=rng.choice(OPTIMIZERS) if training else None,
                  clip=rng.choice(CLIPS),
                  decay=rng.choice(DECAYS),
                  scaling=rng.choice(SCALING),
                  averaged=training and rng.random() < 0.1,
                  fetches=rng.choice((0, 0, 1, 2, 3)),
                  skips=rng.choice((0, 0, 1, 2)),
                  options=_options(rng),
                  room=rng.choice((None, None, 0.0, 0.0, 0.3)))


def _rows(rng: random.Random) -> Tuple[int, ...]:
    """Of the same size each time, or of another; one row is a special case for many an operator."""
    first = rng.choice((1, 2, 3, 5, 8, 12, 32, 64))
    kind = rng.random()
    if kind < 0.5:
        return (first,) * 4
    if kind < 0.6:
        return (1, first, 1, first)
    return first, max(1, first // 2), first + 3, first


def _options(rng: random.Random) -> Dict[str, Any]:
    return {
        'level': rng.choice((0, 1)),
        'skip_grads': rng.random() < 0.5,
        'recompute': rng.choice(('auto', 'auto', 'cheap', 'max', False)),
        'parallel': rng.random() < 0.1,
    }
