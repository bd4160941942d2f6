"""What the runtime that will run the program does with memory."""

from __future__ import annotations

import enum


class RuntimeModel(enum.Enum):
    """When a storage that was allocated is given back.

    COLLECTING is Paddle's executor with garbage collection on, its default: a storage is freed after the
    last op that uses its name. RETAINING is the executor with collection off, or Paddle Inference
    without the new executor: a storage is held to the end, at the size of its largest tenant. IDEAL frees a value
    as soon as nobody will read its data; no runtime does better with the given order, so its peak is
    the lower bound.
    """

    COLLECTING = 'collecting'
    RETAINING = 'retaining'
    IDEAL = 'ideal'
