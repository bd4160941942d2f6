"""With collection off, no gradient of a loop takes what an earlier run left for its own, however trips change from run to run,
nor does a kernel that goes on with what its result holds.

Untouched Paddle does: the gradient of a result that nothing depends on is filled with zeros only while its variable is empty,
and a loop without a trip writes no gradient at all. What is right is what the collecting executor computes.
"""
from __future__ import annotations

import random
from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.harness import (Case, Mode, Outcome, assert_same_bytes, executor_mode, fingerprint,
                           fresh_scope, new_programs, run_case)
from tests.scenarios.common import data, fc, train
from tests.settled import long_at_rest
from transpiler import memory_optimize, release_memory
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.importer import NEVER_WRITTEN, import_program, is_forget
from transpiler.backends.paddle2.programs import SerializedPrograms
from transpiler.errors import MemoryBudgetError, VerificationError
from transpiler.flow import prove
from transpiler.passes.clean_start import forget_earlier_runs
from transpiler.passes.context import PassContext
from transpiler.runtime import RETAINING

Variable = Any
WIDTH, ROWS, STEPS = 8, 16, 4
TRUE_MODE = Mode(order='sequential')
HOLDING = [Mode(False, order) for order in ('default', 'serial')]
TRIPS = [(2, 1), (1, 3), (3, 2), (1, 1)]
SOME_WITHOUT_TRIPS = [(2, 1), (1, 2), (0, 1), (2, 0)]


def loop(limit: Variable, state: List[Variable], body: Callable[..., List[Variable]]) -> list:
    state = [paddle.scale(s, 1.0) for s in state]
    for each in state:
        each.stop_gradient = False
    index = paddle.full([1], 0, 'int64')
    return paddle.static.nn.while_loop(lambda i, *_: i < limit,
                                       lambda i, *s: [paddle.increment(i), *body(*s)],
                                       [index, *state])[1:]


def case_of(network: Callable[[Variable, Variable, Variable], Variable], trips: List[Any]) -> Case:
    with new_programs() as (main, startup):
        outer, inner = data('outer', 1, dtype='int64'), data('inner', 1, dtype='int64')
        loss = paddle.mean(network(fc(data('x', ROWS, WIDTH), WIDTH, 'tanh'), outer, inner))
        train(loss)
    gradients = [p.name + '@GRAD' for p in main.all_parameters()]
    dice = np.random.RandomState(0)
    feeds = [{
        'x': dice.rand(ROWS, WIDTH).astype('float32'),
        'outer': np.array([a]),
        'inner': np.array([b])
    } for a, b in trips]
    known = main.global_block().vars
    return Case(main, startup, lambda step: feeds[step],
                [loss.name, *(g for g in gradients if g in known)])


def weight() -> Variable:
    return paddle.create_parameter([WIDTH, WIDTH], 'float32')


def a_result_without_use(h: Variable, outer: Variable, inner: Variable) -> Variable:
    """The second state feeds the first, and nobody looks at how it ends."""
    w = weight()
    return loop(
        outer, [h, paddle.tanh(h)],
        lambda a, b: [a * 0.5 + b * 0.3, paddle.tanh(paddle.matmul(b, w))])[0]


def nested(h: Variable, outer: Variable, inner: Variable) -> Variable:
    w = weight()

    def body(a: Variable, b: Variable) -> List[Variable]:
        c, d = loop(
            inner, [a, b],
            lambda c, d: [c * 0.5 + d * 0.3, paddle.tanh(paddle.matmul(d, w))])
        return [c + a * 0.1, b * 0.7 + d * 0.1]

    return loop(outer, [h, paddle.tanh(h)], body)[0]


def in_a_branch(h: Variable, outer: Variable, inner: Variable) -> Variable:
    one, two = weight(), weight()

    def taken(w: Variable) -> Callable[[], Variable]:
        return lambda: loop(inner, [h, h * 0.5], lambda a, b:
                            [a * 0.5 + b * 0.3, paddle.matmul(b, w)])[0] * 1.0

    return paddle.static.nn.cond(outer > 1, taken(one), taken(two)) + loop(
        outer, [h, h * 0.1], lambda a, b: [a + b * 0.2, paddle.tanh(b)])[0]


def with_an_array(h: Variable, outer: Variable, inner: Variable) -> Variable:
    w, limit = weight(), paddle.full([1], 3, 'int64')
    start = paddle.full([1], 0, 'int64')
    array = paddle.tensor.array_write(h, start)
    state = paddle.scale(h, 0.5)
    state.stop_gradient = False

    def body(i: Variable, a: Variable, kept: Variable) -> List[Variable]:
        new = paddle.tanh(paddle.matmul(a, w) + paddle.tensor.array_read(kept, i))
        i = paddle.increment(i)
        return [i, a * 0.5, paddle.tensor.array_write(new, i, kept)]

    end = paddle.static.nn.while_loop(lambda i, *_: paddle.logical_and(i < outer, i < limit), body,
                                      [start, state, array])
    return paddle.tensor.array_read(end[2], outer)


def two_readers(h: Variable, outer: Variable, inner: Variable) -> Variable:
    """Gradients of one value from two loops, added up: a loop without a trip has none to add."""
    w = weight()
    first = loop(outer, [h * 0.5], lambda a: [a * 0.5 + paddle.matmul(h, w)])[0]
    second = loop(inner, [h * 0.1], lambda a: [a * 0.5 + paddle.matmul(h, w) * 0.3])[0]
    return first + second + paddle.matmul(h, w)


def beside_a_wide_chain(h: Variable, outer: Variable, inner: Variable) -> Variable:
    """Where releases pay in later runs, and cost nothing in the first: the peak is far from the loops."""
    wide = h
    for _ in range(3):
        wide = paddle.tanh(paddle.static.nn.fc(wide, 2048))
    return two_readers(h, outer, inner) + paddle.mean(wide)


def generated(seed: int) -> Callable[[Variable, Variable, Variable], Variable]:

    def network(h: Variable, outer: Variable, inner: Variable) -> Variable:
        dice = random.Random(seed)
        weights = [weight(), weight()]

        def grow(values: List[Variable], depth: int) -> List[Variable]:
            if depth > 2 or dice.random() < 0.3:
                a, b = dice.choice(values), dice.choice(values)
                return [paddle.tanh(paddle.matmul(a, dice.choice(weights))) * 0.5 + b * 0.4]
            count = dice.randint(1, 3)

            def body(*state: Variable) -> List[Variable]:
                made = list(state) + values[:dice.randint(0, 1)]
                for _ in range(dice.randint(1, 2)):
                    made += grow(made, depth + 1)
                return [made[-1 - k] * 0.9 + s * 0.1 for k, s in enumerate(state)]

            return loop(dice.choice([outer, inner]),
                        [dice.choice(values) * 0.8 for _ in range(count)], body)

        values = [h]
        for _ in range(3):
            values += grow(values, 1)
        return paddle.add_n(dice.sample(values[1:], max(1, len(values) // 2)))

    return network


NETWORKS: Dict[str, Callable[..., Variable]] = {
    'result without use': a_result_without_use,
    'nested': nested,
    'in a branch': in_a_branch,
    'with an array': with_an_array
}


def ran(case: Case, mode: Mode) -> Outcome:
    return run_case(case, steps=STEPS, mode=mode)


def differs(a: Outcome, b: Outcome) -> bool:
    return a.fetched != b.fetched


def assert_right(network: Callable[..., Variable],
                 trips: List[Any],
                 modes: Sequence[Mode] = HOLDING,
                 **options: Any) -> Case:
    """Optimized for collection off it computes, in each order, what the untouched program does with collection on."""
    plain, optimized = case_of(network, trips), case_of(network, trips)
    report = memory_optimize(optimized.main,
                             fetch_list=list(optimized.fetch),
                             runtime='retaining',
                             **options)
    assert report.changed
    truth = ran(plain, TRUE_MODE)
    assert not differs(truth, ran(plain, Mode())), 'Paddle does not know itself what is right'
    for mode in modes:
        assert_same_bytes(truth, ran(optimized, mode), str(mode))
    if network is not in_a_branch:  # which Paddle does not run compiled, even untouched
        compiled = paddle.static.CompiledProgram(optimized.main)
        assert_same_bytes(truth, run_case(optimized, compiled, STEPS, Mode(False, 'sequential')))
    return plain


@pytest.mark.parametrize('name', sorted(NETWORKS))
def test_no_gradient_is_taken_from_an_earlier_run(name: str) -> None:
    assert_right(NETWORKS[name], TRIPS)
    assert_right(NETWORKS[name], TRIPS, HOLDING[:1], level=1, skip_grads=False, recompute='max')


def test_a_loop_without_a_trip_adds_nothing_of_an_earlier_run() -> None:
    assert_right(two_readers, SOME_WITHOUT_TRIPS)


@pytest.mark.parametrize('network, trips', [(a_result_without_use, TRIPS),
                                            (two_readers, SOME_WITHOUT_TRIPS)])
def test_untouched_paddle_takes_them(network: Callable[..., Variable], trips: List[Any]) -> None:
    """Or the tests above would show nothing."""
    plain = case_of(network, trips)
    assert differs(ran(plain, TRUE_MODE), ran(plain, Mode(False, 'sequential')))


@pytest.mark.parametrize('seed',
                         [5, 18, 21])  # of the first 24 those that Paddle runs, and gets wrong
def test_generated_nests_of_loops(seed: int) -> None:
    plain = assert_right(generated(seed), TRIPS)
    assert differs(ran(plain, TRUE_MODE), ran(plain, Mode(False, 'sequential')))


def _put(ends: bool) -> Case:
    """A number is put into a batch, by a kernel that copies the batch only if its result holds nothing. `ends`: nobody reads the
    batch afterwards, so that Paddle has it work in place."""
    with new_programs() as (main, startup):
        hidden = fc(data('x', -1, WIDTH), WIDTH, 'tanh')
        wide = paddle.matmul(paddle.concat([hidden] * 64, axis=1), paddle.ones([64 * WIDTH, 512]))
        wide = paddle.mean(paddle.matmul(wide, paddle.ones([512, 512])))
        here = [paddle.to_tensor([0]), paddle.to_tensor([1])]
        loss = paddle.mean(paddle.index_put(hidden, here, paddle.to_tensor([0.3]))) + wide
        loss = loss if ends else loss + paddle.mean(paddle.exp(hidden))
    rows = (2, 1, 5, 2)
    return Case(
        main, startup,
        lambda step: {'x': np.random.RandomState(step).rand(rows[step], WIDTH).astype('f4')},
        [loss.name])


@pytest.mark.parametrize('ends', [True, False])
def test_no_kernel_goes_on_with_what_an_earlier_run_left(ends: bool) -> None:
    plain, optimized = _put(ends), _put(ends)
    report = memory_optimize(optimized.main,
                             fetch_list=list(optimized.fetch),
                             runtime='retaining',
                             batch_size=5)
    truth = ran(plain, TRUE_MODE)
    assert report.changed and not differs(truth, ran(plain, Mode()))
    for mode in HOLDING:
        assert differs(truth, ran(plain, mode)) is not ends  # Paddle's own, untouched
        assert_same_bytes(truth, ran(optimized, mode), str(mode))


def test_a_gradient_that_is_fetched_is_forgotten_too() -> None:
    plain, optimized = (case_of(a_result_without_use, TRIPS) for _ in range(2))
    stale = [n for n in _forgotten(emitted_of(plain)[1]) if 'RENAME' not in n]
    assert stale
    fetch = [*optimized.fetch, *stale]
    memory_optimize(optimized.main, fetch_list=fetch, runtime='retaining')
    assert_same_bytes(run_case(plain, steps=STEPS, mode=TRUE_MODE, fetch=fetch),
                      run_case(optimized, steps=STEPS, mode=HOLDING[0], fetch=fetch))


def test_release_memory_forgets_too_and_a_later_call_not_twice() -> None:
    plain, case = (case_of(beside_a_wide_chain, TRIPS) for _ in range(2))
    assert release_memory(case.main, fetch_list=list(case.fetch), runtime='retaining').changed
    once = _forgotten(framework_pb2.ProgramDesc.FromString(case.main.desc.serialize_to_string()))
    memory_optimize(case.main, fetch_list=list(case.fetch), runtime='retaining')
    twice = _forgotten(framework_pb2.ProgramDesc.FromString(case.main.desc.serialize_to_string()))
    assert once and sorted(once) == sorted(twice)
    assert_same_bytes(ran(plain, TRUE_MODE), ran(case, HOLDING[0]))


def test_of_a_program_that_is_left_alone_the_report_says_what_goes_wrong() -> None:
    """Nothing may be touched: Paddle's own gradients stay, and are wrong from some run on."""
    case, plain = (case_of(a_result_without_use, TRIPS) for _ in range(2))
    stale = _forgotten(emitted_of(plain)[1])
    names = [v.name for v in case.main.list_vars()]
    before = case.main.desc.serialize_to_string()
    report = release_memory(case.main,
                            fetch_list=list(case.fetch),
                            skip_opt_set=names,
                            runtime='retaining')
    assert not report.changed and case.main.desc.serialize_to_string() == before
    assert differs(ran(plain, TRUE_MODE), ran(case, Mode(False, 'sequential')))
    assert 'collection on' in report.note and any(repr(name) in report.note for name in stale)
    assert report.note in ' '.join(str(report).split())


@pytest.mark.parametrize('runtime, network', [('collecting', a_result_without_use),
                                              ('retaining', lambda h, outer, inner: h * 2.0)])
def test_nothing_is_said_where_nothing_is_left(runtime: str, network: Any) -> None:
    case = case_of(network, TRIPS)
    names = [v.name for v in case.main.list_vars()]
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             skip_opt_set=names,
                             runtime=runtime)
    assert 'run before' not in report.note


def test_of_a_program_that_forgets_nothing_is_said() -> None:
    case = case_of(a_result_without_use, TRIPS)
    options = {'fetch_list': list(case.fetch), 'runtime': 'retaining'}
    assert 'run before' not in memory_optimize(case.main, **options).note
    again = memory_optimize(case.main, **options)
    assert not again.changed and 'run before' not in again.note


# ---------------------------------------------------------------------------------------------------
# The verifier


def emitted_of(case: Case) -> tuple:
    program = import_program(case.main.desc.serialize_to_string(), case.fetch)
    context = PassContext(RETAINING, {})
    emitted: EmittedProgram = emit(program, forget_earlier_runs(program.graph.copy(), context))
    prove(SerializedPrograms(), program, emitted)
    return program, emitted.message, emitted


def _forgotten(message: framework_pb2.ProgramDesc) -> List[str]:
    return [n for op in message.blocks[0].ops if is_forget(op) for n in op.outputs[0].arguments]


def forget(op: framework_pb2.OpDesc, name: str) -> None:
    op.outputs[0].arguments[0] = name


@pytest.mark.parametrize('edit, says', [
    (lambda m, op: forget(op, 'x'), 'nobody has written'),
    (lambda m, op: forget(op, 'fc_0.w_0'), 'nobody has written'),
    (lambda m, op: forget(op, 'mean_0.tmp_0@GRAD'), 'nobody has written'),
    (lambda m, op: forget(op, NEVER_WRITTEN), 'never has anything'),
    (lambda m, op: op.attrs[0].bools.__setitem__(0, True), 'something else'),
    (lambda m, op: m.blocks[0].vars.remove(
        next(v for v in m.blocks[0].vars if v.name == NEVER_WRITTEN)), 'not declared'),
])
def test_emptying_what_somebody_wrote_is_rejected(edit: Callable[..., None], says: str) -> None:
    program, message, emitted = emitted_of(case_of(a_result_without_use, TRIPS))
    edit(message, next(op for op in message.blocks[0].ops if is_forget(op)))
    with pytest.raises(VerificationError, match=says):
        prove(SerializedPrograms(), program, emitted)


def test_forgetting_after_the_gradient_has_been_made_is_rejected() -> None:
    program, message, emitted = emitted_of(case_of(a_result_without_use, TRIPS))
    ops, origins = list(message.blocks[0].ops), emitted.origins[0]
    at = next(i for i, op in enumerate(ops) if is_forget(op))
    to = next(i for i, op in enumerate(ops) if op.type == 'while_grad')
    ops.insert(to, ops.pop(at))
    origins.insert(to, origins.pop(at))
    del message.blocks[0].ops[:]
    message.blocks[0].ops.extend(ops)
    with pytest.raises(VerificationError, match='nobody has written'):
        prove(SerializedPrograms(), program, emitted)


def _branching(trained: bool) -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data('x', ROWS, WIDTH), WIDTH, 'tanh')
        either = paddle.static.nn.cond(
            paddle.mean(hidden) > -2.0, lambda: paddle.exp(paddle.cos(hidden)), lambda: hidden * 2)
        loss = paddle.mean(either)
        if trained:
            train(loss)
    batch = np.random.RandomState(0).rand(ROWS, WIDTH).astype('float32')
    return Case(main, startup, lambda _: {'x': batch}, [loss.name])


def _branch_with_a_loop() -> Case:
    """In a program that trains something else."""
    with new_programs() as (main, startup):
        x = data('x', ROWS, WIDTH)
        way = lambda: loop(paddle.full([1], 3, 'int64'), [x], lambda s: [paddle.tanh(s) + 1.0])[0]
        either = paddle.static.nn.cond(paddle.mean(x) > -2.0, way, lambda: x * 2)
        loss, seen = paddle.mean(fc(x, WIDTH, 'tanh')), paddle.mean(either)
        train(loss)
    batch = np.random.RandomState(0).rand(ROWS, WIDTH).astype('float32')
    return Case(main, startup, lambda _: {'x': batch}, [loss.name, seen.name])


def _growth(case: Case, mode: Mode = HOLDING[0]) -> List[int]:
    """Bytes that each run adds for good, from the second on."""
    now = lambda: paddle.base.core.host_memory_stat_current_value('Allocated', 0)
    found = []
    with executor_mode(mode), fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        long_at_rest()  # what earlier tests have left goes before, not between two runs
        for step in range(STEPS):
            executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
            found.append(long_at_rest() if mode.collect else now())
    return [after - before for before, after in zip(found[1:], found[2:])]


def test_what_branches_without_gradients_pile_up_is_said_and_no_budget_is_promised() -> None:
    case = _branching(trained=False)
    assert _growth(case) == [2 * 4 * ROWS * WIDTH] * (STEPS - 2)  # the cosine and its exponential
    before = fingerprint(case.main)
    with pytest.raises(MemoryBudgetError, match='collection'):
        memory_optimize(case.main, fetch_list=case.fetch, runtime='retaining', budget=2**30)
    assert fingerprint(case.main) == before
    report = memory_optimize(case.main, fetch_list=case.fetch, runtime='retaining')
    assert 'cos_0.tmp_0' in report.note and 'collection' in report.note
    with_collection = _branching(trained=False)
    assert 'adds to memory' not in memory_optimize(with_collection.main, fetch_list=case.fetch).note


def test_what_gradients_take_away_again_does_not_pile_up() -> None:
    case = _branching(trained=True)
    assert _growth(case) == [0] * (STEPS - 2)
    options = {'fetch_list': case.fetch, 'runtime': 'retaining'}
    report = memory_optimize(case.main, budget=2**30, **options)
    assert 'adds to memory' not in report.note


def test_so_do_trips_of_loops_in_them_with_a_collector_too_until_a_plan_leaves_out_what_they_copy(
) -> None:
    piled = _growth(_branch_with_a_loop(), TRUE_MODE)
    copies = 3 * (4 * ROWS * WIDTH + 8)  # of what three trips begin with, and of their number
    assert piled == [copies] * (STEPS - 2)
    left, optimized = _branch_with_a_loop(), _branch_with_a_loop()
    report = release_memory(left.main, fetch_list=left.fetch)
    assert 'scale' in report.note and 'each run adds to memory' in report.note
    report = memory_optimize(optimized.main, fetch_list=optimized.fetch)
    assert 'adds to memory' not in report.note
    assert _growth(left, TRUE_MODE) == piled and _growth(optimized, TRUE_MODE) == [0] * (STEPS - 2)
