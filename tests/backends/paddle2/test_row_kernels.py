"""What is said of kernels that work on rows: each element comes of the same instructions in a part as in the whole."""
from __future__ import annotations

from typing import Any, Dict, List

import pytest

pytest.importorskip('paddle')  # make test-core has none

import numpy
import paddle
from paddle.base.proto import framework_pb2

from tests.harness import new_programs
from transpiler.backends.operators import ELEMENTWISE
from transpiler.backends.paddle2.registry import OpRegistry
from transpiler.backends.paddle2.rows import ROW_SUM, ROW_SUM_ATTRIBUTES, row_attributes, row_number_attributes
from transpiler.backends.settings import has_cpu_kernels_alone

ROWS, COLUMNS = 23, 7  # no multiples of a vector register
PARTS = [(0, 1), (1, 9), (9, 22), (22, 23)]
ATTRIBUTES: Dict[str, Dict[str, Any]] = {
    'scale': {
        'scale': -0.3,
        'bias': 0.0,
        'bias_after_scale': True
    },
    'clip': {
        'min': -0.25,
        'max': 0.5
    },
}


def _odd_values(dtype: str, seed: int) -> numpy.ndarray:
    """Random ones, with both zeros, the smallest, the largest, infinities and what is no number among them."""
    random = numpy.random.RandomState(seed)
    values = random.randn(ROWS, COLUMNS).astype(dtype)
    limits = numpy.finfo(dtype)
    odd = numpy.array(
        [0, -0.0, limits.tiny / 4, -limits.tiny / 4, limits.max, numpy.inf, -numpy.inf, numpy.nan],
        dtype)
    places = random.permutation(ROWS * COLUMNS)[:4 * len(odd)]
    values.flat[places] = numpy.tile(odd, 4)
    return values


def _made(block: Any, kind: str, dtype: str, inputs: Dict[str, List[Any]], attributes: Any) -> Any:
    out = block.create_var(dtype=dtype)
    block.append_op(type=kind, inputs=inputs, outputs={'Out': [out]}, attrs=dict(attributes))
    return out


def _rows(block: Any, x: Any, dtype: str, part: Any) -> Any:
    return _made(block, 'slice', dtype, {'Input': [x]}, row_attributes(*part))


def _bytes(dtype: str, build: Any) -> List[bytes]:
    """What the two values are that `build` makes of a block and two fed tensors."""
    with new_programs() as (main, _):
        fed = {n: paddle.static.data(n, [ROWS, COLUMNS], dtype) for n in ('x', 'y')}
        found = build(main.global_block(), *fed.values())
    feed = {n: _odd_values(dtype, seed) for seed, n in enumerate(fed)}
    executor = paddle.static.Executor(paddle.CPUPlace())
    whole, parts = executor.run(main, feed=feed, fetch_list=list(found))
    assert whole.shape == parts.shape == (ROWS, COLUMNS)
    return [whole.tobytes(), parts.tobytes()]


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('kind', sorted(ELEMENTWISE))
def test_an_elementwise_kernel_makes_of_parts_what_it_makes_of_the_whole(kind: str,
                                                                         dtype: str) -> None:

    def build(block: Any, x: Any, _: Any) -> List[Any]:
        make = lambda of: _made(block, kind, dtype, {'X': [of]}, ATTRIBUTES.get(kind, {}))
        return [make(x), paddle.concat([make(_rows(block, x, dtype, part)) for part in PARTS])]

    whole, parts = _bytes(dtype, build)
    assert whole == parts


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('kind', sorted(ELEMENTWISE))
def test_an_elementwise_kernel_may_work_onto_its_operand(kind: str, dtype: str) -> None:

    def build(block: Any, x: Any, _: Any) -> List[Any]:
        attributes = ATTRIBUTES.get(kind, {})
        one = paddle.assign(x)
        apart = _made(block, kind, dtype, {'X': [x]}, attributes)
        op = block.append_op(type=kind,
                             inputs={'X': [one]},
                             outputs={'Out': [one]},
                             attrs=attributes)
        desc = framework_pb2.OpDesc.FromString(op.desc.serialize_to_string())
        assert OpRegistry().facts(desc).onto == (((0, 0),) if has_cpu_kernels_alone() else ())
        return [apart, one]

    apart, one = _bytes(dtype, build)
    assert apart == one


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_rows_that_are_added_in_place_make_the_sum(dtype: str) -> None:

    def build(block: Any, x: Any, y: Any) -> List[Any]:
        total = paddle.assign(x)
        for part in PARTS:
            numbers = _made(block, 'assign_value', 'int32', {}, row_number_attributes(*part))
            operands = {
                'X': [total],
                'AddValue': [_rows(block, y, dtype, part)],
                'Index': [numbers]
            }
            block.append_op(type=ROW_SUM,
                            inputs=operands,
                            outputs={'Out': [total]},
                            attrs=dict(ROW_SUM_ATTRIBUTES))
        return [_made(block, 'sum', dtype, {'X': [x, y]}, {}), total]

    whole, parts = _bytes(dtype, build)
    assert whole == parts
