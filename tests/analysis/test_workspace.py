"""What kernels allocate for themselves is what the runtime's counter shows besides operands and results."""

from __future__ import annotations

from typing import Any, Callable

import pytest

pytest.importorskip('paddle')  # make test-core has none

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.graphs import Draft
from tests.harness import Case, Mode, Peak, least_peak, new_programs
from tests.scenarios.common import data, floats, random_feed, square_loss
from transpiler import memory_optimize
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import (bytes_with_workspaces, peak_with_workspaces,
                                           unknown_workspaces)
from transpiler.ir import RELEASE, Graph, Op, RegionKind, Size, Work
from transpiler.runtime import COLLECTING, RETAINING

ROWS = 48


def _trained(build: Callable[[], Any], *shape: int) -> Case:
    with new_programs() as (main, startup):
        paddle.optimizer.SGD(0.1).minimize(square_loss(build()))
    return Case(main, startup, random_feed(x=floats(*shape)), [])


def layer_norms() -> Case:
    """The gradient of each takes three times what it reads."""

    def build() -> Any:
        hidden = data('x', ROWS, 4096)
        for _ in range(2):
            hidden = paddle.static.nn.layer_norm(paddle.tanh(hidden))
        return hidden

    return _trained(build, ROWS, 4096)


def batch_norms() -> Case:
    """As many channels as numbers in all other dims: what a channel takes shows."""

    def build() -> Any:
        hidden = paddle.reshape(data('x', 2, 4096), [2, 4096, 1, 1])
        for _ in range(2):
            hidden = paddle.static.nn.batch_norm(paddle.tanh(hidden))
        return hidden

    return _trained(build, 2, 4096)


def depthwise_convolutions() -> Case:
    """Columns of one channel, with a kernel as large as the image."""

    def build() -> Any:
        hidden = data('x', 1, 4, 32, 32)
        for _ in range(2):
            hidden = paddle.static.nn.conv2d(paddle.tanh(hidden),
                                             4,
                                             7,
                                             padding=3,
                                             groups=4,
                                             bias_attr=False,
                                             use_cudnn=False)
        return hidden

    return _trained(build, 1, 4, 32, 32)


def volumes() -> Case:
    """Columns of 27 times the image."""

    def build() -> Any:
        hidden = data('x', 2, 3, 12, 12, 12)
        for channels in (8, 8):
            hidden = F.relu(paddle.nn.Conv3D(hidden.shape[1], channels, 3, padding=1)(hidden))
        return F.max_pool3d(hidden, 2)

    return _trained(build, 2, 3, 12, 12, 12)


def spectral_norms() -> Case:
    """A copy of the weight forwards, four more backwards."""

    def build() -> Any:
        hidden = data('x', ROWS, 128)
        for _ in range(3):
            weight = paddle.create_parameter([128, 128], 'float32')
            hidden = F.relu(paddle.matmul(hidden, paddle.static.nn.spectral_norm(weight, dim=1)))
        return hidden

    return _trained(build, ROWS, 128)


def sparse_embeddings() -> Case:
    """Gradients of rows, clipped: merged, and made dense for their norm."""
    ids = np.random.RandomState(0).permutation(20000)[:ROWS * 64].reshape(ROWS, 64)  # no id twice
    with new_programs() as (main, startup):
        looked_up = data('x', ROWS, 64, dtype='int64')
        found = [
            paddle.static.nn.embedding(looked_up, [20000, 32], is_sparse=True).sum(1)
            for _ in range(2)
        ]
        clip = paddle.nn.ClipGradByGlobalNorm(1.0)
        paddle.optimizer.SGD(0.1, grad_clip=clip).minimize(square_loss(paddle.concat(found, 1)))
    return Case(main, startup, lambda step: {'x': ids}, [])


@pytest.mark.parametrize(
    'build',
    [layer_norms, batch_norms, depthwise_convolutions, volumes, spectral_norms, sparse_embeddings],
    ids=lambda b: b.__name__)
def test_the_peak_with_workspaces_is_the_measured_one(build: Callable[[], Case]) -> None:
    said = memory_optimize(build().main, recompute=False)
    assert said.needed_bytes > said.peak_bytes_after or build is sparse_embeddings
    peak = least_peak(f'tests.analysis.test_workspace:{build.__name__}',
                      said.needed_bytes,
                      of=Peak.first_above_resting,
                      mode=Mode(order='sequential'),
                      options={'recompute': False})
    assert peak.first == said.resting_bytes + said.needed_bytes


def products_of_heads() -> Case:
    """What einsum keeps for its gradient: both operands, turned."""
    with new_programs() as (main, startup):
        heads = [paddle.tanh(data(name, 4, ROWS, 8, 32)) for name in 'xy']
        for each in heads:
            each.stop_gradient = False
        paddle.optimizer.SGD(0.1).minimize(
            square_loss(paddle.static.nn.fc(paddle.einsum('bqhd,bkhd->bhqk', *heads), ROWS)))
    return Case(main, startup, random_feed(x=floats(4, ROWS, 8, 32), y=floats(4, ROWS, 8, 32)), [])


def test_what_einsum_keeps_for_its_gradient_is_counted() -> None:
    said = memory_optimize(products_of_heads().main, recompute=False)
    enough = said.resting_bytes + said.needed_bytes
    peak = least_peak('tests.analysis.test_workspace:products_of_heads',
                      enough,
                      of=lambda peak: peak.first,
                      mode=Mode(order='sequential'),
                      options={'recompute': False})
    assert peak.first <= enough


def test_memory_that_is_too_small_is_there_until_the_larger_is() -> None:
    draft = Draft()
    draft.values('small', rows=150)
    draft.values('large', rows=250)
    draft.values('fed last', rows=2)
    draft.op('first', 'fed', 'small')
    grows = draft.op('second', 'fed', 'large')
    draft.op('third', 'large', 'last')
    assert _bytes_at(draft.graph, grows) == 4 * (2 + 250)
    draft.graph.values[draft.id('large')].storage = draft.id('small')
    assert _bytes_at(draft.graph, grows) == 4 * (2 + 250 + 150)


@pytest.mark.parametrize('before', [100, 250, 300])
def test_memory_that_a_kernel_does_not_take_is_there_until_its_own_is(before: int) -> None:
    draft = Draft()
    draft.values('small', rows=before)
    draft.values('made', rows=250)
    draft.values('fed last', rows=2)
    draft.op('first', 'fed', 'small')
    elsewhere = draft.op('second', 'fed', 'made', elsewhere=frozenset({0}))
    draft.op('third', 'made', 'last')
    assert _bytes_at(draft.graph, elsewhere) == 4 * (2 + 250)
    draft.graph.values[draft.id('made')].storage = draft.id('small')
    assert _bytes_at(draft.graph, elsewhere) == 4 * (2 + before + 250)


@pytest.mark.parametrize('own', [0, 8])
def test_memory_is_taken_late_by_kernels_that_need_some_of_their_own(own: int) -> None:
    draft = Draft()
    draft.values('small made', rows=250)
    draft.values('fed last', rows=2)
    draft.op('first', 'fed', 'small')
    late = draft.op('second', 'fed', 'made', late=frozenset({0}))
    late.workspace = Size.of(own)
    draft.op('third', 'made', 'last')
    assert _bytes_at(draft.graph, late) == 4 * (2 + 250) + own
    draft.graph.values[draft.id('made')].storage = draft.id('small')
    assert _bytes_at(draft.graph, late) == 4 * (2 + 250 + (250 if own else 0)) + own


@pytest.mark.parametrize('trips', [1, 5])
def test_what_grows_with_each_trip_is_made_beside_what_the_trip_before_has_left(trips: int) -> None:
    draft = Draft()
    draft.value('cache', rows=100)
    draft.value('at', rows=1, fed=True)
    draft.op('fill', '', 'cache')
    loop = draft.op('while', 'at cache', 'cache')
    body = draft.region(loop, RegionKind.LOOP, trips=Size.dim('T'))
    draft.value('longer', rows=100, region=body)
    for name, region in (('cache', 0), ('longer', body)):
        value = draft.graph.values[draft.id(name, region)]
        value.size, value.shape, value.at_most = None, None, Size.dim('T') * 400
    made = draft.op('concat', 'cache', 'longer', body)
    carried = draft.op('assign', 'longer', 'cache', body)
    before = {
        made.id: 0,
        carried.id: (trips - 1) * 400
    }  # a collector has freed what nobody carries
    for runtime, beside in ((COLLECTING, before), (RETAINING, {
            **before, made.id: (trips - 1) * 400
    })):
        timeline = Timeline(draft.graph, runtime, {'T': trips})
        found = bytes_with_workspaces(draft.graph, timeline)
        more = {p.op: with_ - p.bytes for p, with_ in zip(timeline.points, found)}
        assert {op: more[op] for op in beside} == beside


def _bytes_at(graph: Graph, op: Op) -> int:
    timeline = Timeline(graph, COLLECTING, {})
    return dict(zip(timeline.order, bytes_with_workspaces(graph, timeline)))[op.id]


def test_kernels_that_nobody_measured_are_named() -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('known', 'a', 'b')
    strange = draft.op('strange', 'b', 'a')
    strange.workspace = None
    assert unknown_workspaces(draft.graph) == ['strange']


def test_copies_in_other_layouts_stay_to_the_end_of_the_first_run() -> None:
    """Of what a convolution wrote in an order of its own another makes a copy, once, when it reads it first. What it read, and
    others wrote, is held under another name."""
    draft = Draft()
    draft.values('a b c d e')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b', converts=True, work=Work(filters=True))
    draft.op('op', 'b', 'c')
    draft.op('op', 'b', 'd')
    draft.op('op', 'd', 'e')
    timeline = Timeline(draft.graph, COLLECTING, {})
    found = bytes_with_workspaces(draft.graph, timeline)
    live = [point.bytes for point in timeline.points]
    assert [each - before for each, before in zip(found, live)] == [0, 0, 8192, 8192, 8192]


def test_what_needs_no_copy_keeps_its_buffer_to_the_end_of_the_first_run() -> None:
    """It is one allocation that is kept, whatever works in place in it, also where the program releases it. What such kernels
    exchange with each other is not, unless the runtime hands it on."""
    draft = Draft()
    draft.values('a b c d e f g')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b', converts=True)
    draft.op('op', 'b', 'c', converts=True, in_place=((0, 0),))
    draft.op(RELEASE, '', 'a', side_effect=True)
    draft.op('op', 'c', 'd', converts=True)
    draft.op('op', 'd', 'e', converts=True)
    draft.op('op', 'e', 'f')
    draft.op('op', 'f', 'g')
    timeline = Timeline(draft.graph, COLLECTING, {})
    kept = ('a', 'b, which c is made in', 'e')
    assert peak_with_workspaces(draft.graph, timeline) - timeline.peak_bytes == 4096 * len(kept)
