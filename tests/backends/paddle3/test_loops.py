"""Loops and branches on Paddle 3: what is kept for gradients, what is made again there, and what is left alone."""
from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import static

from benchmarks.apart import apart
from benchmarks.programs import loops
from benchmarks.programs.case import Case, Draft, Options, drafting
from tests import settled
from tests.backends.paddle3.running import (FLAG, MIB, Build, Seen, assert_equal, assert_same,
                                            first_peak, in_order, optimized, run)
from transpiler import memory_optimize
from transpiler.backends.paddle3.pinning import FLAG_WITH_BLOCKS
from transpiler.backends.paddle3.programs import LivePrograms
from transpiler.errors import VerificationError
from transpiler.flow import prove
from transpiler.ir import KEEP, Graph, RegionKind
from transpiler.passes.unread_keeps import drop_unread_keeps

SMALL = Options(static_batch=True, trip_count=5, width=16, batch_size=4)
PROGRAMS = (('loop', 'auto'), ('loop', 'max'), ('loop', False), ('gru_loop', 'max'), ('attention_loop', 'auto'),
            ('cond_in_loop', False), ('cond_in_loop', 'max'), ('weights_in_cond_in_loop', 'auto'))  # yapf: disable
MODES = ('auto', 'max', False)
TRIPS = 3


def small(name: str, **options: Any) -> Case:
    return getattr(loops, name)(Options(**{**SMALL.__dict__, **options}))


@lru_cache(maxsize=None)
def untouched(name: str) -> Seen:
    with in_order():
        return run(small(name))


@pytest.mark.parametrize('name, recompute', PROGRAMS)
def test_five_steps_give_the_same_bytes(name: str, recompute: Any) -> None:
    case = small(name)
    report = optimized(case, recompute=recompute)
    assert report.changed and report.peak_bytes_after < report.peak_bytes_before, report.note
    assert_equal(untouched(name), run(case))


def test_a_loop_with_dropout_draws_what_it_drew() -> None:
    with in_order():
        plain = run(small('gru_loop', dropout=0.5))
    case = small('gru_loop', dropout=0.5)
    assert optimized(case, recompute='max').changed
    assert_equal(plain, run(case))


def test_a_loop_in_a_branch_trains_which_it_does_not_untouched() -> None:
    """Paddle 3.3 pushes what it has freed; nobody reads that."""
    with pytest.raises(RuntimeError, match="shouldn't be null"):
        run(small('loop_in_cond'), 1)
    seen = []
    for recompute in MODES:
        case = small('loop_in_cond')
        assert optimized(case, recompute=recompute).changed
        seen.append(run(case))
    assert_equal(seen[0], seen[1])
    assert_equal(seen[0], seen[2])


# MiB above resting: with what the gradients name, with what is made again in the time allowed, and with all that can be.
FULL = {('loop', False): 41, ('loop', 'auto'): 19, ('loop', 'max'): 14, ('gru_loop', 'auto'): 18,
        ('gru_loop', 'max'): 10}  # yapf: disable


@pytest.mark.parametrize('name, recompute', FULL)
def test_a_loop_needs_what_was_predicted_and_no_more_than_promised(name: str,
                                                                   recompute: Any) -> None:
    """In the first run and later."""
    predicted = []

    def read() -> Tuple[float, ...]:
        case = getattr(loops, name)(Options(static_batch=True))
        predicted.append(optimized(case, recompute=recompute).peak_bytes_after / MIB)
        return run(case, 2).peaks

    peaks = settled.least(read, (FULL[name, recompute],) * 2)
    assert max(peaks) <= FULL[name, recompute]
    assert max(predicted) <= min(peaks) * 1.05


def test_what_a_loop_keeps_grows_with_its_trips() -> None:
    kept = []
    for trips in (10, 20, 40):
        report = optimized(small('loop', trip_count=trips), recompute=False)
        (loop,) = report.loops
        assert loop.trips == trips
        kept.append(loop.bytes_per_trip_after)
    assert len(set(kept)) == 1 and 0 < kept[0] < loop.bytes_per_trip_before


def test_the_untouched_loop_needs_what_was_predicted() -> None:
    """All that its body makes is copied to a stack."""
    case = small('loop', trip_count=40, width=64, batch_size=64)
    predicted = optimized(small('loop', trip_count=40, width=64, batch_size=64)).peak_bytes_before
    settled.assert_as_predicted(lambda: run(case, 1).peaks, (predicted / MIB,), within=0.05)


def flipped(x: Any, times: int = 1) -> Any:
    """Nothing that works in place."""
    for _ in range(times):
        x = paddle.flip(x, [0])
    return x


def gives_away(x: Any) -> Any:
    """What a branch makes, and what it hands on, is in the same memory."""
    ways = [
        lambda: [flipped(x), paddle.flip(x, [1]),
                 paddle.flip(x, [0, 1])], lambda: [x * 2, x * 3, x * 4]
    ]
    made = static.nn.cond(paddle.mean(x) > -100, *ways)
    return sum(paddle.mean(each) for each in made)


def gone_with_its_reader(x: Any) -> Any:
    """Nor does the branch hold it."""
    return gives_away(x) + sum(map(paddle.mean, [flipped(x) for _ in range(2)]))


def loop_in_branch(x: Any) -> Any:
    """What only the loop names, it lets go of as it does outside of branches."""

    def way() -> Any:
        start = [paddle.zeros([1], 'int64'), flipped(x)]
        return static.nn.while_loop(lambda i, _: i < 3, lambda i, v: [i + 1, flipped(v)], start)[1]

    return paddle.mean(static.nn.cond(paddle.mean(x) > -100, way, lambda: x * 2))


def trained_branch(x: Any) -> Any:
    """What its gradient reads is copied when it is through, and each copy is gone behind its last reader."""
    weights = [paddle.create_parameter([512, 512], 'float32') for _ in range(4)]

    def way() -> Any:
        made = x
        for weight in weights:
            made = F.gelu(paddle.matmul(made, weight))
        return made

    return paddle.mean(
        static.nn.cond(paddle.mean(x) > -100, way, lambda: paddle.matmul(x, weights[0])))


@pytest.mark.parametrize('recompute', MODES)
def test_a_trained_branch_needs_what_was_predicted(recompute: Any) -> None:
    said, seen = apart(_said_and_seen, trained_branch, recompute, True)
    settled.assert_as_predicted(
        lambda: (min(seen,
                     apart(_said_and_seen, trained_branch, recompute, True)[1]),), (said,))


def _said_and_seen(make: Callable[[Any], Any],
                   recompute: Any = False,
                   training: bool = False) -> Tuple[float, float]:
    with drafting(Options(static_batch=True, inference=not training), batch_size=512) as draft:
        made = make(draft.floats('x', [512, 512]))
        case = draft.finish(made, []) if training else draft.case([made], training=False)
    report = optimized(case, recompute=recompute)
    with in_order():
        return report.peak_bytes_after / MIB, run(case, 1).peaks[0]


@pytest.mark.parametrize('make', [gives_away, gone_with_its_reader, loop_in_branch])
def test_what_branches_hand_on_is_counted_once(make: Callable[[Any], Any]) -> None:
    """None of its tensors of 1 MiB more or less than is said. In processes of their own, where nobody has anything to free."""
    said, seen = apart(_said_and_seen, make)
    settled.assert_as_predicted(lambda: (min(seen, apart(_said_and_seen, make)[1]),), (said,))


# ---------------------------------------------------------------------------------------------------
# Which programs


def built(make: Callable[[Draft], Any]) -> Case:
    """A program that trains on what `make` gives."""
    with drafting(Options(static_batch=True), batch_size=4, trip_count=3) as draft:
        return draft.finish(paddle.mean(make(draft)), [])


def two_branches(draft: Draft) -> Any:
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)
    weight = paddle.create_parameter([16, 16], 'float32')
    gate = lambda v: paddle.tanh(paddle.matmul(v, weight)) * paddle.nn.functional.sigmoid(v)
    first = static.nn.cond(paddle.mean(x) > 0, lambda: gate(gate(x)), lambda: gate(x) + x)
    inner = lambda: static.nn.cond(paddle.mean(first) > 0.1, lambda: gate(first), lambda: first * 2)
    return static.nn.cond(paddle.mean(first) > 0, inner, lambda: gate(x)) + first


def fed_trips(draft: Draft) -> Any:
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)
    trips = paddle.sum(draft.integers('trips', [1], below=4, batch_axis=None)) + 1
    weight = paddle.create_parameter([16, 16], 'float32')

    def body(index: Any, carried: Any) -> List[Any]:
        halves = paddle.split(paddle.matmul(carried, weight), 2, axis=-1)
        return [index + 1, paddle.tanh(paddle.concat(halves[::-1], axis=-1)) + x]

    start = [paddle.full([], 0, 'int64'), x]
    return static.nn.while_loop(lambda index, _: index < trips, body, start)[1] * 0.5


def _assert_planned_and_equal(make: Any, recompute: Any) -> None:
    with in_order():
        plain = run(built(make))
    case = built(make)
    report = optimized(case, recompute=recompute)
    assert report.changed, report.note
    assert_equal(plain, run(case))


@pytest.mark.parametrize('recompute', MODES)
@pytest.mark.parametrize('make', [two_branches, fed_trips])
def test_several_loops_and_branches(make: Any, recompute: Any) -> None:
    """Branches are taken at some steps; loops have other trips at each. Without any trip Paddle 3 fails by itself."""
    _assert_planned_and_equal(make, recompute)


def in_branch(draft: Draft) -> Any:
    """Paddle 3 does not train parameters that are declared inside of a block, and keeps a copy of each for the gradient."""
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)
    taken = lambda: static.nn.fc(paddle.tanh(x), 16, activation='tanh') + x
    return static.nn.cond(paddle.mean(x) > 0, taken, lambda: static.nn.fc(paddle.exp(x), 16))


def in_loop(draft: Draft, width: int = 16) -> Any:
    """One of each trip."""
    x = static.nn.fc(draft.floats('x', [4, width]), width)
    body = lambda i, v: [i + 1, static.nn.fc(v, width, activation='tanh') + v * 0.5]
    start = [paddle.full([], 0, 'int64'), x * 1.0]
    trips = paddle.full([], TRIPS, 'int64')
    return static.nn.while_loop(lambda i, _: i < trips, body, start)[1]


def in_branch_in_loop(draft: Draft) -> Any:
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)

    def body(index: Any, carried: Any) -> List[Any]:
        taken = lambda: paddle.tanh(static.nn.fc(carried, 16))
        return [index + 1, static.nn.cond(paddle.mean(carried) > 0, taken, lambda: carried * 0.5)]

    start = [paddle.full([], 0, 'int64'), x * 1.0]
    return static.nn.while_loop(lambda i, _: i < 3, body, start)[1] + x


def by_name(draft: Draft) -> Any:
    """One weight for three layers, one of them in a branch: that each declares it, and updates it, is Paddle 3's own."""
    weight = paddle.ParamAttr(name='shared_by_name')
    layer = lambda v: static.nn.fc(v, 16, weight_attr=weight, bias_attr=False)
    x = paddle.tanh(layer(draft.floats('x', [4, 16])))
    made = static.nn.cond(paddle.mean(x) > 0, lambda: layer(x) + x, lambda: paddle.exp(x) * 0.5)
    return paddle.tanh(layer(made)) + x


@pytest.mark.parametrize('recompute', MODES)
@pytest.mark.parametrize('make', [in_branch, in_loop, in_branch_in_loop, by_name])
def test_parameters_declared_inside_of_blocks_or_several_times(make: Any, recompute: Any) -> None:
    _assert_planned_and_equal(make, recompute)


def test_copies_of_parameters_that_a_loop_keeps_are_counted_and_not_kept_by_a_plan() -> None:
    wide = partial(in_loop, width=256)
    copies = TRIPS * 256 * 256 * np.dtype('float32').itemsize
    report, case = optimized(built(wide)), built(wide)
    with in_order():
        settled.assert_as_predicted(lambda: run(case, 1).peaks, (report.peak_bytes_before / MIB,),
                                    within=0.05)
    assert copies < report.peak_bytes_before - report.peak_bytes_after

    def rewrite(case: Case) -> None:
        assert optimized(case).changed

    needed = first_peak(lambda: built(wide), report.needed_bytes / MIB * 1.05, rewrite=rewrite)
    assert needed * MIB <= report.sure_bytes
    assert report.needed_bytes * 0.95 <= needed * MIB <= report.needed_bytes * 1.05


def inferring(make: Callable[[Draft], Any]) -> Case:
    with drafting(Options(static_batch=True, inference=True), batch_size=4) as draft:
        return draft.case([make(draft)], training=False)


def nested(draft: Draft) -> Any:
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)

    def inner(index: Any, carried: Any) -> List[Any]:
        return [index + 1, paddle.tanh(carried) + x]

    def outer(index: Any, carried: Any) -> List[Any]:
        start = paddle.zeros([1], 'int64')
        _, made = static.nn.while_loop(lambda i, _: i < 2, inner, [start, carried])
        wide = paddle.concat([paddle.sin(made), paddle.cos(made)], axis=-1)
        return [index + 1, static.nn.cond(paddle.mean(made) > 0, lambda: made * 2, lambda: made) +
                paddle.sum(wide)]  # yapf: disable

    return static.nn.while_loop(lambda i, _: i < 3, outer, [paddle.zeros([1], 'int64'), x])[1]


def test_loops_that_nobody_trains_are_ordered() -> None:
    """Nothing is kept for gradients: loops in loops are like any others."""
    plain, case = run(inferring(nested)), inferring(nested)
    report = optimized(case)
    assert report.changed or report.peak_bytes_after == report.peak_bytes_before
    assert 'it has' not in report.note
    assert_same(plain, run(case))


def increments(draft: Draft) -> Any:
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)

    def body(index: Any, carried: Any) -> List[Any]:
        return [paddle.increment(index), paddle.tanh(carried)]

    return static.nn.while_loop(lambda i, _: i < 3, body, [paddle.zeros([1], 'int64'), x])[1]


def declares_input(draft: Draft) -> Any:
    x, y = (draft.floats(name, [4, 16]) for name in 'xy')
    return static.nn.cond(paddle.mean(x) > 0, lambda: x * y, lambda: x * 2)


def input_inside() -> Case:
    """Paddle's own functions declare inputs outside."""
    case = inferring(declares_input)
    declared = next(op for op in case.main.global_block().ops
                    if op.name() == 'pd_op.data' and op.attrs()['name'] == 'y')
    declared.move_before(only(case.main, 'pd_op.if').as_if_op().true_block().ops[0])
    return case


def reads_behind(draft: Draft) -> Any:
    """A branch that is taken reads what the loop began with: Paddle lets go of that, where it runs one op after the other."""
    x = static.nn.fc(draft.floats('x', [4, 16]), 16)
    begun, index = paddle.tanh(x), paddle.zeros([1], 'int64')
    made = static.nn.while_loop(lambda i, _: i < 3, lambda i, v: [i + 1, v * 0.5], [index, begun])
    return made[1] + static.nn.cond(paddle.mean(x) > -9, lambda: begun * 2, lambda: begun * 3)


def updated_early() -> Case:
    """What a gradient pops of the parameter is what that was before."""
    case = built(by_name)
    ops = case.main.global_block().ops
    gradient = [op for op in ops if op.name() == 'pd_op.if'][-1]
    next(op for op in ops if op.name() == 'pd_op.sgd_').move_before(gradient)
    return case


LEFT_ALONE: Dict[str, Tuple[Build, str]] = {
    'loops in loops': (lambda: small('nested_loops', layers=2), 'a loop inside of a loop, with gradients'),
    'written over': (lambda: built(increments), 'writes over'),
    'a parameter that changes before': (updated_early, 'as it was before it changed'),
    'inputs in branches': (input_inside, 'declared in a loop or a branch'),
    'read behind a loop that begins with it': (lambda: inferring(reads_behind), 'read behind it'),
}  # yapf: disable


@pytest.mark.parametrize('name', LEFT_ALONE)
def test_what_cannot_be_proved_is_left_alone_and_the_report_says_why(name: str) -> None:
    build, words = LEFT_ALONE[name]
    case = build()
    before = str(case.main)
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    assert not report.changed and str(case.main) == before
    assert words in report.note and '\n' not in report.note


def begun_with(inference: bool) -> Tuple[Case, Any]:
    """A program with a loop, and what that begins with."""
    with drafting(Options(static_batch=True), batch_size=64, trip_count=3) as draft:
        x = draft.floats('x', [64, 64])
        weight = paddle.create_parameter([64, 64], 'float32')
        begun = paddle.full([64, 64], 0.5)
        body = lambda i, v: [i + 1, v + paddle.tanh(paddle.matmul(x, weight))]
        start = [paddle.zeros([1], 'int64'), begun]
        made = static.nn.while_loop(lambda i, _: i < 3, body, start)[1]
        result = paddle.mean(made)
        case = draft.case([result], training=False) if inference else draft.finish(result, [])
        return case, begun


@pytest.mark.parametrize('named', [False, True])
@pytest.mark.parametrize('inference', [False, True])
def test_what_a_loop_began_with_is_fetched_as_it_was(named: bool, inference: bool) -> None:
    case, begun = begun_with(inference)
    fetched = [*case.fetch, begun] if named else list(case.fetch)
    report = memory_optimize(case.main, fetch_list=fetched, recompute='max')
    assert report.changed is not named and ('is fetched' in report.note) is named
    executor = static.Executor()
    executor.run(case.startup)
    for step in range(3):
        seen = executor.run(case.main, feed=case.feed(step), fetch_list=[*case.fetch, begun])[1]
        assert seen.tobytes() == np.full([64, 64], 0.5, 'float32').tobytes()


# ---------------------------------------------------------------------------------------------------
# The order, and the proof


def test_the_ops_of_a_loop_are_handed_on_one_by_one(monkeypatch: Any) -> None:
    """While a program with blocks runs, and no other; the flag of those without stays as it was."""
    case = small('loop')
    assert optimized(case).changed
    seen: List[Dict[str, Any]] = []
    original = paddle.set_flags
    monkeypatch.setattr(paddle, 'set_flags', lambda flags: (seen.append(flags), original(flags)))
    run(case, 2)
    assert seen == [{FLAG_WITH_BLOCKS: True}, {FLAG_WITH_BLOCKS: False}] * 3
    assert not any(paddle.get_flags([FLAG, FLAG_WITH_BLOCKS]).values())


def only(program: Any, name: str) -> Any:
    """The first op of that name, in any block."""
    pending = [program.global_block()]
    for block in pending:
        for op in block.ops:
            if op.name() == name:
                return op
            pending += op.blocks()
    raise AssertionError(name)


def swap(op: Any, first: int, second: int) -> None:
    a, b = op.operand_source(first), op.operand_source(second)
    op.operand(first).set_source(b)
    op.operand(second).set_source(a)


def other_frames(program: Any) -> None:
    push = only(program, 'cf.tuple_push')
    kept = enumerate(push.operands_source())
    first, second, *_ = [i for i, v in kept if v.is_dense_tensor_type() and v.shape == [4, 16]]
    swap(push, first, second)


def kept_too_early(program: Any) -> None:
    push = only(program, 'cf.tuple_push')
    push.get_parent_block().move_op_to_block_end(push)


def never_ending(program: Any) -> None:
    loop = [op for op in program.global_block().ops if op.name() == 'pd_op.while']
    loop[1].operand(0).set_source(loop[0].operand_source(0))


def other_state(program: Any) -> None:
    swap(only(program, 'pd_op.matmul_grad'), 0, 2)


def taken_late(program: Any) -> None:
    pop = only(program, 'cf.tuple_pop')
    more = next(op for op in pop.get_parent_block().ops if op.name() == 'cf.has_elements')
    more.move_before(pop)


DAMAGES = (other_frames, kept_too_early, never_ending, other_state, taken_late)


@pytest.mark.parametrize('damage', DAMAGES)
def test_a_damaged_rewrite_is_not_proved(damage: Callable[[Any], None]) -> None:
    backend, case = LivePrograms(), small('loop')
    with backend.session():
        imported = backend.read(case.main, frozenset(), frozenset())
        graph = drop_unread_keeps(imported.graph.copy(), None)
        written = backend.write(imported, graph)
        prove(backend, imported, written)
        damage(written.program)
        with pytest.raises(VerificationError):
            prove(backend, imported, written)


def test_what_is_kept_is_what_is_read() -> None:
    """A gradient takes as many values from the stack as before; those that it does not read are numbers."""
    case = small('loop')
    graph = LivePrograms().read(case.main, frozenset(), frozenset()).graph
    read = read_of_forward(graph)
    assert optimized(case, recompute=False).changed
    pop = only(case.main, 'cf.tuple_pop')
    used = [value for value in pop.results() if not value.use_empty()]
    assert len(used) == len(read) < pop.num_results()
    assert all(value.shape == [1] for value in pop.results() if value.use_empty())


def read_of_forward(graph: Graph) -> List[int]:
    gradient = next(r for r in graph.regions if r.kind is RegionKind.LOOP_GRADIENT)
    return list({v for op in graph.region_ops(gradient.id) if op.kind != KEEP for v in op.reads()
                 if graph.values[v].region == gradient.forward})  # yapf: disable
