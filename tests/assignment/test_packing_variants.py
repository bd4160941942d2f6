"""Generated packing problems: that their capacity is known to suffice, and that a seed gives the same."""
from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.assignment import main
from benchmarks.packing_variants import CHANGES, Instance, cut, scaled, variants
from tests.assignment.checker import check_offsets
from transpiler.assignment import live_max_bytes, pack


def small(seed):
    return cut(np.random.RandomState(seed), count=12, span=8, height=24)


@pytest.mark.parametrize('kind', sorted(CHANGES))
def test_what_was_feasible_stays_feasible(kind):
    for seed in range(12):
        changed = CHANGES[kind](np.random.RandomState(seed), small(seed))
        packing = pack(changed.ranges, changed.sizes, capacity=changed.capacity)
        height = check_offsets(changed.ranges, changed.sizes, packing.offsets)
        assert height == packing.height <= changed.capacity


def test_no_byte_of_a_cut_rectangle_is_to_spare():
    for seed in range(20):
        instance = cut(np.random.RandomState(seed), count=40, span=15, height=100)
        assert len(instance.sizes) == 40
        for at in range(15):
            alive = (instance.ranges[:, 0] <= at) & (at <= instance.ranges[:, 1])
            assert instance.sizes[alive].sum() == instance.capacity == 100
        assert live_max_bytes(instance.ranges, instance.sizes) == 100


def test_splitting_keeps_bytes_over_time_and_thinning_only_takes_away():
    base, generator = small(3), np.random.RandomState(3)
    split, thinned = (CHANGES[kind](generator, base) for kind in ('split', 'thinned'))
    area = lambda each: int(((each.ranges[:, 1] - each.ranges[:, 0] + 1) * each.sizes).sum())
    assert area(split) == area(base) > area(thinned)
    assert len(split.sizes) > len(base.sizes) > len(thinned.sizes)


def test_scaling_is_of_sizes_and_capacity_alike():
    base = small(4)
    large = scaled(np.random.RandomState(4), base)
    factor = large.capacity // base.capacity
    assert factor > 1 and large.capacity == base.capacity * factor
    assert (large.sizes == base.sizes * factor).all()


def test_a_seed_gives_the_same_and_another_one_others():
    bases = [small(1), small(2)]
    first, again, longer, other = (
        variants(bases, count, seed) for count, seed in ((12, 7), (12, 7), (18, 7), (12, 8)))
    same = lambda a, b: (a.name, a.capacity) == (b.name, b.capacity) and np.array_equal(
        a.ranges, b.ranges) and np.array_equal(a.sizes, b.sizes)
    assert len(first) == len(again) == 12 and len(longer) == 18
    assert all(same(a, b) for a, b in zip(first, again))
    assert all(same(a, b) for a, b in zip(first, longer))
    assert not any(same(a, b) for a, b in zip(first, other))
    assert {name.split('.')[-1] for name in (each.name for each in first)} == {*CHANGES, 'cut'}
    assert all(isinstance(each, Instance) for each in first)


def test_the_command_packs_variants_of_a_folder_and_counts_them_by_kind(tmp_path):
    rows = ''.join(f'{number},{first},{last + 1},{size}\n'
                   for number, ((first, last),
                                size) in enumerate(zip(small(5).ranges,
                                                       small(5).sizes)))
    (tmp_path / 'S.24.csv').write_text('id,lower,upper,size\n' + rows)
    arguments = ['--packing', str(tmp_path), '--variants', '10', '--seed', '6', '--json']
    outcome = CliRunner().invoke(main, [*arguments, '--seconds', '1'], catch_exceptions=False)
    report = json.loads(outcome.output)
    expected = variants([Instance('S', small(5).ranges, small(5).sizes, 24)], 10, 6)
    assert [row['problem'] for row in report['variants']] == [each.name for each in expected]
    assert [row['capacity_bytes'] for row in report['variants']
           ] == [each.capacity for each in expected]
    assert all(
        row['fits'] == (row['height_bytes'] <= row['capacity_bytes']) for row in report['variants'])
    packed = sum(row['fits'] for row in report['variants'])
    *kinds, everything = report['by kind']
    assert sum(row['packed'] for row in kinds) == everything['packed'] == packed >= 9
    assert sum(row['instances'] for row in kinds) == everything['instances'] == 10
