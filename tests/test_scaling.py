"""Planning takes no more than a polynomial of the program: each dimension grows, and the calls that are made are counted."""
from __future__ import annotations

import cProfile
import math
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict

import paddle
import pytest
from paddle.base.proto import framework_pb2

from benchmarks.planning import TINY
from benchmarks.programs import build
from tests.harness import new_programs
from tests.scenarios.common import data, fc, train
from transpiler import memory_optimize
from transpiler.errors import TranspilerError

# More than quadratic work would show from one doubling to the next.
MOST = 2.3
# As many calls for each op of a deeper program, and a few more for what is found by halving.
LINEAR = 1.05
# The branches of a `switch_case` stand one inside the other: hardly more is looked up for each where there are more around it.
NESTED = 1.3


def ops(n: int, x: Any) -> Any:
    for _ in range(8 * n):
        x = paddle.tanh(x)
    return x


def branches(n: int, x: Any) -> Any:
    chosen = data('i', 1, dtype='int32')
    make = lambda j: lambda: paddle.tanh(x) * float(j)
    return paddle.static.nn.switch_case(chosen, {j: make(j) for j in range(n)})


def depth(n: int, x: Any) -> Any:
    if not n:
        return paddle.tanh(x)
    test = paddle.mean(x) > 0.0
    return paddle.static.nn.cond(test, lambda: depth(n - 1, paddle.exp(x)), lambda: x * 2.0)


def _loop(body: Callable[[Any], Any], x: Any) -> Any:
    count = paddle.full([1], 0, 'int64')
    loop = paddle.static.nn.while_loop(lambda i, _: i < 3, lambda i, y: [i + 1, body(y)],
                                       [count, x])
    return loop[1]


def loops(n: int, x: Any) -> Any:
    for _ in range(n):
        x = _loop(paddle.tanh, paddle.exp(x))
    return x


def loop_depth(n: int, x: Any) -> Any:
    return _loop(partial(loop_depth, n - 1), paddle.exp(x)) if n else paddle.tanh(x)


def growing_loop_depth(n: int, x: Any) -> Any:
    """Each trip of each loop makes what it carries longer."""

    def longer(left: int, carried: Any) -> Any:
        carried = paddle.concat([carried, x])
        return _loop(partial(longer, left - 1), carried) if left else carried

    return longer(n, x)


def names(n: int, x: Any) -> Any:
    return paddle.add_n([paddle.scale(x, float(i)) for i in range(4 * n)])


def writers(n: int, x: Any) -> Any:
    total = paddle.tanh(x)
    for _ in range(4 * n):
        paddle.assign(paddle.exp(total), total)
    return paddle.tanh(total)


def arrays(n: int, x: Any) -> Any:
    index = paddle.full([1], 0, 'int64')
    for _ in range(n):
        array = paddle.tensor.array_write(paddle.exp(x), index)
        x = paddle.tensor.array_read(array, index)
    return x


DIMENSIONS: Dict[str, Callable[[int, Any], Any]] = {
    f.__name__: f
    for f in (ops, branches, depth, loops, loop_depth, growing_loop_depth, names, writers, arrays)
}

_NOT_TRAINED = ('writers', 'arrays', 'growing_loop_depth')


def calls(grow: Callable[[int, Any], Any], n: int, trained: bool) -> int:
    """Python calls, and calls of C, that planning a program of this size makes."""
    with new_programs() as (main, _):
        out = paddle.mean(grow(n, fc(data('x', 8, 8), 8)))
        if trained:
            train(out)
    counting = cProfile.Profile(
    )  # in C: a function of ours for each call takes three times as long
    counting.enable()
    try:
        memory_optimize(main, fetch_list=[out.name])
    finally:
        counting.disable()
    return sum(entry.callcount for entry in counting.getstats())


@pytest.mark.parametrize('name', DIMENSIONS)
def test_work_does_not_grow_faster_than_the_square(name: str) -> None:
    # The first call of a process imports and compiles, too: it does not count.
    _, *counted = [
        calls(DIMENSIONS[name], n, trained=name not in _NOT_TRAINED) for n in (2, 2, 4, 8)
    ]
    assert math.log2(counted[2] / counted[1]) < MOST, counted
    assert counted[2] > counted[0]


@pytest.mark.parametrize('trained', [False, True])
def test_many_branches_take_little_more_than_as_many_calls_for_each(trained: bool) -> None:
    fewer, more = (calls(branches, n, trained) for n in (32, 64))
    assert math.log2(more / fewer) < NESTED, (fewer, more)


def planning_calls(program: str, layers: int, runtime: str) -> int:
    """The same for a benchmark program of so many layers."""
    case = build(program, replace(TINY, layers=layers))
    counting = cProfile.Profile()
    counting.enable()
    try:
        memory_optimize(case.main,
                        fetch_list=list(case.fetch),
                        batch_size=case.batch_size,
                        runtime=runtime)
    finally:
        counting.disable()
    return sum(entry.callcount for entry in counting.getstats())


@pytest.mark.parametrize(('program', 'layers'), [('fc_chain', 32), ('transformer', 4)])
def test_planning_a_deeper_program_takes_as_many_calls_for_each_op(program: str,
                                                                   layers: int) -> None:
    planning_calls(program, 2, 'collecting')  # imports, and compiles
    few, some, many = (planning_calls(program, layers * times, 'collecting') for times in (1, 2, 4))
    assert math.log2(many / some) < LINEAR, (few, some, many)
    assert math.log(many / few, 4) < LINEAR, (few, some, many)


def test_branches_one_inside_the_other_do_not_double_the_work() -> None:
    """Each level was worked out twice for the one around it, so the work grew as 2 to the power of the depth."""
    counted = [calls(branches, n, trained=False) for n in (16, 32)]
    assert counted[1] < 3 * counted[0]


def nested(depth_of_blocks: int) -> paddle.static.Program:
    """Branches one inside the other, as a file may have them."""
    message = framework_pb2.ProgramDesc()
    for index in range(depth_of_blocks + 1):
        block = message.blocks.add(idx=index, parent_idx=index - 1)
        names_of = (('x', 'c') if not index else ()) + (f'y{index}', f's{index}')
        for name in names_of:
            variable = block.vars.add(name=name)
            variable.type.type = (framework_pb2.VarType.STEP_SCOPES
                                  if name[0] == 's' else framework_pb2.VarType.LOD_TENSOR)
            if name[0] != 's':
                tensor = variable.type.lod_tensor.tensor
                tensor.data_type = (framework_pb2.VarType.BOOL
                                    if name == 'c' else framework_pb2.VarType.FP32)
                tensor.dims.extend([1] if name == 'c' else [64, 64])
        op = block.ops.add(type='tanh')
        op.inputs.add(parameter='X', arguments=['x'])
        op.outputs.add(parameter='Out', arguments=[f'y{index}'])
        if index < depth_of_blocks:
            op = block.ops.add(type='conditional_block_infer')
            op.inputs.add(parameter='Cond', arguments=['c'])
            op.inputs.add(parameter='Input', arguments=['x'])
            op.outputs.add(parameter='Out', arguments=[])
            op.outputs.add(parameter='Scope', arguments=[f's{index}'])
            op.attrs.add(name='sub_block', type=framework_pb2.BLOCK, block_idx=index + 1)
            op.attrs.add(name='is_scalar_condition', type=framework_pb2.BOOLEAN, b=True)
    return paddle.static.Program.parse_from_string(message.SerializeToString())


@pytest.mark.parametrize('depth_of_blocks', [100, 1000])
def test_blocks_one_inside_the_other_are_planned_or_refused_in_one_line(
        depth_of_blocks: int) -> None:
    paddle.enable_static()
    program = nested(depth_of_blocks)
    try:
        report = memory_optimize(program, fetch_list=['y0'])
    except TranspilerError as error:
        assert depth_of_blocks == 1000
        assert 'nested' in str(error) and '\n' not in str(error)
    else:
        assert report.peak_bytes_after > 0
