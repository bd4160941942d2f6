"""A program is replaced as a whole or not at all, whichever call of Paddle's fails."""
from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, List, Tuple

import paddle
import pytest
from paddle.base import core, framework

from benchmarks.programs import build, small_options
from tests.harness import Case, assert_same_bytes, fingerprint, run_case
from tests.scenarios import branches, loops, straight
from transpiler import memory_optimize
from transpiler.backends.paddle2 import live_program
from transpiler.backends.paddle2.emitter import EmittedProgram, emit
from transpiler.backends.paddle2.importer import import_program
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING, RETAINING, Runtime

# Every method of these is a call of Paddle's that may fail.
CLASSES = (core.ProgramDesc, core.BlockDesc, core.OpDesc, core.VarDesc, framework.Block,
           framework.Operator)
# What compares the program below, and what Python itself needs.
LEFT_ALONE = ('serialize_to_string', 'name', 'program')


class InjectedError(Exception):
    pass


class Faults:
    """Lets the call of that number fail, of all that the classes are asked."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.calls = 0

    def wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.fails:
                raise InjectedError(method.__name__)
            return method(*args, **kwargs)

        return wrapper


def calls_that_may_fail() -> Iterator[Tuple[type, str, Callable[..., Any]]]:
    for owner in CLASSES:
        for name, method in list(vars(owner).items()):
            if (callable(method) and not isinstance(method, type) and name not in LEFT_ALONE and
                (name == '__init__' or not name.startswith('__'))):
                yield owner, name, method


def rewritten(case: Case, runtime: Runtime) -> EmittedProgram:
    program = import_program(fingerprint(case.main), case.fetch)
    decided = plan(program.graph, runtime, {s: 8 for s in program.symbols()}, PlanOptions())
    assert decided.changed
    return emit(program, decided.graph, 'mark', decided.held)


def everything(program: paddle.static.Program) -> Dict[str, Any]:
    """All that a user can get hold of: the bytes, and which objects stand for what."""
    blocks = program.blocks
    return {
        'bytes': fingerprint(program),
        'type': type(program),
        'ops': [[(id(op), op.type, op.output_arg_names) for op in b.ops] for b in blocks],
        'variables': [{
            n: (id(v), v.desc.name(), id(v.op)) for n, v in b.vars.items()
        } for b in blocks],
        'blocks': [type(b) for b in blocks],
    }


CASES = {
    'chain': (straight.chain_without_extra_fetches, RETAINING),
    'branch': (branches.captured_temporaries_of_the_main_block, COLLECTING),
    'loop': (loops.captured_temporaries_of_the_main_block, COLLECTING),
}


@pytest.mark.parametrize('name', sorted(CASES))
def test_a_call_that_fails_leaves_the_program_as_it_was(name: str, monkeypatch: Any) -> None:
    make, runtime = CASES[name]
    counted, broken, done = make(), make(), make()
    live_program.replace_contents(done.main, rewritten(done, runtime))
    emitted = rewritten(counted, runtime)
    before = everything(broken.main)
    methods = list(calls_that_may_fail())

    def attempt(case: Case, fails: int) -> int:
        faults = Faults(fails)
        with monkeypatch.context() as patch:
            for owner, method_name, method in methods:
                patch.setattr(owner, method_name, faults.wrapped(method))
            live_program.replace_contents(case.main, emitted)
        return faults.calls

    calls = attempt(counted, 0)
    assert calls > 5 * len(done.main.global_block().ops)
    attempts = [*range(1, calls - 40, calls // 12), *range(calls - 40, calls + 1)]
    failed: List[int] = []
    for fails in attempts:
        try:
            attempt(broken, fails)
        except InjectedError:
            failed.append(fails)
            assert everything(broken.main) == before, fails
        else:
            break  # what may fail from here on only lets go of the old description
    assert len(failed) > 24 and failed[-1] > calls - 5 * len(done.main.blocks) - 5
    assert [[op.type for op in b.ops] for b in broken.main.blocks
           ] == [[op.type for op in b.ops] for b in done.main.blocks]
    assert_same_bytes(run_case(make(), steps=2), run_case(broken, steps=2))


def test_a_program_that_could_not_be_replaced_can_be_optimized_later(monkeypatch: Any) -> None:
    case = straight.chain_without_extra_fetches()
    before = everything(case.main)

    def fails(*_: Any, **__: Any) -> None:
        raise InjectedError

    with monkeypatch.context() as patch:
        patch.setattr(framework.Block, 'create_var', fails)
        with pytest.raises(InjectedError):
            memory_optimize(case.main, fetch_list=list(case.fetch), runtime='predictor')
    assert everything(case.main) == before
    assert memory_optimize(case.main, fetch_list=list(case.fetch), runtime='predictor').changed
    assert_same_bytes(run_case(straight.chain_without_extra_fetches(), steps=2),
                      run_case(case, steps=2))


@pytest.mark.parametrize('runtime', ['collecting', 'retaining'])
def test_a_static_program_is_optimized_in_dygraph_mode_too(runtime: str) -> None:
    plain, case, static = (build('fc_chain', small_options('fc_chain')) for _ in range(3))
    memory_optimize(static.main, fetch_list=list(static.fetch), batch_size=8, runtime=runtime)
    paddle.disable_static()
    try:
        report = memory_optimize(case.main,
                                 fetch_list=list(case.fetch),
                                 batch_size=8,
                                 runtime=runtime)
        assert paddle.in_dynamic_mode()
        assert float(paddle.to_tensor([2.0]) * 2) == 4.0
    finally:
        paddle.enable_static()
    assert report.changed
    assert [op.type for op in case.main.global_block().ops
           ] == [op.type for op in static.main.global_block().ops]
    assert_same_bytes(run_case(plain, steps=2), run_case(case, steps=2))


def test_two_objects_for_one_variable_both_stay_alive() -> None:
    """Paddle makes a second Parameter where a name is asked for again; the program knows the later one."""
    with framework.program_guard(paddle.static.Program(), paddle.static.Program()):
        x = paddle.static.data('x', [-1, 64])
        hidden, held = x, []
        for _ in range(4):
            attribute = paddle.ParamAttr(name='shared')
            hidden = paddle.static.nn.fc(hidden, 64, weight_attr=attribute, activation='relu')
            held.append(paddle.static.default_main_program().global_block().var('shared'))
        main = paddle.static.default_main_program()
        loss = paddle.mean(hidden)
    assert len({id(v) for v in held}) > 1
    assert memory_optimize(main, fetch_list=[loss], batch_size=8, runtime='retaining').changed
    for _ in range(20):  # what was freed would be used again by now
        main.clone()
    assert [(v.name, tuple(v.shape), v.persistable) for v in held] == [('shared',
                                                                        (64, 64), True)] * 4


# ---------------------------------------------------------------------------------------------------
# Each op is one of its own

ZOO = ('fc_chain', 'tanh_chain', 'lstm', 'loop', 'weights_in_cond_in_loop', 'tanh_product')


def test_ops_of_optimized_programs_have_ids_of_their_own() -> None:
    repeated = 0
    for name in ZOO:
        case = build(name, small_options(name))
        before = [op.desc.original_id() for block in case.main.blocks for op in block.ops]
        memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=8, recompute='max')
        ops = [op for block in case.main.blocks for op in block.ops]
        ids = [op.desc.original_id() for op in ops]
        assert len(set(ids)) == len(ids), name
        assert set(before) <= set(ids), name  # each op of the user's is still known as itself
        assert case.main.desc.get_op_deps(), name
        repeated += len(ops) > len(before)
    assert repeated
