"""Programs of many workers on paper: nothing is allocated for them, and what is shared by more workers needs less of each."""
from __future__ import annotations

from typing import Dict

import pytest

from benchmarks.apart import apart
from benchmarks.scale import MODELS, SPLITS, Found, Split, found

LAYERS = 2
JOBS = {
    'data': Split(data=2),
    'model': Split(model=2),
    'sharding': Split(sharding=2),
    'both': Split(model=2, sharding=2),
    'pipeline': Split(pipeline=2),
    'in segments': Split(model=2, recompute=True)
}


@pytest.fixture(scope='module')
def jobs() -> Dict[str, Found]:
    return {name: apart(found, '1.3B', split, 0, LAYERS) for name, split in JOBS.items()}


def test_every_worker_needs_less_with_us_and_is_sure_of_what_it_needs(
        jobs: Dict[str, Found]) -> None:
    for each in jobs.values():
        assert each.after < each.before and each.after <= each.sure and not each.note
    # A section frees what is dead before the next op: what is sure is what kernels allocate besides.
    assert jobs['pipeline'].sure < jobs['pipeline'].before


def test_workers_meet_as_often_and_in_the_order_in_which_fleet_has_them_meet(
        jobs: Dict[str, Found]) -> None:
    assert all(each.as_before for each in jobs.values())
    meetings = {name: each.meetings for name, each in jobs.items()}
    assert min(meetings.values()) > 1 and meetings['both'] > meetings['model'] > LAYERS


def test_parameters_that_are_shared_rest_on_fewer_workers_and_none_is_allocated(
        jobs: Dict[str, Found]) -> None:
    assert jobs['both'].resting < jobs['sharding'].resting < jobs['data'].resting
    assert jobs['model'].resting < jobs['data'].resting
    assert all(each.allocated < each.resting // 1000 for each in jobs.values())


def test_every_model_has_ways_to_split_it() -> None:
    assert SPLITS.keys() == MODELS.keys()
    for name, splits in SPLITS.items():
        assert splits and all(MODELS[name].heads % split.model == 0 for split in splits)
