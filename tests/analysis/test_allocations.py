"""Sums over arrays: what exists at each position is what has begun and has not been freed, added up one by one."""
from __future__ import annotations

from typing import FrozenSet, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpiler.analysis.allocations import Allocations
from transpiler.analysis.lifetimes import Lifetime
from transpiler.ir import Size

OPS = 6
SIZES = (Size.of(0), Size.of(3), Size.dim('N') * 4, Size.dim('N') * 4 + 1, Size.dim('M') * 1000)


@st.composite
def lifetimes(draw: st.DrawFn) -> List[Lifetime]:
    found = []
    for storage in range(draw(st.integers(0, 8))):
        first = draw(st.integers(0, OPS - 1))
        held = (storage,) if draw(st.booleans()) else (storage, storage + 100)
        found.append(
            Lifetime(first,
                     draw(st.integers(first, OPS - 1)),
                     draw(st.sampled_from(SIZES)),
                     storages=held))
    return found


def release(lifetime: Lifetime) -> int:
    """Somebody reads the shape of some."""
    return lifetime.last + lifetime.storages[0] % 3


def one_by_one(given_lifetimes: List[Lifetime], prompt: List[bool], rows: int, late: int,
               released: FrozenSet[int]) -> List[int]:
    live = [0] * OPS
    for each in given_lifetimes:
        end = each.last if prompt[each.last] else each.last + late
        if set(each.storages) <= released:
            end = min(end, release(each))
        for at in range(each.first, min(end + 1, OPS)):
            live[at] += each.size.evaluate({'N': rows, 'M': rows**3})
    return live


@settings(max_examples=200, deadline=None)
@given(lifetimes(), st.lists(st.booleans(), min_size=OPS, max_size=OPS), st.sampled_from(
    (0, 2, OPS)), st.frozensets(st.sampled_from((0, 1, 2, 3, 100, 101, 102, 103))))
@pytest.mark.parametrize('rows', [1, 7, 10**6, 10**12])
def test_bytes_over_time_are_those_added_up_one_by_one(rows: int, found: List[Lifetime],
                                                       prompt: List[bool], late: int,
                                                       released: FrozenSet[int]) -> None:
    """At 10 ** 12 rows they are more than a number of the machine holds."""
    evaluate = lambda size: size.evaluate({'N': rows, 'M': rows**3})
    live = Allocations(found, OPS, prompt, release).live(evaluate, late, released)
    assert live == one_by_one(found, prompt, rows, late, released)
    assert all(type(bytes_) is int for bytes_ in live)


def test_without_allocations_nothing_exists() -> None:
    assert Allocations([], 3, [False] * 3,
                       release).live(lambda size: size.evaluate({})) == [0, 0, 0]
    assert Allocations([], 0, [], release).live(lambda size: size.evaluate({})) == []
