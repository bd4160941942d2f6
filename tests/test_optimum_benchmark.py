"""The references of `benchmarks.optimum`: against every schedule there is, on small chains."""
import heapq

import pytest

from benchmarks.optimum import Row, equal_distances, fewest_extra, reversal, row, spread


def _exhaustive(steps, slots):
    """The fewest extra evaluations over all schedules (Dijkstra over which results are there and what is left to reverse).

    What is fed takes a slot for ever; the gradient takes one from when the last step has run; evaluation and gradients may be
    in place.
    """
    start = (frozenset(), steps, False)
    queue, done = [(0, 0, start)], set()
    number = 0
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        kept, left, backward = state
        if left == 1:  # the first step has no gradient
            return cost - steps
        following = [(0, (kept - {each}, left, backward)) for each in kept]
        for source in {0, *kept} - {steps}:
            made = kept | {source + 1}
            following.append((1, (made, left, backward)))
            following.append((1, (made - {source}, left, backward)))
        if left in kept:
            following.append((0, (kept, left - 1, True) if backward else (kept, left, True)))
        for more, (there, still, turned) in following:
            if 1 + len(there) + turned <= slots:
                number += 1
                heapq.heappush(queue, (cost + more, number, (there, still, turned)))
    return None


@pytest.mark.parametrize('steps', range(2, 7))
@pytest.mark.parametrize('slots', range(1, 8))
def test_the_optimum_is_that_of_all_schedules(steps, slots):
    assert fewest_extra(steps, slots) == _exhaustive(steps, slots)


def test_without_checkpoints_every_gradient_starts_from_the_input():
    assert [reversal(steps, 0) for steps in range(5)] == [0, 1, 3, 6, 10]


@pytest.mark.parametrize('steps', (5, 16, 51))
def test_equal_distances_are_never_below_the_optimum_and_nothing_runs_again_where_all_fits(steps):
    compared = [slots for slots in range(steps + 4) if equal_distances(steps, slots) is not None]
    assert compared[-1] == steps + 3 and len(compared) > 2
    assert all(fewest_extra(steps, slots) <= equal_distances(steps, slots) for slots in compared)
    assert fewest_extra(steps, steps + 1) == 0


def test_budgets_go_from_the_least_to_all():
    assert spread(51, 10)[0] == 3 and spread(51, 10)[-1] == 52 and len(spread(51, 10)) == 10


def test_a_row_says_how_far_ours_is_from_the_optimum():
    assert Row(5, 9, 3, 1, 7, .5, 5, None).verdict == '+2'
    assert Row(5, 9, 3, 1, 5, .5, 5, None).verdict == 'optimum'
    assert 'wrong' in Row(5, 9, 3, 1, 4, .5, 5, None).verdict
    assert Row(5, 9, 3, None, None, None, 5, None).verdict == 'not found'


@pytest.mark.parametrize('layers, slots', [(8, 4), (8, 6), (8, 10), (50, 4), (50, 8)])
def test_ours_is_the_optimum_and_keeps_to_its_tensors(layers, slots):
    found = row(layers, slots)
    assert found.verdict == 'optimum'
    assert found.peak_bytes <= found.budget
