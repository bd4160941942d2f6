"""memory_optimize for layers on Paddle 3: the ways in which users write them, to the last byte."""
from __future__ import annotations

import math
import re
import time
from functools import partial
from typing import Any, Callable, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base import core
from paddle.jit.sot.opcode_translator.executor.executor_cache import OpcodeExecutorCache

from demos.layers import __main__ as demo
from tests import settled
from tests.backends.layers import (BATCH, FLOW_STEP, SIMPLE, WAYS, WIDTH, Looped, Net, built, data,
                                   flow, static, trained)
from tests.backends.layers_anywhere import *  # noqa: F401, F403
from tests.backends.layers_anywhere import gradients, simple, untouched
from transpiler import layers, memory_optimize


@pytest.mark.parametrize('full_graph', [True, False])
@pytest.mark.parametrize('way', WAYS)
def test_training_gives_the_same_bytes(way: str, full_graph: bool) -> None:
    made, step = built(way, full_graph)
    report = memory_optimize(made, recompute='max', batch_size=BATCH)
    assert trained(made, step) == untouched(way, full_graph)
    trains = [each for each in report.programs if each.traced.mode == 'train']
    assert trains and all(each.report.changed for each in trains)
    assert all(each.kept_after < each.kept_before for each in trains)
    modes = {each.traced.mode for each in report.programs}
    assert modes == ({'train', 'eval'} if way == 'evaluated between' else {'train'})


def renamed(**options: Any) -> List[bytes]:
    """Gradients of a call whose parameters have got other names after their program was made, and change before backward."""
    made = simple()
    if options:
        memory_optimize(made, **options)
    made(data(0)).backward()
    made.clear_gradients()
    for at, parameter in enumerate(made.parameters()):
        parameter.name = f'mine_{at}'
    loss = made(data(0))
    for parameter in made.parameters():
        parameter.set_value(parameter.numpy() * 2.0)
    loss.backward()
    return gradients(made)


def test_parameters_are_watched_under_whatever_name_they_have() -> None:
    with pytest.raises(OSError, match="ChangedTensorError: 'mine_[0-9]+' has changed"):
        renamed(recompute='max')
    paddle.seed(7)
    expected = renamed()
    paddle.seed(7)
    assert renamed(recompute=False) == expected and expected


@pytest.mark.skipif(not hasattr(OpcodeExecutorCache, 'MAX_COMPILE_TIME_PER_CODE'),
                    reason='Paddle 3.0 gives no function up for its time')
def test_planning_does_not_count_as_the_time_that_paddle_took(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """After 40 seconds Paddle runs what is new of a function op by op."""
    decide, limit = layers._Planner._decision, 0.5

    def slow(*args: Any) -> Any:
        time.sleep(limit)
        return decide(*args)

    monkeypatch.setattr(layers._Planner, '_decision', slow)
    monkeypatch.setattr(OpcodeExecutorCache, 'MAX_COMPILE_TIME_PER_CODE', limit)
    for step in range(3):
        made = simple(full_graph=False)
        report = memory_optimize(made)
        made(data(step))
        assert [each.report is not None for each in report.programs] == [True]
    took, = OpcodeExecutorCache().compile_time_stats.values()
    assert 0 < took < limit


def test_branches_are_planned_too() -> None:
    """Ten steps, through both sides of both."""
    made, plain = flow('branch'), flow('branch')
    report = memory_optimize(made, recompute='max')
    assert trained(made, FLOW_STEP, 10) == trained(plain, FLOW_STEP, 10)
    program, = report.programs
    assert program.report.changed and program.kept_after < 0.6 * program.kept_before
    x, many = large(), paddle.to_tensor([8])
    before, after = (kept_of(each, x, many) for each in (plain, made))
    assert after < 0.6 * before


def kept_of(made: Any, *inputs: Any) -> int:
    """Bytes between the parts."""
    resting = settled.long_at_rest()
    loss = made(*inputs)
    kept = settled.at_rest() - resting
    loss.backward()
    return kept


@pytest.mark.parametrize('way', demo.WAYS)
def test_the_demo_trains_alike_and_in_less_memory(way: str,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """On 2.6.2 the README's tests run it as a command."""
    losses = set()

    def peak(optimized: bool) -> float:
        settled.long_at_rest()
        core.host_memory_stat_reset_peak_value('Allocated', 0)
        demo.train(way, optimized)
        *_, last = capsys.readouterr().out.strip().splitlines()
        said, loss = re.fullmatch(r'.*: ([\d.]+) MiB above the parameters, last loss (.*)',
                                  last).groups()
        losses.add(loss)
        return float(said)

    before = peak(False)
    after, = settled.least(lambda: [peak(True)], [math.nextafter(before, 0.0)])
    assert after < before and len(losses) == 1


def test_a_first_call_without_gradients_is_one_of_a_program_without_them() -> None:
    made, again = simple(), simple()
    report = memory_optimize(made, recompute='max')
    with paddle.no_grad():
        losses = []
        for each in (made, again):
            paddle.seed(9)
            losses.append(each(data(0)).numpy().tobytes())
    assert losses[0] == losses[1]
    assert [each.traced.mode for each in report.programs] == ['no grad']


class Narrowed(paddle.nn.Layer):
    """Reads what it is given once, to make something smaller of it that its gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = paddle.nn.Embedding(50, 16)

    def forward(self, ids: Any) -> Any:
        return paddle.mean(paddle.nn.functional.relu(self.embedding(ids.astype('int32'))))


@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_an_input_that_the_caller_lets_go_of_is_not_held_for_the_backward_part(
        recompute: str) -> None:
    numbers = np.random.RandomState(0).randint(0, 50, [1024, 256])
    plain, made = static(Narrowed(), True), static(Narrowed(), True)
    memory_optimize(made, recompute=recompute, heap=False)

    def peak(layer: Any) -> int:
        settled.long_at_rest()
        core.host_memory_stat_reset_peak_value('Allocated', 0)
        before = core.host_memory_stat_current_value('Allocated', 0)
        layer(paddle.to_tensor(numbers)).backward()
        layer.clear_gradients()
        return core.host_memory_stat_peak_value('Allocated', 0) - before

    peak(made)
    before, = settled.least(lambda: [peak(plain)], [0.0], most=4, ordered=False)
    after, = settled.least(lambda: [peak(made)], [before])
    assert after <= before


def large() -> Any:
    return paddle.concat([data(0)] * 256)


def reader(made: Any, x: Any) -> Callable[[], Tuple[int, int]]:
    """Reads bytes between the parts, and the peak, of a step on `x`, which is the caller's and counts."""
    resting = settled.long_at_rest() - x.numpy().nbytes

    def read() -> Tuple[int, int]:
        loss = []
        forward = settled.peak_of(lambda: loss.append(made(x)))
        kept = settled.at_rest()
        backward = settled.peak_of(lambda: loss.pop().backward())
        for parameter in made.parameters():
            parameter.clear_gradient(False)
        return kept - resting, max(forward, backward) - resting

    return read


class Joined(paddle.nn.Layer):
    """Of what a list joins the gradient needs no data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        first, second, third = self.layers
        x = paddle.tanh(first(x))
        x = paddle.concat([paddle.flip(x, [0]), paddle.flip(x, [1])], axis=0)
        return paddle.mean(paddle.tanh(third(paddle.tanh(second(x)))))


@pytest.mark.parametrize('kind', [partial(Net, blocks=2), Joined])
def test_what_is_kept_and_the_peak_are_what_was_predicted(kind: Callable[[], Any]) -> None:
    plain, made, x = static(kind(), True), static(kind(), True), large()
    report = memory_optimize(made, recompute='max')
    read = reader(made, x)
    read()
    program = report.programs[0]
    settled.assert_as_predicted(read, (program.kept_after, program.report.peak_bytes_after))
    settled.assert_as_predicted(reader(plain, x),
                                (program.kept_before, program.report.peak_bytes_before),
                                ordered=False)
    assert program.kept_after < 0.5 * program.kept_before
    assert program.report.peak_bytes_after < 0.75 * program.report.peak_bytes_before


class InStatic(Looped):
    """The same loop as one of static programs."""

    def forward(self, x: Any, trips: Any) -> Any:
        begin = [paddle.zeros([1], 'int64'), self.begin(x)]
        _, x = paddle.static.nn.while_loop(lambda at, _: at < trips, lambda at, x:
                                           (at + 1, paddle.tanh(self.begin(x))), begin)
        return paddle.mean(x * x)


@pytest.mark.parametrize('kind', [Looped, InStatic])
def test_a_loop_that_paddle_cannot_train_is_left_alone_and_the_report_says_why(kind: Any) -> None:
    """Untouched it fails, too. Who sees Paddle train one has a loop to plan."""
    for optimized in (False, True):
        made = static(kind(), True)
        report = memory_optimize(made, recompute='max') if optimized else None
        with pytest.raises(ValueError, match='middle_.* should exist'):
            FLOW_STEP(made, 0)
    program, = report.programs
    assert not program.report.changed and program.kept_after == program.kept_before
    for found in (program.why_not, ' '.join(str(report).split())):
        assert 'a loop that is trained' in found and 'untouched it fails, too' in found


class Asserted(Net):
    """Asserts something of a tensor: Paddle gives that op an empty list of what to print."""

    def forward(self, x: Any) -> Any:
        assert paddle.max(x) < 100.0
        return Net.forward(self, x)


def trained_both_ways(make: Callable[[], Any]) -> Tuple[Any, Any, Any]:
    """A layer as Paddle makes it and an optimized one, trained to the same bytes; and what is reported of its only program."""
    layers_of, left = [], []
    for optimized in (False, True):
        paddle.seed(3)
        layers_of.append(make())
        report = memory_optimize(layers_of[-1], recompute='max') if optimized else None
        left.append(trained(layers_of[-1], SIMPLE))
    assert left[0] == left[1]
    program, = report.programs
    return (*layers_of, program)


def test_a_layer_that_asserts_is_planned_and_asserts_still() -> None:
    plain, made, program = trained_both_ways(lambda: static(Asserted(), True))
    assert program.report.changed
    for each in (plain, made):
        with pytest.raises(ValueError, match='must be true'):
            each(data(0) + 1000.0)


class Halved(paddle.autograd.PyLayer):
    """A gradient of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = paddle.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        y, = ctx.saved_tensor()
        return dy * (1 - paddle.square(y)) * 0.5


class OwnGradient(Net):

    def forward(self, x: Any) -> Any:
        return Net.forward(self, Halved.apply(self.blocks[0].norm(x)))


def test_ops_with_blocks_that_nobody_knows_are_named_and_left_alone() -> None:
    *_, program = trained_both_ways(lambda: static(OwnGradient(), True))
    assert not program.report.changed
    assert 'pd_op.pylayer: what such ops do is not known' in program.why_not


def test_a_loop_in_stretches_is_trained_trip_by_trip() -> None:
    """Paddle makes a program of what a trip runs, and none of the loop."""
    found = []
    for optimized in (False, True):
        paddle.seed(3)
        made = static(Looped(), False)
        report = memory_optimize(made, recompute='max') if optimized else None
        found.append(trained(made, FLOW_STEP))
    assert found[0] == found[1]
    trips = [each for each in report.programs if each.traced.mode == 'train']
    assert trips and all(each.report.changed and not each.why_not for each in trips)
