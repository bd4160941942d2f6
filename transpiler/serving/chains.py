"""Chains of operators whose rows are independent, and what is said of those that were chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Tuple

_PROOF = (
    'That their parts give the same bytes was tried on this machine with one thread, at this batch '
    'size; on another kind of machine, `check` repeats that.')


@dataclass(frozen=True)
class Chain:
    """Neighbouring ops of the main block, by what they write, in order; `sliced` are operands that they share out by rows.

    `rows_of`: a fed variable that has as many rows.
    """

    ops: Tuple[Tuple[str, ...], ...]
    parts: int
    sliced: FrozenSet[str]
    rows_of: str


@dataclass(frozen=True)
class Split:
    """What is run in parts, and why the rest is not: one sentence for each operator."""

    chains: Tuple[Chain, ...] = ()
    refused: Tuple[str, ...] = ()

    def __str__(self) -> str:
        run = [
            f'{len(c.ops)} operators from {c.ops[0][0]} to {c.ops[-1][0]} in {c.parts} parts'
            for c in self.chains
        ]
        done = f'Run in parts: {"; ".join(run)}. {_PROOF}' if run else 'Nothing is run in parts.'
        return ' '.join([done, *(f'Not in parts: {reason}.' for reason in self.refused)])
