"""What the runtime that will run a program does with memory, how late it does it, and what it can be asked for."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import FrozenSet, Optional


class Can(enum.Enum):
    """What a plan may ask of a runtime. A pass that needs what is missing is not run."""

    RENAME = 'keep several values under one name'
    PIN = 'hold the order of ops'
    RELEASE = 'free a storage where the program says so'
    SHARE = 'hand a buffer to another name'
    UNITE = 'make one variable of two names'
    SHAPES = 'keep the shape of a storage that was freed'
    NO_COPY = "leave out a loop's copy of an input"
    CLEAN_START = 'empty what an earlier run has left'
    PUT_OFF = 'copy what is fetched no earlier than the program says'
    SEPARATE = 'make one of the results of an op that makes several'
    SEGMENT = 'run a stretch of the main region, in its order, as a region of its own'


EVERYTHING = frozenset(Can)


@dataclass(frozen=True)
class Delays:
    """How far a collector that frees in a thread of its own may be behind. Nothing: it frees before the next op.

    Measured on Paddle 2.6.2, CPU, two cores: `ops` of the main block, as a small one does not give the thread the time to
    free a large tensor; `inner_ops` of a loop or branch, which are short; `trips` of a loop, whose leavings pile up.
    Where others want the processor too the thread wakes up at most `seconds` late, two ticks of a kernel that has 250 a second (of 100,000
    times beside up to five busy processes the worst was 5.1 ms); `runs` is the most that was seen to pile up in it.
    """

    ops: int = 0
    inner_ops: int = 0
    trips: int = 0
    seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True)
class Upkeep:
    """What an executor keeps for the ops of a region, in bytes, and what it takes to build that, in seconds of a processor.

    Of a region whose ops it starts as it finds them ready there is something for each op and for each pair of ops, the square
    of their number; a segment, whose ops it runs one after the other, has no pairs. `name_*` are for each name that an op that
    runs a segment has.
    """

    op_bytes: int = 0
    pair_bytes: int = 0
    op_seconds: float = 0.0
    pair_seconds: float = 0.0
    segment_op_bytes: int = 0
    segment_op_seconds: float = 0.0
    name_bytes: int = 0
    name_seconds: float = 0.0


@dataclass(frozen=True)
class Runtime:
    """The rules of a runtime.

    Attributes:
        name: as callers name it and reports print it.
        collects: a storage is freed after the last op that uses its name. If not, it is held to the end, at the size of its
            largest tenant, and the next run begins with it.
        by_data: freed as soon as nobody will read its data, whoever names it, and whatever is not read is not copied.
        holds_trips: although it collects, what the body of a loop makes stays, as with one that does not.
        in_place: regions in which it lets results take over buffers by itself (`buffer_shared_inplace_pass`: the main
            block); None for all.
        delays: how late it frees.
        names_per_op: an op that names more takes the executor time to build that grows with the square of the names, and
            the cube together.
        can: what a plan may ask of it.
        upkeep: what it keeps besides tensors.
        first_run_frees: one that retains frees what it can while it finds out in what order ops run, in its first run.
        begins_empty: in its first run, nothing is left from a run before.
        keeps_inner: one that retains keeps what a loop or branch has made when that is through, until it next runs.
        keeps_fetched: a later run begins with what the one before has given out.
        bears_delays: a budget for its programs bears a collector that is `delays.ops` behind, and no later one: nothing in them could
            give back what a later one would still hold.
        inputs_stay: of a program in two parts, what its caller gives it is there until the second is through, whoever else holds it.
        threads: so many ops of the main block it runs side by side, where processors are idle and no order is held.
        ops_per_release: the ops that it takes to release one value; 0 where one op releases any number.
    """

    name: str
    collects: bool
    by_data: bool = False
    holds_trips: bool = False
    in_place: Optional[FrozenSet[int]] = frozenset({0})
    delays: Delays = Delays()
    names_per_op: int = 16
    can: FrozenSet[Can] = EVERYTHING
    upkeep: Upkeep = Upkeep()
    first_run_frees: bool = True
    begins_empty: bool = False
    keeps_inner: bool = False
    keeps_fetched: bool = False
    bears_delays: bool = False
    inputs_stay: bool = True
    threads: int = 4
    ops_per_release: int = 0

    def in_segments(self) -> Runtime:
        """The same for a program whose main region runs in segments: there it works in place nowhere by itself."""
        return replace(self, in_place=frozenset())

    def freeing(self) -> Runtime:
        """The same if all that is dead were freed: a plan that releases it makes it so."""
        return self if self.collects else replace(COLLECTING, in_place=self.in_place, can=self.can)

    def in_first_run(self) -> Runtime:
        """The same in its first run. Of one that retains and frees then, a loop knows the order of its ops from its second trip on."""
        if self.collects or not self.first_run_frees:
            return replace(self, begins_empty=True)
        return replace(self.freeing(), holds_trips=True, begins_empty=True)


# Paddle 2.6.2, CPU, glibc: resident growth and processor time of the first run of programs in fresh processes, as
# tests/test_upkeep.py measures them again. A pair takes 15 to 150 bytes, and 0.2 to 0.4 microseconds: the more, the more of the
# pairs are ordered; here stand the figures of training programs of networks.
PADDLE_2_6 = Upkeep(op_bytes=60_000,
                    pair_bytes=43,
                    op_seconds=0.25e-3,
                    pair_seconds=0.25e-6,
                    segment_op_bytes=35_000,
                    segment_op_seconds=0.2e-3,
                    name_bytes=4_000,
                    name_seconds=0.2e-3)
# Paddle's executor with garbage collection on, its default.
COLLECTING = Runtime('collecting',
                     collects=True,
                     delays=Delays(ops=2, inner_ops=16, trips=4, seconds=8e-3, runs=4),
                     upkeep=PADDLE_2_6)
# The same with collection off, or Paddle Inference without the new executor.
RETAINING = Runtime('retaining', collects=False, upkeep=PADDLE_2_6)
# None does better with the given order: its peak is the lower bound.
IDEAL = Runtime('ideal', collects=True, by_data=True, in_place=None)
