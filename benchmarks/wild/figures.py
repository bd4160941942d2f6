"""What travels between the command and its measuring processes, as JSON."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Tuple

# What is predicted must be measured but for this share; where values decide, it is the most that they can make it.
TOLERANCE = 0.03


@dataclass(frozen=True)
class Phase:
    """What one program of a script did: peaks above resting in bytes, of the ordered executor's first run and of the default
    one's first and later runs. `predicted`: the report's, None for the untouched program."""
    ordered: int
    first: int
    later: int
    predicted: Optional[int]
    changed: bool


@dataclass(frozen=True)
class Outcome:
    """What one process saw. `growth`: bytes that the process grew by at most in the default runs, from after startup on.
    `fetched` and `state` are digests: those of the ordered runs, then of the default ones.
    """
    phases: Tuple[Phase, ...]
    growth: int
    fetched: Tuple[Tuple[str, ...], ...]
    state: Tuple[str, ...]
    foreseeable: bool

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Outcome:
        """The inverse of asdict, from JSON."""
        return Outcome(phases=tuple(Phase(**each) for each in values['phases']),
                       growth=values['growth'],
                       fetched=tuple(map(tuple, values['fetched'])),
                       state=tuple(values['state']),
                       foreseeable=values['foreseeable'])

    def largest(self) -> Phase:
        """The program with the highest ordered peak."""
        return max(self.phases, key=lambda phase: phase.ordered)


@dataclass(frozen=True)
class Row:
    """A script, untouched and optimized, or why it could not be measured."""
    group: str
    name: str
    plain: Optional[Outcome] = None
    optimized: Optional[Outcome] = None
    failure: Optional[str] = None

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Row:
        """The inverse of asdict, from JSON."""
        outcomes = (
            values[kind] and Outcome.from_dict(values[kind]) for kind in ('plain', 'optimized'))
        return Row(values['group'], values['name'], *outcomes, failure=values['failure'])

    def ratios(self) -> List[float]:
        """Predicted over measured, by program."""
        assert self.optimized is not None
        return [(phase.predicted or 0) / max(phase.ordered, 1) for phase in self.optimized.phases]

    def worst(self) -> float:
        """The ratio that is furthest from 1."""
        return max(self.ratios(), key=lambda ratio: abs(ratio - 1))

    def faults(self) -> List[str]:
        """What does not hold."""
        if self.plain is None or self.optimized is None:
            return ['failed']
        found = []
        if (self.plain.fetched, self.plain.state) != (self.optimized.fetched, self.optimized.state):
            found.append('bytes differ')
        most = 1 + TOLERANCE if self.optimized.foreseeable else math.inf
        if not all(1 - TOLERANCE <= ratio <= most for ratio in self.ratios()):
            found.append('prediction')
        if self.optimized.largest().ordered > self.plain.largest().ordered:
            found.append('higher than untouched')
        return found
