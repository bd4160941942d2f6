"""Random programs for hypothesis: a recipe is plain data, `build` makes a real Paddle program of it.

Every recipe builds: its numbers are taken modulo what there is to choose from. Almost all values are
float32 [batch, 8], so that nearly any value can stand in for any other, and memory can be reused a lot.
"""
from __future__ import annotations

import gc
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import paddle
import paddle.nn.functional as F
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from tests.harness import (Case, Mode, WITHOUT_INPLACE, assert_same_bytes, new_programs, run_case)
from tests.memory import give_back
from tests.scenarios.common import append, data, fc, floats, random_feed

WIDTH = 8
Variable = Any


@dataclass(frozen=True)
class Step:
    """One layer: its kind, three numbers that choose operands, and the steps of its blocks."""
    kind: str
    numbers: Tuple[int, int, int]
    blocks: Tuple[Tuple["Step", ...], ...] = ()


@dataclass(frozen=True)
class Recipe:
    steps: Tuple[Step, ...]
    optimizer: Optional[str]
    fetch: Tuple[int, ...]
    skip: Tuple[int, ...]
    batches: Tuple[int, ...]
    level: int
    skip_grads: bool
    mode: Mode
    # None for recompute='auto', 0 for 'max', else a budget: so far from the lowest peak to the given one.
    room: Optional[float] = None

    def kinds(self) -> List[str]:
        return [kind for step in self.steps for kind in _kinds(step)]


def _kinds(step: Step) -> List[str]:
    return [step.kind
           ] + [kind for block in step.blocks for inner in block for kind in _kinds(inner)]


# ---------------------------------------------------------------------------------------------------
# Building


@dataclass
class Builder:
    """The values that a block may read, the ones of its own that it may overwrite, what is shared."""
    values: List[Variable]
    own: List[Variable]
    shared_weight: Variable
    training: bool
    nested: bool = False

    def pick(self, number: int) -> Variable:
        return self.values[number % len(self.values)]

    def overwritable(self, number: int) -> Optional[Variable]:
        """Gradients read values as they were, so in training only what has no gradient is rewritten."""
        free = [value for value in self.own if value.stop_gradient or not self.training]
        return free[number % len(free)] if free else None

    def add(self, value: Variable) -> None:
        self.values.append(value)
        self.own.append(value)

    def inner(self) -> "Builder":
        return Builder(list(self.values), [], self.shared_weight, self.training, nested=True)

    def loop_body(self, state: Variable) -> "Builder":
        """What the body of a loop may read.

        while_grad fails in a block when a variable that the loop reads gets no gradient from its body, or
        has none, so there in training the body reads its state alone.
        """
        outside = [] if self.nested and self.training else self.values
        return Builder(outside + [state], [], self.shared_weight, self.training, nested=True)

    def run(self, steps: Sequence[Step]) -> Variable:
        for step in steps:
            LAYERS[step.kind](self, step)
        return self.own[-1] if self.own else F.sigmoid(self.values[-1])


UNARY: Tuple[Callable[[Variable], Variable],
             ...] = (paddle.tanh, F.sigmoid, F.relu, paddle.sin, F.softsign, F.softmax, F.gelu,
                     lambda x: paddle.scale(x, 0.5, 0.1), lambda x: paddle.exp(-paddle.abs(x)),
                     paddle.floor)
BINARY: Tuple[Callable[[Variable, Variable], Variable],
              ...] = (paddle.add, paddle.subtract, paddle.multiply, paddle.maximum, paddle.minimum,
                      lambda x, y: x / (1.0 + paddle.abs(y)))
# Operators that the registry lets write over their own input.
IN_PLACE = (("relu", {}), ("tanh", {}), ("sigmoid", {}), ("scale", {"scale": 0.5, "bias": 0.25}))
CASTS = ("float64", "int32", "int64")


def _unary(builder: Builder, step: Step) -> None:
    kind, operand, _ = step.numbers
    builder.add(UNARY[kind % len(UNARY)](builder.pick(operand)))


def _binary(builder: Builder, step: Step) -> None:
    kind, left, right = step.numbers
    builder.add(BINARY[kind % len(BINARY)](builder.pick(left), builder.pick(right)))


def _sum(builder: Builder, step: Step) -> None:
    builder.add(paddle.add_n([builder.pick(number) for number in step.numbers]) * 0.3)


def _fc(builder: Builder, step: Step) -> None:
    builder.add(fc(builder.pick(step.numbers[0]), WIDTH, "tanh" if step.numbers[1] % 2 else None))


def _shared_weight(builder: Builder, step: Step) -> None:
    builder.add(paddle.matmul(builder.pick(step.numbers[0]), builder.shared_weight))


def _concat_and_split(builder: Builder, step: Step) -> None:
    """Two outputs, of which one may stay unused.

    Not so in training: append_backward crashes on a split when only branches or loops read an output.
    """
    left, right, unused = step.numbers
    joined = paddle.tanh(paddle.concat([builder.pick(left), builder.pick(right)], axis=1))
    if builder.training:
        builder.add(joined[:, :WIDTH] + paddle.sin(joined[:, WIDTH:]))
        return
    first, second = paddle.split(joined, 2, axis=1)
    builder.add(first)
    if unused % 2:
        builder.add(second)


def _unused(builder: Builder, step: Step) -> None:
    UNARY[step.numbers[0] % len(UNARY)](builder.pick(step.numbers[1]))


def _reduce(builder: Builder, step: Step) -> None:
    """A smaller value, broadcast back: its reader's gradient needs only the shape of the other."""
    axis, source, other = step.numbers
    builder.add(
        builder.pick(other) + paddle.mean(builder.pick(source), axis=axis % 2, keepdim=True))


def _cast(builder: Builder, step: Step) -> None:
    dtype, source, _ = step.numbers
    other = paddle.cast(builder.pick(source) * 3.0, CASTS[dtype % len(CASTS)])
    builder.add(paddle.cast(other + other, "float32") * 0.1)


def _mask(builder: Builder, step: Step) -> None:
    left, right, source = step.numbers
    mask = paddle.cast(builder.pick(left) > builder.pick(right), "float32")
    builder.add(builder.pick(source) * mask)


def _order(builder: Builder, step: Step) -> None:
    """int64 indices beside float32 values, and a gather that reads both."""
    values, indices = paddle.topk(builder.pick(step.numbers[0]), k=WIDTH, axis=1)
    picked = paddle.take_along_axis(builder.pick(step.numbers[1]), indices, axis=1)
    builder.add(picked + values if step.numbers[2] % 2 else picked)


def _reshape(builder: Builder, step: Step) -> None:
    cube = paddle.reshape(builder.pick(step.numbers[0]), [-1, 2, WIDTH // 2])
    if step.numbers[1] % 2:
        cube = paddle.transpose(cube, [0, 2, 1])
    builder.add(paddle.reshape(cube, [-1, WIDTH]))


def _attention(builder: Builder, step: Step) -> None:
    query, key, value = (builder.pick(number) for number in step.numbers)
    builder.add(paddle.matmul(F.softmax(paddle.matmul(query, key, transpose_y=True)), value))


def _norm(builder: Builder, step: Step) -> None:
    builder.add(F.layer_norm(builder.pick(step.numbers[0]), [WIDTH]))


def _dropout(builder: Builder, step: Step) -> None:
    builder.add(F.dropout(builder.pick(step.numbers[0]), 0.3))


def _like(builder: Builder, step: Step) -> None:
    """A reader of the shape alone."""
    like = paddle.full_like(builder.pick(step.numbers[0]), 0.25)
    builder.add(like * builder.pick(step.numbers[1]))


def _in_place(builder: Builder, step: Step) -> None:
    kind, target, _ = step.numbers
    value = builder.overwritable(target)
    if value is not None:
        name, attributes = IN_PLACE[kind % len(IN_PLACE)]
        append(name, {"X": [value]}, {"Out": [value]}, **attributes)


def _rewrite(builder: Builder, step: Step) -> None:
    """A name that holds a value already gets another one."""
    kind, source, target = step.numbers
    value = builder.overwritable(target)
    if value is not None:
        name, attributes = IN_PLACE[kind % len(IN_PLACE)]
        read = builder.pick(source)
        if read.stop_gradient or not builder.training:
            append(name, {"X": [read]}, {"Out": [value]}, **attributes)


def _constant(builder: Builder, step: Step) -> None:
    """A host constant as schedules make them, mixed with a value."""
    value = paddle.tensor.fill_constant([1], "float32", 0.1 * (step.numbers[0] % 7), force_cpu=True)
    builder.add(builder.pick(step.numbers[1]) * value)


def _cond(builder: Builder, step: Step) -> None:
    source, threshold, _ = step.numbers
    chosen = paddle.mean(builder.pick(source)) > 0.1 * (threshold % 5 - 2)
    branches = [(lambda block=block: builder.inner().run(block)) for block in step.blocks]
    builder.add(paddle.static.nn.cond(chosen, *branches))


def _while(builder: Builder, step: Step) -> None:
    trips, start, _ = step.numbers
    index, limit = paddle.full([1], 0, "int64"), paddle.full([1], 1 + trips % 3, "int64")
    # A loop writes its state onto the variable that it starts from.
    state = paddle.scale(builder.pick(start), 0.5)
    if builder.training:
        state.stop_gradient = False

    def body(i: Variable, value: Variable) -> List[Variable]:
        new = builder.loop_body(value).run(step.blocks[0])
        return [paddle.increment(i), new + value * 0.5 if builder.training else new]

    is_test = not builder.training
    builder.add(
        paddle.static.nn.while_loop(lambda i, _: i < limit, body, [index, state], is_test)[1])


LAYERS: Dict[str, Callable[[Builder, Step], None]] = {
    "unary": _unary,
    "binary": _binary,
    "sum": _sum,
    "fc": _fc,
    "shared_weight": _shared_weight,
    "concat_and_split": _concat_and_split,
    "unused": _unused,
    "reduce": _reduce,
    "cast": _cast,
    "mask": _mask,
    "order": _order,
    "reshape": _reshape,
    "attention": _attention,
    "norm": _norm,
    "dropout": _dropout,
    "like": _like,
    "in_place": _in_place,
    "rewrite": _rewrite,
    "constant": _constant,
    "cond": _cond,
    "while": _while,
}
BLOCKS_OF = {"cond": 2, "while": 1}
OPTIMIZERS: Dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1),
    "momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: paddle.optimizer.Adam(0.01),
}


@dataclass(frozen=True)
class Generated:
    """A built recipe: the case, and the names to pass as the skip set."""
    case: Case
    skip: Tuple[str, ...]


def build(recipe: Recipe) -> Generated:
    with new_programs() as (main, startup):
        builder = _main_builder(recipe.optimizer is not None)
        last = builder.run(recipe.steps)
        loss = paddle.mean(paddle.square(last)) + 0.1 * paddle.mean(paddle.tanh(builder.own[0]))
        if recipe.optimizer is not None:
            OPTIMIZERS[recipe.optimizer]().minimize(loss)
        names = [value.name for value in builder.own]
    chosen = lambda numbers: tuple(sorted({names[number % len(names)] for number in numbers}))
    fetch = [loss.name] + [name for name in chosen(recipe.fetch) if name != loss.name]
    return Generated(Case(main, startup, _feed(recipe.batches), fetch), chosen(recipe.skip))


def _main_builder(training: bool) -> Builder:
    inputs = data("x", -1, WIDTH)
    weight = paddle.create_parameter([WIDTH, WIDTH], "float32", name="shared_weight")
    builder = Builder([inputs], [], weight, training)
    builder.add(paddle.tanh(paddle.matmul(inputs, weight)))
    return builder


def _feed(batches: Tuple[int, ...]) -> Callable[[int], Dict[str, Any]]:
    return lambda step: random_feed(x=floats(batches[step % len(batches)], WIDTH))(step)


# ---------------------------------------------------------------------------------------------------
# Drawing

NUMBERS = st.tuples(*[st.integers(0, 30)] * 3)
FLAT_KINDS = tuple(kind for kind in LAYERS if kind not in BLOCKS_OF)


def _flat_steps() -> st.SearchStrategy:
    return st.builds(Step, st.sampled_from(FLAT_KINDS), NUMBERS)


def _steps_with_blocks(inner: st.SearchStrategy, kind: str) -> st.SearchStrategy:
    block = st.lists(inner, min_size=1, max_size=4).map(tuple)
    return st.builds(Step, st.just(kind), NUMBERS, st.tuples(*[block] * BLOCKS_OF[kind]))


def steps() -> st.SearchStrategy:
    """Flat layers mostly; branches and loops, which may hold one more level of either."""
    inner = st.one_of(*[_flat_steps()] * 6,
                      *[_steps_with_blocks(_flat_steps(), k) for k in BLOCKS_OF])
    return st.one_of(*[_flat_steps()] * 6, *[_steps_with_blocks(inner, k) for k in BLOCKS_OF])


def loops() -> st.SearchStrategy:
    return _steps_with_blocks(
        st.one_of(*[_flat_steps()] * 5, _steps_with_blocks(_flat_steps(), "cond")), "while")


@st.composite
def recipes(draw: Callable[[st.SearchStrategy], Any], with_loop: bool = False) -> Recipe:
    """Any program; or, `with_loop`, one that trains through a random loop body."""
    drawn = draw(st.lists(steps(), min_size=3, max_size=10))
    optimizers = sorted(OPTIMIZERS) if with_loop else [None] + sorted(OPTIMIZERS)
    if with_loop:
        drawn = drawn[:5] + [draw(loops())] + drawn[5:8]
    return Recipe(
        steps=tuple(drawn),
        optimizer=draw(st.sampled_from(optimizers)),
        fetch=tuple(draw(st.lists(st.integers(0, 30), max_size=3))),
        skip=tuple(draw(st.lists(st.integers(0, 30), max_size=3))),
        batches=tuple(draw(st.lists(st.integers(1, 9), min_size=2, max_size=2))),
        level=draw(st.integers(0, 1)),
        skip_grads=draw(st.booleans()),
        mode=draw(st.sampled_from(WITHOUT_INPLACE)),
        room=draw(st.sampled_from((None, 0.0, 0.0, 0.3))),
    )


def every(count: int) -> settings:
    """Settings under which a run of the tests draws the same `count` programs each time."""
    return settings(max_examples=count,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=(Phase.explicit, Phase.generate),
                    suppress_health_check=list(HealthCheck))


PER_PART = 25
# How many times as many programs: `make test-more`.
MORE = int(os.environ.get("MORE_PROGRAMS", "1"))


def in_parts(count: int) -> Any:
    """Gives a test the parts of `count` programs one by one, so that more than one process can work on them."""
    return pytest.mark.parametrize("part", range(MORE * count // PER_PART))


# Programs of more layers, some hundreds of ops, take most of the time: all but a few are left to `make test-more`.
LARGE, FEW = 60, 2


def each_of(part: int, strategy: st.SearchStrategy, check: Callable[[Recipe], None]) -> None:
    """Runs `check` on the programs of one part, no two of which have the same layers; the same ones each time."""
    seen: Set[Tuple[Step, ...]] = set()
    large: Set[Tuple[Step, ...]] = set()

    @seed(part)
    @every(PER_PART)
    @given(strategy)
    def checked(recipe: Recipe) -> None:
        assume(recipe.steps not in seen)
        if len(recipe.kinds()) > LARGE:
            large.add(recipe.steps)
            assume(MORE > 1 or part == 0 and len(large) <= FEW)
        check(recipe)
        seen.add(recipe.steps)  # not before: what fails is run again
        gc.collect()  # programs are cycles
        give_back()

    checked()


def drawn(count: int) -> List[Recipe]:
    """The recipes that a test of `every(count)` gets, up to the name of the test."""
    seen: List[Recipe] = []

    @every(count)
    @given(recipes())
    def collect(recipe: Recipe) -> None:
        seen.append(recipe)

    collect()
    return seen


def time_generated_programs(count: int) -> None:
    """Prints how long plain programs take to draw, build twice, run twice and compare."""
    sizes: List[int] = []
    start = time.time()

    @every(count)
    @given(recipes())
    def compare(recipe: Recipe) -> None:
        first, second = build(recipe).case, build(recipe).case
        sizes.append(sum(len(block.ops) for block in first.main.blocks))
        assert_same_bytes(run_case(first, steps=2, mode=recipe.mode),
                          run_case(second, steps=2, mode=recipe.mode))

    compare()
    taken = time.time() - start
    print(f"{len(sizes)} programs of {min(sizes)} to {max(sizes)} operators "
          f"(mean {sum(sizes) / len(sizes):.0f}) in {taken:.1f} s")


if __name__ == "__main__":
    time_generated_programs(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
