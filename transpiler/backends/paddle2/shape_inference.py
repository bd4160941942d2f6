"""Paddle's own shape inference over all operators of a program, for one choice of the open dims."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import Dict, FrozenSet, Hashable, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from paddle.base import core

from transpiler.backends.paddle2.array_fills import FilledArrays
from transpiler.backends.paddle2.contents import CONTENT_KINDS, KnownContents
from transpiler.backends.paddle2.growth import grown, largest_of, unless_other
from transpiler.backends.paddle2.kernel_shapes import at_least, at_most, correct
from transpiler.backends.paddle2.kin import closed
from transpiler.backends.paddle2.likeness import UNLIKE
from transpiler.backends.paddle2.narrow_dims import Shape, back, replaced, stand_ins, wraps

VariableKey = Tuple[int, str]  # (block index, name)
Declared = Dict[VariableKey, Tuple[int, ...]]

# Rows of what pools the words of each sentence: by this in the place of a rank table's name.
SENTENCES = ''
# Loops, one around the other, whose bodies run again for what changes in them.
_MOST_AGAIN = 2
# What brings tensors in, and what shares memory: open dims stay what they are said to be.
SAY_NOTHING = ('feed', 'read', 'share_buffer')


class Step(NamedTuple):
    """An op, and what is asked of it in every probe."""

    op: core.OpDesc
    kind: str
    inner: Tuple[int, ...]  # blocks that it runs
    touched: List[VariableKey]  # tensors that it names
    outputs: List[VariableKey]
    likeness: int


class Result(NamedTuple):
    """Shapes of an op's outputs; those that they had, if it rejected its operands."""

    shapes: List[Tuple[int, ...]]
    failed: bool


# By likeness, and the shapes of all that an op touches.
Results = Dict[Tuple[Hashable, ...], Result]


class Tensors:
    """The tensors' shapes inside Paddle, which are only set where it will look at them."""

    def __init__(self, program: core.ProgramDesc, declared: Declared) -> None:
        self.program = program
        self._declared = declared
        self._changed: Dict[VariableKey, Tuple[int, ...]] = {}
        self._variables: Dict[VariableKey, core.VarDesc] = {}

    def set(self, key: VariableKey, shape: Tuple[int, ...]) -> None:
        if self._changed.get(key, self._declared[key]) != shape:
            self._changed[key] = shape
            self._variable(key).set_shape(shape)

    def inferred(self, key: VariableKey) -> Tuple[int, ...]:
        """The shape that an op just has given it, maybe before it failed."""
        shape = self._changed[key] = tuple(self._variable(key).shape())
        return shape

    def put_back(self) -> None:
        for key in list(self._changed):
            self.set(key, self._declared[key])
        self._changed.clear()

    def _variable(self, key: VariableKey) -> core.VarDesc:
        if key not in self._variables:
            block, name = key
            self._variables[key] = self.program.block(block).find_var(name.encode())
        return self._variables[key]


class Inference:
    """Runs the shape inference of all ops, and keeps the largest shape that each name gets."""

    def __init__(self, tensors: Tensors, steps: List[List[Step]], shapes: Declared,
                 row_counts: Mapping[str, int], results: Results, filled: Optional[FilledArrays],
                 floors: bool) -> None:
        self._tensors = tensors
        self._steps = steps
        self._row_counts = row_counts  # by rank table
        self._results = results
        self._filled = filled  # if what the data decides is as large as it can be
        self._floors = floors  # and as small as it can be where it may have any size
        self._words: Dict[str, int] = {}  # by rank table: rows of the sequences that it was made of
        self.failed: Set[Tuple[int, int]] = set()
        self.largest: Dict[VariableKey, Tuple[int, ...]] = {}
        self._shapes = shapes  # those of all tensors at this moment
        self._contents = KnownContents()
        self._again = 0  # loops around that run again
        self._written_outside: Dict[int, FrozenSet[VariableKey]] = {}  # by block
        self._changing: Dict[int, Declared] = {}  # by block of a loop: what has changed, open there

    def run(self, index: int) -> None:
        block = self._tensors.program.block(index)
        for j, step in enumerate(self._steps[index]):
            for inner in step.inner:
                with self._filled.trips_of(inner) if self._filled else nullcontext():
                    self._run_inner(step.kind, inner)
            if step.kind in SAY_NOTHING:
                continue
            result = self._result(step, block)
            if result.failed:
                self.failed.add((index, j))
            for key, shape in zip(step.outputs, result.shapes):
                if -1 in shape:
                    shape = closed(step.op, step.kind, key[1], shape, partial(self._shape, index))
                if -1 in shape and self._filled:
                    shape = self._most(step, key, shape, block)
                self._shapes[key] = shape
                if shape != self.largest.setdefault(key, shape):
                    self._note_another(key, shape)

    def _run_inner(self, kind: str, index: int) -> None:
        """What it changes may stay as it was, too: a loop may have no trip, a branch may not be taken."""
        carried = self._carried(index)
        given = self._shapes_of(
            key for key in carried if key in self.largest or -1 not in self._shapes[key])
        self._run_trips(index, carried if kind == 'while' else frozenset())
        either = largest_of if self._filled else unless_other
        self._set_all({
            key: either(self._shapes[key], shape)
            for key, shape in given.items()
            if self._shapes[key] != shape
        })

    def _run_trips(self, index: int, carried: FrozenSet[VariableKey]) -> None:
        """Once, and again if that is the body of a loop that gives the next trip other shapes than it was given: what goes on growing has
        no shape, or that of the last trip if what is at the most is asked for."""
        given = self._shapes_of(carried)
        if self._again == _MOST_AGAIN:
            self._run_open(index, given)
            return
        self.run(index)
        once = self._shapes_of(carried)
        if once == given:
            return
        self._again += 1
        self.run(index)
        twice = self._shapes_of(carried)
        if twice != once and not (self._filled and self._run_last(index, once, twice)):
            self._set_all({key: unless_other(shape, once[key]) for key, shape in twice.items()})
            self.run(index)
        self._again -= 1

    def _run_open(self, index: int, given: Declared) -> None:
        """Once, what was seen to change here without a shape: loops that grow, each inside of the next, would take 3 to the power of their
        depth. Again only for what changes for the first time."""
        changing = self._changing.setdefault(index, {})
        self._set_all({key: unless_other(given[key], other) for key, other in changing.items()})
        before = self._shapes_of(given)
        self.run(index)
        opened = {key: unless_other(self._shapes[key], shape) for key, shape in before.items()}
        new = {k: o for k, o in opened.items() if o != before[k] and len(o) == len(before[k])}
        if new:
            changing.update(new)
            self._set_all(new)
            self.run(index)

    def _run_last(self, index: int, once: Declared, twice: Declared) -> bool:
        """The last trip, if all that grows grows by as much in each; whether it does."""
        trips = max(2, self._filled.trips[index])
        self._set_all({key: grown(shape, twice[key], trips - 2) for key, shape in once.items()})
        self.run(index)
        return all(
            self._shapes[key] == grown(shape, twice[key], trips - 1) for key, shape in once.items())

    def _carried(self, index: int) -> FrozenSet[VariableKey]:
        """What is written in block `index`, and in those that it runs, of the blocks around it."""
        if index not in self._written_outside:
            self._written_outside[index] = self._find_carried(index)
        return self._written_outside[index]

    def _find_carried(self, index: int) -> FrozenSet[VariableKey]:
        steps = self._steps[index]
        written = {key for step in steps for key in step.outputs}
        written.update(*(self._carried(inner) for step in steps for inner in step.inner))
        return frozenset(key for key in written if key[0] != index)

    def _shapes_of(self, keys: Iterable[VariableKey]) -> Declared:
        return {key: self._shapes[key] for key in keys}

    def _set_all(self, shapes: Declared) -> None:
        for key, shape in shapes.items():
            self._shapes[key] = shape
            self._note_another(key, shape)

    def _shape(self, index: int, name: str) -> Optional[Tuple[int, ...]]:
        """Of the variable that block `index`, which may be of a gradient, knows by that name."""
        while index >= 0:
            block = self._tensors.program.block(index)
            for at in (index, block.get_forward_block_idx()):
                if (at, name) in self._shapes:
                    return self._shapes[at, name]
            index = block.parent
        return None

    def _most(self, step: Step, key: VariableKey, shape: Tuple[int, ...],
              block: core.BlockDesc) -> Tuple[int, ...]:
        for each in step.touched:
            self._tensors.set(each, self._shapes[each])
        shape = at_most(step.op, step.kind, key[1], shape, block)
        if -1 in shape and self._floors:
            shape = at_least(step.op, step.kind, key[1], shape, block)
        return self._filled.stacked(step.op, step.kind, shape) if self._filled else shape

    def _result(self, step: Step, block: core.BlockDesc) -> Result:
        """What Paddle infers, or has inferred of an op like this one from such shapes."""
        if (step.likeness == UNLIKE or self._row_counts or
                self._contents.knows_any([name for _, name in step.touched])):
            return self._infer(step, block)
        found = (step.likeness, *[self._shapes[key] for key in step.touched])
        if found not in self._results:
            self._results[found] = self._infer(step, block)
        return self._results[found]

    def _infer(self, step: Step, block: core.BlockDesc) -> Result:
        found = self._accepted(step, block)
        # What was declared is all that is known if the op rejects the probe.
        shapes = {**self._shapes_of(step.touched), **dict(zip(step.outputs, found or ()))}
        for key, shape in shapes.items():
            self._tensors.set(key, shape)
        if step.kind in CONTENT_KINDS or self._contents.any_known:
            self._contents.follow(step.op, step.kind, block)
        correct(step.op, step.kind, block, self._contents)
        if self._filled:
            self._filled.follow(step.op, step.kind, block)
        if self._row_counts:
            self._set_sequence_rows(step.op, step.kind, block)
        return Result([self._tensors.inferred(key) for key in step.outputs], found is None)

    def _accepted(self, step: Step, block: core.BlockDesc) -> Optional[List[Shape]]:
        """Shapes of the outputs; None where the op takes no such operands."""
        numberings = stand_ins(d for key in step.touched for d in self._shapes[key])
        if numberings:
            first, second = (self._asked(step, block, numbers) for numbers in numberings)
            if first == second and (first is not None or wraps(step.kind)):
                return first
        return self._asked(step, block, {})

    def _asked(self, step: Step, block: core.BlockDesc,
               numbers: Mapping[int, int]) -> Optional[List[Shape]]:
        """What Paddle says with `numbers` in the place of dims."""
        for key in step.touched:
            self._tensors.set(key, replaced(self._shapes[key], numbers))
        try:
            _check_lists(step)
            step.op.infer_shape(block)
        except Exception:  # whatever it throws
            return None
        finally:
            made = [self._tensors.inferred(key) for key in step.outputs]
        return [replaced(shape, back(numbers)) for shape in made]

    def _set_sequence_rows(self, op: core.OpDesc, kind: str, block: core.BlockDesc) -> None:
        """Sequences have as many rows as words, their time steps fewer; Paddle's shape inference makes no difference."""
        if kind == 'lod_rank_table':
            shape = block.find_var_recursive(op.input('X')[0].encode()).shape()
            self._words[op.output('Out')[0]] = shape[0]
        elif kind in _ROWS_OF_TABLES:
            table = op.input('RankTable')[0]
            rows = self._words if kind == 'array_to_lod_tensor' else self._row_counts
            result = block.find_var_recursive(op.output('Out')[0].encode())
            if table in rows:
                result.set_shape([rows[table], *result.shape()[1:]])
        elif kind == 'sequence_pool' and SENTENCES in self._row_counts:
            words = block.find_var_recursive(op.input('X')[0].encode())
            result = block.find_var_recursive(op.output('Out')[0].encode())
            if words.lod_level() == 1:
                result.set_shape([self._row_counts[SENTENCES], *result.shape()[1:]])

    def _note_another(self, key: VariableKey, shape: Tuple[int, ...]) -> None:
        seen = self.largest[key]
        if -1 in shape or (-1 not in seen and math.prod(shape) > math.prod(seen)):
            self.largest[key] = shape


# By kind: the attribute of which shape inference reads an entry for each result of a slot, whether it is there or not: where it is
# not, Paddle crashes. (This kind is in paddlepaddle-gpu alone.)
_LISTED = MappingProxyType({'fusion_group': ('outs_dtype', 'Outs')})


def _check_lists(step: Step) -> None:
    """Raises ValueError where Paddle would crash."""
    if step.kind in _LISTED:
        attribute, slot = _LISTED[step.kind]
        if not step.op.has_attr(attribute) or len(step.op.attr(attribute)) < len(
                step.op.output(slot)):
            raise ValueError(f'{attribute} has no entry for each of {slot}')


SEQUENCE_KINDS = ('lod_rank_table', 'sequence_pool')
_ROWS_OF_TABLES = ('lod_tensor_to_array', 'array_to_lod_tensor', 'shrink_rnn_memory')
