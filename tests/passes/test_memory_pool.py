"""MemoryPool: which storage a new tenant gets."""
from __future__ import annotations

from typing import Dict, Optional

import pytest

from transpiler.ir import Size
from transpiler.passes.memory_pool import LARGER, SAME, SMALLER, Lease, MemoryPool

N = Size.dim('N')
DIMS = {'N': 8}


def pool_with(*sizes: object, level: int = 0, dims: Optional[Dict[str, int]] = None) -> MemoryPool:
    """Free storages 0, 1, ... of these sizes, all given back at position 0."""
    pool = MemoryPool(DIMS if dims is None else dims, level)
    for tenant, size in enumerate(sizes):
        pool.acquire(tenant, Size.of(size), 'FP32', ('its own', tenant), 0)
    for tenant in range(len(sizes)):
        pool.release(tenant, 'FP32', ('its own', tenant), 0)
    return pool


def ask(pool: MemoryPool,
        size: object,
        dtype: str = 'FP32',
        shape: object = 'new',
        at: int = 1) -> Lease:
    return pool.acquire(100, Size.of(size), dtype, shape, at)


def test_an_empty_pool_gives_a_new_storage_named_after_its_tenant() -> None:
    lease = ask(pool_with(), 64)
    assert lease == Lease(storage=100, tier=None, waste_bytes=0)


def test_tier_one_is_the_same_size_and_wastes_nothing() -> None:
    lease = ask(pool_with(128, 64, 256), 64)
    assert lease == Lease(storage=1, tier=SAME, waste_bytes=0)


def test_tier_two_is_the_closest_of_the_larger() -> None:
    lease = ask(pool_with(512, 96, 128), 64)
    assert lease == Lease(storage=1, tier=LARGER, waste_bytes=96 - 64)


def test_smaller_storages_are_not_used_at_level_zero() -> None:
    assert ask(pool_with(32, 63), 64).tier is None


def test_tier_three_is_the_closest_of_the_smaller_and_grows_it() -> None:
    pool = pool_with(16, 48, 32, level=1)
    assert ask(pool, 64) == Lease(storage=1, tier=SMALLER, waste_bytes=0)
    assert pool.size_of(1) == 64


def test_a_grown_storage_is_found_at_its_new_size() -> None:
    pool = pool_with(16, level=1)
    ask(pool, 64)
    pool.release(0, 'FP32', 'new', 1)
    assert ask(pool, 64, at=2) == Lease(storage=0, tier=SAME, waste_bytes=0)


def test_tiers_one_and_two_come_before_three() -> None:
    assert ask(pool_with(60, 500, level=1), 64).tier == LARGER
    assert ask(pool_with(60, 500, 64, level=1), 64).tier == SAME


def test_a_storage_has_one_tenant_at_a_time() -> None:
    pool = pool_with(64)
    assert ask(pool, 64).storage == 0
    assert pool.acquire(101, Size.of(64), 'FP32', 'new', 1).storage == 101


def test_storages_of_another_dtype_are_not_used() -> None:
    assert ask(pool_with(64), 64, dtype='INT32').tier is None


def test_the_last_released_of_equal_storages_goes_first() -> None:
    assert ask(pool_with(64, 64, 64), 64).storage == 2


# ---------------------------------------------------------------------------------------------------
# Symbolic sizes


@pytest.mark.parametrize('batch', [1, 8, 1000])
def test_an_open_batch_is_never_treated_as_one(batch: int) -> None:
    """64 bytes a row: equal to, or less than, 64 constant bytes for N = 1 only."""
    pool = pool_with(Size.of(64), dims={'N': batch})
    assert ask(pool, N * 64).tier is None


@pytest.mark.parametrize('batch', [1, 8, 1000])
def test_a_constant_may_use_what_grows_with_the_batch(batch: int) -> None:
    pool = pool_with(N * 64, dims={'N': batch})
    assert ask(pool, 64) == Lease(storage=0, tier=LARGER, waste_bytes=64 * batch - 64)


def test_larger_for_the_hinted_batch_alone_is_not_larger() -> None:
    pool = pool_with(Size.of(1000))
    assert ask(pool, N * 64).tier is None  # 512 of 1000 bytes for N = 8, too much for N = 16


def test_equal_for_the_hinted_batch_alone_is_not_the_same_size() -> None:
    pool = pool_with(N * N)
    assert ask(pool, N * 8).tier is None  # equal for N = 8, too little for N = 4


def test_sizes_in_different_dims_do_not_share() -> None:
    pool = pool_with(Size.dim('S') * 64, dims={'N': 8, 'S': 8})
    assert ask(pool, N * 64).tier is None


def test_incomparable_storages_do_not_hide_comparable_ones() -> None:
    pool = pool_with(N * N * 9,
                     N * 80)  # 576 and 640 bytes: the first is closer but not proved larger
    assert ask(pool, N * 64 + 8) == Lease(storage=1, tier=LARGER, waste_bytes=8 * 80 - 8 * 64 - 8)


# ---------------------------------------------------------------------------------------------------
# Shapes that are still read


def pinned(shape: object, until: int) -> MemoryPool:
    pool = MemoryPool(DIMS)
    pool.acquire(0, Size.of(64), 'FP32', shape, 0)
    pool.release(0, 'FP32', shape, until)
    return pool


def test_while_the_shape_is_read_only_the_same_shape_moves_in() -> None:
    assert ask(pinned((4, 4), until=5), 64, shape=(2, 8), at=5).tier is None
    assert ask(pinned((4, 4), until=5), 64, shape=(4, 4), at=5).tier == SAME


def test_after_the_last_read_of_the_shape_any_shape_moves_in() -> None:
    assert ask(pinned((4, 4), until=5), 64, shape=(2, 8), at=6).tier == SAME


def test_a_pinned_storage_stays_in_the_pool_for_others() -> None:
    pool = pinned((4, 4), until=5)
    assert ask(pool, 64, shape=(2, 8), at=5).tier is None
    assert pool.acquire(101, Size.of(64), 'FP32', (4, 4), 5).storage == 0


def test_total_is_the_sum_of_storages_and_not_of_tenants() -> None:
    pool = pool_with(64, 128)
    ask(pool, 64)
    assert pool.total_bytes() == 64 + 128


def test_pins_of_two_tenants_add_up() -> None:
    """The first tenant's shape is read until 9, the second's until 3: nobody else moves in before 10."""
    pool = pinned((4, 4), until=9)
    pool.acquire(50, Size.of(64), 'FP32', (4, 4), 1)
    pool.release(0, 'FP32', (4, 4), 3)
    assert ask(pool, 64, shape=(2, 8), at=9).tier is None
    assert ask(pool, 64, shape=(2, 8), at=10).storage == 0
