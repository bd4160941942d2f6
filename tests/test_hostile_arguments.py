"""Arguments of every kind: each is taken for what it says, or refused in one line that names the argument."""
from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from transpiler import InvalidArgumentError, TranspilerError, UnknownVariableError, memory_optimize


class Hostile:
    """Cannot be shown, compared or hashed."""

    __hash__ = None

    def __repr__(self) -> str:
        raise RuntimeError('no text')

    def __eq__(self, other: object) -> bool:
        raise RuntimeError('nothing is equal')


def values() -> List[Any]:
    """Fresh each time: some are used up."""
    circle: List[Any] = []
    circle.append(circle)
    deep: List[Any] = []
    for _ in range(50_000):
        deep = [deep]
    return [
        None, True, False, 0, 1, -1, 2, 2**31, 2**40, 2**63, 2**70, 10**400, 0.0, 0.5, math.nan,
        math.inf, -math.inf, 1e308,
        np.int32(3),
        np.uint8(3),
        np.float32(.1),
        np.float64('nan'),
        np.bool_(True),
        np.array(3),
        np.array([1, 2]),
        np.array(['loss']),
        np.array([]),
        np.str_('loss'),
        np.bytes_(b'loss'), '', 'loss', 'zz', '6GB', '9' * 400, '9' * 5000, '1e5', '-3', '0', '0GB',
        '\x00', '\udcff', '[/]', b'loss',
        bytearray(b'x'),
        Path('loss'),
        SimpleNamespace(name='loss'),
        Decimal(3),
        Fraction(1, 3), 3j, [], (), {},
        set(), [[]], [None], [1], ['loss'], ['zz'], {'loss'}, {
            'x': 64
        }, {
            'x': None
        }, {
            'x': 'y'
        }, {
            'x': 2**70
        }, {
            'x': -1
        }, {
            'zz': 3
        }, {
            3: 4
        }, {
            None: 1
        }, {
            'x': {
                'x': 1
            }
        }, (c for c in 'ab'),
        range(3),
        iter([]), circle, deep,
        object(), object, len,
        Hostile(), [Hostile()], {
            'x': Hostile()
        }, sys, paddle.float32,
        paddle.CPUPlace(), NotImplemented, Ellipsis
    ]


ARGUMENTS = ('skip_opt_set', 'print_log', 'level', 'skip_grads', 'fetch_list', 'batch_size',
             'trip_count', 'runtime', 'recompute', 'max_overhead', 'budget', 'parallel')
# Some that have to be taken; the positions of all others are checked to be refused or to do no harm.
TAKEN: Dict[str, List[Any]] = {
    'fetch_list': ['loss', np.str_('loss'), {'loss'}, (['loss'], None)],
    'batch_size': [np.int32(3), {
        'x': 64
    }, {
        'x': None
    }, {}],
    'trip_count': [np.int64(3), {}],
    'level': [np.int64(1)],
    'max_overhead': [math.inf, 0, Fraction(1, 3),
                     np.float32(.1), 10**400],
    'budget': ['6GB', '1.5 GiB', np.int64(2**40), 2**62],
    'recompute': [False, 'max'],
}


@pytest.fixture(scope='module')
def serialized() -> bytes:
    """A line of y = w x, and its training: `loss` of `x`."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main), paddle.utils.unique_name.guard():
        x = paddle.static.data('x', [None, 64])
        loss = paddle.mean(paddle.static.nn.fc(x, 8, bias_attr=False))
        main.global_block()._rename_var(loss.name, 'loss')
        paddle.optimizer.SGD(0.1).minimize(main.global_block().var('loss'))
    return main.desc.serialize_to_string()


@pytest.mark.parametrize('given', [np.array([1, 2]), np.array('small'), Hostile(), 'large', 1])
def test_what_is_no_way_to_keep_the_heap_is_refused(serialized: bytes, given: Any) -> None:
    program = paddle.static.Program.parse_from_string(serialized)
    with pytest.raises(InvalidArgumentError, match="heap is True, False or 'small'"):
        memory_optimize(program, fetch_list=['loss'], heap=given)
    assert program.desc.serialize_to_string() == serialized


def optimized(serialized: bytes, **given: Any) -> Any:
    program = paddle.static.Program.parse_from_string(serialized)
    try:
        return memory_optimize(program, **{'fetch_list': 'loss', 'batch_size': 8, **given})
    except TranspilerError as error:
        assert program.desc.serialize_to_string() == serialized
        assert len(str(error).splitlines()) == 1
        return error


@pytest.mark.parametrize('argument', ARGUMENTS)
def test_each_value_is_taken_or_refused_in_one_line(argument, serialized, capsys):
    done = [optimized(serialized, **{argument: value}) for value in values()]
    refused = [str(each) for each in done if isinstance(each, TranspilerError)]
    assert len(refused) >= len(done) // 2
    assert all(argument in said or 'bytes, more than there are' in said or 'budget' in said
               for said in refused)


@pytest.mark.parametrize('argument, value', [(a, v) for a, vs in TAKEN.items() for v in vs])
def test_what_says_something_is_taken(argument, value, serialized):
    assert not isinstance(optimized(serialized, **{argument: value}), TranspilerError)


def test_rows_of_what_is_no_input_are_refused(serialized):
    error = optimized(serialized, batch_size={'zz': 3})
    assert isinstance(error, UnknownVariableError)
    assert str(error) == "batch_size: the program has no input 'zz'; its inputs are 'x'."
    assert 'Did you mean' in str(optimized(serialized, batch_size={'xx': 3}))
    for name in ('', '[1]', 'x[9]', 'x[1]', 'x[', 'fc_0.w_0[0]'):  # one dim of x is open
        assert isinstance(optimized(serialized, batch_size={name: 3}), UnknownVariableError), name
    assert isinstance(optimized(serialized, batch_size={'fc_0.w_0': 3}), UnknownVariableError)


def test_rows_of_an_input_that_nothing_reads_are_taken():
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        x, _ = (paddle.static.data(name, [None, 4]) for name in ('x', 'unread'))
        loss = paddle.mean(paddle.tanh(x))
    memory_optimize(main, fetch_list=[loss], batch_size={'unread': 3, 'x': 4})


@pytest.mark.parametrize('argument, value, said', [
    ('batch_size', 2**70, 'at most 64 bits; this one has 72'),
    ('budget', '9' * 400, 'at most 64 bits'),
    ('budget', '9' * 5000, "not '99999"),
    ('recompute', np.array(['max']), "not array(['max']"),
    ('runtime', np.array(['auto', 'auto']), 'runtime is one of'),
    ('batch_size', 2**62, 'bytes, more than there are'),
])
def test_what_is_beyond_all_sizes_or_of_another_kind_is_named(argument, value, said, serialized):
    error = optimized(serialized, **{argument: value})
    assert isinstance(error, InvalidArgumentError) and said in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize('position', range(len(values())))
def test_what_is_no_program_is_refused(position):
    with pytest.raises(TranspilerError, match='paddle.static.Program'):
        memory_optimize(values()[position])


@pytest.fixture(scope='module')
def report(serialized: bytes) -> Any:
    return optimized(serialized)


@pytest.mark.parametrize('asked, argument, otherwise', [
    ('explain', 'variable', 'the program has no variable'),
    ('write_curve', 'writer', 'nothing'),
    ('to_html', 'title', 'nothing'),
])
def test_what_a_report_is_asked_by_a_value_of_another_kind_is_refused_in_one_line(
        asked: str, argument: str, otherwise: str, report: Any):
    refused = []
    for value in values():
        try:
            getattr(report, asked)(value)
        except TranspilerError as error:
            refused.append(str(error))
    assert len(refused) >= len(values()) // 2
    assert all(len(said.splitlines()) == 1 for said in refused)
    assert all(said.startswith((argument, otherwise)) for said in refused)


def test_a_variable_is_explained_as_its_name_is(serialized: bytes):
    program = paddle.static.Program.parse_from_string(serialized)
    loss = program.global_block().var('loss')
    report = memory_optimize(program, fetch_list=[loss], batch_size=8)
    assert report.explain(loss) == report.explain('loss')
