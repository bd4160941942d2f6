"""Shapes in symbolic dims agree with the shapes that a run gives, for every value of the dims."""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import paddle
import pytest

from tests.harness import fresh_scope, new_programs
from tests.scenarios.common import data, fc, train
from transpiler.backends.paddle2.importer import parse
from transpiler.backends.paddle2.shapes import infer
from transpiler.ir import Size
from transpiler.ir.symbols import trip

Shape = Optional[Tuple[Size, ...]]


def shapes_of(build: Callable[[], Any]) -> Tuple[Any, Any, List[str], Dict[str, Shape]]:
    with new_programs() as (main, startup):
        built = build()
    fetch = [v.name for v in (built if isinstance(built, (list, tuple)) else [built])]
    found = infer(parse(main.desc.serialize_to_string())).shapes
    return main, startup, fetch, {
        name: shape for (block, name), shape in found.items() if not block
    }


def run(main: Any, startup: Any, feed: Dict[str, np.ndarray],
        fetch: List[str]) -> List[Tuple[int, ...]]:
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        return [value.shape for value in executor.run(main, feed=feed, fetch_list=fetch)]


def value_of(symbol: str, feeds: Dict[str, np.ndarray]) -> int:
    """Symbols are called N(x), L(x) or x[1], after the input and the dim that they stand for."""
    inside = symbol.split('(')[-1].rstrip(')')
    if '[' in inside:
        name, dim = inside.rstrip(']').split('[')
        return feeds[name].shape[int(dim)]
    if inside in feeds:
        return feeds[inside].shape[0]
    return next(array.shape[0] for array in feeds.values())


def check(build: Callable[[], Any], *feeds: Dict[str, np.ndarray]) -> List[Shape]:
    """Where a shape is given it is the true one, for each of the feeds. Returns the shapes of the results."""
    main, startup, fetch, shapes = shapes_of(build)
    for feed in feeds:
        for name, actual in zip(fetch, run(main, startup, feed, fetch)):
            if shapes[name] is not None:
                dims = {s: value_of(s, feed) for d in shapes[name] for s in d.dims}
                assert tuple(d.evaluate(dims) for d in shapes[name]) == actual, name
    return [shapes[name] for name in fetch]


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, 'float32')


def batches(*rest: int) -> List[Dict[str, np.ndarray]]:
    return [{'x': floats(n, *rest)} for n in (1, 2, 7, 150)]


def test_concrete_shapes_are_constants() -> None:
    assert check(lambda: paddle.matmul(data('x', 3, 4), data('y', 4, 5)), {
        'x': floats(3, 4),
        'y': floats(4, 5)
    }) == [(Size.of(3), Size.of(5))]


def test_the_batch_is_a_symbol_and_not_one() -> None:
    shape, = check(lambda: fc(data('x', -1, 8), 5), *batches(8))
    assert len(shape[0].dims) == 1 and shape[0] != 1 and shape[1] == 5


def test_rows_that_a_reshape_joins_are_multiples_of_the_batch() -> None:
    shape, = check(lambda: paddle.reshape(data('x', -1, 6, 8), [-1, 8]), *batches(6, 8))
    n, = shape[0].dims
    assert shape[0] == Size.dim(n) * 6


def test_two_open_dims_that_a_reshape_joins_are_never_one_of_them() -> None:
    """N * S rows: given as that product or as unknown, never as N or S rows."""
    feeds = [{'x': floats(n, s, 8)} for n, s in ((1, 5), (5, 1), (2, 3), (64, 20))]
    check(lambda: paddle.reshape(data('x', -1, -1, 8), [-1, 8]), *feeds)


def test_rows_are_known_that_are_a_product_of_an_open_dim_and_a_sum() -> None:

    def build() -> Any:
        x = data('x', -1, -1, 4)
        return paddle.reshape(paddle.concat([x, x[:, :1], x], axis=1), [-1, 4])

    feeds = [{'x': floats(n, t, 4)} for n, t in ((1, 1), (2, 5), (30, 7))]
    assert None not in check(build, *feeds)


def test_a_product_of_two_open_dims_is_known() -> None:
    feeds = [{'x': floats(n, s, 8)} for n, s in ((1, 5), (5, 1), (2, 3), (64, 20))]
    shape, = check(lambda: paddle.reshape(data('x', -1, -1, 8), [-1, 8]), *feeds)
    assert shape is not None
    first, second = sorted(shape[0].dims)
    assert shape[0] == Size.dim(first) * Size.dim(second)


def test_a_slice_of_an_open_dim_is_not_taken_for_a_constant() -> None:
    check(lambda: data('x', -1, 8)[0:100] * 2.0, *batches(8))


@pytest.mark.parametrize('build', [
    lambda x: paddle.concat([x, x], axis=0),
    lambda x: paddle.matmul(x, x, transpose_y=True),
    lambda x: paddle.concat([x, paddle.ones([3, 8])], axis=0),
    lambda x: x[2:],
    lambda x: x[-5:],
    lambda x: x[::2],
    lambda x: x[:50],
    lambda x: paddle.reshape(x, [-1]),
    lambda x: paddle.reshape(x, [-1, 4]),
    lambda x: paddle.reshape(x, [2, -1]),
    lambda x: paddle.mean(x, axis=0, keepdim=True),
    lambda x: paddle.transpose(x, [1, 0]),
    lambda x: paddle.tile(x, [3, 1]),
    lambda x: paddle.nn.functional.pad(paddle.reshape(x, [1, 1, -1, 8]), [0, 0, 1, 2]),
    lambda x: x + paddle.ones([1, 8]),
    lambda x: paddle.nn.functional.max_pool2d(paddle.reshape(x, [1, 1, -1, 8]), 2, 2, padding=1),
    lambda x: paddle.nn.functional.avg_pool2d(
        paddle.reshape(x, [1, 1, -1, 8]), 3, 2, padding=1, ceil_mode=True),
    lambda x: paddle.nn.functional.
    conv2d(paddle.reshape(x, [1, 1, -1, 8]), paddle.ones([1, 1, 3, 3]), stride=2, padding=1),
    lambda x: paddle.nn.functional.interpolate(paddle.reshape(x, [1, 1, -1, 8]),
                                               scale_factor=[2, 2]),
    lambda x: paddle.shape(x),
    lambda x: paddle.unsqueeze(x, 0),
    lambda x: paddle.nn.functional.one_hot(paddle.cast(x[:, 0], 'int64'), 7),
    lambda x: paddle.nonzero(x > 0.0),
    lambda x: paddle.masked_select(x, x > 0.0),
    lambda x: paddle.unique(x),
    lambda x: paddle.expand(x[0:1], [5, 8]),
    lambda x: paddle.zeros_like(x),
    lambda x: paddle.reshape(x, [paddle.shape(x)[0], 2, 4]),
])
def test_where_a_shape_is_given_it_is_true_for_every_batch(build: Callable[[Any], Any]) -> None:
    check(lambda: build(data('x', -1, 8)), *[{'x': floats(n, 8)} for n in (2, 6, 40, 150)])


def test_two_inputs_that_may_differ_in_rows_are_not_taken_for_equal() -> None:
    shapes = check(lambda: [data('x', -1, 8) * 2.0, data('y', -1, 8) * 2.0], {
        'x': floats(3, 8),
        'y': floats(50, 8)
    })
    assert shapes[0] != shapes[1]


def test_two_inputs_that_an_op_adds_are_known_to_be_equal() -> None:
    shapes = check(
        lambda:
        [data('x', -1, 8) * 2.0,
         data('y', -1, 8) * 2.0,
         data('x', -1, 8) + data('y', -1, 8)], {
             'x': floats(3, 8),
             'y': floats(3, 8)
         })
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize('product', [
    lambda x, y: paddle.matmul(x, y, transpose_y=True),
    lambda x, y: paddle.matmul(paddle.reshape(x, [-1, 3, 2]), paddle.reshape(y, [-1, 2, 3]))
])
def test_two_inputs_that_a_product_broadcasts_are_known_to_be_equal(product: Any) -> None:
    shapes = check(lambda: product(data('x', -1, 3, 8), data('y', -1, 3, 8)), *[{
        'x': floats(n, 3, 8),
        'y': floats(n, 3, 8)
    } for n in (1, 2, 7)])
    assert shapes[0] is not None and {s for d in shapes[0] for s in d.dims} == {'N'}


def _cost(scores: Any, labels: Any) -> Any:
    return paddle.nn.functional.cross_entropy(scores, labels)


def _flat(scores: Any) -> Any:
    return paddle.reshape(scores, [-1, 8])


@pytest.mark.parametrize('build', [
    lambda x, y, k: paddle.concat([x, y], 2),
    lambda x, y, k: paddle.tanh(x) + y,
    lambda x, y, k: paddle.where(x > 0.0, x, y),
    lambda x, y, k: x * paddle.unsqueeze(k, -1),
    lambda x, y, k: _cost(x, paddle.cast(paddle.unsqueeze(k, -1), 'int64')),
    lambda x, y, k: _cost(_flat(x), paddle.cast(paddle.reshape(k, [-1]), 'int64')),
    lambda x, y, k: paddle.concat([paddle.concat([x, x * paddle.unsqueeze(k, -1), y], 2), y], 2),
    lambda x, y, k: k * _cost_of_each(x, paddle.argmax(y, -1, keepdim=True))[:, :, 0],
    lambda x, y, k: paddle.flatten(k) * paddle.flatten(
        _cost_of_each(x, paddle.argmax(y, -1, keepdim=True))),
    lambda x, y, k: paddle.flatten(k) * paddle.flatten(paddle.sum(x * y, -1)),
])
def test_rows_and_words_of_several_inputs_are_not_one_dim(build: Any) -> None:
    """Ids and labels, or a mask: that both of their dims have to be equal does not make one of the two. The length was said to be
    that of the batch, and budgets were broken."""
    with new_programs() as (main, startup):
        inputs = data('x', -1, -1, 8), data('y', -1, -1, 8), data('k', -1, -1)
        made = paddle.tanh(build(*inputs))
    found = infer(parse(main.desc.serialize_to_string())).shapes
    names = [op.output('Out')[0] for op in main.global_block().ops if op.type == 'tanh']
    assert made.name in names and all(found[0, name] is not None for name in names)
    for n, words in ((2, 7), (5, 1), (6, 30)):
        feed = {name: floats(n, words, 8) for name in 'xy'}
        shapes = run(main, startup, {**feed, 'k': floats(n, words)}, names)
        dims = {
            s: n if s.startswith('N') else words
            for name in names for d in found[0, name] for s in d.dims
        }
        assert shapes == [tuple(d.evaluate(dims) for d in found[0, name]) for name in names]


def test_dims_that_are_found_to_be_one_after_the_rows_are_not_the_rows() -> None:
    """Queries, keys and a bias for each pair of them: the queries were said to be as many as the batch."""

    def build() -> List[Any]:
        queries, keys = data('queries', -1, -1, 8), data('keys', -1, -1, 8)
        bias = data('bias', -1, -1, -1)
        likely = paddle.nn.functional.softmax(paddle.matmul(queries, keys, transpose_y=True) + bias)
        return [likely, paddle.matmul(likely, keys)]

    feeds = [{
        'queries': floats(n, own, 8),
        'keys': floats(n, other, 8),
        'bias': floats(n, own, other)
    } for n, own, other in ((2, 3, 5), (4, 1, 1), (1, 6, 2))]
    assert None not in check(build, *feeds)


def test_three_inputs_that_an_op_lays_side_by_side_have_two_dims_in_common() -> None:
    with new_programs() as (main, _):
        name = paddle.concat([data(n, -1, -1, 8) for n in 'xyz'], 2).name
    rows, words, _ = infer(parse(main.desc.serialize_to_string())).shapes[0, name]
    found = infer(parse(main.desc.serialize_to_string())).shapes
    assert rows != words and all(found[0, n][:2] == (rows, words) for n in 'xyz')


@pytest.mark.parametrize('length', (-1, 20))
def test_rows_that_are_those_of_another_input_laid_flat_are_known_as_their_product(
        length: int) -> None:
    """Labels of a language model. What follows was in no figure, and a plan needed more than no plan."""
    with new_programs() as (main, startup):
        ids, labels = data('ids', -1, length, dtype='int64'), data('labels', -1, 1, dtype='int64')
        scores = paddle.static.nn.fc(paddle.static.nn.embedding(ids, [50, 8]),
                                     8,
                                     num_flatten_dims=2)
        losses = _cost_of_each(_flat(scores), labels)
        train(paddle.mean(losses))
    found = infer(parse(main.desc.serialize_to_string()))
    names = [
        n for (b, n), shape in found.shapes.items()
        if not b and shape and n in (losses.name, f'{losses.name}@GRAD', 'labels')
    ]
    assert len(names) == 3 and not any(
        shape is None for key, shape in found.shapes.items() if key[1].startswith('softmax'))
    for n, words in ((3, 20), (1, 20)) + (((4, 9),) if length < 0 else ()):
        feed = {'ids': np.ones([n, words], 'int64'), 'labels': np.ones([n * words, 1], 'int64')}
        shapes = run(main, startup, feed, names)
        dims = {'N': n, 'ids[1]': words}
        assert shapes == [tuple(d.evaluate(dims) for d in found.shapes[0, name]) for name in names]


def _cost_of_each(scores: Any, labels: Any) -> Any:
    return paddle.nn.functional.softmax_with_cross_entropy(scores, labels)


def _words(ids: Any) -> Any:
    return _flat(paddle.static.nn.embedding(ids, [50, 8]))


def _pixels(image: Any) -> Any:
    return _flat(paddle.transpose(image, [0, 2, 3, 1]))


@pytest.mark.parametrize('compare', [
    lambda flat, other: (flat - other)**2,
    lambda flat, other: paddle.nn.functional.mse_loss(flat, other, 'none'),
    paddle.maximum,
    lambda flat, other: paddle.cast(flat > other, 'float32'),
    lambda flat, other: _cost_of_each(flat, paddle.argmax(other, 1, keepdim=True)),
    lambda flat, other: paddle.nn.functional.cosine_similarity(flat, other),
    lambda flat, other: other[:, 0] * _cost_of_each(flat, paddle.argmax(other, 1, keepdim=True))[:,
                                                                                                 0],
])
@pytest.mark.parametrize('of, dims', [(_words, (-1, -1)), (_words, (-1, 20)),
                                      (_pixels, (-1, 8, -1, -1))])
def test_what_is_compared_with_another_input_laid_flat_has_the_rows_of_that(
        compare: Any, of: Any, dims: Tuple[int, ...]) -> None:
    """More rows than 32 bits count were taken for a single one in a probe, and the batch for as many as a sentence has words: where 13 KB
    are needed, 85 MB were said to be."""
    with new_programs() as (main, startup):
        whole = data('whole', *dims, dtype='int64' if of is _words else 'float32')
        made = compare(of(whole), data('flat', -1, 8))
        train(paddle.mean(made * paddle.static.create_parameter([1], 'float32')))
    inferred = infer(parse(main.desc.serialize_to_string()))
    found = {name: shape for (block, name), shape in inferred.shapes.items() if not block}
    assert None not in found.values()
    for sizes in ((3, 5, 7), (1, 4, 2)):
        fed = [n if d < 0 else d for n, d in zip((sizes[0], *sizes[-len(dims) + 1:]), dims)]
        rows = math.prod(fed) // (8 if of is _pixels else 1)
        feed = {
            'whole': np.ones(fed, 'int64' if of is _words else 'float32'),
            'flat': floats(rows, 8)
        }
        at = {s: value_of(s, {'whole': feed['whole']}) for d in found[made.name] for s in d.dims}
        said = tuple(d.evaluate(at) for d in found[made.name])
        assert run(main, startup, feed, [made.name]) == [said]


@pytest.mark.parametrize('mode', ('bilinear', 'nearest', 'bicubic'))
@pytest.mark.parametrize('layout', ('NCHW', 'NHWC'))
def test_an_image_that_is_made_as_large_as_another_is_known_to_be(mode: str, layout: str) -> None:
    """As the scores of a segmentation are made as large as what it is given."""

    def build() -> Any:
        image, small = data('x', -1, -1, -1, 3), data('small', -1, -1, -1, 3)
        if layout == 'NCHW':
            image, small = (paddle.transpose(each, [0, 3, 1, 2]) for each in (image, small))
        size = paddle.shape(image)[2:] if layout == 'NCHW' else paddle.shape(image)[1:3]
        large = paddle.nn.functional.interpolate(small, size=size, mode=mode, data_format=layout)
        twice = paddle.nn.functional.interpolate(small,
                                                 size=[size[0] * 2, size[1]],
                                                 mode=mode,
                                                 data_format=layout)
        return large, twice

    feeds = [{
        'x': floats(n, *dims, 3),
        'small': floats(n, 4, 5, 3)
    } for n, dims in ((1, (8, 9)), (3, (2, 7)))]
    shapes = check(build, *feeds)
    assert shapes and None not in shapes


@pytest.mark.parametrize('make', [
    lambda x: paddle.flatten(x, 0, 1)[:, 0],
    lambda x: paddle.flatten(x, 1),
    lambda x: paddle.gather(_flat(x), paddle.arange(4), axis=1),
    lambda x: paddle.norm(_flat(x), axis=1),
    lambda x: paddle.unbind(paddle.reshape(x, [-1, 2, 4]), 1)[1],
    lambda x: paddle.einsum('nh,mh->nm', _flat(x), paddle.ones([4, 8])),
    lambda x: paddle.stack([_flat(x), _flat(x)], 1),
])
def test_operators_that_count_in_32_bits_are_asked_for_fewer_rows(make: Any) -> None:
    feeds = [{'x': floats(*dims, 8)} for dims in ((3, 5), (1, 1), (2, 9))]
    for shape in check(lambda: make(data('x', -1, -1, 8)), *feeds):
        assert shape is not None


def test_two_open_dims_of_which_a_product_is_taken_are_not_one() -> None:
    shapes = check(lambda: paddle.reshape(data('x', -1, -1, 4), [-1, 2]), {'x': floats(3, 5, 4)},
                   {'x': floats(7, 2, 4)})
    assert shapes[0] is not None and len({s for d in shapes[0] for s in d.dims}) == 2


def test_gradients_have_the_shapes_of_their_variables() -> None:
    with new_programs() as (main, _):
        train(paddle.mean(fc(fc(data('x', -1, 8), 8, 'relu'), 4)))
    shapes = infer(parse(main.desc.serialize_to_string())).shapes
    gradients = {name: shape for (_, name), shape in shapes.items() if name.endswith('@GRAD')}
    assert gradients
    for name, shape in gradients.items():
        assert shape == shapes[0, name[:-len('@GRAD')]]


def _chosen(x: Any) -> Any:
    return paddle.static.nn.cond(paddle.mean(x) > 0, lambda: paddle.tanh(x) * 2, lambda: x * x)


def _by_numpy(x: Any) -> Any:
    block = paddle.static.default_main_program().current_block()
    result = block.create_var(name='by_numpy', shape=x.shape, dtype=x.dtype)
    return paddle.static.nn.py_func(lambda value: np.tanh(np.array(value)),
                                    x,
                                    result,
                                    backward_func=lambda x, y, dy: np.array(dy))


def _own_gradient(x: Any) -> Any:
    return paddle.static.nn.static_pylayer(lambda value: paddle.round(value) * 3, [x],
                                           lambda slope: paddle.clip(slope, -1, 1))


@pytest.mark.parametrize('function', [_chosen, _by_numpy, _own_gradient])
def test_what_a_branch_python_or_an_own_gradient_makes_is_like_its_kin(
        function: Callable[[Any], Any]) -> None:
    with new_programs() as (main, startup):
        result = function(fc(data('x', -1, 8), 4))
        after = paddle.exp(result)
        train(paddle.mean(after))
    feeds = batches(8)
    found = [run(main, startup, feed, [result.name, after.name]) for feed in feeds]
    shapes = infer(parse(main.desc.serialize_to_string())).shapes
    names = [
        n for _, n in shapes if '@GRAD' in n and n.split('@GRAD')[0] in (after.name, result.name)
    ]
    assert len(set(names)) > 1
    for name in (after.name, result.name, *names):
        for feed, (actual, _) in zip(feeds, found):
            shape = shapes[0, name]
            assert shape is not None, name
            assert tuple(d.evaluate({'N': len(feed['x'])}) for d in shape) == actual


def test_data_dependent_shapes_are_unknown() -> None:
    _, _, fetch, shapes = shapes_of(lambda: paddle.nonzero(data('x', -1, 8) > 0.0))
    assert shapes[fetch[0]] is None


@pytest.mark.parametrize('other, rows', [
    (lambda x: x[:1, :1], 1),
    (lambda x: paddle.ones([3, 1, 8]), 3),
    (lambda x: paddle.ones([40, 1, 8]), 40),
    (lambda x: paddle.expand(x[:, :1], [32, 1, 8]), 32),
    (lambda x: paddle.tile(x[:1, :1], [5, 1, 1]), 5),
    (lambda x: paddle.mean(paddle.concat([x[:1, :1]] * 6, 0), 1, keepdim=True), 6),
])
def test_what_follows_from_an_op_that_accepts_one_value_of_a_dim_is_known_for_that(
        other: Any, rows: int) -> None:
    """Nobody knew how large it would be: it was in no figure, and budgets were broken (`tests.wild` 8500731)."""
    with new_programs() as (main, startup):
        x = paddle.static.nn.fc(data('x', -1, -1, 8), 8, num_flatten_dims=2)
        result = paddle.tanh(paddle.reshape(paddle.concat([x, other(x)], 1), [-1, 8]))
        train(paddle.mean(paddle.static.nn.fc(result, 4)))
    found = infer(parse(main.desc.serialize_to_string()))
    most = {name: shape for (_, name), shape in found.at_most.items() if shape is not None}
    fetched = [n for n in most if n in (result.name, f'{result.name}@GRAD')]
    assert len(fetched) == 2
    for words in (1, 6):
        shapes = run(main, startup, {'x': floats(rows, words, 8)}, fetched)
        assert shapes == [tuple(d.evaluate({'x[1]': words}) for d in most[n]) for n in fetched]


@pytest.mark.parametrize('build', [
    lambda scores, words: _cost_of_each(_flat(scores[:, :-1]), paddle.reshape(
        words[:, 1:], [-1, 1])),
    lambda scores, words: paddle.flatten(scores[:, 1:] * scores[:, :-1]),
    lambda scores, words: paddle.flatten(words[:, :-2]) * paddle.flatten(words[:, 2:]),
])
def test_what_a_sentence_is_shifted_by_is_known_to_have_no_more_words_than_it(build: Any) -> None:
    """Each word of the next, as generative models are trained. Nobody knew how large the scores would be that are laid flat."""
    with new_programs() as (main, startup):
        ids = data('ids', -1, -1, dtype='int64')
        made = build(paddle.static.nn.embedding(ids, [50, 8]), ids)
        train(
            paddle.mean(
                paddle.cast(made, 'float32') * paddle.static.create_parameter([1], 'float32')))
    found = infer(parse(main.desc.serialize_to_string()))
    assert not [k for k, s in found.shapes.items() if s is None and found.at_most.get(k) is None]
    most = found.at_most[0, made.name]
    for n, words in ((1, 3), (4, 48), (7, 300)):
        (shape,) = run(main, startup, {'ids': np.ones([n, words], 'int64')}, [made.name])
        bound = [d.evaluate({'N': n, 'ids[1]': words}) for d in most]
        assert len(shape) == len(bound) and all(d <= b for d, b in zip(shape, bound))
        assert math.prod(bound) * (words - 2) <= math.prod(shape) * words


@pytest.mark.parametrize('build, rows', [
    (lambda x: paddle.expand(x, [8, 4]), 8),
    (lambda x: paddle.reshape(x, [-1, 13 * 4]), 13 * 52),
    (lambda x: paddle.reshape(x, [-1, 13 * 4]), 13 * 520),
], ids=('1 or 8', 'as many as 13 times a dim', 'more'))  # yapf: disable
def test_what_runs_with_several_values_of_a_dim_is_not_bounded_by_one_of_them(
        build: Any, rows: int) -> None:
    """Laid beside what is picked of the rows, and beside all, so that nobody knows a shape."""
    with new_programs() as (main, startup):
        x = data('x', -1, 4)
        made = paddle.reshape(build(x), [-1])
        name = paddle.concat([made, paddle.masked_select(x, x > 0.0), paddle.reshape(x, [-1])]).name
    found = infer(parse(main.desc.serialize_to_string()))
    shape = found.shapes[0, name] or found.at_most.get((0, name))
    (most,), = run(main, startup, {'x': floats(rows, 4)}, [name])
    assert shape is None or shape[0].evaluate({'N': rows}) >= most


def branch(x: Any, rows: Any, single: Callable[[Any], Any]) -> Any:
    return paddle.static.nn.cond(rows == 32, lambda: single(x), lambda: paddle.tanh(x))


def written_in_branch(x: Any, rows: Any, single: Callable[[Any], Any]) -> Any:
    out = paddle.assign(x)

    def write() -> None:
        paddle.assign(single(x), out)

    paddle.static.nn.cond(rows == 32, write, None)
    return out


def loop(x: Any, rows: Any, single: Callable[[Any], Any]) -> Any:
    """Of no trip if there are other rows."""
    body = lambda left, state: [left + 1, single(state)]
    trips = paddle.cast(rows == 32, 'int64')
    return paddle.static.nn.while_loop(
        lambda at, _: at < trips, body,
        [paddle.zeros([1], 'int64'), paddle.exp(x)])[1]


@pytest.mark.parametrize('other', [
    lambda state: paddle.zeros([32, 4]),
    lambda state: paddle.expand(state, [32, 4]),
    lambda state: paddle.concat([state[:1]] * 32, 0),
], ids=('constant', 'expanded', 'repeated'))  # yapf: disable
@pytest.mark.parametrize('inside', [branch, written_in_branch, loop])
def test_a_loop_or_branch_that_does_not_run_says_nothing_of_the_rows(
        inside: Any, other: Callable[[Any], Any]) -> None:
    """Inside there may be 32 of them alone; what is behind it has as many as are fed."""

    def single(state: Any) -> Any:
        return paddle.static.nn.fc(paddle.concat([state, other(state)], 1), 4)

    with new_programs() as (main, startup):
        x = data('x', -1, 4)
        name = paddle.exp(inside(x, paddle.shape(x)[0], single)).name
    found = infer(parse(main.desc.serialize_to_string()))
    shape = found.shapes[0, name] or found.at_most.get((0, name))
    made, = run(main, startup, {'x': floats(2000, 4)}, [name])
    assert made == (2000, 4)
    assert shape is None or shape[0].evaluate({'N': 2000}) >= 2000


def test_what_a_loop_put_into_arrays_is_known_at_the_most_when_it_is_joined() -> None:
    rows, steps = 3, 6
    with new_programs() as (main, startup):
        states, last = paddle.nn.RNN(paddle.nn.GRUCell(8, 4))(data('x', -1, steps, 8))
        loss = paddle.mean(paddle.reshape(states, [-1, 4])) + paddle.mean(last)
        train(loss)
    found = infer(parse(main.desc.serialize_to_string()))
    loop, = (op.attr('sub_block').id for op in main.global_block().ops if op.type == 'while')
    dims = {'N': rows, trip(loop): steps}
    most = {
        name: tuple(d.evaluate(dims) for d in shape)
        for (block, name), shape in found.at_most.items()
        if not block and shape is not None
    }
    fetched = [name for name, shape in most.items() if math.prod(shape)
              ]  # but for shapes that are passed on alone
    assert states.name in fetched and f'{states.name}@GRAD' in fetched
    shapes = run(main, startup, {'x': floats(rows, steps, 8)}, fetched)
    assert shapes == [most[name] for name in fetched]


def test_what_an_op_makes_that_wants_two_loops_to_have_as_many_trips_is_bounded_by_them() -> None:
    rows, steps = 4, 6
    with new_programs() as (main, startup):
        cells = [paddle.nn.SimpleRNNCell(8, 8) for _ in range(2)]
        both, _ = paddle.nn.BiRNN(*cells)(data('x', -1, steps, 8))
    found = infer(parse(main.desc.serialize_to_string()))
    loops = [op.attr('sub_block').id for op in main.global_block().ops if op.type == 'while']
    most, = (
        shape for (block, name), shape in found.at_most.items() if not block and name == both.name)
    assert len(loops) == 2 and most is not None
    dims = {'N': rows, **{trip(loop): steps for loop in loops}}
    assert [tuple(d.evaluate(dims) for d in most)] == run(main, startup,
                                                          {'x': floats(rows, steps, 8)},
                                                          [both.name])


def test_a_gradient_that_is_read_from_an_array_is_like_what_it_is_the_gradient_of() -> None:
    with new_programs() as (main, _):
        states, _ = paddle.nn.RNN(paddle.nn.GRUCell(8, 4))(data('x', -1, 6, 8))
        train(paddle.mean(states))
    found = infer(parse(main.desc.serialize_to_string())).shapes
    read = [(block, op)
            for block in main.blocks
            for op in block.ops
            if op.type == 'read_from_array' and op.input('X_W')]
    assert {block.idx > 0 for block, _ in read} == {True, False}
    for block, op in read:
        at = block.forward_block_idx if block.idx else 0
        shape = found[block.idx, op.output('Out')[0]]
        assert shape is not None and shape == found[at, op.input('X_W')[0]]


def test_arrays_that_something_else_fills_are_not_counted() -> None:
    with new_programs() as (main, _):
        zero = paddle.zeros([1], 'int64')
        array = paddle.tensor.array_write(data('x', -1, 8), zero)
        copied = paddle.assign(array)
        paddle.tensor.array_write(data('y', -1, 8), zero + 1, copied)
        for each in (array, copied):
            paddle.tensor.manipulation.tensor_array_to_tensor(each)
    found = infer(parse(main.desc.serialize_to_string()))
    joins = [op for op in main.global_block().ops if op.type == 'tensor_array_to_tensor']
    known = {op.input('X')[0]: found.at_most[0, op.output('Out')[0]] for op in joins}
    assert known[array.name] is not None and known[copied.name] is None


def test_rows_that_a_reader_brings_in_are_open_as_those_that_are_fed() -> None:
    batches = [floats(rows, 8) for rows in (5, 1, 7)]
    with fresh_scope(), new_programs() as (main, startup):  # the reader's queue is in the scope
        x = data('x', -1, 8)
        loader = paddle.base.reader.DataLoader.from_generator([x], capacity=2, iterable=False)
        hidden = fc(x, 4)
        train(paddle.mean(hidden))
        found = infer(parse(main.desc.serialize_to_string())).shapes
        names = [x.name, hidden.name, f'{hidden.name}@GRAD']
        loader.set_batch_generator(lambda: ((batch,) for batch in batches), paddle.CPUPlace())
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        loader.start()
        seen = [executor.run(main, fetch_list=names) for _ in batches]
        loader.reset()
    for batch, values in zip(batches, seen):
        shapes = [tuple(d.evaluate({'N': len(batch)}) for d in found[0, name]) for name in names]
        assert [value.shape for value in values] == shapes


def _looped(enlarge: Callable[[Any, Any], Any], trips: int = 5) -> List[Any]:
    """A loop over [x, a cache], which `enlarge` makes of x and the cache of the trip before."""
    x = data('x', -1, 1, 4)
    zero = paddle.zeros([1], 'int64')
    body = lambda i, x, cache: [i + 1, paddle.tanh(x), enlarge(x, cache)]
    return paddle.static.nn.while_loop(lambda i, x, cache: i < trips, body, [zero, x, x + 1])[1:]


def test_an_input_that_a_loop_goes_on_with_has_open_rows() -> None:
    shapes = check(lambda: _looped(lambda x, cache: cache * x), *batches(1, 4))
    assert shapes == [(Size.dim('N'), Size.of(1), Size.of(4))] * 2


@pytest.mark.parametrize('trips', [1, 2, 7])
def test_what_each_trip_makes_longer_is_as_long_as_after_the_last_at_the_most(trips: int) -> None:
    build = lambda: _looped(lambda x, cache: paddle.concat([cache, x], axis=1), trips)
    state, cache = check(build, *batches(1, 4))
    assert state is not None and cache is None
    main, startup, fetch, _ = shapes_of(build)
    most = infer(parse(main.desc.serialize_to_string())).at_most[0, fetch[1]]
    feed = {'x': floats(3, 1, 4)}
    _, actual = run(main, startup, feed, fetch)
    found = tuple(d.evaluate({'N': 3, trip(1): trips}) for d in most)
    assert actual <= found <= (3, actual[1] + 1, 4)  # of one trip a second one was looked at


def test_what_grows_by_more_with_each_trip_has_no_shape() -> None:
    with new_programs() as (main, _):
        state, cache = _looped(lambda x, cache: paddle.concat([cache, cache], axis=1))
    found = infer(parse(main.desc.serialize_to_string()))
    assert found.shapes[0, state.name] is not None
    assert found.shapes[0, cache.name] is None and found.at_most[0, cache.name] is None


def _longer_by_loops(depth: int, x: Any, carried: Any) -> Any:
    """Each of so many loops, one inside the other, makes it longer by `x` with each trip."""
    longer = paddle.concat([carried, x], axis=1)
    if not depth:
        return longer
    body = lambda i, each: [i + 1, _longer_by_loops(depth - 1, x, each)]
    zero = paddle.zeros([1], 'int64')
    return paddle.static.nn.while_loop(lambda i, _: i < 3, body, [zero, longer])[1]


@pytest.mark.parametrize('depth', [4, 12])
def test_what_loops_in_loops_make_longer_than_any_tensor_has_no_shape(depth: int) -> None:
    with new_programs() as (main, _):
        x = data('x', -1, 4, 8)
        made = _longer_by_loops(depth, x, paddle.tanh(x))
    found = infer(parse(main.desc.serialize_to_string()))
    assert found.shapes[0, made.name] is None and found.at_most[0, made.name] is None
    assert found.shapes[0, x.name] == (Size.dim('N'), Size.of(4), Size.of(8))


def test_inference_does_not_change_the_program() -> None:
    with new_programs() as (main, _):
        train(paddle.mean(fc(data('x', -1, 8), 4)))
    before = main.desc.serialize_to_string()
    infer(parse(before)).shapes
    assert main.desc.serialize_to_string() == before


def test_sequences_have_words_as_rows_and_their_time_steps_and_sentences_fewer() -> None:
    from benchmarks.programs import build, small_options
    main = build('dynamic_rnn', small_options('dynamic_rnn')).main
    found = infer(parse(main.desc.serialize_to_string())).shapes
    rows = lambda op, block: found[block, op.output('Out')[0]][0]
    words = found[0, 'words'][0]
    steps = {rows(op, 1) for op in main.blocks[1].ops if op.type in ('mul', 'shrink_rnn_memory')}
    assert len(steps) == 1 and words not in steps and found[0, 'label'][0] not in steps
    whole = [op for op in main.blocks[0].ops if op.type == 'array_to_lod_tensor']
    assert whole and all(rows(op, 0) == words for op in whole)
    pooled = [op for op in main.blocks[0].ops if op.type == 'sequence_pool']
    assert pooled and all(rows(op, 0) == found[0, 'label'][0] != words for op in pooled)
