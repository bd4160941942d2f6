"""How workers of a test meet: what is between the two words that `two_workers` looks for is Paddle's and the machine's alone."""
from __future__ import annotations

from typing import Callable

import paddle


def meet(and_then: Callable[[], object] = lambda: None) -> None:
    """Over gloo, in static mode; `and_then` is what of Paddle's belongs to the meeting besides."""
    paddle.enable_static()
    print("MEETING", flush=True)
    paddle.distributed.init_parallel_env()
    and_then()
    print("MET", flush=True)
