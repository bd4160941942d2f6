"""What results take whose shapes Paddle's shape inference leaves open, against what the kernels make."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from benchmarks.kernels.alone import Bench
from tests.harness import fingerprint, new_programs
from tests.scenarios.common import data
from transpiler import memory_optimize
from transpiler.ir import Size
from transpiler.backends.fitted_shapes import PROBE, fit_most
from transpiler.backends.paddle2.importer import import_program

_WIDTH = 6
_ROWS = (1, 2, 7, 9)
_Built = Dict[str, Any]


def _taken(main: Any, startup: Any, fed: np.ndarray) -> Dict[str, int]:
    """Bytes that each value holds after its operator ran."""
    bench = Bench()
    try:
        with paddle.static.scope_guard(bench.scope):
            paddle.static.Executor(paddle.CPUPlace()).run(startup)
        bench.feed({'x': fed})
        found = {}
        for seen, op in zip(bench.run(main), main.global_block().ops):
            for slot in op.output_names:
                for name, tensor in zip(op.output(slot), seen.outputs.get(slot, ())):
                    size = paddle.base.core.size_of_dtype(
                        getattr(paddle.base.core.VarDesc.VarType, tensor.dtype or 'FP32'))
                    found[name] = int(np.prod(tensor.shape)) * size if tensor.dtype else 0
        return found
    finally:
        bench.close()


def _bounds(main: Any, rows: int) -> Dict[str, int]:
    program = import_program(fingerprint(main))
    dims = dict.fromkeys(program.symbols(), rows)
    return {v.name: v.bound.evaluate(dims) for v in program.graph.values if v.bound is not None}


def _exact(main: Any) -> List[str]:
    return [v.name for v in import_program(fingerprint(main)).graph.values if v.size is not None]


def _batch_norm(x: Any) -> Any:
    return F.batch_norm(x,
                        *(paddle.static.create_parameter([_WIDTH], 'float32') for _ in range(4)),
                        training=True)


def _cropped(x: Any) -> Any:
    x.stop_gradient = False
    return paddle.static.gradients([paddle.crop(x * 2.0, [1, 4], [0, 1])], [x])


def _matrices(x: Any) -> Any:
    return paddle.reshape(x, [-1, 1, 2, 3])


_KNOWN: Dict[str, Callable[[Any], Any]] = {
    'arange': lambda x: x + paddle.arange(0, _WIDTH, dtype='float32'),
    'arange of fractions': lambda x: paddle.arange(0.1, 1.0, 0.1),
    'arange of few': lambda x: paddle.arange(5, 0, -2),
    'two of a kind': lambda x: [paddle.arange(0, 3), paddle.arange(0, 3)],
    'linspace': lambda x: paddle.linspace(0, 1, 9),
    'logspace': lambda x: paddle.logspace(0, 1, 9),
    'expand_as': lambda x: paddle.tanh(paddle.expand_as(x[:1], x)),
    'affine_grid': lambda x: F.affine_grid(paddle.ones([2, 2, 3]), [2, 3, 4, 5]),
    'batch_norm': _batch_norm,
    'gradient of crop': _cropped,
    'nanmedian': lambda x: paddle.nanmedian(x, axis=1),
    'product with more dims on the left': lambda x: paddle.matmul(_matrices(x), paddle.ones([5, 3, 4])),
    'product with more dims on the right': lambda x: paddle.matmul(paddle.ones([5, 4, 2]), _matrices(x)),
    'product of as many dims': lambda x: paddle.matmul(_matrices(x), paddle.ones([1, 5, 3, 4])),
    'product with a vector': lambda x: paddle.matmul(_matrices(x), paddle.ones([3])),
}  # yapf: disable
# All that the kernel picks from is different, and chosen: so the most is what it takes.
_PICKED: Dict[str, Callable[[Any], Any]] = {
    'unique': lambda x: paddle.unique(x, return_index=True, return_inverse=True, return_counts=True),
    'unique rows': lambda x: paddle.unique(x, axis=0),
    'unique_consecutive': lambda x: paddle.unique_consecutive(x, return_inverse=True, return_counts=True),
    'masked_select': lambda x: paddle.tanh(paddle.masked_select(x, x > -1.0)),
    'nonzero': lambda x: paddle.nonzero(x > -1.0),
    'unbind of what is picked': lambda x: paddle.concat([paddle.masked_select(x, x > -1.0)] * 2),
}  # yapf: disable


@pytest.mark.parametrize('build', _KNOWN.values(), ids=_KNOWN.keys())
def test_what_is_decided_before_the_run_is_known_to_the_byte(build: Callable[[Any], Any]) -> None:
    with new_programs() as (main, startup):
        build(data('x', -1, _WIDTH))
    for rows in _ROWS:
        fed = np.random.RandomState(rows).uniform(-1, 1, (rows, _WIDTH)).astype('float32')
        taken, said = _taken(main, startup, fed), _bounds(main, rows)
        made = [n for n in taken if n in _exact(main)]
        assert set(taken) == set(made)
        assert {n: said[n] for n in made} == {n: taken[n] for n in made}


@pytest.mark.parametrize('build', _PICKED.values(), ids=_PICKED.keys())
def test_what_the_data_decides_has_a_most_that_is_reached_and_never_passed(
        build: Callable[[Any], Any]) -> None:
    with new_programs() as (main, startup):
        build(data('x', -1, _WIDTH))
    decided = set(_bounds(main, 2)) - set(_exact(main))
    assert decided
    for rows in _ROWS:
        fed = np.arange(rows * _WIDTH, dtype='float32').reshape(rows, _WIDTH)
        taken, said = _taken(main, startup, fed), _bounds(main, rows)
        assert {n: said[n] for n in decided} == {n: taken[n] for n in decided}
        others = [_taken(main, startup, x) for x in (np.zeros_like(fed) - 2, fed % 2 * 3 - 2)]
        assert all(other[n] <= said[n] for other in others for n in other)
        assert rows == 1 or any(other[n] < said[n] for other in others for n in decided)


def test_what_only_grows_so_far_is_bounded_by_that() -> None:
    with new_programs() as (main, startup):
        paddle.tanh(paddle.diagonal(data('x', -1, _WIDTH)))
    for rows in _ROWS:
        taken = _taken(main, startup, np.ones((rows, _WIDTH), 'float32'))
        said = _bounds(main, rows)
        assert taken and all(taken[n] <= said[n] <= 4 * _WIDTH for n in taken)


@pytest.mark.parametrize('dim', [
    lambda n: min(n, 32), lambda n: max(n - 4, 0), lambda n: (n - 1) // 2 + 1, lambda n: (n + 6) // 7,
    lambda n: max(n, 40), lambda n: max(1, n - 40) * 3, lambda n: 2 * (n // 3)
])  # yapf: disable
def test_a_bound_is_never_below_the_dim(dim: Callable[[int], int]) -> None:

    def shape_of(rows: int) -> Sequence[int]:
        return (dim(rows), 8)

    small = [(rows, shape_of(rows)) for rows in (1, 12)]
    most = fit_most(shape_of(PROBE), {'N': shape_of(2 * PROBE)}, small)
    for rows in [*range(1, 200), 4096, 3 * PROBE]:
        assert Size.product(most).evaluate({'N': rows}) >= 8 * dim(rows), rows


def _count(x: Any) -> Any:
    return paddle.bincount(paddle.cast(paddle.reshape(x, [-1]), 'int64'))


def _count_of(x: Any, at_least: Any) -> Any:
    return paddle.bincount(paddle.cast(paddle.reshape(x, [-1]), 'int64'), minlength=at_least)


@pytest.mark.parametrize('largest, least', [(1.0, 8), (7.0, 8), (9.0, 8), (1.0, 4096)])
def test_what_may_have_any_size_is_counted_as_small_as_it_can_be(largest: float,
                                                                 least: int) -> None:
    """It was in no figure, and a budget was broken by it though no value was beyond (`tests.wild` 8519078)."""
    with new_programs() as (main, startup):
        out = _count_of(data('x', -1, _WIDTH), least)
        follows = paddle.tanh(paddle.cast(out, 'float32'))
    taken = _taken(main, startup, np.full((3, _WIDTH), largest, 'float32'))
    said = _bounds(main, 3)
    for name, item in ((out.name, 8), (follows.name, 4)):
        assert said[name] == item * least
        assert taken[name] == item * max(least, int(largest) + 1)
        assert name not in _exact(main)
    report = memory_optimize(main, fetch_list=[follows])
    assert {out.name, follows.name} <= set(report.unknown_sizes)


def test_what_a_tensor_says_that_there_is_at_the_least_is_not_known() -> None:
    with new_programs() as (main, _):
        out = _count_of(data('x', -1, _WIDTH), paddle.full([1], 8, 'int32'))
    assert out.name not in _bounds(main, 3)


@pytest.mark.parametrize('build, names', [(_count, 1), (lambda x: paddle.unique(x), 0)])
def test_the_report_names_what_nobody_can_bound(build: Callable[[Any], Any], names: int) -> None:
    with new_programs() as (main, _):
        out = build(data('x', -1, _WIDTH))
        loss = paddle.mean(paddle.cast(out, 'float32')) + paddle.mean(paddle.tanh(data('y', -1,
                                                                                       64)))
    report = memory_optimize(main, fetch_list=[loss], batch_size=4)
    assert (out.name in report.unknown_sizes) == bool(names)
    assert ('A budget is kept only if' in str(report)) == bool(names)
