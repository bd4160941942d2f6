"""Programs of trainers that fleet's parameter servers serve. Nothing runs: only the ports of servers are open."""
from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing
from typing import Any, List, NamedTuple, Tuple

from benchmarks.workers import free_ports

ROWS, WIDTH, LAYERS = 4096, 64, 8
MODES = ('async', 'sync', 'geo')
# Operators by which fleet's trainers talk to servers.
KINDS = ('distributed_lookup_table', 'distributed_push_sparse', 'send', 'send_barrier')
# By kind: an op as its names, of operands and results.
Named = Tuple[str, List[str], List[str]]


class Planned(NamedTuple):
    """A trainer's program: the ops that talk to servers, and what the report says."""

    before: List[Named]
    after: List[Named]
    changed: bool
    peaks: Tuple[int, int]
    clones: int


def planned(mode: str) -> Planned:
    """To be called in a process that has not used fleet."""
    with ExitStack() as stack:
        ports = free_ports(4)
        for port in ports[:2]:  # fleet waits until somebody listens there
            server = stack.enter_context(closing(socket.socket()))
            server.bind(('127.0.0.1', port))
            server.listen()
        program, loss = _program(mode, ports)
    from transpiler import memory_optimize
    before = _of_servers(program)
    report = memory_optimize(program, fetch_list=[loss])
    return Planned(before, _of_servers(program), report.changed,
                   (report.peak_bytes_before, report.peak_bytes_after),
                   report.recompute.clones if report.recompute else 0)


def _start(ports: List[int]) -> None:
    """As Paddle's launcher."""
    servers, trainers = (
        ','.join(f'127.0.0.1:{port}' for port in each) for each in (ports[:2], ports[2:]))
    os.environ.update(TRAINING_ROLE='TRAINER',
                      PADDLE_TRAINER_ID='0',
                      PADDLE_TRAINERS_NUM='2',
                      PADDLE_PSERVERS_IP_PORT_LIST=servers,
                      PADDLE_TRAINER_ENDPOINTS=trainers,
                      POD_IP='127.0.0.1',
                      PADDLE_PORT=str(ports[2]))


def _program(mode: str, ports: List[int]) -> Tuple[Any, Any]:
    _start(ports)
    import paddle
    from paddle import static
    from paddle.distributed import fleet
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != 'sync'
    if mode == 'geo':
        strategy.a_sync_configs = {'k_steps': 100}
    with static.program_guard(static.Program(), static.Program()):
        words = static.data('words', [ROWS, 1], 'int64')
        hidden = static.nn.embedding(words, [1000, WIDTH], is_sparse=True).reshape([ROWS, WIDTH])
        for _ in range(LAYERS):
            hidden = static.nn.fc(hidden, WIDTH, activation='tanh')
        loss = paddle.mean(hidden**2)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
        optimizer.minimize(loss)
    return loss.block.program, loss  # not the one that it was written in


def _of_servers(program: Any) -> List[Named]:
    """Without the names by which an order is held."""
    kept = lambda names: [name for name in names if 'execution_order@' not in name]
    return [(op.type, kept(op.input_arg_names), kept(op.output_arg_names))
            for op in program.global_block().ops
            if op.type in KINDS]
