"""What became of a drawn program, whatever Paddle it was tried on."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import List


@dataclass
class Verdict:
    """What became of one program. `why_not` says why it was not run, `failures` what went wrong; the others count plans."""

    seed: int
    why_not: str = ''
    failures: List[str] = field(default_factory=list)
    kinds: List[str] = field(default_factory=list)  # of its operators
    changed: int = 0  # those that changed the program
    budgets: int = 0  # those that had one
    traded: int = 0  # budgets for which the report says that some runs may need more than untouched
    unknown: int = 0  # those of which nobody knows what they need: sizes that the data decides
    modes: List[str] = field(default_factory=list)  # in which it was run
