"""Ids and labels with two open dims each, as language models have them: what is said of them is what is measured."""
from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn, static

from benchmarks.programs.case import Case, Feed, Rows
from tests.backends.paddle3.running import MIB, assert_equal, first_peak, optimized, run
from transpiler import MemoryBudgetError, memory_optimize
from transpiler.backends.paddle3.importer import import_program

paddle.enable_static()
_ROWS, _WORDS, _TOKENS, _WIDTH = 4, 256, 500, 64


def _words(step: int) -> np.ndarray:
    return np.random.RandomState(step).randint(0, _TOKENS, [_ROWS, _WORDS])


def _model(loss_of: Callable[[Any], Any], feed: Callable[[int], Feed], hints: Rows) -> Case:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(5)
        hidden = nn.Embedding(_TOKENS, _WIDTH)(static.data('ids', [-1, -1], 'int64'))
        for _ in range(4):
            hidden = F.relu(nn.Linear(_WIDTH, _WIDTH)(hidden))
        loss = paddle.mean(loss_of(nn.Linear(_WIDTH, _TOKENS)(hidden)))
        paddle.optimizer.SGD(0.1).minimize(loss)
    return Case(main, startup, feed, (loss,), hints, None, training=True)


def padded(hints: Rows) -> Case:
    """Labels as ids are."""

    def loss_of(scores: Any) -> Any:
        labels = static.data('labels', [-1, -1], 'int64')
        return F.cross_entropy(scores, paddle.unsqueeze(labels, 2))

    return _model(loss_of, lambda step: {'ids': _words(step), 'labels': _words(step)}, hints)


def reshaped(hints: Rows) -> Case:
    """Labels as ids are, both laid flat by the program."""

    def loss_of(scores: Any) -> Any:
        labels = paddle.reshape(static.data('labels', [-1, -1], 'int64'), [-1])
        return F.cross_entropy(paddle.reshape(scores, [-1, _TOKENS]), labels)

    return _model(loss_of, lambda step: {'ids': _words(step), 'labels': _words(step)}, hints)


def flat(hints: Rows) -> Case:
    """Labels that are fed flat, and a weight for each."""

    def loss_of(scores: Any) -> Any:
        labels = static.data('labels', [-1, 1], 'int64')
        weights = static.data('weights', [-1, 1])
        return weights * F.cross_entropy(
            paddle.reshape(scores, [-1, _TOKENS]), labels, reduction='none')

    def feed(step: int) -> Feed:
        weights = np.random.RandomState(step).rand(_ROWS * _WORDS, 1).astype('float32')
        return {'ids': _words(step), 'labels': _words(step).reshape(-1, 1), 'weights': weights}

    return _model(loss_of, feed, hints)


def taught(hints: Rows) -> Case:
    """The scores of a teacher, for each word of each row."""

    def loss_of(scores: Any) -> Any:
        return (paddle.reshape(scores, [-1, _TOKENS]) - static.data('teacher', [-1, _TOKENS]))**2

    def feed(step: int) -> Feed:
        scores = np.random.RandomState(step).rand(_ROWS * _WORDS, _TOKENS).astype('float32')
        return {'ids': _words(step), 'teacher': scores}

    return _model(loss_of, feed, hints)


_CASES: Tuple[Tuple[Callable[[Rows], Case], Dict[str, int]], ...] = (
    (padded, {'ids': _ROWS, 'ids[1]': _WORDS}),
    (padded, {'labels': _ROWS, 'labels[1]': _WORDS}),
    (reshaped, {'ids': _ROWS, 'ids[1]': _WORDS, 'labels': _ROWS, 'labels[1]': _WORDS}),
    (flat, {'ids': _ROWS, 'ids[1]': _WORDS, 'labels': _ROWS * _WORDS}),
    (flat, {'ids': _ROWS, 'ids[1]': _WORDS}),
    (taught, {'ids': _ROWS, 'ids[1]': _WORDS}),
)  # yapf: disable


@pytest.mark.parametrize('build, hints', _CASES)
def test_whichever_input_names_the_length_the_peak_is_what_is_said(build: Any,
                                                                   hints: Dict[str, int]) -> None:
    case, plain = build(hints), build(hints)
    report = optimized(case)
    assert report.changed and not report.assumed and not report.unknown_sizes
    assert report.peak_bytes_after < report.peak_bytes_before
    before, after = (
        MIB * first_peak(lambda: build(hints), 1.01 * said / MIB, ordered=True, rewrite=rewrite)
        for said, rewrite in ((report.peak_bytes_before, lambda case: None),
                              (report.peak_bytes_after, optimized)))
    assert abs(before - report.peak_bytes_before) < 0.01 * before
    assert abs(after - report.peak_bytes_after) < 0.01 * after
    assert_equal(run(plain, 3), run(case, 3))


@pytest.mark.parametrize('build, hints', _CASES[2:4] + _CASES[-1:])
def test_the_least_budget_is_kept(build: Any, hints: Dict[str, int]) -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        optimized(build(hints), budget=1)
    least = refused.value.held_bytes + refused.value.best_bytes
    report = optimized(build(hints), budget=least)
    measured = MIB * first_peak(lambda: build(hints),
                                report.sure_bytes / MIB,
                                rewrite=lambda case: optimized(case, budget=least))
    assert 0.5 * report.sure_bytes < measured <= report.sure_bytes


def _shapes(**inputs: Any) -> Callable[[Callable[..., Any]], Dict[str, str]]:
    """What is said of inputs with these dims, if something is made of them."""

    def of(make: Callable[..., Any]) -> Dict[str, str]:
        main = static.Program()
        with static.program_guard(main):
            make(*(static.data(n, dims, 'int64' if n == 'labels' else 'float32')
                   for n, dims in inputs.items()))
        values = import_program(main).graph.values
        return {v.name: ' '.join(map(str, v.shape)) for v in values if v.name in inputs}

    return of


def _entropy(scores: Any, labels: Any) -> Any:
    return F.cross_entropy(paddle.reshape(scores, [-1, 8]), labels)


def test_only_an_op_that_rejects_all_else_says_that_dims_are_a_product() -> None:
    inputs = _shapes(scores=[-1, -1, 8], labels=[-1, 1])
    assert inputs(_entropy) == {'scores': 'N scores[1] 8', 'labels': 'N*scores[1] 1'}
    # It takes any number of rows.
    apart = {'scores': 'N scores[1] 8', 'labels': 'N(labels) 1'}
    assert inputs(lambda s, n: paddle.gather(paddle.reshape(s, [-1, 8]), n)) == apart


def test_what_is_broadcast_to_a_product_has_all_its_rows() -> None:
    """It may have a single one in some run, as what is broadcast to the batch may."""
    inputs = _shapes(scores=[-1, -1, 8], labels=[-1, 1], weights=[-1])
    product = {'scores': 'N scores[1] 8', 'labels': 'N*scores[1] 1', 'weights': 'N*scores[1]'}
    flat = lambda scores: paddle.reshape(scores, [-1, 8])
    for each in (lambda s, n, w: flat(s) * n.astype('float32') * paddle.unsqueeze(w, 1),
                 lambda s, n, w: w * F.cross_entropy(flat(s), n, reduction='none')[:, 0],
                 lambda s, n, w: F.cross_entropy(flat(s) * paddle.unsqueeze(w, 1), n)):
        assert inputs(each) == product


def test_an_op_that_may_not_run_says_nothing_of_inputs() -> None:
    inputs = _shapes(scores=[-1, -1, 8], labels=[-1, 1])

    def in_a_branch(scores: Any, labels: Any) -> Any:
        first = paddle.sum(scores) > 0
        return static.nn.cond(first, lambda: _entropy(scores, labels), lambda: paddle.sum(scores))

    assert inputs(in_a_branch) == {'scores': 'N scores[1] 8', 'labels': 'N(labels) 1'}


def test_a_product_may_be_of_a_dim_that_is_said() -> None:
    inputs = _shapes(scores=[-1, 5, 8], labels=[-1, 1])
    assert inputs(_entropy) == {'scores': 'N 5 8', 'labels': '5*N 1'}


def test_what_a_product_is_laid_beside_is_that_product() -> None:
    inputs = _shapes(scores=[-1, -1, 8], labels=[-1, 1], teacher=[-1, 8])
    product = {'scores': 'N scores[1] 8', 'labels': 'N*scores[1] 1', 'teacher': 'N*scores[1] 8'}
    for order in (1, -1):
        assert product == inputs(
            lambda s, n, t:
            [make() for make in (lambda: _entropy(s, n), lambda: F.cross_entropy(t, n))[::order]])


def test_a_product_may_have_more_bits_than_are_counted() -> None:
    inputs = _shapes(scores=[-1] * 8 + [16000], labels=[-1, 1])
    assert inputs(_entropy)['labels'] == 'N(labels) 1'
    pairs = _shapes(scores=[-1, -1, -1, -1, 8], labels=[-1, 1])
    square = 'N^2*scores[1]^2*scores[2]^2*scores[3]^2'

    def of_pairs(scores: Any, labels: Any) -> Any:
        flat = paddle.reshape(scores, [-1, 8])
        likely = F.sigmoid(paddle.reshape(paddle.matmul(flat, flat, transpose_y=True), [-1, 1]))
        return F.binary_cross_entropy(likely, labels.astype('float32'))

    assert pairs(of_pairs)['labels'] == f'{square} 1'


@pytest.mark.parametrize('more', [-6, -4, -3, -2, -1, *range(1, 13), 20, 26, 30])
def test_a_length_and_some_more_is_never_taken_for_another_length(more: int) -> None:
    inputs = _shapes(first=[-1, more], scores=[-1, -1, 8],
                     labels=[-1, -1]) if more > 0 else _shapes(scores=[-1, -1, 8], labels=[-1, -1])

    def beside(*given: Any) -> Any:
        scores, labels = given[-2:]
        scores = scores[:, :more] if more < 0 else F.pad(scores, [0, 0, more, 0, 0, 0])
        return F.cross_entropy(scores, labels)

    said = inputs(beside)
    longer = f'scores[1] + {more}' if more > 0 else 'labels[1]'
    assert said['scores'] == 'N scores[1] 8' and said['labels'].endswith(longer)


def test_lengths_are_one_where_an_op_takes_no_others() -> None:
    inputs = _shapes(scores=[-1, -1, 8], labels=[-1, -1])
    one = {'scores': 'N scores[1] 8', 'labels': 'N scores[1]'}
    assert inputs(lambda s, n: F.cross_entropy(s, paddle.unsqueeze(n, 2))) == one
    apart = {'scores': 'N scores[1] 8', 'labels': 'N(labels) labels[1]'}
    assert inputs(lambda s, n: (paddle.exp(s), paddle.exp(n.astype('float32')))) == apart
    # There may be half as many rows of twice as many.
    assert inputs(lambda s, n: _entropy(s, paddle.reshape(n, [-1]))) == apart
    three = _shapes(scores=[-1, -1, -1, 8], labels=[-1, -1, -1])
    assert three(F.cross_entropy)['labels'] == 'N scores[1] scores[2]'


def test_two_inputs_may_have_rows_of_their_own() -> None:
    inputs = _shapes(scores=[-1, 8], queries=[-1, 8], labels=[-1])
    of_two = inputs(lambda s, q, n: (F.cross_entropy(s, n), paddle.matmul(s, q, transpose_y=True)))
    assert of_two == {'scores': 'N 8', 'queries': 'N(queries) 8', 'labels': 'N'}


def towers(hints: Rows) -> Case:
    """Each query beside each of many candidates."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(5)
        sides = [static.data(name, [-1, _WIDTH]) for name in ('queries', 'candidates')]
        for _ in range(3):
            sides = [F.relu(nn.Linear(_WIDTH, _WIDTH)(side)) for side in sides]
        loss = paddle.mean(paddle.exp(0.01 * paddle.matmul(*sides, transpose_y=True)))
        paddle.optimizer.SGD(0.1).minimize(loss)

    def feed(step: int) -> Feed:
        random = np.random.RandomState(step)
        return {
            'queries': random.rand(32, _WIDTH).astype('float32'),
            'candidates': random.rand(2048, _WIDTH).astype('float32')
        }

    return Case(main, startup, feed, (loss,), hints, None, training=True)


def test_what_is_said_of_two_inputs_is_what_is_measured() -> None:
    hints = {'queries': 32, 'candidates': 2048}
    case = towers(hints)
    report = optimized(case)
    measured = MIB * first_peak(
        lambda: towers(hints), 1.01 * report.peak_bytes_before / MIB, ordered=True)
    assert abs(measured - report.peak_bytes_before) < 0.01 * measured and not report.assumed
    assert_equal(run(towers(hints), 3), run(case, 3))


def test_hints_are_for_the_rows_that_an_input_has_and_not_for_others() -> None:
    """Nodes and edges of a graph: those of more inputs are the batch, which took the most of all hints."""
    for nodes, edges in ((200, 5), (5, 200)):
        main = static.Program()
        with static.program_guard(main, static.Program()):
            x, target, weight = (
                static.data(n, [-1, k]) for n, k in (('x', 8), ('target', 8), ('weight', 1)))
            sent = paddle.gather(nn.Linear(8, 8)(x), static.data('start', [-1], 'int64')) * weight
            loss = paddle.mean(sent) + paddle.mean((nn.Linear(8, 8)(x) - target)**2)
            paddle.optimizer.SGD(0.1).minimize(loss)
        hints = {'x': nodes, 'target': nodes, 'start': edges, 'weight': edges}
        report = memory_optimize(main, fetch_list=[loss], batch_size=hints)
        assert sorted(report.dims.values()) == [5, 200] and not report.assumed
        shapes = {v.name: v.shape for v in import_program(main).graph.values}
        assert {n: shapes[n][0].evaluate(report.dims) for n in hints} == hints
