"""Programs to be measured, each in a process of its own."""
from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.nn.functional as F  # noqa: E402
from paddle.base import core  # noqa: E402

from benchmarks.measure import Peaks  # noqa: E402
from tests.harness import Case, Mode, executor_mode, fingerprint, new_programs  # noqa: E402
from tests.scenarios.common import data, fc, floats, random_feed, train  # noqa: E402
from transpiler.runtime import COLLECTING, RETAINING  # noqa: E402
from transpiler.analysis.timeline import Timeline  # noqa: E402
from transpiler.backends.paddle2.importer import import_program  # noqa: E402

RUNS = 20  # on a busy machine the collector is late in most of them
BATCH, WIDTH, TRIPS = 128, 512, 12


def fc_chain() -> Case:
    with new_programs() as (main, startup):
        hidden = data('x', BATCH, WIDTH)
        for _ in range(4):
            hidden = fc(hidden, WIDTH, 'relu')
        loss = paddle.mean(hidden)
        train(loss)
    return Case(main, startup, random_feed(x=floats(BATCH, WIDTH)), [loss.name])


def elementwise() -> Case:
    with new_programs() as (main, startup):
        x = data('x', BATCH, WIDTH)
        first, second = paddle.tanh(x), paddle.exp(x * 0.1)
        joined = paddle.concat([first * second, first + second, F.gelu(first)], axis=1)
        total = paddle.sum(F.sigmoid(joined) * 2.0)
    return Case(main, startup, random_feed(x=floats(BATCH, WIDTH)), [total.name])


def convolutions() -> Case:
    with new_programs() as (main, startup):
        hidden = data('x', 8, 16, 32, 32)
        for _ in range(3):
            weight = paddle.create_parameter([16, 16, 3, 3], 'float32')
            hidden = F.relu(F.conv2d(hidden, weight, padding=1)) + hidden
        loss = paddle.mean(F.max_pool2d(hidden, 2))
        train(loss)
    return Case(main, startup, random_feed(x=floats(8, 16, 32, 32)), [loss.name])


def normalised() -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data('x', BATCH, WIDTH), WIDTH)
        for _ in range(3):
            hidden = paddle.nn.LayerNorm(WIDTH)(fc(hidden, WIDTH) + hidden)
        loss = paddle.mean(paddle.square(hidden))
        train(loss, paddle.optimizer.Momentum(0.1))
    return Case(main, startup, random_feed(x=floats(BATCH, WIDTH)), [loss.name])


def loop() -> Case:
    with new_programs() as (main, startup):
        sequence = data('x', TRIPS, BATCH, WIDTH // 2)
        left = paddle.create_parameter([WIDTH // 2, WIDTH // 2], 'float32')
        state = paddle.zeros([BATCH, WIDTH // 2])
        state.stop_gradient = False

        def body(index: Any, carried: Any) -> List[Any]:
            mixed = paddle.matmul(paddle.gather(sequence, index), left) + carried
            return [index + 1, paddle.tanh(mixed) * F.sigmoid(mixed)]

        zero, limit = paddle.full([], 0, 'int64'), paddle.full([], TRIPS, 'int64')
        _, state = paddle.static.nn.while_loop(lambda i, s: i < limit, body, [zero, state])
        loss = paddle.mean(state)
        train(loss)
    return Case(main, startup, random_feed(x=floats(TRIPS, BATCH, WIDTH // 2)), [loss.name])


def loop_without_gradient() -> Case:
    """In a program that trains something else: what its trips have left is there while the next run begins, where most is needed."""
    with new_programs() as (main, startup):
        x = data('x', BATCH, WIDTH)
        wide = paddle.sum(paddle.concat([paddle.flip(x, [0]) for _ in range(4)]))

        def body(index: Any, carried: Any) -> List[Any]:
            return [index + 1, paddle.tanh(paddle.flip(carried, [0])) + 1.0]

        zero, limit = paddle.full([], 0, 'int64'), paddle.full([], TRIPS, 'int64')
        _, state = paddle.static.nn.while_loop(lambda i, s: i < limit, body, [zero, x * 1.0])
        loss, seen = paddle.mean(fc(x, 1)), paddle.sum(state) + wide
        train(loss)
    return Case(main, startup, random_feed(x=floats(BATCH, WIDTH)), [loss.name, seen.name])


def switch() -> Case:
    """Four ways, the last of which is three branches deep; trained; the first, the fullest, is taken."""
    with new_programs() as (main, startup):
        index, hidden = data('index', 1, dtype='int32'), fc(data('x', BATCH, WIDTH), WIDTH, 'tanh')
        ways = {i: (lambda i=i: paddle.tanh(paddle.exp(hidden * 0.1 * i))) for i in range(4)}
        loss = paddle.mean(paddle.static.nn.switch_case(index, ways))
        train(loss)
    drawn = random_feed(x=floats(BATCH, WIDTH))
    return Case(main, startup, lambda step: dict(drawn(step), index=np.array([0], 'int32')),
                [loss.name])


PROGRAMS: Dict[str, Callable[[], Case]] = {
    each.__name__: each for each in (fc_chain, elementwise, convolutions, normalised, loop,
                                     loop_without_gradient, switch)
}


def predicted(case: Case, collect: bool) -> int:
    program = import_program(fingerprint(case.main), case.fetch)
    model = COLLECTING if collect else RETAINING
    return Timeline(program.graph, model, dict.fromkeys(program.symbols(), TRIPS)).peak_bytes


def measured(case: Case, executor: Any) -> int:
    """The least of several runs: another thread frees, and sometimes late.

    The first run is left out: it collects whatever the flags say.
    """
    peaks, found = Peaks(), []
    for step in range(RUNS):
        feed = case.feed(step)
        peaks.start_run()
        executor.run(case.main, feed=feed, fetch_list=list(case.fetch))
        found.append(peaks.above_resting())
        time.sleep(0.01)
    return min(found[1:])


def kernels(case: Case) -> int:
    """The most that one operator takes for itself, above its operands and results."""
    return max(_own_bytes(block, op) for block, op in _distinct(case.main))


def _distinct(program: Any) -> List[Any]:
    """One operator of each kind and each list of shapes, with its block; those that run blocks are left out."""
    found = {}
    for block in program.blocks:
        for op in block.ops:
            tensors = [] if op.has_attr('sub_block') else _tensors(block, op)
            if tensors:
                found[op.type, tuple(tuple(t.shape) for t in tensors)] = (block, op)
    return list(found.values())


def _tensors(block: Any, op: Any) -> List[Any]:
    """The variables that `op` names, if all are tensors of a known shape that can be found from its block."""
    names = op.input_arg_names + op.output_arg_names
    found = [block._find_var_recursive(n) for n in names]
    known = all(v is not None and v.type == core.VarDesc.VarType.LOD_TENSOR and -1 not in v.shape
                for v in found)
    return found if known else []


def _own_bytes(home: Any, op: Any) -> int:
    """Runs `op` alone on tensors of ones, twice, and compares the peak with what stays allocated."""
    scope = core.Scope()
    inputs, outputs = set(op.input_arg_names), set(op.output_arg_names)
    program = paddle.static.Program()
    block = program.global_block()
    for name in inputs | outputs:
        like = home._find_var_recursive(name)
        block.create_var(name=name, shape=like.shape, dtype=like.dtype, persistable=True)
        if name in inputs:
            array = np.ones([abs(d) for d in like.shape], _numpy(like.dtype))
            scope.var(name).get_tensor().set(array, core.CPUPlace())
    block.desc.append_op().copy_from(op.desc)
    program._sync_with_cpp()
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(scope):
        executor.run(program)
        peaks = Peaks()
        peaks.start_run()
        executor.run(program)
        return max(0, peaks.above_resting())


def _numpy(dtype: Any) -> str:
    return {'FP32': 'float32', 'INT64': 'int64', 'BOOL': 'bool', 'INT32': 'int32'}[dtype.name]


def main(name: str, collect: bool) -> Dict[str, int]:
    """The figures of one program, in bytes."""
    with executor_mode(Mode(collect=collect, order='sequential')):
        case = PROGRAMS[name]()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        return {
            'predicted': predicted(case, collect),
            'measured': measured(case, executor),
            'kernels': kernels(case)
        }
