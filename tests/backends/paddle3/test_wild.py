"""Programs of all kinds of operators: bytes equal, nothing that needs more, no budget that a run breaks; and what was wrong with some."""
from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import _C_ops, static

from benchmarks.apart import apart
from benchmarks.programs.case import Case, Options, drafting, make_optimizer
from tests.backends.paddle3.running import MIB, assert_same, first_peak, in_order, optimized, run
from tests.backends.paddle3.wild import MODES, trial
from transpiler import MemoryBudgetError
from transpiler.backends.paddle3.framing import check_lists
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.scopes import fresh_scope
from transpiler.errors import VerificationError

SEEDS, PARTS = 48, 4
ROWS, WIDTH = 6, 16


def tried(seeds: Sequence[Tuple[int, str]]) -> List[Dict[str, Any]]:
    """What became of the programs of these seeds in these modes; in a process that has allocated nothing."""
    return [asdict(trial(seed, [mode])) for seed, mode in seeds]


@pytest.mark.parametrize('part', range(PARTS))
def test_drawn_programs_keep_their_bytes_peaks_and_budgets(part: int) -> None:
    """Each in one of the modes."""
    names = list(MODES)
    found = apart(tried, [(seed, names[seed % len(names)]) for seed in range(part, SEEDS, PARTS)])
    assert [f'{each["seed"]}: {text}' for each in found for text in each['failures']] == []
    ran = [each for each in found if not each['why_not']]
    assert len(ran) > len(found) // 2 and sum(each['changed'] for each in ran) > len(ran) // 3
    assert len({kind for each in ran for kind in each['kinds']}) > 80


def test_drawn_programs_with_which_something_was_wrong_once() -> None:
    """Attributes with gaps; what recurrent layers keep; a second name; a shape that inference alone knows; a variable of two values of
    which one is looked at later, for its shape; a list that is read again behind the last op that names its member; a first run with
    collection off, in an order that nobody holds; what stays of branches and loops then; shapes
    that were to be read of what had been released, or of what has other dims than it was taken to have,
    or has by then."""
    found = apart(tried, [(58, 'default'), (102, 'order'), (187, 'order'), (205, 'order'),
                          (386, 'order'), (624, 'order'), (230, 'hold'), (581, 'hold'),
                          (70007, 'default'), (70017, 'order'), (8310153, 'default'),
                          (8310153, 'order'), (8310800, 'default')])
    assert len(found) == 13
    for each in found:
        assert not each['failures'] and not each['why_not'] and each['modes']


def drafted(make: Callable[[Any], Any], training: bool = False, open_batch: bool = True) -> Case:
    """What `make` makes of the fed x is fetched, or minimized."""
    options = Options(static_batch=not open_batch, inference=not training)
    with drafting(options, batch_size=ROWS) as draft:
        made = make(draft.floats('x', [ROWS, WIDTH]))
        if training:
            made = paddle.mean(made)
            make_optimizer('sgd').minimize(made)
        return draft.case([made], training=training)


def _taken_late(x: Any) -> Any:
    """`tanh` is the last that reads `hidden`, which has a second name: by the executor's rules it works in place there."""
    hidden = static.nn.fc(x, WIDTH)
    other = hidden.detach()
    loss = F.smooth_l1_loss(static.nn.fc(x, WIDTH), other, reduction='none')
    wide = paddle.concat([paddle.tanh(hidden)] * 8, axis=1)
    return paddle.add_n([paddle.mean(wide), paddle.mean(loss)])


def test_who_works_in_place_on_what_has_two_names_stays_behind_its_readers() -> None:
    graph = import_program(drafted(_taken_late).main).graph
    ops = list(graph.region_ops(0))
    tanh = next(op for op in ops if op.kind == 'tanh')
    loss = next(op for op in ops if op.kind == 'huber_loss')
    shared = set(tanh.reads()) & set(loss.reads())
    assert shared and shared <= set(tanh.writes()) and not tanh.facts.in_place
    with in_order():
        plain = run(drafted(_taken_late), 3)
    case = drafted(_taken_late)
    optimized(case, recompute='max')
    seen = run(case, 3)
    assert len(set(plain.fetched)) > 1 and plain.fetched == seen.fetched


@pytest.mark.parametrize('kind', [paddle.nn.LSTM, paddle.nn.GRU, paddle.nn.SimpleRNN])
def test_what_recurrent_layers_keep_can_be_released_and_made_again_by_the_next_run(
        kind: Any) -> None:
    """Paddle declares it as empty, and its kernel writes to what is left in its own shape."""

    def make(x: Any) -> Any:
        steps = paddle.reshape(static.nn.fc(x, 4 * WIDTH), [-1, 4, WIDTH])
        hidden = paddle.tanh(kind(WIDTH, WIDTH)(steps)[0])
        return static.nn.fc(paddle.flatten(hidden, 1), 64 * WIDTH, activation='tanh')

    build = lambda: drafted(make, training=True)
    with pytest.raises(MemoryBudgetError) as error:
        optimized(build(), budget=1)
    case = build()
    report = optimized(case, budget=error.value.held_bytes + error.value.best_bytes)
    kept = [op for op in case.main.global_block().ops if op.name() == 'pd_op.set_']
    assert report.changed and kept
    with in_order():
        assert_same(run(build(), 3), run(case, 3))


@pytest.mark.parametrize('kind', [paddle.nn.LSTM, paddle.nn.GRU, paddle.nn.SimpleRNN])
def test_recurrent_layers_need_what_is_said_where_the_batch_is_open(kind: Any) -> None:
    """The states that they begin with have dims that ops compute. Their parameters are laid side by side, of which Paddle's inference of
    shapes knows nothing."""

    def make(x: Any) -> Any:
        steps = paddle.reshape(static.nn.fc(x, 16 * WIDTH), [-1, 16, WIDTH])
        return static.nn.fc(paddle.flatten(kind(WIDTH, 2 * WIDTH)(steps)[0], 1), WIDTH)

    build = lambda: drafted(make, training=True)
    case = build()
    report = optimized(case, recompute=False)
    assert not report.unknown_sizes and not report.unknown_workspaces
    with in_order():
        assert_same(run(build(), 3), run(case, 3))
    needed = report.needed_bytes / MIB
    rewrite = partial(optimized, recompute=False)
    assert first_peak(build, needed, True, rewrite) == pytest.approx(needed, rel=0.03)


SIZES: List[Tuple[str, Callable[[Any], Any]]] = [
    ('some rows', lambda x: x[:2] * 2.0),
    ('broadcast', lambda x: paddle.broadcast_tensors([x, x[:1]])[1] + 1.0),
    ('several lists', lambda x: paddle.meshgrid(x[0], x[1])[0] + 1.0),
    ('numbers', lambda x: paddle.linspace(0, 1, WIDTH) + x),
    ('one row, expanded', lambda x: paddle.expand(x[:1], [5, WIDTH]) + 1.0),
    ('product with its transpose', lambda x: paddle.matmul(x, paddle.t(x)) * 2.0),
    ('gathered rows', lambda x: paddle.gather(x, paddle.to_tensor([0, 1, 1])) * 2.0),
]


@pytest.mark.parametrize('make', [make for _, make in SIZES], ids=[name for name, _ in SIZES])
def test_sizes_that_follow_from_no_operand_are_what_a_run_shows(make: Callable[[Any], Any]) -> None:
    """Where the batch alone is open: no figure, and no budget, has what is unknown."""
    case = drafted(make)
    program = import_program(case.main)
    at = next(i for i, value in program.values.items() if value.is_same(case.fetch[0]))
    made = program.graph.values[at]
    with fresh_scope():
        executor = static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        for rows in (3, 7):
            fed = {'x': np.random.RandomState(rows).rand(rows, WIDTH).astype('float32')}
            shown, = executor.run(case.main, feed=fed, fetch_list=case.fetch)
            assert made.bound is not None and made.bound.evaluate({'N': rows}) == shown.nbytes
    assert not optimized(case).unknown_sizes


@pytest.mark.parametrize('make, shares', [
    (lambda x: paddle.cast(paddle.tanh(x), 'int32') + 1, False),
    (lambda x: paddle.tanh(paddle.reshape(x, [-1])), False),
    (lambda x: paddle.reshape(paddle.tanh(x), [-1, 4, 4]) * 2.0, True),
],
                         ids=['of another type', 'of one open dim', 'of another rank'])
def test_the_executor_works_in_place_where_the_facts_say_so(make: Callable[[Any], Any],
                                                            shares: bool) -> None:
    """By the dims that it knows before it runs; `shares`: whether the second op has the memory of the first."""
    case = drafted(make)
    graph = import_program(case.main).graph
    second = [op for op in graph.region_ops(0) if op.reads() and op.writes()][1]
    assert bool(second.facts.in_place) == shares


def branch_with_weights(said_of: int) -> Case:
    """Trained, and of one of the gradients that leave the branch, at that position, somebody has said that it has none."""
    with drafting(Options(static_batch=True), batch_size=ROWS) as draft:
        x = static.nn.fc(draft.floats('x', [ROWS, WIDTH]), WIDTH)
        weights = [paddle.create_parameter([WIDTH, WIDTH], 'float32') for _ in range(3)]

        def chain() -> Any:
            hidden = x
            for weight in weights:
                hidden = paddle.tanh(paddle.matmul(hidden, weight))
            return hidden

        loss = paddle.mean(static.nn.cond(paddle.mean(x) > 0, chain, lambda: x * 2.0))
        make_optimizer('sgd').minimize(loss)
        back = [op for op in draft.main.global_block().ops if op.name() == 'pd_op.if'][-1]
        back.result(said_of).stop_gradient = True
        return draft.case([loss])


@pytest.mark.parametrize('said_of', [0, 1])
def test_attributes_that_say_something_of_some_results_alone_are_read(said_of: int) -> None:
    """Paddle itself can not say them: it raises if the first has none, and ends the process if a later one has."""
    case = branch_with_weights(said_of)
    back = [op for op in case.main.global_block().ops if op.name() == 'pd_op.if'][-1]
    assert 'AttrNull' in str(back)
    if said_of:
        with pytest.raises(NotImplementedError):
            back.attrs()
    optimized(case)
    with in_order():
        assert_same(run(branch_with_weights(said_of), 3), run(case, 3))


def _with_one_list() -> Case:
    """A list that two ops read; `tanh`, which may work in place, is the last that names its first member."""
    with drafting(Options(static_batch=True), batch_size=ROWS) as draft:
        x = static.nn.fc(draft.floats('x', [ROWS, WIDTH]), WIDTH)
        weights = [paddle.create_parameter([WIDTH, WIDTH], 'float32') for _ in range(2)]
        first = paddle.linalg.multi_dot([x, *weights])
        combine = first.get_defining_op().operand_source(0)
        late = paddle.tanh(x)
        again = _C_ops.multi_dot([x, *weights])
        again.get_defining_op().operand(0).set_source(combine)
        return draft.case([paddle.mean(first) + paddle.mean(late) + paddle.mean(again)])


def test_a_list_is_not_read_behind_an_op_that_may_have_written_over_its_member() -> None:
    case = _with_one_list()
    with pytest.raises(VerificationError, match='a member that was named since it was made'):
        check_lists(case.main.global_block())
