"""Programs that fleet's pipeline has cut, and all of their sections run in one process, as section workers would.

Paddle has no kernels on CPUs by which a section sends to another, nor a worker that runs one. So what workers do is written down as one
program: each small batch with variables of its own, the parts of sections in the order of the schedule, and what one sends to the
other handed over.
"""
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
from paddle.base.proto import framework_pb2

from benchmarks.workers import environment, free_ports

STAGES, BATCHES, ROWS, WIDTH, LAYERS = 2, 3, 2048, 64, 6
SYNCHRONIZE = ('c_sync_calc_stream', 'c_sync_comm_stream', 'nop')
ROLE, ONCE, FORWARD, BACKWARD, UPDATE = 'op_role', 16, (0, 256), (1, 257), (2,)
# What the optimizer reads: the sums over all small batches.
MERGED = '@MERGED'


class Section(NamedTuple):
    """Of one stage: serialized, as fleet has made it and as it was rewritten; what initializes its parameters; the loss, where it is in the
    last stage; and what the report says."""

    before: bytes
    after: bytes
    startup: bytes
    loss: str
    changed: bool
    under_way: int
    peaks: Tuple[int, int]  # with what small batches under way keep
    said: str


def section(stage: int, mode: str) -> Section:
    """To be called in a process that has not used Paddle."""
    os.environ.update(environment(stage, 0, free_ports(STAGES)))
    main, startup, loss = _cut(stage, mode)
    from transpiler import memory_optimize
    from transpiler.backends.paddle2.sections import section_of, under_way
    made = section_of(main)
    before = made.desc.serialize_to_string()
    report = memory_optimize(main, fetch_list=[loss])
    peaks = zip((report.peak_bytes_before, report.peak_bytes_after), report.pipeline.others_bytes())
    return Section(before, made.desc.serialize_to_string(),
                   startup.desc.serialize_to_string(), loss.name, report.changed, under_way(main),
                   tuple(map(sum, peaks)), ' '.join(str(report).split()))


def _cut(stage: int, mode: str) -> Tuple[Any, Any, Any]:
    """As fleet's users write it, but that Paddle is told of devices that are not there."""
    import paddle
    from paddle import static
    from paddle.distributed import fleet

    from benchmarks.fleet import pipelines_without_devices, without_devices
    without_devices()
    pipelines_without_devices()
    paddle.enable_static()
    strategy = fleet.DistributedStrategy()
    strategy.pipeline = True
    strategy.pipeline_configs = {
        'micro_batch_size': ROWS,
        'accumulate_steps': BATCHES,
        'schedule_mode': mode
    }
    fleet.init(is_collective=True, strategy=strategy)
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        for each in range(STAGES):
            with static.device_guard(f'gpu:{each}'):
                if not each:
                    hidden = static.data('x', [ROWS, WIDTH])
                for _ in range(LAYERS):
                    hidden = static.nn.fc(hidden, WIDTH, activation='tanh')
                    hidden = paddle.nn.functional.dropout(hidden, 0.1)
                if each == STAGES - 1:
                    loss = paddle.mean(hidden**2)
        fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1, 0.9), strategy).minimize(loss)
    return main, startup, loss


class _Unrolled:
    """All sections, for all small batches, as one program."""

    def __init__(self, sections: Sequence[bytes]) -> None:
        self._sections = [framework_pb2.ProgramDesc.FromString(each) for each in sections]
        self.message = framework_pb2.ProgramDesc()
        self.message.version.CopyFrom(self._sections[0].version)
        self._block = self.message.blocks.add(idx=0, parent_idx=-1)
        self._declared: Dict[str, Any] = {}

    def of(self, schedule: Sequence[Tuple[str, int, int]]) -> framework_pb2.ProgramDesc:
        """`schedule`: parts, each with its stage and small batch."""
        roles = {'forward': FORWARD, 'backward': BACKWARD, 'update': UPDATE}
        for part, stage, batch in schedule:
            for op in self._sections[stage].blocks[0].ops:
                role, = (a.i for a in op.attrs if a.name == ROLE)
                once = role == ONCE and part == 'forward' and batch == 0
                if once or role in roles[part]:
                    self._add(op, stage, batch)
        return self.message

    def _add(self, op: framework_pb2.OpDesc, stage: int, batch: int) -> None:
        if op.type in SYNCHRONIZE:
            return
        made = self._block.ops.add()
        made.CopyFrom(op)
        for slots in (made.inputs, made.outputs):
            for slot in slots:
                slot.arguments[:] = [self._name(name, stage, batch) for name in slot.arguments]
        if op.type == 'send_v2':
            self._hand_over(made, made.inputs[0].arguments[0], self._channel(op, stage, batch))
        elif op.type == 'recv_v2':
            self._hand_over(made, self._channel(op, stage, batch), made.outputs[0].arguments[0])

    def _hand_over(self, made: framework_pb2.OpDesc, source: str, target: str) -> None:
        role = next(a.i for a in made.attrs if a.name == ROLE)
        made.Clear()
        made.type = 'assign'
        made.inputs.add(parameter='X', arguments=[source])
        made.outputs.add(parameter='Out', arguments=[target])
        made.attrs.add(name=ROLE, type=framework_pb2.INT, i=role)

    def _channel(self, op: framework_pb2.OpDesc, stage: int, batch: int) -> str:
        """Between the two stages, one way. (Who the other is, each ring counts for itself.)"""
        other = STAGES - 1 - stage
        ends = (stage, other) if op.type == 'send_v2' else (other, stage)
        name = 'from {} to {} batch {}'.format(*ends, batch)
        if name not in self._declared:
            like = (op.inputs if op.type == 'send_v2' else op.outputs)[0].arguments[0]
            self._declare(name, like, stage)
        return name

    def _name(self, name: str, stage: int, batch: int) -> str:
        variable = self._variable(name, stage)
        common = variable.persistable or name.endswith(MERGED)
        new = name if common else f'{name}@stage{stage}@batch{batch}'
        if new not in self._declared:
            self._declare(new, name, stage)
        return new

    def _variable(self, name: str, stage: int) -> framework_pb2.VarDesc:
        return next(v for v in self._sections[stage].blocks[0].vars if v.name == name)

    def _declare(self, new: str, name: str, stage: int) -> None:
        self._declared[new] = variable = self._block.vars.add()
        variable.CopyFrom(self._variable(name, stage))
        variable.name = new


def all_forward_first() -> Iterator[Tuple[str, int, int]]:
    """Paddle's 'F-then-B'."""
    yield from (('forward', stage, batch) for batch in range(BATCHES) for stage in range(STAGES))
    yield from (
        ('backward', stage, batch) for batch in range(BATCHES) for stage in reversed(range(STAGES)))
    yield from (('update', stage, BATCHES - 1) for stage in range(STAGES))


def alternating() -> Iterator[Tuple[str, int, int]]:
    """'1F1B', by the last stage: its backward part comes right behind its forward part; that before it is one small batch ahead."""
    yield ('forward', 0, 0)
    for batch in range(BATCHES):
        if batch + 1 < BATCHES:
            yield ('forward', 0, batch + 1)
        yield from ((part, 1, batch) for part in ('forward', 'backward'))
        yield ('backward', 0, batch)
    yield from (('update', stage, BATCHES - 1) for stage in range(STAGES))


SCHEDULES = {'F-then-B': all_forward_first, '1F1B': alternating}


class Ran(NamedTuple):
    """Losses of all small batches and all that rests, in bytes, after each step; and the peak of the first, above resting: in that
    one op is through, and what is dead is freed, before the next, as a section worker has it."""

    values: List[bytes]
    peak: int


def run(sections: Sequence[bytes], startups: Sequence[bytes], loss: str, mode: str,
        steps: int) -> Ran:
    """To be called in a process that has not used Paddle: one op after the other."""
    os.environ['FLAGS_new_executor_sequential_run'] = '1'
    import paddle
    from paddle import static

    from transpiler.serving.apart import Peaks
    paddle.enable_static()
    message = _Unrolled(sections).of(list(SCHEDULES[mode]()))
    program = static.Program.parse_from_string(message.SerializeToString())
    fetched = [f'{loss}@stage{STAGES - 1}@batch{batch}' for batch in range(BATCHES)]
    executor, scope, draw = static.Executor(
        paddle.CPUPlace()), static.Scope(), np.random.RandomState(0)
    values: List[bytes] = []
    with static.scope_guard(scope):
        for startup in startups:
            executor.run(static.Program.parse_from_string(_initializers(startup)))
        resting = sorted(
            v.name for v in program.list_vars() if v.persistable and MERGED not in v.name)
        peaks = Peaks()
        for _ in range(steps):
            feed = {
                f'x@stage0@batch{batch}': draw.rand(ROWS, WIDTH).astype('float32')
                for batch in range(BATCHES)
            }
            peaks.start_run()
            values += [
                each.tobytes() for each in executor.run(program, feed=feed, fetch_list=fetched)
            ]
            peaks.seen.append(peaks.above_resting())
            values += [np.array(scope.find_var(name).get_tensor()).tobytes() for name in resting]
    return Ran(values, peaks.seen[0])


def _initializers(startup: bytes) -> bytes:
    """Without what makes communicators, and sends parameters that two stages have."""
    message = framework_pb2.ProgramDesc.FromString(startup)
    block = message.blocks[0]
    kept = [op for op in block.ops if not op.type.startswith('c_')]
    del block.ops[:]
    block.ops.extend(kept)
    return message.SerializeToString()
