"""What einsum and its gradient allocate is what their equation says, and what they keep under two names is one memory."""

from __future__ import annotations

import math
import random
from typing import Any, Callable, List

import paddle
import pytest

from benchmarks.kernels.alone import Observation
from benchmarks.kernels.observing import observe
from tests.harness import Case, Mode, Peak, check, least_peak, new_programs
from tests.scenarios.common import data, floats, random_feed, train
from transpiler import memory_optimize
from transpiler.backends.einsum import gradient_is_given, result_is_operand, turned, workspace
from transpiler.backends.formulas import Tensor
from transpiler.ir import Size, Value

_DIMS = dict(zip('abcdefgh', (6, 7, 8, 9, 10, 11, 12, 13)))
_ROWS, _LENGTH, _WIDTH = 4, 32, 64


def _drawn(seed: int) -> str:
    """Some labels of both operands, summed over or not, and some of each alone, in any order."""
    draw = random.Random(seed)
    letters = draw.sample(sorted(_DIMS), 5)
    roles = [draw.choice('bsfg') for _ in letters]
    labels = [
        ''.join(draw.sample(each, len(each)))
        for each in ([c
                      for c, role in zip(letters, roles)
                      if role in wanted]
                     for wanted in ('bsf', 'bsg', 'bfg'))
    ]
    return '{},{}->{}'.format(*(each or 'h' for each in labels[:2]),
                              labels[2] + 'h' * (not all(labels[:2])))


def _seen(equation: str) -> List[Observation]:

    def product(draw: Any) -> Any:
        return paddle.einsum(
            equation,
            *(draw.x(*(_DIMS[c] for c in labels)) for labels in equation.split('->')[0].split(',')))

    return [o for o in observe(product, 0) if o.desc.type in ('einsum', 'einsum_grad')]


def _bytes(labels: str) -> int:
    return 4 * math.prod(_DIMS[c] for c in labels)


@pytest.mark.parametrize('part', range(4))
def test_what_the_kernels_allocate_is_what_the_equation_says(part: int) -> None:
    for equation in map(_drawn, range(part * 8, part * 8 + 8)):
        left, right = equation.split('->')
        sides = left.split(',')
        plan = turned(equation)
        forward, backward = _seen(equation)
        copies = sum(_bytes(side) for side, is_copy in zip(sides, plan.operands) if is_copy)
        assert forward.kept == _bytes(right) + copies, equation
        tensors = {'Operands': sides, 'Out': [right], 'Operands@GRAD': sides, 'Out@GRAD': [right]}
        slots = {
            slot: tuple(Tensor(tuple(Size.of(_DIMS[c]) for c in each), 4) for each in labels)
            for slot, labels in tensors.items()
        }
        for seen in (forward, backward):
            assert workspace(seen.desc.type, equation,
                             slots) == seen.own, (equation, seen.desc.type)


@pytest.mark.parametrize('equation',
                         ['abc->abc', 'abc->acb', 'abc->ab', 'abc->bc', 'aa->a', 'a->a'])
def test_of_one_operand_the_kernels_give_out_what_the_equation_says(equation: str) -> None:
    left, right = equation.split('->')
    shape = tuple(Size.of(_DIMS[c]) for c in left)
    forward, backward = _seen(equation)
    assert result_is_operand(equation) == (forward.kept == 0)
    assert gradient_is_given(equation, Value(0, 'x@GRAD', 0, shape=shape)) == (backward.kept == 0)


def test_of_one_operand_a_sum_over_a_dim_of_1_leaves_the_gradient_as_it_is() -> None:
    for last, is_given in ((Size.of(1), True), (Size.dim('n'), True), (Size.of(2), False)):
        gradient = Value(0, 'x@GRAD', 0, shape=(Size.of(3), last))
        assert gradient_is_given('ij->i', gradient) == is_given
        assert not gradient_is_given('ij->ji', gradient)
    assert gradient_is_given('...i->...i', Value(0, 'x@GRAD', 0))


def of_one_operand() -> Case:
    """The result is the operand, and the gradient that of the result: read under either name, and written over under none."""
    with new_programs() as (main, startup):
        hidden = paddle.static.nn.fc(data('x', _LENGTH, _WIDTH), _WIDTH)
        same = paddle.einsum('bi->bi', hidden)
        read = [paddle.tanh(same), paddle.nn.functional.relu(same)]
        total = paddle.add_n([paddle.sum(each) for each in (*read, same)]) * 1e-3
        wide = paddle.nn.functional.gelu(
            paddle.static.nn.fc(paddle.scale(hidden, total), 8 * _WIDTH))
        train(paddle.mean(wide * wide) + paddle.add_n([paddle.mean(each) for each in read]))
    return Case(main, startup, random_feed(x=floats(_LENGTH, _WIDTH)), [])


def of_one_operand_written_over() -> Case:
    """The same, where the executor may write over one name while another op reads the other: in its own order it does not."""
    with new_programs() as (main, startup):
        hidden = paddle.static.nn.fc(data('x', _LENGTH, _WIDTH), _WIDTH)
        same = paddle.einsum('...i->...i', hidden)
        read = [paddle.tanh(same), paddle.nn.functional.relu(same)]
        total = paddle.add_n([paddle.sum(each) for each in read]) * 1e-3 + paddle.sum(same) * 1e-4
        scaled = paddle.scale(hidden, 2.0) * total
        wide = paddle.nn.functional.gelu(paddle.static.nn.fc(scaled, 8 * _WIDTH))
        train(paddle.mean(wide * wide) + paddle.add_n([paddle.mean(each) for each in read]))
    return Case(main, startup, random_feed(x=floats(_LENGTH, _WIDTH)), [])


@pytest.mark.parametrize('recompute', ['auto', False])
@pytest.mark.parametrize('build, order', [(of_one_operand, 'default'),
                                          (of_one_operand_written_over, 'sequential')])
def test_what_is_in_the_memory_of_an_operand_holds_the_same_numbers(build: Callable[[], Case],
                                                                    order: str,
                                                                    recompute: Any) -> None:
    check(build, lambda case: memory_optimize(case.main, recompute=recompute),
          [Mode(order=order), Mode(collect=False, order=order)])


@pytest.mark.parametrize('equation', [
    'ij->ji', 'ii,ij->j', 'ij,k->k', 'ij,jk,kl->il', '...ij,...jk->...ik', 'ij,jk', 'ij,jk->iz',
    'Ij,jk->Ik'
])
def test_of_other_equations_only_a_bound_is_known(equation: str) -> None:
    assert turned(equation) is None


def test_a_dim_that_is_repeated_leaves_only_a_bound() -> None:
    sides = [Tensor(tuple(map(Size.of, shape)), 4) for shape in ((3, 1), (5, 7))]
    slots = {'Operands': tuple(sides), 'Out': (Tensor((Size.of(3), Size.of(7)), 4),)}
    assert workspace('einsum', 'ij,jk->ik', slots) is None


def of_a_layer() -> Case:
    """One operand lies as the product wants it and is kept as it is; the other is copied."""
    return _trained(paddle.static.nn.fc)


def of_what_is_cheap() -> Case:
    """The second operand can be made again from the first, which is kept anyway."""
    return _trained(lambda hidden, *_, **__: paddle.tanh(hidden))


def _trained(second: Callable[..., Any]) -> Case:
    with new_programs() as (main, startup):
        given = data('x', _ROWS, _LENGTH, _WIDTH)
        given.stop_gradient = False
        hidden = paddle.tanh(given)
        other = second(hidden, _WIDTH, num_flatten_dims=2)
        product = paddle.einsum('btw,bsw->bts', hidden, other)
        train(paddle.mean(paddle.tanh(product)))
    return Case(main, startup, random_feed(x=floats(_ROWS, _LENGTH, _WIDTH)), [])


@pytest.mark.parametrize('build', [of_a_layer, of_what_is_cheap])
def test_programs_need_what_is_said_to_the_byte(build: Callable[[], Case]) -> None:
    said = memory_optimize(build().main)
    peak = least_peak(f'{__name__}:{build.__name__}',
                      said.needed_bytes,
                      of=Peak.first_above_resting,
                      mode=Mode(order='sequential'))
    assert peak.first == said.resting_bytes + said.needed_bytes


@pytest.mark.parametrize('build', [of_a_layer, of_what_is_cheap])
def test_what_is_kept_under_two_names_holds_the_same_numbers(build: Callable[[], Case]) -> None:
    check(build)


def test_an_operand_is_made_again_from_one_that_is_kept_anyway() -> None:
    report = memory_optimize(of_what_is_cheap().main)
    assert report.peak_bytes_after < report.peak_bytes_before
