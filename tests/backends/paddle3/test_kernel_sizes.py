"""The sizes that the importer says of what operators make, against what their kernels of Paddle 3 made."""
from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import paddle
import pytest
from paddle import nn, static

from benchmarks.apart import apart
from benchmarks.kernels.draw import Draw
from benchmarks.kernels.pir import ready
from benchmarks.kernels.recipes import Recipe, all_recipes
from benchmarks.programs.case import Case, Options, drafting
from tests.backends.paddle3.running import MIB, assert_same, first_peak, optimized, run
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.naming import bare_kind

# Where Paddle declares something else, and nobody says better: operator and result.
_NOT_AS_SAID = {
    ('coalesce_tensor', 'output'),  # their bytes count as the buffer's, which they are slices of
    ('distribute_fpn_proposals', 'multi_level_rois_num'),
    ('einsum', 'inner_cache'),  # may be an operand itself
    ('lstsq', 'singular_values'),
    ('matrix_rank', 'out'),  # of another type, not the same one in 3.0
    ('unique', 'inverse'),
    ('viterbi_decode', 'path'),
    ('viterbi_decode', 'scores'),
}
_RECIPES = all_recipes()
_GROUPS = sorted({name.split('.')[0] for name in _RECIPES})


class OpenRows(Draw):
    """Each input with as many rows as there are examples has an open number of them."""

    def declared(self, shape: Sequence[int]) -> List[int]:
        return [-1, *shape[1:]] if tuple(shape[:1]) == (self.n,) else list(shape)


class _Made(NamedTuple):
    """A result: operator, name; its bytes, and those that are said of it, None if nobody knows."""

    key: Tuple[str, str]
    real: int
    said: Any


def _said(program: Any, rows: int) -> Dict[str, Any]:
    """By id of a value."""
    imported = import_program(program)
    values = [(value, imported.graph.values[at]) for at, value in imported.values.items()]
    return {
        value.id: known.size.evaluate(dict.fromkeys(known.size.dims, rows))
        for value, known in values
        if known.size is not None and not known.guessed
    }


def _loop(program: Any) -> None:
    """One beside the rest, which carries something with an open number of rows: Paddle's inference is asked for everything then."""
    with static.program_guard(program):
        start, rows = paddle.full([1], 0, 'int64'), static.data('beside', [-1, 4])
        static.nn.while_loop(lambda at, _: at < 3, lambda at, x: [at + 1, paddle.tanh(x)],
                             [start, rows])


def _made(recipe: Recipe, draw: Draw, beside_a_loop: bool) -> Iterator[_Made]:
    """Nothing of a recipe that this Paddle cannot build, or run."""
    with contextlib.ExitStack() as stack:
        try:
            bench, program = stack.enter_context(ready(recipe, draw))
            ops = list(program.global_block().ops)
            list(bench.run(program))
        except Exception:  # pylint: disable=broad-except
            return
        if beside_a_loop:
            _loop(program)
        said = _said(program, draw.n)
        for op in ops:
            if op.name().startswith('pd_op.') and not op.num_regions():
                for name, value, real in bench.made(op):
                    yield _Made((bare_kind(op), name), real, said.get(value.id))


def _compared(group: str, opened: bool) -> Tuple[int, Set[Tuple[str, str]]]:
    """How many results are said, and which of them are said wrongly."""
    paddle.enable_static()
    wrong: Set[Tuple[str, str]] = set()
    said = 0
    for name, recipe in _RECIPES.items():
        if name.startswith(f'{group}.'):
            made = list(_made(recipe, OpenRows(1) if opened else Draw(1), opened))
            wrong.update(each.key for each in made if each.said not in (None, each.real))
            said += sum(each.said is not None for each in made)
    return said, wrong


@pytest.mark.parametrize('opened', [False, True])
@pytest.mark.parametrize('group', _GROUPS)
def test_what_is_said_of_results_is_what_kernels_make(group: str, opened: bool) -> None:
    """For fixed dims in a program of its own, for open ones beside a loop: there Paddle's inference is asked, which errs more than what
    operators declare. In a process of their own: what all these programs leave in Paddle is nothing for others."""
    said, wrong = apart(_compared, group, opened)
    assert said > 100
    assert wrong <= _NOT_AS_SAID


def _products(spread: Tuple[List[int], List[int]], batched: int, training: bool) -> Case:
    """Much is made of a product that is broadcast: the batch is in operand `batched`, the other one is the same for all of it."""
    with drafting(Options(inference=not training), batch_size=16) as draft:
        operands = [draft.floats('x', spread[at]) if at == batched else paddle.create_parameter(spread[at], 'float32')
                    for at in (0, 1)]  # yapf: disable
        product = paddle.matmul(*map(paddle.tanh, operands))
        loss = paddle.mean(paddle.tanh(nn.functional.relu(product * 2.0) + 1.0)**2.0)
        return draft.finish(loss, [loss])


_PRODUCTS = {
    'as many dims, batch on the left': lambda: _products(([16, 1, 64, 32], [1, 8, 32, 64]), 0, True),
    'as many dims, batch on the right': lambda: _products(([1, 64, 32], [16, 32, 64]), 1, True),
    'more on the left': lambda: _products(([16, 1, 64, 32], [8, 32, 64]), 0, False),
    'more on the right': lambda: _products(([8, 64, 32], [16, 1, 32, 64]), 1, False),
}  # yapf: disable


@pytest.mark.parametrize('build', _PRODUCTS.values(), ids=_PRODUCTS)
def test_a_product_that_is_broadcast_has_the_batch_whatever_paddle_declares(
        build: Callable[[], Case]) -> None:
    case = build()
    report = optimized(case)
    assert not report.unknown_sizes
    needed = report.needed_bytes / MIB
    measured = first_peak(build, 1.01 * needed, ordered=True, rewrite=optimized)
    assert abs(measured - needed) <= 0.01 * needed
    assert_same(run(build()), run(case))


def _recurrent(layer: Any, training: bool) -> Case:
    """Recurrent layers beside a loop."""
    with drafting(Options(inference=not training), batch_size=16) as draft:
        x = draft.floats('x', [16, 20, 32])
        start = paddle.full([1], 0, 'int64')
        _, x = static.nn.while_loop(lambda at, _: at < 3,
                                    lambda at, x: [at + 1, paddle.tanh(x)], [start, x])
        net = layer(32, 64, num_layers=2, direction='bidirect', dropout=0.3)
        if not training:
            net.eval()
        loss = paddle.mean(net(x)[0]**2.0)
        return draft.finish(loss, [loss])


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('layer', [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_beside_a_loop_recurrent_layers_need_what_they_do_elsewhere(layer: Any,
                                                                    training: bool) -> None:
    """Paddle's inference has them keep as many rows for each example as they are wide, in test mode, too, where nothing is kept."""
    build = partial(_recurrent, layer, training)
    needed = optimized(build()).needed_bytes / MIB
    measured = first_peak(build, 1.01 * needed, ordered=True, rewrite=optimized)
    assert abs(measured - needed) <= 0.01 * needed
