"""What the executor does not know of one memory: a second name of it, a second slot that reads it, the dims of another run."""
from __future__ import annotations

import re
from functools import partial
from typing import Any, Callable, List, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import _C_ops, static

from benchmarks.programs.case import Case, Options, drafting, make_optimizer
from tests.backends.paddle3.running import assert_equal, in_order, optimized, run
from transpiler import memory_optimize
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.naming import value_names
from transpiler.backends.paddle3.operators import EACH_ELEMENT_ALONE
from transpiler.backends.paddle3.replaying import replay_of
from transpiler.backends.scopes import fresh_scope
from transpiler.ir import Op

ROWS, WIDTH = 32, 16
RECOMPUTE = ('auto', 'cheap', 'max', False)
Make = Callable[[Any], Any]


def trained(make: Make) -> Case:
    """A program that minimizes what `make` makes of a product. Its rows are declared: 3.0 scatters no others."""
    with drafting(Options(static_batch=True), batch_size=ROWS) as draft:
        x = draft.floats('x', [ROWS, WIDTH])
        made = make(static.nn.fc(F.tanh(F.gelu(x) * x) * 2.0 + x, WIDTH))
        make_optimizer('sgd').minimize(made)
        return draft.case([made], training=True)


def planned_with_equal_bytes(build: Callable[[], Case]) -> List[bool]:
    """Whether what `build` makes is changed, by how much is computed again. Each gives the bytes of the untouched one in its order."""
    with in_order():
        plain = run(build(), 3)
    changed = []
    for recompute in RECOMPUTE:
        case = build()
        changed.append(optimized(case, recompute=recompute).changed)
        assert_equal(plain, run(case, 3))
    return changed


def reversed_rows() -> Any:
    return paddle.assign(np.arange(ROWS - 1, -1, -1))


def _then_relu(h: Any, other: Any) -> Any:
    """`relu` is the last to read `h`, of which there is more to be made again."""
    wide = F.tanh(F.gelu(other) * other)
    return paddle.mean(other * wide) + paddle.sum(F.relu(h)) * 0.01


def _product(h: Any) -> Any:
    """Before what keeps `h` under another name: there the executor does not work in place, but behind it."""
    positive = F.relu(h)
    total = paddle.sum(positive)
    weight = static.create_parameter([WIDTH, WIDTH], 'float32')
    other = paddle.einsum('bi,ij->bj', h, weight)
    return paddle.mean(other * other) + total * 0.01 + paddle.mean(positive * positive)


def _turned(h: Any) -> Any:
    """The kernel turns one operand, and keeps a copy of that."""
    weight = static.create_parameter([WIDTH, WIDTH], 'float32')
    return _then_relu(h, paddle.einsum('bi,ji->bj', h, weight))


def _two_labels(h: Any) -> Any:
    """An equation of which nobody says what it turns."""
    positive = F.relu(h)
    other = paddle.einsum('bi,bj->ij', h, F.tanh(h))
    return paddle.mean(paddle.einsum('ii->i', other)) + paddle.sum(positive) * 0.01


def _detached(h: Any) -> Any:
    positive = F.relu(h)
    total = paddle.sum(positive)
    other = F.smooth_l1_loss(F.tanh(h), h.detach(), reduction='none')
    return paddle.mean(other) + total * 0.01 + paddle.mean(positive * positive)


def _scattered(h: Any) -> Any:
    return _then_relu(h, paddle.scatter(h, reversed_rows(), h))


def _added_at(h: Any) -> Any:
    return _then_relu(h, paddle.index_add(h, reversed_rows(), 0, h))


def _labelled(h: Any) -> Any:
    return _then_relu(h, F.softmax_with_cross_entropy(h, h, soft_label=True))


def _unscaled(h: Any) -> Any:
    """Two tensors of a list are written over, and each is taken out of it again."""
    found, _ = paddle._C_ops.check_finite_and_unscale_(
        [F.tanh(h) * 2.0, F.gelu(h) * h], paddle.full([1], 2.0))
    return _then_relu(h, F.gelu(found[0] * found[1]) * found[0])


def _as_it_is(h: Any) -> Any:
    """The result is the operand itself, and its gradient the result's."""
    same = paddle.einsum('bi->bi', h)
    read = [F.tanh(same), F.relu(same)]
    total = paddle.add_n([paddle.sum(each) for each in read]) * 1e-3 + paddle.sum(same) * 1e-4
    wide = F.gelu(static.nn.fc(paddle.scale(h, total), 8 * WIDTH))
    return paddle.mean(wide * wide) + paddle.add_n([paddle.mean(each) for each in read])


def _as_it_is_twice(h: Any) -> Any:
    return _as_it_is(paddle.einsum('...i->...i', h) + 0.5) + paddle.sum(F.relu(h)) * 0.01


MAKES = (_as_it_is, _as_it_is_twice, _unscaled, _product, _turned, _two_labels, _detached,
         _scattered, _added_at, _labelled)


@pytest.mark.parametrize('make', MAKES)
def test_programs_give_their_bytes_whatever_has_one_memory(make: Make) -> None:
    assert any(planned_with_equal_bytes(partial(trained, make)))


def test_what_a_list_has_written_over_is_fetched_by_either_name() -> None:
    """Of a member, before the list and behind it."""
    for behind in (False, True):
        program, startup = static.Program(), static.Program()
        with static.program_guard(program, startup):
            member = F.tanh(static.data('x', [ROWS, WIDTH], 'float32'))
            found, _ = paddle._C_ops.check_finite_and_unscale_([member * 2.0, member],
                                                               paddle.full([1], 2.0))
        graph = import_program(program).graph
        asked = found[1] if behind else member
        kept, = (v for v in graph.values if v.name == value_names(program)[asked.id])
        made, = (op for op in graph.ops if op.kind == 'tanh')
        assert kept.id in made.results


class Product(paddle.nn.Layer):
    """The same in a layer, which hands what einsum keeps from one part to the other."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.dense = paddle.nn.Linear(WIDTH, WIDTH)
        self.weight = self.create_parameter([WIDTH, WIDTH])
        self.make = make

    def forward(self, x: Any) -> Any:
        return self.make(self.dense(F.tanh(F.gelu(x) * x) * 2.0 + x), self.weight)


def _product_of(h: Any, weight: Any) -> Any:
    positive = F.relu(h)
    total = positive.sum()
    other = paddle.einsum('bi,ij->bj', h, weight)
    return (other * other).mean() + total * 0.01 + (positive * positive).mean()


def _scattered_by(h: Any, weight: Any) -> Any:
    rows = paddle.arange(ROWS - 1, -1, -1)
    again = paddle.index_add(h, rows, 0, h) * paddle.matmul(h, weight)
    return (paddle.scatter(h, rows, h) * again).mean() + F.relu(h).sum() * 0.01


def stepped(make: Any, full_graph: bool, **options: Any) -> Tuple[List[bytes], List[bool]]:
    """Loss and gradients of some steps; which programs were changed."""
    paddle.disable_static()
    try:
        paddle.seed(3)
        layer = paddle.jit.to_static(Product(make), full_graph=full_graph)
        report = memory_optimize(layer, **options) if options else None
        optimizer = paddle.optimizer.SGD(0.5, parameters=layer.parameters())
        found = []
        for step in range(3):
            loss = layer(
                paddle.to_tensor(
                    np.random.RandomState(step).rand(ROWS, WIDTH).astype('float32') - 0.5))
            loss.backward()
            found += [loss.numpy().tobytes()]
            found += [p.grad.numpy().tobytes() for p in layer.parameters() if p.grad is not None]
            optimizer.step()
            optimizer.clear_grad()
        return found, [each.report.changed for each in report.programs] if report else []
    finally:
        paddle.enable_static()


@pytest.mark.parametrize('full_graph', [True, False])
@pytest.mark.parametrize('make', [_product_of, _scattered_by])
def test_layers_give_their_bytes_whatever_has_one_memory(make: Any, full_graph: bool) -> None:
    plain, _ = stepped(make, full_graph)
    assert len(plain) > 3 * 2 and len(set(plain)) == len(plain)
    found = [stepped(make, full_graph, recompute=each) for each in ('auto', 'max', False)]
    assert all(seen == plain for seen, _ in found)
    assert any(changed for _, each in found for changed in each)


def _op(main: Any, kind: str) -> Op:
    return next(op for op in import_program(main).graph.ops if op.kind == kind)


def test_a_copy_that_einsum_keeps_is_counted_and_a_second_name_is_not() -> None:
    for make, copies in ((_product, [0, 0]), (_turned, [0, 4 * WIDTH * WIDTH])):
        graph = import_program(trained(make).main).graph
        product = next(op for op in graph.ops if op.kind == 'einsum')
        gradient = next(op for op in graph.ops if op.kind == 'einsum_grad')
        kept = [v for v in product.results if v in gradient.operands]
        sizes = [graph.values[v].size.evaluate({}) for v in kept]
        assert sorted(sizes) == sorted([*copies, 0, 0])  # with what bears a shape alone
        assert product.operands[0] in gradient.reads()


# -- what branches and loops hand out through one another


def _is_more(h: Any, than: float) -> Any:
    return paddle.mean(h) > than


def _case(h: Any) -> Any:
    ways = [(_is_more(h, 99.0), lambda: h * 3), (_is_more(h, 98.0), lambda: h * 2)]
    return static.nn.case(ways, default=lambda: h)


def _switch(h: Any) -> Any:
    which = paddle.cast(paddle.mean(h) * 0 + 2, 'int32')
    return static.nn.switch_case(which, {0: lambda: h * 3, 1: lambda: h * 2, 2: lambda: h})


def _inner(h: Any) -> Any:
    return static.nn.cond(_is_more(h, -98.0), lambda: h, lambda: h * 3)


def _nested(h: Any) -> Any:
    return static.nn.cond(_is_more(h, -99.0), lambda: _inner(h), lambda: h * 2)


def _looped(body: Make, begun: Any, trips: Any = 2) -> Any:
    start = [paddle.zeros([1], 'int64'), begun]
    return static.nn.while_loop(lambda i, _: paddle.all(i < trips),
                                lambda i, v: [i + 1, body(v)], start)[1]


def _in_a_loop(h: Any) -> Any:
    return _looped(lambda v: static.nn.cond(_is_more(h, -99.0), lambda: h, lambda: v * 1.1),
                   h * 1.2)


def _loop_inside(h: Any) -> Any:
    loop = lambda: _looped(lambda _: h, h * 1.2)
    return static.nn.cond(_is_more(h, -99.0), loop, lambda: h * 2)


def _no_trip(h: Any) -> Any:
    """What a loop begins with, and its body reads, too, it gives out."""
    return _looped(lambda v: v * 0.5 + h, h, paddle.cast(paddle.mean(h) * 0, 'int64'))


def _twice(h: Any) -> Any:

    def way() -> Any:
        made = h * 2
        return made, made

    inner = lambda: static.nn.cond(_is_more(h, -98.0), way, lambda: (h * 3, h * 4))
    return static.nn.cond(_is_more(h, -99.0), inner, lambda: (h * 5, h * 6))


def scaled_behind(h: Any, again: Any) -> Any:
    """Of two names of one memory: ops that may work in place on the second, before the first is read for the last time."""
    first, second = again if isinstance(again, (list, tuple)) else (h, again)
    parts = [F.tanh(second), F.sigmoid(second), paddle.exp(second), F.relu(second)]
    total = paddle.mean(paddle.add_n([paddle.sum(each) for each in parts])) * 0.001
    total = total + paddle.sum(second) * 0.0001
    wide = F.gelu(static.nn.fc(paddle.scale(first, scale=total), 8 * WIDTH))
    wide = wide * wide
    return paddle.mean(wide * wide) + paddle.add_n([paddle.mean(each) for each in parts]) * 0.1


def served(make: Make) -> Case:
    with drafting(Options(static_batch=True, inference=True), batch_size=ROWS) as draft:
        h = static.nn.fc(draft.floats('x', [ROWS, WIDTH]), WIDTH)
        again = make(h)
        positive, turned = F.relu(again), F.tanh(again)
        total = paddle.mean(again) + paddle.max(again)
        total = paddle.mean(positive) * 0.01 + total + paddle.mean(turned)
        scaled = paddle.scale(h, scale=total)
        return draft.case([paddle.mean(positive * scaled) + paddle.mean(turned * scaled)],
                          training=False)


@pytest.mark.parametrize('make', [_case, _switch, _nested, _in_a_loop, _loop_inside])
def test_what_is_served_through_nests_gives_its_bytes(make: Make) -> None:
    planned_with_equal_bytes(partial(served, make))


@pytest.mark.parametrize('turned', [False, True])
@pytest.mark.parametrize('make', [_nested, _in_a_loop, _no_trip, _twice])
def test_what_is_trained_through_nests_gives_its_bytes(make: Make, turned: bool) -> None:

    def behind(h: Any) -> Any:
        again = make(h)
        pair = again if isinstance(again, (list, tuple)) else (h, again)
        return scaled_behind(h, tuple(pair)[::-1] if turned else tuple(pair))

    assert any(planned_with_equal_bytes(partial(trained, behind)))


# -- second names, and numbers that are written over

SECOND_NAMES = {
    'share_data': lambda h: _C_ops.share_data(h),
    'npu_identity': lambda h: _C_ops.npu_identity(h, -1),
    'view_shape': lambda h: _C_ops.view_shape(h, [ROWS, WIDTH]),
    'view_slice': lambda h: _C_ops.view_slice(h, 0, ROWS),
    'of a branch': lambda h: static.nn.cond(_is_more(h, -99.0), lambda: _C_ops.share_data(h), lambda: h * 2),
}  # yapf: disable


@pytest.mark.parametrize('name', SECOND_NAMES)
def test_what_is_served_under_a_second_name_gives_its_bytes(name: str) -> None:
    if name == 'view_shape' and paddle.__version__ < '3.3':
        pytest.skip('before 3.3 Paddle has it for tensors, not in programs')
    test_what_is_served_through_nests_gives_its_bytes(SECOND_NAMES[name])


@pytest.mark.parametrize('turned', [False, True])
@pytest.mark.parametrize('name', ['share_data', 'npu_identity'])
def test_what_is_trained_under_a_second_name_gives_its_bytes(name: str, turned: bool) -> None:
    test_what_is_trained_through_nests_gives_its_bytes(SECOND_NAMES[name], turned)


def test_what_is_written_over_changes_under_its_second_name_too() -> None:

    def behind(h: Any) -> Any:
        again = _C_ops.share_data(F.gelu(h) + 1.0)
        first = again.get_defining_op().operand_source(0)
        total = paddle.mean(F.tanh(again) * F.sigmoid(first))
        paddle.assign(F.relu(h), output=first)
        return total + paddle.mean(F.tanh(again) * h)

    with in_order():  # or the untouched one reads before, or behind, as it happens
        plain = run(trained(behind), 3)
        for recompute in RECOMPUTE:
            case = trained(behind)
            optimized(case, recompute=recompute)
            assert_equal(plain, run(case, 3))


def _increased(p: Any) -> Any:
    paddle.increment(p, 0.3)
    return p


def _assigned(p: Any) -> Any:
    paddle.assign(paddle.full([1], 0.6), output=p)
    return p


def _by_a_second_name(p: Any) -> Any:
    paddle.increment(_C_ops.share_data(p), 0.3)
    return p


@pytest.mark.parametrize('change', [_increased, _assigned, _by_a_second_name])
def test_a_share_that_is_written_over_before_a_dropout_is_not_the_number_it_was(
        change: Make) -> None:

    def dropped(h: Any) -> Any:
        share = change(paddle.full([1], 0.3))
        for _ in range(3):
            made = F.dropout(F.gelu(static.nn.fc(h, 16 * WIDTH)), share)
            assert replay_of(made.get_defining_op()) is None
            h = static.nn.fc(made * made, WIDTH)
        return paddle.mean(h * h)

    with in_order():
        plain = run(trained(dropped), 3)
    case = trained(dropped)
    assert optimized(case, recompute='max').changed
    assert_equal(plain, run(case, 3))


# -- in place on what is read twice


def _last(make: Make, is_last: bool) -> bytes:
    """What `make` makes of a value, which nobody reads behind it, or somebody does."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data('x', [ROWS, WIDTH])
        h = x * 0.5 + 1.0
        fetched = [paddle.assign(make(h))]
        if not is_last:
            fetched.append(h * 3.0)
    feed = {'x': np.random.RandomState(1).rand(ROWS, WIDTH).astype('float32')}
    with fresh_scope(), in_order():
        return np.array(static.Executor().run(main, feed=feed, fetch_list=fetched)[0]).tobytes()


def _whole(function: Callable[[Any, Any], Any]) -> Make:
    """Of integers."""

    def make(h: Any) -> Any:
        numbers = paddle.cast(h * 20.0, 'int32')
        return function(numbers, numbers)

    return make


def _true(function: Callable[[Any, Any], Any]) -> Make:

    def make(h: Any) -> Any:
        larger = h > 1.2
        return function(larger, larger)

    return make


TWICE = {
    'add': lambda h: h + h,
    'bitwise_and': _whole(paddle.bitwise_and),
    'bitwise_or': _whole(paddle.bitwise_or),
    'bitwise_xor': _whole(paddle.bitwise_xor),
    'copysign': lambda h: paddle.copysign(h, h),
    'divide': lambda h: h / h,
    'elementwise_pow': lambda h: paddle.pow(h, h),
    'floor_divide': lambda h: paddle.floor_divide(h, h),
    'lerp': lambda h: paddle.lerp(h, h, h),
    'logical_and': _true(paddle.logical_and),
    'logical_or': _true(paddle.logical_or),
    'logical_xor': _true(paddle.logical_xor),
    'maximum': lambda h: paddle.maximum(h, h),
    'minimum': lambda h: paddle.minimum(h, h),
    'multiply': lambda h: h * h,
    'remainder': lambda h: paddle.remainder(h, h),
    'subtract': lambda h: h - h,
    'where': lambda h: paddle.where(h > 1.2, h, h),
}


def test_the_ops_that_may_work_in_place_on_what_they_read_twice_are_known() -> None:
    assert TWICE.keys() == EACH_ELEMENT_ALONE


@pytest.mark.parametrize('name', TWICE)
def test_ops_that_take_each_element_alone_bear_that_they_work_in_place_on_what_they_read_twice(
        name: str) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        paddle.assign(TWICE[name](static.data('x', [ROWS, WIDTH]) * 0.5 + 1.0))
    op = _op(main, name)
    assert len(set(op.operands)) < len(op.operands) and not op.facts.side_effect
    assert _last(TWICE[name], True) == _last(TWICE[name], False)


@pytest.mark.parametrize('make', [_scattered, _added_at, _labelled])
def test_other_ops_that_read_what_they_may_work_in_place_on_twice_write_it(make: Make) -> None:
    written = [
        op for op in import_program(trained(make).main).graph.ops
        if op.facts.side_effect and set(op.operands) & set(op.results)
    ]
    assert [len(set(op.operands)) < len(op.operands) for op in written] == [True]
    assert not written[0].facts.in_place


def test_the_executor_itself_gives_rows_that_it_has_written_over() -> None:
    """Why that must be so."""
    scatter = lambda h: paddle.scatter(h, reversed_rows(), h)
    assert _last(scatter, True) != _last(scatter, False)


# -- random numbers


@pytest.mark.parametrize('kind, make', [
    ('fractional_max_pool2d', lambda x: F.fractional_max_pool2d(x, 5)),
    ('fractional_max_pool3d', lambda x: F.fractional_max_pool3d(x, 5)),
    ('bernoulli', lambda x: paddle.bernoulli(paddle.abs(x))),
    ('max_pool2d_with_index', lambda x: F.max_pool2d(x, 2, return_mask=True)[0]),
])
def test_an_op_is_random_if_it_moves_the_generator(kind: str, make: Make) -> None:
    dims = [2, 3, 8, 8, 8] if kind.endswith('3d') else [2, 3, 8, 8]
    main = static.Program()
    with static.program_guard(main, static.Program()):
        made = make(static.data('x', dims))
    feed = {'x': np.random.RandomState(1).rand(*dims).astype('float32')}
    with fresh_scope():
        before = _generator()
        static.Executor().run(main, feed=feed, fetch_list=[made])
        assert _op(main, kind).facts.random is (_generator() != before)


def _generator() -> str:
    return re.sub('0x[0-9a-f]+', '', str(paddle.get_rng_state()[0]))  # less where it is


# -- the dims of a run


def _mean(h: Any) -> Any:
    wide = F.tanh(F.gelu(h) * h)
    again = F.tanh(wide) * wide
    return paddle.mean(again * again)


@pytest.mark.parametrize('recompute', ['auto', 'max'])
def test_a_run_may_have_fewer_rows_than_the_program_declares(recompute: str) -> None:
    """Paddle takes them; the gradient of a mean divides by as many as there are, in a tensor of which it reads the shape alone."""
    plain, case = trained(_mean), trained(_mean)
    report = optimized(case, recompute=recompute)
    fewer = lambda fed: {name: value[:ROWS // 4] for name, value in fed.items()}
    for each in (plain, case):
        feed = each.feed
        object.__setattr__(each, 'feed', lambda step, feed=feed: fewer(feed(step)))
    assert report.changed
    assert_equal(run(plain, 3), run(case, 3))
