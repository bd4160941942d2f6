"""The passes by name, and the sequences of them that are tried."""

from __future__ import annotations

from typing import Callable, FrozenSet, Iterator, NamedTuple, Sequence, Tuple

from transpiler.ir import Graph
from transpiler.passes.clean_start import forget_earlier_runs
from transpiler.passes.context import PassContext
from transpiler.passes.releases.emptied_arrays import empty_arrays
from transpiler.passes.hand_out import hand_out_of_branches
from transpiler.passes.hoist import hoist_storages
from transpiler.passes.releases.in_time import release_recent, release_surely
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.late_fetches import put_off_fetches
from transpiler.passes.loop_copies import drop_invariant_copies, drop_unread_copies
from transpiler.passes.releases.prompt import hand_on_or_release
from transpiler.passes.releases.stand_ins import read_shapes_of_others
from transpiler.passes.unread_keeps import drop_unread_keeps
from transpiler.passes.recompute import (RecomputeWithin, recompute_in_regions,
                                         recompute_less_in_regions)
from transpiler.passes.releases.at_once import release_storages
from transpiler.passes.reuse import reuse_inside, reuse_small_inside, reuse_storages
from transpiler.passes.row_sums import sum_by_rows
from transpiler.passes.schedule import (CANDIDATES, InOrder, schedule, schedule_what_stays,
                                        space_updates_in_main, updates_early_in_main)
from transpiler.passes.split_products import let_go_of_unread, split_products
from transpiler.passes.sums import sum_early
from transpiler.passes.sums_in_place import add_up_in_place
from transpiler.runtime import Can

Pass = Callable[[Graph, PassContext], Graph]


class NamedPass(NamedTuple):
    """A pass, and what it asks of the runtime: where that is missing, it is left out."""

    name: str
    rewrite: Pass
    needs: FrozenSet[Can] = frozenset()


def _needs(*needs: Can) -> FrozenSet[Can]:
    return frozenset(needs)


SCHEDULE = NamedPass('schedule', schedule, _needs(Can.PIN))
STAYS = NamedPass('order of what stays', schedule_what_stays, _needs(Can.PIN))
UPDATES = NamedPass('updates early', updates_early_in_main, _needs(Can.PIN))
ORDERS = tuple(NamedPass(name, InOrder(name), _needs(Can.PIN)) for name in CANDIDATES)
SPACED = NamedPass('updates apart', space_updates_in_main, _needs(Can.PIN))
IN_PLACE = NamedPass('in-place', coalesce_in_place, _needs(Can.RENAME))
REUSE = NamedPass('reuse', reuse_storages, _needs(Can.RENAME))
REUSE_INSIDE = NamedPass('reuse inside', reuse_inside, _needs(Can.RENAME))
REUSE_SMALL = NamedPass('reuse of what is small inside', reuse_small_inside, _needs(Can.RENAME))
HOIST = NamedPass('one storage for all trips', hoist_storages, _needs(Can.RENAME))
COPIES = NamedPass('loop-invariant copies', drop_invariant_copies, _needs(Can.NO_COPY))
UNREAD = NamedPass('unread loop copies', drop_unread_copies, _needs(Can.NO_COPY))
RECOMPUTE = NamedPass('recompute', recompute_in_regions)
RECOMPUTE_LESS = NamedPass('recompute', recompute_less_in_regions)
ARRAYS = NamedPass('emptied arrays', empty_arrays, _needs(Can.RELEASE))
RELEASE = NamedPass('release', release_storages, _needs(Can.RELEASE, Can.SHARE))
PROMPT = NamedPass('prompt release', hand_on_or_release, _needs(Can.RELEASE))
STAND_INS = NamedPass('shapes of others', read_shapes_of_others, _needs(Can.RELEASE))
SURE = NamedPass('sure release', release_surely, _needs(Can.RELEASE))
RECENT = NamedPass('recent release', release_recent, _needs(Can.RELEASE))
FRESH = NamedPass('fresh start', forget_earlier_runs, _needs(Can.CLEAN_START))
FETCHES = NamedPass('fetches put off', put_off_fetches, _needs(Can.PUT_OFF))
SUMS = NamedPass('sums early', sum_early, _needs(Can.PIN))
ROW_SUMS = NamedPass('sums by rows', sum_by_rows, _needs(Can.PIN))
SPLIT = NamedPass('gradients one by one', split_products,
                  _needs(Can.PIN, Can.RELEASE, Can.SHARE, Can.SEPARATE))
LET_GO = NamedPass('release of what is unread', let_go_of_unread, _needs(Can.RELEASE, Can.SHARE))
HAND_OUT = NamedPass('gradients moved out of branches', hand_out_of_branches, _needs(Can.SHARE))
CARRIED = NamedPass('sums carried on in place', add_up_in_place, _needs(Can.UNITE))
UNKEPT = NamedPass('kept for nobody', drop_unread_keeps)
# What always helps, if it does anything.
FIRST = (UNKEPT, HAND_OUT, SUMS, ROW_SUMS, CARRIED, SPLIT)
Sequences = Tuple[Tuple[NamedPass, ...], ...]
LOOP_PASSES = (COPIES, RECOMPUTE, RECOMPUTE_LESS, UNREAD, ARRAYS)
FOR_INNER_REGIONS = frozenset({*LOOP_PASSES, REUSE_INSIDE, HOIST})
AFTER_ORDER = (IN_PLACE, REUSE, REUSE_INSIDE, HOIST, RELEASE)
# Simplest first: a longer sequence must do strictly better to be chosen.
OPTIMIZE: Sequences = tuple(loops + order + rest
                            for loops in ((), (COPIES, UNREAD, ARRAYS), (COPIES, RECOMPUTE, UNREAD,
                                                                         ARRAYS))
                            for order in ((SCHEDULE,), ())
                            for rest in ((), (IN_PLACE,), (REUSE,), (IN_PLACE, REUSE), (RELEASE,),
                                         (IN_PLACE, REUSE_INSIDE, RELEASE), (HOIST, RELEASE),
                                         (IN_PLACE, REUSE_INSIDE, HOIST, RELEASE))
                            if loops + order + rest)
RELEASE_ONLY: Sequences = ((RELEASE,),)


def within_loops(steps: Sequence[NamedPass]) -> Tuple[NamedPass, ...]:
    """Those of `steps` that change what loops and branches compute and keep."""
    return tuple(s for s in steps if s in LOOP_PASSES or isinstance(s.rewrite, RecomputeWithin))


def simpler_and_simpler(sequences: Sequences) -> Iterator[Sequences]:
    """`sequences`, then without the passes that move ops, then without those that add them, then none."""
    yield sequences
    yield tuple(s for s in sequences if SCHEDULE not in s)
    yield tuple(s for s in sequences if not {SCHEDULE, *LOOP_PASSES}.intersection(s))
    yield ()
