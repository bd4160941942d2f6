"""Dropouts made again from their masks on Paddle 3: the same bytes, or none."""
from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import paddle
import pytest
from paddle import nn, static

from benchmarks.apart import apart
from benchmarks.programs import transformer
from benchmarks.programs.case import Case, Options, drafting
from tests import settled
from tests.backends.layers import BATCH, WIDTH, data
from tests.backends.layers import static as made_static
from tests.backends.paddle3.running import MIB, first_peak, kept_uncollected, optimized
from tests.builds import needs_cpu_build, needs_masked_dropout
from transpiler import memory_optimize
from transpiler.backends.paddle3 import emitter, replaying
from transpiler.ir import CONVERT, DIVIDE, FILL, SELECT

pytestmark = [needs_cpu_build, needs_masked_dropout]
ODD = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, -1e-42, 3e38])


@pytest.fixture(autouse=True)
def static_graphs() -> None:
    paddle.enable_static()


@pytest.mark.parametrize('mode', ['upscale_in_train', 'downscale_in_infer'])
@pytest.mark.parametrize('share', [0.1, 0.3333, 0.999])
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_what_is_made_again_is_the_same_to_the_bit(dtype: str, share: float, mode: str) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data('x', [-1], dtype)
        made = nn.functional.dropout(x, share, mode=mode)
        op = made.get_defining_op()
        replay = replaying.replay_of(op)
        mask = replaying.said(CONVERT, [op.result(replay.mask)], made, None)[-1]
        again = replaying.said(SELECT, [mask, x], made, None)[-1]
        assert (replay.divisor is None) is (mode == 'downscale_in_infer')
        if replay.divisor is not None:
            number, = replaying.said(FILL, [], made, replay.divisor)
            again, = replaying.said(DIVIDE, [again, number], made, None)
    given = np.concatenate([ODD] * 40 + [np.random.RandomState(0).standard_normal(999)])
    for _ in range(2):
        found = static.Executor().run(main,
                                      feed={'x': given.astype(dtype)},
                                      fetch_list=[made, again])
        assert found[0].tobytes() == found[1].tobytes()


def test_one_that_drops_nothing_at_all_or_all_is_not_made_again() -> None:
    with static.program_guard(static.Program(), static.Program()):
        x, one = static.data('x', [4], 'float32'), paddle.full([1], 1.0)
        share = static.data('share', [1], 'float32')
        made = [paddle._C_ops.dropout(x, None, p, testing, 'upscale_in_train', 0, False)
                for p, testing in ((one, False), (share, False), (0.5, True))]  # yapf: disable
        assert [replaying.replay_of(each.get_defining_op()) for each in made] == [None] * 3


class Dropouts(nn.Layer):

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LayerList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        for layer in self.inner:
            x = nn.functional.dropout(paddle.tanh(layer(x)), 0.5)
        return paddle.mean(x * x)


def step(optimized: bool) -> Tuple[Any, Any, Tuple[bytes, ...]]:
    """The report, bytes kept, and all gradients."""
    paddle.disable_static()
    try:
        paddle.seed(1)
        made, x = made_static(Dropouts(), True), paddle.concat([data(0)] * 64)
        report = memory_optimize(made, recompute='max') if optimized else None
        resting = settled.long_at_rest() - x.numpy().nbytes
        loss = made(x)
        kept = settled.at_rest() - resting
        loss.backward()
        return report, kept, tuple(p.grad.numpy().tobytes() for p in made.parameters())
    finally:
        paddle.enable_static()


def test_a_layer_keeps_masks_in_place_of_what_dropouts_make() -> None:
    report, kept, gradients = step(True)
    program, = report.programs
    assert gradients == step(False)[2]
    assert abs(kept - program.kept_after) <= 0.01 * kept
    results = 3 * 64 * BATCH * WIDTH * 4
    assert program.kept_before - program.kept_after > results > program.kept_after


def dropouts() -> Case:
    with drafting(Options(static_batch=True), batch_size=64) as draft:
        x = draft.floats('x', [64, 128])
        for _ in range(4):
            x = x + nn.functional.dropout(nn.functional.gelu(static.nn.fc(x, 128)), 0.2)
        return draft.finish(paddle.mean(x * x), [])


def test_what_is_made_again_is_in_one_variable_that_can_be_released() -> None:
    assert 'pd_op.masked_fill' in kept_uncollected(dropouts)


@pytest.mark.drops_plans
def test_a_number_that_is_not_the_one_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:

    def wrong(kind: str, operands: Any, like: Any, fills: Any) -> Any:
        return replaying.said(kind, operands, like, fills and 2 * fills)

    monkeypatch.setattr(emitter, 'said', wrong)
    report, _, gradients = step(True)
    assert not report.programs[0].report.changed
    assert 'could not be proved equal' in report.programs[0].why_not
    assert gradients == step(False)[2]


def encoder() -> Case:
    """Its widest values are dropouts' operands and results."""
    return transformer.transformer(Options(static_batch=True, layers=3, batch_size=16))


def predicted_and_measured() -> Tuple[int, int, float]:
    """Dropouts made again, bytes that the report says, and MiB that the first run needs."""
    case = encoder()
    report = optimized(case, recompute='max')
    again = sum(op.name() == 'pd_op.masked_fill' for op in case.main.global_block().ops)
    said = report.peak_bytes_after
    return again, said, first_peak(encoder,
                                   said / MIB * 1.01,
                                   ordered=True,
                                   rewrite=lambda each: optimized(each, recompute='max'))


def test_zeros_are_put_where_the_operand_was_and_counted_so() -> None:
    again, said, measured = apart(predicted_and_measured)
    assert again >= 3
    assert abs(said / MIB - measured) <= 0.001 * measured
