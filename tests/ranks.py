"""Workers that meet in collectives, as a state machine, to find out whether any of them would wait for ever.

A worker runs its collectives in their order. One of a ring goes on when all members of the ring stand at one of that ring, of the
same kind and size; a message goes on when the two that it names do. Who can go on never depends on who else has gone on before, as a
worker that stands somewhere stays there until its partners come: so one run decides for all (the rounds of a Kahn network).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Sequence


@dataclass(frozen=True)
class Meeting:
    """One collective of a worker: with whom, on which ring, and what all must say alike."""
    ring: int
    members: FrozenSet[int]
    alike: str


Programs = Mapping[int, Sequence[Meeting]]  # by worker


def stuck(programs: Programs) -> Dict[int, Meeting]:
    """Where the workers stand that wait for ever; nothing if all come to their ends."""
    at = {worker: 0 for worker in programs}
    waiting = list(programs)
    while waiting:
        worker = waiting.pop()
        if at[worker] == len(programs[worker]):
            continue
        meeting = programs[worker][at[worker]]
        if all(_stands_at(programs, at, other, meeting) for other in meeting.members):
            for other in meeting.members:
                at[other] += 1
            waiting += meeting.members
    return {w: programs[w][at[w]] for w in programs if at[w] < len(programs[w])}


def _stands_at(programs: Programs, at: Mapping[int, int], worker: int, meeting: Meeting) -> bool:
    return at[worker] < len(programs[worker]) and programs[worker][at[worker]] == meeting


def crossed(programs: Dict[int, List[Meeting]], worker: int, at: int) -> Dict[int, List[Meeting]]:
    """`programs`, but that one worker does the collectives at `at` and behind it the other way round."""
    mine = list(programs[worker])
    mine[at], mine[at + 1] = mine[at + 1], mine[at]
    return {**programs, worker: mine}
