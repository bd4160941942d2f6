"""The workers of a job that run beside this one, whichever Paddle is installed: what they tell each other over its store."""

from __future__ import annotations

from typing import List, Optional

from paddle import distributed, static
from paddle.base import core
from paddle.distributed import parallel_helper
from paddle.distributed.communication.group import _GroupManager

from transpiler.backends.scopes import passing_scope
from transpiler.errors import InvalidArgumentError

_KEY, _HEARD = 'transpiler', '/heard'


class Workers:
    """One round in which each worker tells all others something; the n-th rounds of all workers are one."""

    def __init__(self, rank: int, count: int, store: core.Store) -> None:
        self.rank, self.count, self._store = rank, count, store
        self._round = store.add(f'{_KEY}/rounds/{rank}', 1)

    def tell(self, text: str) -> None:
        """Says `text`, which is ASCII, to all; waits for nobody."""
        self._store.set(self._key(self.rank), text)

    def leave(self, text: str) -> None:
        """Says `text` as the last thing in this round, and waits for nobody: nobody waits until this one has heard the others."""
        self.tell(text)
        self._store.set(self._key(self.rank, _HEARD), _HEARD)

    def heard(self) -> List[str]:
        """What each of them has said, by rank; waits for those that have not yet. Worker 0, in whose process the store is, waits
        until all others have heard it, too: the store ends with the process.

        Raises:
            InvalidArgumentError: one says nothing for as long as Paddle's store waits (15 minutes).
        """
        found = [self._said_by(rank) for rank in range(self.count)]
        self._store.set(self._key(self.rank, _HEARD), _HEARD)
        for rank in range(1, self.count) if self.rank == 0 else ():
            self._said_by(rank, _HEARD)
        return found

    def _said_by(self, rank: int, what: str = '') -> str:
        try:
            return bytes(self._store.get(self._key(rank, what))).decode()
        except Exception as error:  # what the binding throws has no narrower type
            raise InvalidArgumentError(
                f'shared=True: nothing was heard of worker {rank} of {self.count}: it has ended, or has not called '
                f'memory_optimize with it, which all have to, equally often ({_first_line(error)})'
            ) from error

    def _key(self, rank: int, what: str = '') -> str:
        return f'{_KEY}/{self._round}/{rank}{what}'


def workers() -> Workers:
    """The next round of the job that this process is a worker of, as its launcher says.

    Raises:
        InvalidArgumentError: it is a worker of none, or they can't meet.
    """
    rank, count = distributed.get_rank(), distributed.get_world_size()
    if count < 2:
        raise InvalidArgumentError(
            'shared=True: this process is no worker of several (PADDLE_TRAINERS_NUM); start it by python -m '
            'paddle.distributed.launch, or leave shared out')
    try:
        _leave_meeting()
        store = core.create_or_get_global_tcp_store()
    except Exception as error:  # what the binding throws has no narrower type
        raise InvalidArgumentError(
            f'shared=True: worker {rank} of {count} cannot reach the others by what its launcher said '
            f'(PADDLE_MASTER or PADDLE_TRAINER_ENDPOINTS): {_first_line(error)}') from error
    return Workers(rank, count, store)


def rank_over_gloo() -> Optional[int]:
    """That of this process in every ring, if workers met over gloo in a static program: then Paddle has one communicator for all
    rings (`GLOOParallelContext`), and this is the rank in it. None where they did not meet so, or made groups of their own
    (`paddle.distributed.new_group`), in which it may have another.
    """
    alone = _met_over_gloo() and not _GroupManager.group_map_by_id
    return distributed.get_rank() if alone else None


def _met_over_gloo() -> bool:
    gloo = getattr(core, 'GLOOParallelContext', None)
    met = getattr(parallel_helper, '__parallel_ctx__clz__', None)
    return gloo is not None and isinstance(met, gloo)


def _leave_meeting() -> None:
    """Waits, where workers met over gloo in a static program, until worker 0 has ended the meeting's server.

    It serves for up to three seconds longer than the others need, on the port on which the store will be
    (`paddle.distributed.parallel.init_parallel_env`), and worker 0 goes on only then: who takes that server for the store waits for
    ever, and keeps it from ending.
    """
    if not _met_over_gloo():
        return
    program = static.Program()
    block = program.global_block()
    one = block.create_var(name='transpiler.meeting', dtype='int32', shape=[1])
    block.append_op(type='fill_constant',
                    outputs={'Out': one},
                    attrs={
                        'shape': [1],
                        'dtype': one.dtype,
                        'value': 1.0
                    })
    block.append_op(type='barrier', inputs={'X': one}, outputs={'Out': one}, attrs={'ring_id': 0})
    with passing_scope() as scope:
        static.Executor(core.CPUPlace()).run(program, scope=scope)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if 'Error' in line]
    return lines[-1] if lines else type(error).__name__
