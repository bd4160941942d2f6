"""Workers in threads, over a store that ends with worker 0, as Paddle's does."""
from __future__ import annotations

import threading
import time
from typing import Dict, List

import pytest

from transpiler import InvalidArgumentError, MemoryBudgetError
from transpiler.agreement import Rounds, telling
from transpiler.backends.workers import Workers

COUNT = 4


class Store:
    """Whoever asks waits until there is an answer. The slowest of answers are those to the workers that ask last."""

    def __init__(self) -> None:
        self._said: Dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._ended = False

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self._said[key] = str(int(self._said.get(key, b'0')) + amount).encode()
            return int(self._said[key])

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._said[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: key in self._said or self._ended)
        if threading.current_thread().name != '0':
            time.sleep(0.05)
        if self._ended:
            raise ValueError('Connection reset by peer')
        return self._said[key]

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@pytest.mark.parametrize('failing', [(0, 1, 2, 3), (1, 2), (3,), (0,)])
def test_the_store_stays_until_all_have_heard_who_has_stopped(failing: List[int]) -> None:
    """Where one has found no plan, or several have, as none keeps to the budget."""
    store, raised = Store(), {}

    def work(rank: int) -> None:
        rounds = Rounds(lambda: Workers(rank, COUNT, store))  # type: ignore[arg-type]
        try:
            with telling(rounds, stays=True):
                if rank in failing:
                    raise MemoryBudgetError('no plan')
                rounds.any_of(False, is_last=True)
        except Exception as error:  # whatever it is, it is looked at
            raised[rank] = error
        if rank == 0:
            store.end()

    threads = [threading.Thread(target=work, args=(rank,), name=str(rank)) for rank in range(COUNT)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(raised) == list(range(COUNT))
    for rank, error in raised.items():
        if rank in failing:
            assert isinstance(error, MemoryBudgetError)
        else:
            assert isinstance(error, InvalidArgumentError) and 'stopped: no plan' in str(error)
