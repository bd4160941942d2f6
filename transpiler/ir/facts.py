"""What is known of operators, whatever they are called where they come from."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import FrozenSet, NamedTuple, Optional, Tuple

from transpiler.ir.slotted import slotted


class ArrayAccess(enum.Enum):
    """What an operator does with the elements of a tensor array."""

    READS_ELEMENT = 'reads the element at an index'
    WRITES_ELEMENT = 'writes the element at an index'
    WRITES_ALL = 'writes all elements'
    APPENDS = 'adds the parts of its operand behind the elements that are there'


class Meaning(enum.Enum):
    """Operators of which the verifier knows what they compute."""

    CONVERTED = 'the operand in the type of the result: truth values are whether an element is not zero'
    SELECT = 'the second operand where the first is true, else the third'
    EQUAL = 'whether elements of the first operand equal the second'
    REPLACED = 'the first operand, but the third where the second is true'
    QUOTIENT = 'the first operand over the second'
    ROWS = 'some rows of the operand'
    ROW_NUMBERS = 'numbers of rows that follow each other'
    ROWS_ADDED = 'the first operand, but the second is added to the rows that the third names'


class Unit(enum.Enum):
    """Which registers an operator's kernel leaves as, which matters to what runs next on the same thread."""

    VECTOR_UPDATE = 'an update by generated vector code'
    PRODUCT = 'a product of matrices'
    NEITHER = 'neither, and it does not clean the registers'
    OTHER = 'neither'


@dataclass(frozen=True)
class Work:
    """What an operator's time depends on besides the bytes that it touches.

    `slowness` is its time for a byte, as a multiple of an addition's.
    """

    heavy: bool = False  # computes more than it touches
    filters: bool = False  # the product is with filters: a parameter of more than two dims
    backward: bool = False  # a product for each operand that gets a gradient
    picks: bool = False  # reads only the parts of its operands that it gives out
    by_rows: bool = False  # a copy for each row
    slowness: float = 1.0
    unit: Unit = Unit.OTHER


class Replay(NamedTuple):
    """How a result that random numbers decide can be made again from what another result records of them: the operand,
    over `divisor` if there is one, where the mask is not zero, and 0 elsewhere. Positions. `in_copy`: the zeros are put into a copy
    of the operand, or into the operand itself where nobody else reads it, instead of the operand into zeros."""

    operand: int
    result: int
    mask: int  # among the results, too
    divisor: Optional[float]
    in_copy: bool = False


@slotted
@dataclass(frozen=True)
class OpFacts:
    """What is known of an operator, whatever program it stands in.

    `in_place` and `shape_only` are positions: operand positions that may give their buffer to a result
    position, and operand positions of which only the shape is read, not the data. `same_name`: the two
    may even be one variable; some kernels that work on a shared buffer do not bear that. `onto` are pairs that may be one variable, too,
    though no runtime makes them share a buffer by itself; `one_memory` pairs that have one memory from the op on, whoever uses the operand
    later. `updates` are (operand,
    result) positions of state that the op carries on, and on which nothing else that it computes depends; `unchanged` such of
    what it names as a result and leaves as it is, where the two are one variable. `fresh` are results
    whose names have to be without memory: what is there already the op takes for its own, half done. `late` are results
    for which it asks when it is through with memory of its own, and `elsewhere` those that it makes in other memory, which
    it then hands over: what their names have had is there besides until then, with `late` only where it needs memory of its own.
    `separate` are results that it can make one by one, to the bit, each with the operands that it then needs for their shape alone;
    a runtime keeps these for it all the same, unless the program lets go of them.
    """

    known: bool = True
    random: bool = False
    side_effect: bool = False
    collective: bool = False
    by_names: bool = False  # what it names others know by these names: servers, or who talks to them later
    asynchronous: bool = False  # it may still be at work when the next op starts
    in_place: Tuple[Tuple[int, int], ...] = ()
    same_name: bool = False
    same_bytes: bool = False  # its result is what it may work on, byte by byte, in other dims: that may be one variable, too
    onto: Tuple[Tuple[int, int], ...] = ()
    one_memory: Tuple[Tuple[int, int], ...] = ()
    converts: bool = False  # its kernel wants another layout or type: the runtime converts what it reads, and its results
    # Operands that the runtime copies for it into another layout; the copies die behind it.
    relaid: FrozenSet[int] = frozenset()
    aliases: bool = False  # its results share the buffers of its operands, position by position
    shape_only: FrozenSet[int] = frozenset()
    apart: bool = False  # a value of which it reads the shape alone may not be one of which it reads the data, too
    unread: FrozenSet[int] = frozenset()  # operands of which it needs no more than the name
    fresh: FrozenSet[int] = frozenset()  # results that it goes on with, as they are
    late: FrozenSet[int] = frozenset()
    elsewhere: FrozenSet[int] = frozenset()
    separate: Tuple[Tuple[int, FrozenSet[int]], ...] = ()
    updates: Tuple[Tuple[int, int], ...] = ()
    unchanged: Tuple[Tuple[int, int], ...] = ()
    adds: float = 0.0  # its result is its operand plus this, if not zero
    fills: Optional[float] = None  # every element of its result is this
    left_fold: bool = False  # its result is that of adding its operands one by one, to the bit
    alike: Tuple[Tuple[int, int], ...] = ()  # (result, operand) that have the same dims
    gradients: FrozenSet[int] = frozenset()  # operands that have the dims of another
    broadcasts: Optional[int] = None  # its results are broadcast, but for so many innermost dims
    elementwise: bool = False  # each element of its result follows from that of its operand alone, to the bit
    rows: Optional[Tuple[
        int,
        int]] = None  # those that it takes, or makes the numbers of: the first, and the one after the last
    loses_shape: FrozenSet[int] = frozenset()  # results of a RELEASE op whose shape goes, too
    replay: Optional[Replay] = None  # gives the same bytes as the result that it makes again
    chooses: bool = False  # of its results, which are of its own region, it makes one
    shares_unsaid: bool = False  # two of its names are in one memory, and the runtime, which orders by names, is not told
    boundary: bool = False  # what stands before it is a program of its own, and what stands behind it another, which runs later
    array: Optional[ArrayAccess] = None
    means: Optional[Meaning] = None
    work: Work = Work()

    @property
    def ordered(self) -> bool:
        """Whether it must keep its place among the other ordered ops."""
        return self.random or self.side_effect or self.collective or self.stops

    def alone(self, result: int, held: FrozenSet[int] = frozenset()) -> OpFacts:
        """Of the op that makes this one of its `separate` results and no other. Operands that are `held` are there for it, as if it
        read them."""
        unread = dict(self.separate)[result] - held
        return replace(self, shape_only=self.shape_only | unread, separate=((result, unread),))

    @property
    def unread_alone(self) -> FrozenSet[int]:
        """Operands that it names for their shape alone as it makes one result of several."""
        return self.separate[0][1] if len(self.separate) == 1 else frozenset()

    @property
    def stops(self) -> bool:
        """Whether nothing moves across it."""
        return self.boundary or not self.known
