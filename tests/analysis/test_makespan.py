"""How long ops take side by side: by hand where the schedule is plain, and within the bounds that hold for every list schedule."""
from __future__ import annotations

import random
from typing import List

import pytest

from tests.graphs import generated
from transpiler.analysis.dependences import Dependences, dependences
from transpiler.analysis.makespan import makespan

PROCESSORS = (1, 2, 3, 4)


def _longest_path(before: List[List[int]], seconds: List[float]) -> float:
    ends: List[float] = []
    for at, earlier in enumerate(before):
        ends.append(seconds[at] + max((ends[other] for other in earlier), default=0.0))
    return max(ends)


@pytest.mark.parametrize('before, seconds, processors, expected', [
    ([[], [0], [1]], [1.0, 2.0, 4.0], 2, 7.0),
    ([[], [], []], [4.0, 1.0, 2.0], 2, 4.0),
    ([[], [], []], [4.0, 1.0, 2.0], 1, 7.0),
    ([[], [0], [0], [1, 2]], [1.0, 5.0, 3.0, 1.0], 2, 7.0),
    ([[], [], [], []], [3.0, 3.0, 3.0, 3.0], 3, 6.0),
    ([[], [0], []], [2.0, 2.0, 3.0], 2, 4.0),
])
def test_of_a_schedule_that_can_be_drawn_by_hand(before: List[List[int]], seconds: List[float],
                                                 processors: int, expected: float) -> None:
    assert makespan(Dependences(list(range(len(before))), before), seconds, processors) == expected


@pytest.mark.parametrize('seed', range(20))
def test_it_is_between_the_longest_path_and_grahams_bound(seed: int) -> None:
    found = dependences(generated(seed), 0)
    chance = random.Random(seed)
    seconds = [float(chance.randint(1, 9)) for _ in found.ops]
    path, total = _longest_path(found.before, seconds), sum(seconds)
    assert makespan(found, seconds, 1) == total
    for processors in PROCESSORS:
        least = max(path, total / processors)
        assert least <= makespan(found, seconds,
                                 processors) <= path + (total - path) / processors + 1e-9
