"""What training takes, step by step: a callback for `paddle.Model.fit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

import paddle

from transpiler import arguments
from transpiler.errors import InvalidArgumentError
from transpiler.report.data import human


@dataclass(frozen=True)
class Usage:
    """Bytes at the end of a step: `peak_bytes` the most that Paddle's allocator has given out so far, `process_bytes` what the
    process holds, `process_peak_bytes` the most that it has held so far (0 where the system does not say)."""

    step: int
    peak_bytes: int
    process_bytes: int
    process_peak_bytes: int


class MemoryLog(paddle.callbacks.Callback):
    """Logs the peak of the allocator and the memory of the process while `paddle.Model` trains.

    `usages` has an entry every `every` steps and one at the end of each epoch; `log` is called with a line for each, and
    `writer`, if given, gets scalars by `add_scalar(tag, value, step)` (`visualdl.LogWriter`, TensorBoard's SummaryWriter).
    What is none of that raises InvalidArgumentError.
    """

    def __init__(self,
                 every: int = 10,
                 log: Optional[Callable[[str], None]] = print,
                 writer: Any = None) -> None:
        super().__init__()
        self.usages: List[Usage] = []
        self._every, self._log, self._writer = arguments.number('every', every), log, writer
        if log is not None and not callable(log):
            raise InvalidArgumentError(
                f'log takes a function of a line, or None, not {type(log).__name__}')
        if writer is not None:
            arguments.scalar_writer(writer)
        self._step = 0

    def on_train_batch_end(self, step: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._step += 1
        if self._step % self._every == 0:
            self._note()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not self.usages or self.usages[-1].step != self._step:
            self._note()

    def _note(self) -> None:
        found = _usage(self._step)
        self.usages.append(found)
        if self._log is not None:
            self._log(
                f'step {found.step}: tensors at the peak {human(found.peak_bytes)}, process '
                f'{human(found.process_bytes)}, at its peak {human(found.process_peak_bytes)}')
        if self._writer is not None:
            for tag in ('peak_bytes', 'process_bytes', 'process_peak_bytes'):
                self._writer.add_scalar(f'memory/{tag}', getattr(found, tag), found.step)


def _usage(step: int) -> Usage:
    """What is in use now, on the CPU or on the device that is set."""
    process = _process()
    return Usage(step, _allocated_at_most(), process.get('VmRSS', 0), process.get('VmHWM', 0))


def _allocated_at_most() -> int:
    if paddle.device.get_device().startswith('gpu'):
        return int(paddle.device.cuda.max_memory_allocated())
    return int(paddle.base.core.host_memory_stat_peak_value('Allocated', 0))


def _process() -> Dict[str, int]:
    """Bytes by their names in Linux's /proc/self/status; nothing elsewhere."""
    try:
        with open('/proc/self/status', encoding='utf-8') as status:
            rows = [line.split() for line in status]
    except OSError:
        return {}
    return {row[0].rstrip(':'): int(row[1]) * 1024 for row in rows if row[-1:] == ['kB']}
