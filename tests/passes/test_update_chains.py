"""What prepares a gradient for its update runs with the update: weight decay and clipping hold no gradients up."""
from __future__ import annotations

import math
from itertools import groupby
from typing import Any, Callable, Dict, NamedTuple, Optional

import pytest

pytest.importorskip('paddle')  # make test-core has none

import paddle
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import WITHOUT_INPLACE, Case, Mode, check, least_peak, new_programs
from tests.orders import problem_of, straight_graph
from tests.scenarios.common import data, floats, integers, random_feed
from transpiler import memory_optimize
from transpiler.backends.settings import has_cpu_kernels_alone
from transpiler.ir import Graph
from transpiler.passes.orders.heuristics import update_chains, updates_early

WIDTH, DEPTH, ROWS = 1536, 2, 4
TERM = 4 * WIDTH * WIDTH  # bytes of what one weight's decay makes
BESIDE = 4 * ROWS * WIDTH + 4 * WIDTH // 16  # an activation, and the numbers of a part's rows
# Terms are made in parts where Paddle's own CPU kernels are sure to make them. In other builds one is whole at a time.
IN_PARTS = has_cpu_kernels_alone()
ORDERED = Mode(order='sequential')


class Update(NamedTuple):
    """An optimizer without and with what goes before its updates; `attributes` are of each layer's weight."""
    bare: Callable[[], Any]
    chained: Callable[[], Any]
    attributes: Callable[[int], Optional[paddle.ParamAttr]] = lambda layer: None


def _l1() -> Any:
    return paddle.regularizer.L1Decay(1e-3)


def _own_regularizers(layer: int) -> paddle.ParamAttr:
    kind = paddle.regularizer.L1Decay if layer % 2 else paddle.regularizer.L2Decay
    return paddle.ParamAttr(regularizer=kind(1e-3))


def _update(name: str, bare: Dict[str, Any], chained: Dict[str, Any], *attributes: Any) -> Update:
    make = getattr(paddle.optimizer, name)
    return Update(lambda: make(0.01, **_made(bare)), lambda: make(0.01, **_made({
        **bare,
        **chained
    })), *attributes)


def _made(options: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value() if callable(value) else value for name, value in options.items()}


UPDATES: Dict[str, Update] = {
    'sgd, L2':
        _update('SGD', {}, {'weight_decay': 1e-3}),
    'sgd, L1':
        _update('SGD', {}, {'weight_decay': _l1}),
    'sgd, by parameter':
        _update('SGD', {}, {}, _own_regularizers),
    'sgd, by value':
        _update('SGD', {}, {'grad_clip': lambda: paddle.nn.ClipGradByValue(0.01)}),
    'sgd, L2, by norm':
        _update('SGD', {}, {
            'weight_decay': 1e-3,
            'grad_clip': lambda: paddle.nn.ClipGradByNorm(0.01)
        }),
    'momentum, L1':
        _update('Momentum', {}, {'weight_decay': _l1}),
    'adam, L2':
        _update('Adam', {}, {'weight_decay': 1e-3}),
    'adamw, L1 by parameter':
        _update('AdamW', {}, {}, _own_regularizers),
    'lamb, by norm':
        _update('Lamb', {}, {'grad_clip': lambda: paddle.nn.ClipGradByNorm(0.01)}),
    'rmsprop, L2':
        _update('RMSProp', {}, {'weight_decay': 1e-3}),
}


def net(name: str, chained: bool = True) -> Case:
    update = UPDATES[name]
    with new_programs() as (main, startup):
        hidden = data('x', ROWS, WIDTH)
        for layer in range(DEPTH):
            attribute = update.attributes(layer) if chained else None
            hidden = paddle.static.nn.fc(hidden, WIDTH, activation='relu', weight_attr=attribute)
        loss = paddle.mean(hidden * hidden)
        (update.chained if chained else update.bare)().minimize(loss)
    return Case(main, startup, random_feed(x=floats(ROWS, WIDTH)), [loss.name])


def resnet18(weight_decay: Any = 1e-4) -> Case:
    with new_programs() as (main, startup):
        image, label = data('image', 4, 3, 32, 32), data('label', 4, 1, dtype='int64')
        scores = paddle.vision.models.resnet18(num_classes=10)(image)
        loss = paddle.nn.functional.cross_entropy(scores, label)
        paddle.optimizer.SGD(0.01, weight_decay=weight_decay).minimize(loss)
    feed = random_feed(image=floats(4, 3, 32, 32), label=integers(10, 4, 1))
    return Case(main, startup, feed, [loss.name])


@pytest.mark.parametrize('name', UPDATES)
def test_a_chain_needs_no_more_than_the_bare_update_and_gives_the_same_bytes(name: str) -> None:
    """But for a sixteenth of the term and what goes with it (the term where it is not made in parts), and that Paddle's kernel clips
    by the norm into a tensor of its own."""
    bare = net(name, chained=False)
    limit = memory_optimize(bare.main, fetch_list=bare.fetch).peak_bytes_after
    limit += TERM // 16 + BESIDE if IN_PARTS else TERM
    report = check(lambda: net(name), modes=WITHOUT_INPLACE, steps=2)
    assert report.peak_bytes_before > DEPTH * TERM
    assert report.peak_bytes_after <= limit + ('by norm' in name) * TERM


def resnet18_bare() -> Case:
    return resnet18(None)


def resnet18_l1() -> Case:
    return resnet18(_l1())


@pytest.mark.parametrize('recompute', (False, 'auto'))
@pytest.mark.parametrize('decayed', (resnet18, resnet18_l1))
def test_resnet18_with_weight_decay_needs_no_more_than_the_bare_one(decayed: Callable[[], Case],
                                                                    recompute: Any) -> None:
    """But for the largest weight's term, where it is not made in parts."""
    bare, case = resnet18_bare(), decayed()
    largest = max(4 * math.prod(weight.shape) for weight in case.main.all_parameters())
    limit = memory_optimize(bare.main, fetch_list=bare.fetch, recompute=recompute).peak_bytes_after
    peak = memory_optimize(case.main, fetch_list=case.fetch, recompute=recompute).peak_bytes_after
    assert peak <= limit * 1.05 + (0 if IN_PARTS else largest)


@pytest.mark.skipif(not IN_PARTS, reason='terms are made whole on this build')
@pytest.mark.parametrize('recompute', (False, 'auto'))
@pytest.mark.parametrize('name, size', [('resnet18', 64), ('alexnet', 96), ('googlenet', 96),
                                        ('vgg11', 64), ('mobilenet_v2', 64)])
def test_nets_need_hardly_more_with_weight_decay(name: str, size: int, recompute: Any) -> None:
    """Orders are looked for with each update as one op, whatever goes before it, and updates run as early as they fit; so small
    gradients do not wait behind large ones. Large terms are made in more parts."""

    def peak(decay: Any) -> int:
        with new_programs() as (main, _):
            image = paddle.static.data('image', [None, 3, size, size])
            label = paddle.static.data('label', [None, 1], 'int64')
            scores = getattr(paddle.vision.models, name)(num_classes=10)(image)
            scores = scores[0] if isinstance(scores, (list, tuple)) else scores
            loss = paddle.nn.functional.cross_entropy(scores, label)
            paddle.optimizer.SGD(0.01, weight_decay=decay).minimize(loss)
        options = dict(batch_size=8, recompute=recompute)
        return memory_optimize(main, fetch_list=[loss], **options).peak_bytes_after

    bare = peak(None)
    assert peak(1e-4) <= 1.05 * bare and peak(_l1()) <= 1.05 * bare


@pytest.mark.skipif(not IN_PARTS, reason='terms are made whole on this build')
@pytest.mark.parametrize('recompute', (False, 'auto'))
@pytest.mark.parametrize('decay', (1e-4, _l1()), ids=('L2', 'L1'))
def test_layers_of_four_mebibytes_need_hardly_more_with_weight_decay(decay: Any,
                                                                     recompute: Any) -> None:
    """So few parts pay there that two of them at a time would be too much: each op of a term works in the memory of the rows."""

    def report(decay: Any) -> Any:
        with new_programs() as (main, _):
            hidden = paddle.static.data('x', [None, 1024])
            for _ in range(4):
                hidden = paddle.static.nn.fc(hidden, 1024, activation='relu')
            label = paddle.static.data('y', [None, 1], 'int64')
            scores = paddle.static.nn.fc(hidden, 10)
            loss = paddle.nn.functional.cross_entropy(scores, label)
            paddle.optimizer.SGD(0.1, weight_decay=decay).minimize(loss)
        return memory_optimize(main, fetch_list=[loss], batch_size=8, recompute=recompute)

    bare, decayed = report(None), report(decay)
    assert decayed.lower_bound_bytes <= decayed.peak_bytes_after <= 1.05 * bare.peak_bytes_after


def test_resnet18_with_weight_decay_peaks_as_predicted() -> None:
    decayed = resnet18()
    report = memory_optimize(decayed.main, fetch_list=decayed.fetch)
    enough = 1.03 * report.needed_bytes
    peak = least_peak(f'{__name__}:resnet18', enough, mode=ORDERED, steps=2)
    assert 0.97 * report.needed_bytes <= peak.above_resting() <= enough


@settings(max_examples=40, deadline=None)
@given(graph=st.builds(straight_graph, st.integers(0, 10**6), st.integers(1, 25), st.booleans()))
def test_the_ops_of_a_chain_run_side_by_side(graph: Graph) -> None:
    problem = problem_of(graph)
    chains = update_chains(problem)
    order = [chains[op] if chains[op] >= 0 else ~op for op in updates_early(problem)]
    assert [chain for chain, _ in groupby(order)] == list(dict.fromkeys(order))
