"""GPTs on many workers, on paper: what one worker needs by how the job is split, as fleet builds its program and as we rewrite it.

`python -m benchmarks.scale` builds programs with Paddle's fleet, of which no parameter is ever allocated, and plans them. Nothing
runs: Paddle has no kernels for model parallelism on CPUs. Each is built and planned in a process of its own.
"""
from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.apart import apart

GIB = 2.0**30
_VOCABULARY = 50304
_PORT = 6170  # no one listens there
BATCHES = 8


@dataclass(frozen=True)
class Model:
    """A GPT of Brown et al. 2020 (table 2.1); `length`: tokens of a sequence, of which a worker has one."""
    layers: int
    width: int
    heads: int
    length: int = 2048


@dataclass(frozen=True)
class Split:
    """How many workers share the data, each layer, the state (ZeRO), and the layers (a pipeline, by whose '1F1B' BATCHES sequences go, one
    after the other); `recompute`: Paddle's, layer by layer."""
    data: int = 1
    model: int = 1
    sharding: int = 1
    pipeline: int = 1
    recompute: bool = False

    @property
    def workers(self) -> int:
        return self.data * self.model * self.sharding * self.pipeline

    def __str__(self) -> str:
        parts = [
            f'{name}{count}' for name, count in (('dp', self.data), ('mp', self.model),
                                                 ('sharding', self.sharding), ('pp', self.pipeline))
            if count > 1
        ]
        return ' x '.join(parts) + (', recompute' if self.recompute else '')


MODELS = {'1.3B': Model(24, 2048, 16), '13B': Model(40, 5120, 40), '175B': Model(96, 12288, 96)}
SPLITS: Dict[str, Sequence[Split]] = {
    '1.3B': (Split(data=8), Split(model=2), Split(model=8), Split(sharding=8),
             Split(model=2, sharding=4), Split(sharding=8, recompute=True), Split(pipeline=8)),
    '13B': (Split(model=8), Split(sharding=16), Split(model=8, sharding=4),
            Split(model=8, sharding=4, recompute=True), Split(pipeline=8)),
    '175B': (Split(model=8), Split(model=16, sharding=8), Split(model=16,
                                                                sharding=8,
                                                                recompute=True))
}


@dataclass(frozen=True)
class Found:
    """Of worker `rank`: ops, bytes above what rests, CPU seconds of building and planning, and the most bytes of
    tensors that there were meanwhile; `meetings` are how often it meets others, and `as_before` whether it does so in the same order;
    `note` where nothing was changed."""
    model: str
    split: Split
    rank: int
    ops: int
    resting: int
    before: int
    after: int
    sure: int
    build_seconds: float
    planning_seconds: float
    allocated: int
    meetings: int
    as_before: bool
    note: str = ''


def _start(rank: int, workers: int) -> None:
    """As Paddle's launcher, but that no worker is there."""
    endpoints = [f'127.0.0.1:{_PORT + each}' for each in range(workers)]
    os.environ.update(PADDLE_TRAINER_ID=str(rank),
                      PADDLE_TRAINERS_NUM=str(workers),
                      PADDLE_TRAINER_ENDPOINTS=','.join(endpoints),
                      PADDLE_CURRENT_ENDPOINT=endpoints[rank])
    import paddle
    from paddle.distributed import fleet

    from benchmarks.fleet import pipelines_without_devices, without_devices
    without_devices()
    pipelines_without_devices()
    paddle.enable_static()
    fleet.init(is_collective=True)


def _linear(split: Split) -> Callable[..., Any]:
    """A product of rows of `width` with a weight that the workers share, by its columns (`axis` 1) or its rows (0)."""
    import paddle
    from paddle import static

    def product(x: Any, width: int, to: int, axis: int) -> Any:
        if split.model == 1:
            return static.nn.fc(x, to, num_flatten_dims=2)
        return paddle.distributed.split(x, (width, to),
                                        'linear',
                                        axis=axis,
                                        num_partitions=split.model,
                                        gather_out=axis == 0)

    return product


def _attention(x: Any, model: Model, split: Split, linear: Callable[..., Any]) -> Any:
    import paddle
    heads, width = model.heads // split.model, model.width // model.heads
    packed = linear(x, model.width, 3 * model.width, 1).reshape([0, 0, heads, 3 * width])
    query, key, value = paddle.split(packed.transpose([0, 2, 1, 3]), 3, axis=-1)
    scores = paddle.matmul(query * width**-0.5, key, transpose_y=True)
    mixed = paddle.matmul(paddle.nn.functional.softmax(scores), value).transpose([0, 2, 1, 3])
    return linear(mixed.reshape([0, 0, heads * width]), model.width, model.width, 0)


def _loss(model: Model, split: Split) -> Tuple[Any, List[Any]]:
    """The loss, and what goes from layer to layer."""
    import paddle
    from paddle import static
    norm = lambda x: static.nn.layer_norm(x, begin_norm_axis=2)
    linear = _linear(split)
    rows = -1 if split.pipeline == 1 else 1  # a pipeline is told what goes from stage to stage
    stage = lambda layer: _on_stage(split, layer * split.pipeline // model.layers)
    with stage(0):
        tokens = static.data('tokens', [rows, model.length], 'int64')
        hidden = static.nn.embedding(tokens, [_VOCABULARY, model.width])
    between = []
    for each in range(model.layers):
        between.append(hidden)
        with stage(each):
            hidden = hidden + _attention(norm(hidden), model, split, linear)
            inner = paddle.nn.functional.gelu(linear(norm(hidden), model.width, 4 * model.width, 1))
            hidden = hidden + linear(inner, 4 * model.width, model.width, 0)
    with stage(model.layers - 1):
        labels = static.data('labels', [rows, model.length, 1], 'int64')
        logits = static.nn.fc(norm(hidden), _VOCABULARY, num_flatten_dims=2, bias_attr=False)
        loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, labels))
    return loss, between


def _on_stage(split: Split, stage: int) -> ContextManager[None]:
    from paddle import static
    return static.device_guard(f'gpu:{stage}') if split.pipeline > 1 else nullcontext()


def _strategy(split: Split, between: Sequence[Any]) -> Any:
    from paddle.distributed import fleet
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True
    if split.recompute:
        strategy.recompute = True
        strategy.recompute_configs = {'checkpoints': [each.name for each in between]}
    if split.sharding > 1:
        strategy.sharding = True
        strategy.sharding_configs = {
            'sharding_segment_strategy': 'segment_broadcast_MB',
            'segment_broadcast_MB': 32.0,
            'sharding_degree': split.sharding,
            'mp_degree': split.model,
            'dp_degree': split.data,
            'stage': 2
        }
    elif split.pipeline > 1:
        strategy.pipeline = True
        strategy.pipeline_configs = {
            'micro_batch_size': 1,
            'accumulate_steps': BATCHES,
            'schedule_mode': '1F1B'
        }
    elif split.model > 1:
        strategy.tensor_parallel = True
        strategy.tensor_parallel_configs = {'tensor_parallel_degree': split.model}
    return strategy


def _program(model: Model, split: Split) -> Tuple[Any, Any]:
    import paddle
    from paddle import static
    from paddle.distributed import fleet

    from benchmarks.fleet import in_a_folder_of_its_own, without_streams
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss, between = _loss(model, split)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(1e-4),
                                                _strategy(split, between))
        with in_a_folder_of_its_own():
            optimizer.minimize(loss)
    without_streams(main)
    return main, loss


def found(name: str, split: Split, rank: int, layers: Optional[int] = None) -> Found:
    """What worker `rank` needs before and after; to be called in a process that has not used Paddle.

    Args:
        layers: so many, not those of the model.
    """
    model = MODELS[name]
    model = model if layers is None else Model(layers, model.width, model.heads, model.length)
    _start(rank, split.workers)
    from paddle.base import core

    from transpiler import memory_optimize
    from transpiler.backends.paddle2.sections import section_of
    began = time.process_time()
    main, loss = _program(model, split)
    built = time.process_time()
    runs = section_of(main) if main._pipeline_opt else main
    ops, meetings = sum(len(block.ops) for block in runs.blocks), _meetings(runs)
    report = memory_optimize(main, fetch_list=[loss], batch_size=1)
    done = time.process_time()
    before, after = report.pipeline.others_bytes() if report.pipeline else (0, 0)
    return Found(name, split, rank, ops, report.resting_bytes, report.peak_bytes_before + before,
                 report.peak_bytes_after + after, report.sure_bytes + after, built - began,
                 done - built, core.host_memory_stat_peak_value('Allocated', 0), len(meetings),
                 _meetings(runs) == meetings, '' if report.changed else report.note)


def _meetings(program: Any, block: int = 0) -> List[Tuple[str, int]]:
    """What it does with other workers, and in which ring, in the order in which it runs: not what stands in blocks that no op runs."""
    found: List[Tuple[str, int]] = []
    for op in program.block(block).ops:
        if op.has_attr('ring_id'):
            found.append((op.type, op.attr('ring_id')))
        if op.has_attr('sub_block'):
            found += _meetings(program, op._block_attr_id('sub_block'))
    return found


def table(rows: Sequence[Found]) -> Table:
    """A line for each worker that was looked at."""
    made = Table(title='One worker of a job, one sequence of 2,048 tokens, float32, Adam; GiB')
    for head in ('model', 'split', 'workers', 'rank', 'ops', 'resting', 'above it, before', 'after',
                 'sure', 'built, CPU s', 'planned, CPU s'):
        made.add_column(head, justify='right')
    for each in rows:
        made.add_row(
            each.model, str(each.split), str(each.split.workers), str(each.rank), str(each.ops),
            *(f'{size / GIB:.2f}' for size in (each.resting, each.before, each.after, each.sure)),
            f'{each.build_seconds:.0f}', f'{each.planning_seconds:.0f}')
    return made


@click.command()
@click.option('--model',
              'models',
              type=click.Choice(sorted(MODELS)),
              multiple=True,
              help='All, if none is named.')
@click.option('--layers', type=click.IntRange(1), help='So many, not those of the model.')
def main(models: Tuple[str, ...], layers: Optional[int]) -> None:
    """Build and plan one worker's program for each way to split the job."""
    rows = []
    for name in models or tuple(MODELS):
        for split in SPLITS[name]:
            rows.append(apart(found, name, split, 0, layers))
            each = rows[-1]
            click.echo(f'{name} {split}: {each.before / GIB:.2f} -> {each.after / GIB:.2f} GiB, '
                       f'{each.ops} ops, {each.planning_seconds:.0f} s {each.note}')
    Console(width=140).print(table(rows))


if __name__ == '__main__':
    main()
