"""Programs with several open dims: every shape that is said is the one that a run shows, and plans are made of them."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn, static

from benchmarks.programs import build as benchmark
from benchmarks.programs.case import Case, Options
from tests.backends.paddle3.running import MIB, assert_equal, first_peak, optimized, run
from transpiler import arguments, memory_optimize
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.scopes import fresh_scope

paddle.enable_static()
IMAGES = ((1, 32, 32), (2, 33, 47), (3, 64, 96), (1, 17, 130))  # rows, height, width


def network(image: Any) -> List[Any]:
    """Ways in which dims of a result follow from those of images; each result is fetched."""
    halved = nn.Conv2D(3, 8, 3, stride=2, padding=1)(image)
    third = nn.Conv2D(3, 8, 3, stride=3, dilation=2)(image)
    normal = nn.BatchNorm2D(8)(halved)
    pooled = F.max_pool2d(normal, 3, 2, 1)
    up = F.interpolate(pooled, scale_factor=2)
    smooth = F.interpolate(pooled, scale_factor=[1.5, 3.0], mode='bilinear')
    wide = nn.Conv2DTranspose(8, 4, 4, stride=2, padding=1)(normal)
    odd = nn.Conv2DTranspose(8, 4, 3, stride=3)(third)
    flat = paddle.flatten(pooled, 2)
    columns = paddle.transpose(flat, [0, 2, 1])
    rows = nn.LayerNorm(8)(nn.Linear(8, 8)(columns))
    scores = F.softmax(paddle.matmul(rows, columns, transpose_y=True))
    parts = paddle.split(columns, 2, axis=-1)
    joined = paddle.concat([up, up, smooth[:, :, :1, :1].expand_as(up)], axis=1)
    shuffled = paddle.reshape(columns, [0, -1, 4, 2])
    whole = paddle.reshape(columns, [-1, 8])
    top = image[:, :, 1:-1, ::2]
    padded = F.pad(image, [1, 2, 3, 4])
    mean, globally = paddle.mean(image, axis=[2]), F.adaptive_avg_pool2d(image, 1)
    best = paddle.topk(scores, 3, axis=-1)
    return [halved, third, normal, pooled, up, smooth, wide, odd, flat, columns, rows, scores,
            *parts, joined, shuffled, whole, top, padded, mean, globally, *best]  # yapf: disable


def _built() -> Tuple[Any, Any, List[Any]]:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(3)
        made = network(static.data('image', [-1, 3, -1, -1]))
    return main, startup, made


def _shown(main: Any, startup: Any, made: List[Any], size: Tuple[int, int, int]) -> List[Tuple]:
    rows, height, width = size
    image = np.random.RandomState(0).rand(rows, 3, height, width).astype('float32')
    with fresh_scope():
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        return [r.shape for r in executor.run(main, feed={'image': image}, fetch_list=made)]


def test_every_shape_is_what_a_run_shows_and_no_other_is_larger() -> None:
    main, startup, made = _built()
    program = import_program(main)
    graph, ids = program.graph, {v.id: i for i, v in program.values.items()}
    exact, at_most, unknown = 0, 0, 0
    for size in IMAGES:
        dims = dict(zip(('N', 'image[2]', 'image[3]'), size))
        for value, shape in zip(made, _shown(main, startup, made, size)):
            found, elements = graph.values[ids[value.id]], int(np.prod(shape))
            if found.shape is not None:
                exact += 1
                assert tuple(d.evaluate(dims) for d in found.shape) == shape, (size, found.name)
            elif found.at_most is not None:
                at_most += 1
                assert found.at_most.evaluate(dims) >= elements * 4, (size, found.name)
            else:
                unknown += 1
    assert exact >= 4 * len(IMAGES) and at_most and not unknown, (exact, at_most, unknown)


STEPS = 16


def reader(batch_size: int = 64, width: int = 256, dims: Sequence[int] = (-1, -1)) -> Case:
    """A transformer that trains on sentences of any length."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(5)
        words = static.data('words', list(dims), 'int64')
        hidden = nn.Embedding(100, width)(words)
        for _ in range(2):
            hidden = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0)(hidden)
        label = paddle.unsqueeze(words, 2)
        loss = paddle.mean(F.cross_entropy(nn.Linear(width, 100)(hidden), label))
        paddle.optimizer.SGD(0.1).minimize(loss)

    def feed(step: int) -> Dict[str, np.ndarray]:
        random = np.random.RandomState(step)
        return {'words': random.randint(0, 100, (batch_size, STEPS)).astype('int64')}

    return Case(main, startup, feed, (loss,), batch_size, None, training=True)


@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_a_program_for_sentences_of_any_length_trains_in_less_to_the_same_bytes(
        recompute: str) -> None:
    case, plain = reader(), reader()
    report = optimized(case, recompute=recompute)
    length = report.dims['words[1]']  # which has no hint: one of those that the plan is good for
    said = optimized(reader(dims=[64, length]), recompute=recompute)
    assert report.dims == {'N': 64, 'words[1]': length} and not said.dims
    assert report.changed and not report.unknown_sizes
    assert report.peak_bytes_after < 0.8 * report.peak_bytes_before
    # The executor works in place on nothing whose second dim is open.
    assert said.peak_bytes_before < report.peak_bytes_before <= 1.1 * said.peak_bytes_before
    assert said.peak_bytes_after <= report.peak_bytes_after <= 1.1 * said.peak_bytes_after
    assert_equal(run(plain, 3), run(case, 3))


@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_for_one_length_the_plan_is_nearly_that_of_the_program_which_says_it(
        recompute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sizes in ('PLANNED_FOR', 'COMPARED_AT'):
        monkeypatch.setattr(arguments, sizes, (STEPS,))
    report = optimized(reader(), recompute=recompute)
    said = optimized(reader(dims=[64, STEPS]), recompute=recompute)
    assert report.dims == {'N': 64, 'words[1]': STEPS} and not said.dims and report.changed
    measured = MIB * first_peak(reader, report.peak_bytes_before / MIB, ordered=True)
    assert abs(measured - report.peak_bytes_before) < 0.01 * measured
    for open_dims, fixed in ((report.peak_bytes_before, said.peak_bytes_before),
                             (report.peak_bytes_after, said.peak_bytes_after)):
        assert fixed <= open_dims <= 1.1 * fixed


@pytest.mark.parametrize('shapes',
                         (((24, -1, 32),), ((1, 3, 48, -1),), ((24, -1, 32), (24, -1, 32)),
                          ((24, -1, 32), (24, -1, 32), (5, -1))))
def test_where_no_input_has_open_rows_what_the_first_open_dim_is_the_batch(
        shapes: Sequence[Tuple[int, ...]]) -> None:
    of_any, of_seven = (
        _peak_before(each) for each in (shapes, [[7 if d < 0 else d for d in s] for s in shapes]))
    assert of_any == of_seven


def _peak_before(shapes: Sequence[Sequence[int]]) -> int:
    """What the report says of some sums over inputs of these shapes, for a batch of 7."""
    main = static.Program()
    with static.program_guard(main):
        inputs = [static.data(f'x{i}', shape) for i, shape in enumerate(shapes)]
        like = [paddle.tanh(x) for x in inputs if len(x.shape) == len(shapes[0])]
        total = paddle.mean(paddle.exp(paddle.add_n([paddle.exp(x) for x in like])))
        alone = [paddle.mean(paddle.exp(x)) for x in inputs]
    return memory_optimize(main, fetch_list=[total, *alone], batch_size=7).peak_bytes_before


@pytest.mark.parametrize('name', ['gru_loop', 'attention_loop'])
def test_of_a_trained_loop_as_much_is_known_for_any_batch_as_for_one(name: str) -> None:
    cases = [
        benchmark(name, Options(trip_count=5, width=16, batch_size=6, static_batch=said))
        for said in (False, True)
    ]
    of_any, of_one = (optimized(case) for case in cases)
    assert not of_any.unknown_sizes
    assert of_any.peak_bytes_before == of_one.peak_bytes_before
    assert of_any.peak_bytes_after <= of_one.peak_bytes_after < of_one.peak_bytes_before
