"""A dropout's result, made again from its mask: the same bytes of all numbers there are, and proved so or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Tuple

import pytest

pytest.importorskip('paddle')  # make test-core has none

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.base.proto import framework_pb2

from benchmarks.programs import Options, build
from tests.builds import needs_cpu_build
from tests.harness import (WITHOUT_INPLACE, Case, check, fingerprint, fresh_scope, new_programs)
from tests.scenarios.common import data, floats, random_feed, square_loss
from transpiler import memory_optimize
from transpiler.backends.paddle2.emitter import emit
from transpiler.backends.paddle2.importer import ImportedProgram, import_program
from transpiler.backends.paddle2.programs import SerializedPrograms
from transpiler.errors import VerificationError
from transpiler.flow import prove
from transpiler.ir import DIVIDE, FILL, CONVERT, SELECT, ZEROS_LIKE, Graph, Op, ValueKind
from transpiler.passes.cloning import Cloner
from transpiler.passes.replay import add_replay, replay_seconds
from transpiler.planning import Plan, PlanOptions, plan
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

WIDTH = 64
_ADDED = (ZEROS_LIKE, CONVERT, SELECT, FILL, DIVIDE)


def dropouts(shares: tuple = (0.1, 0.5, 0.3), mode: str = 'upscale_in_train') -> Case:
    """Products that read what dropouts made: without the masks all these results are kept for the gradients."""
    with new_programs() as (main, startup):
        main.random_seed = startup.random_seed = 7
        hidden = data('x', -1, WIDTH)
        for share in shares:
            hidden = F.dropout(paddle.tanh(paddle.static.nn.fc(hidden, WIDTH)), share, mode=mode)
        loss = square_loss(paddle.static.nn.fc(hidden, WIDTH))
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Case(main, startup, random_feed(x=floats(256, WIDTH)), [loss.name])


def _imported(case: Case) -> ImportedProgram:
    return import_program(fingerprint(case.main), case.fetch)


def _planned(program: ImportedProgram) -> Plan:
    dims = {symbol: 256 for symbol in program.symbols()}
    return plan(program.graph, COLLECTING, dims, PlanOptions(recompute='max'))


def _added(graph: Graph, kind: str) -> List[Op]:
    return [op for op in graph.walk() if op.origin is None and op.kind == kind]


@needs_cpu_build
@pytest.mark.parametrize('mode', ['upscale_in_train', 'downscale_in_infer'])
def test_dropouts_are_made_again_from_their_masks_with_equal_bytes(mode: str) -> None:
    reports = []

    def optimise(case: Case) -> object:
        reports.append(
            memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=256,
                            recompute='max'))
        kinds = [op.type for op in case.main.global_block().ops]
        assert kinds.count('dropout') == 3 and kinds.count('where') >= 2
        return reports[-1]

    check(lambda: dropouts(mode=mode), optimise, modes=WITHOUT_INPLACE)
    assert reports[0].peak_bytes_after < reports[0].peak_bytes_before


@needs_cpu_build
def test_what_a_processor_can_foretell_takes_less_time() -> None:
    """The choice is a branch for each element: half of them one way and half the other are the worst."""
    program = _imported(dropouts((0.1, 0.3, 0.5, 0.7, 0.9)))
    graph, cost = program.graph, PlanOptions().cost
    dims = {symbol: 256 for symbol in program.symbols()}
    tenth, third, half, most, nearly_all = (
        replay_seconds(graph, op, cost, dims) for op in graph.walk() if op.facts.replay is not None)
    assert tenth < third < half
    assert most == pytest.approx(third) and nearly_all == pytest.approx(tenth)


@needs_cpu_build
def test_a_mode_that_says_no_share_is_as_dear_as_the_worst() -> None:
    program = _imported(dropouts((0.1,), mode='downscale_in_infer'))
    worst = _imported(dropouts((0.5,)))
    dims = {symbol: 256 for symbol in program.symbols()}
    found, dearest = (next(
        replay_seconds(each.graph, op,
                       PlanOptions().cost, dims)
        for op in each.graph.walk()
        if op.facts.replay is not None)
                      for each in (program, worst))
    assert found == dearest


@needs_cpu_build
def test_the_gradient_of_a_dropout_draws_no_random_numbers() -> None:
    program = _imported(dropouts())
    graph, cost = program.graph, PlanOptions().cost
    dims = {symbol: 256 for symbol in program.symbols()}
    seconds = {
        kind: [cost.seconds(graph, op, dims) for op in graph.walk() if op.kind == kind]
        for kind in ('dropout', 'dropout_grad')
    }
    assert 0 < max(seconds['dropout_grad']) < min(seconds['dropout']) / 2


def _all_kinds_of_numbers(dtype: str) -> np.ndarray:
    """Every bit pattern is as likely as another, with the special ones added."""
    random = np.random.RandomState(5)
    bits = random.randint(0, 256, size=WIDTH * 1024 * np.dtype(dtype).itemsize, dtype=np.uint8)
    numbers = bits.view(dtype).copy()
    for at, special in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max)):
        numbers[at * 500:(at + 1) * 500] = special
    return numbers.reshape(-1, WIDTH)


def _with_replay(main: paddle.static.Program, result: str) -> Tuple[paddle.static.Program, str]:
    """The program with its dropout's result made a second time, and that one's name."""
    program = import_program(fingerprint(main), [result])
    graph = program.graph
    dropout = next(op for op in graph.walk() if op.kind == 'dropout')
    cloner = Cloner(graph, 0)
    again = cloner.value(dropout.results[dropout.facts.replay.result])
    graph.regions[0].ops += add_replay(graph, cloner, dropout, dropout.operands[0], again)
    message = emit(program, graph).message
    both = paddle.static.Program.parse_from_string(message.SerializeToString())
    return both, graph.values[again].name


@needs_cpu_build
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('share', [0.1, 0.3, 0.5, 0.9, 1e-3])
@pytest.mark.parametrize('mode', ['upscale_in_train', 'downscale_in_infer'])
def test_the_kernels_give_the_same_bytes_for_all_numbers(dtype: str, share: float,
                                                         mode: str) -> None:
    """What may be replayed at all: -0, infinities, NaN with their payloads, numbers that overflow and that lose digits."""
    with new_programs() as (main, _):
        result = F.dropout(paddle.static.data('x', [-1, WIDTH], dtype), share, mode=mode)
    both, again = _with_replay(main, result.name)
    with fresh_scope():
        found = paddle.static.Executor(paddle.CPUPlace()).run(
            both, feed={'x': _all_kinds_of_numbers(dtype)}, fetch_list=[result.name, again])
    assert np.count_nonzero(found[0]) > 0 and found[0].tobytes() == found[1].tobytes()


@needs_cpu_build
@pytest.mark.parametrize('mode', ['upscale_in_train', 'downscale_in_infer'])
def test_sequences_keep_their_bounds(mode: str) -> None:
    with new_programs() as (main, _):
        result = F.dropout(paddle.static.data('x', [-1, 8], lod_level=1), 0.3, mode=mode)
    message, again = _with_replay(main, result.name)
    sequences = paddle.base.create_lod_tensor(np.ones([10, 8], 'float32'), [[3, 2, 5]],
                                              paddle.CPUPlace())
    with fresh_scope():
        found = paddle.static.Executor(paddle.CPUPlace()).run(message,
                                                              feed={'x': sequences},
                                                              fetch_list=[result.name, again],
                                                              return_numpy=False)
    assert [each.lod() for each in found] == [[[0, 3, 5, 10]]] * 2


def test_without_leave_no_result_is_made_again() -> None:
    case = dropouts()
    before = [op.type for op in case.main.global_block().ops]
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=256, recompute=False)
    assert 'where' not in before + [op.type for op in case.main.global_block().ops]


Change = Callable[[Graph, Dict[str, List[Op]]], None]


def _another_mask(graph: Graph, found: Dict[str, List[Op]]) -> None:
    first, second = found[CONVERT][:2]
    graph.ops[first.id] = replace(first, operands=second.operands)


def _another_operand(graph: Graph, found: Dict[str, List[Op]]) -> None:
    first, second = found[SELECT][:2]
    operands = (first.operands[0], second.operands[1], first.operands[2])
    graph.ops[first.id] = replace(first, operands=operands)


def _another_divisor(graph: Graph, found: Dict[str, List[Op]]) -> None:
    number = found[FILL][0]
    graph.ops[number.id] = replace(number, facts=replace(number.facts, fills=0.75))


def _ones_for_zeros(graph: Graph, found: Dict[str, List[Op]]) -> None:
    zeros = found[ZEROS_LIKE][0]
    graph.ops[zeros.id] = replace(zeros, facts=replace(zeros.facts, fills=1.0))


def _upside_down(graph: Graph, found: Dict[str, List[Op]]) -> None:
    choice = found[SELECT][0]
    a, b, c = choice.operands
    graph.ops[choice.id] = replace(choice, operands=(a, c, b))


def _divided_the_other_way(graph: Graph, found: Dict[str, List[Op]]) -> None:
    quotient = found[DIVIDE][0]
    graph.ops[quotient.id] = replace(quotient, operands=quotient.operands[::-1])


def _not_divided(graph: Graph, found: Dict[str, List[Op]]) -> None:
    graph.regions[0].ops.remove(found[DIVIDE][0].id)


def _masks_of_numbers(graph: Graph, found: Dict[str, List[Op]]) -> None:
    graph.values[found[CONVERT][0].results[0]].dtype = 'UINT8'


@needs_cpu_build
@pytest.mark.parametrize('change', [
    _another_mask, _another_operand, _another_divisor, _ones_for_zeros, _upside_down,
    _divided_the_other_way, _not_divided, _masks_of_numbers
],
                         ids=lambda c: c.__name__)
def test_what_is_not_the_same_is_refused(change: Change) -> None:
    program = _imported(dropouts())
    graph = _planned(program).graph
    origins = {op.id: op.origin for op in graph.ops if op.origin is not None}
    verify(program.graph, graph, origins)
    found = {kind: _added(graph, kind) for kind in _ADDED}
    assert all(len(ops) > 1 for ops in found.values())
    change(graph, found)
    with pytest.raises(VerificationError):
        verify(program.graph, graph, origins)


@needs_cpu_build
def test_a_cast_that_does_not_make_what_is_declared_is_refused() -> None:
    program = _imported(dropouts())
    emitted = emit(program, _planned(program).graph)
    prove(SerializedPrograms(), program, emitted)
    cast = next(op for op in emitted.message.blocks[0].ops if op.type == 'cast')
    next(a for a in cast.attrs if a.name == 'out_dtype').i = framework_pb2.VarType.FP32
    with pytest.raises(VerificationError, match='cast'):
        prove(SerializedPrograms(), program, emitted)


def test_ops_that_were_added_leave_with_the_backward_part() -> None:
    case = dropouts()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=256, recompute='max')
    kinds = {op.type for op in case.main.clone(for_test=True).global_block().ops}
    assert 'dropout' in kinds and kinds.isdisjoint({'where', 'cast', 'fill_any_like'})


def loop_with_dropout() -> Case:
    case = build('gru_loop', Options(trip_count=5, batch_size=8, width=32, dropout=0.3))
    case.main.random_seed = case.startup.random_seed = 7
    return Case(case.main, case.startup, case.feed, list(case.fetch))


@needs_cpu_build
def test_dropouts_in_loops_are_made_again_in_the_gradient_of_the_trip() -> None:

    def optimise(case: Case) -> object:
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=8,
                                 trip_count=5,
                                 recompute='max')
        kinds = [[op.type for op in block.ops] for block in case.main.blocks]
        assert any('where' in inner and 'dropout' not in inner for inner in kinds[1:])
        assert 'where' not in kinds[0]
        return report

    check(loop_with_dropout, optimise, modes=WITHOUT_INPLACE)


def _of_another_trip(graph: Graph, choice: Op, loop: int) -> None:
    """What the trip before left in the loop's own variables."""
    carried = next(v for op in graph.walk(loop) for v in op.writes()
                   if graph.values[v].region == 0 and graph.values[v].shape is not None and
                   graph.values[v].kind is ValueKind.DENSE and graph.values[v].dtype == 'FP32')
    a, _, c = choice.operands
    graph.ops[choice.id] = replace(choice, operands=(a, carried, c))


@needs_cpu_build
def test_the_operand_of_another_trip_is_refused() -> None:
    program = _imported(loop_with_dropout())
    dims = {symbol: 5 for symbol in program.symbols()}
    graph = plan(program.graph, COLLECTING, dims, PlanOptions(recompute='max')).graph
    origins = {op.id: op.origin for op in graph.ops if op.origin is not None}
    verify(program.graph, graph, origins)
    choice = _added(graph, SELECT)[0]
    _of_another_trip(graph, choice, graph.regions[choice.region].forward)
    with pytest.raises(VerificationError):
        verify(program.graph, graph, origins)
