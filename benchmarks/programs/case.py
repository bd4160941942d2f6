"""What a benchmark program is: the options it is built from and the case that comes out."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import paddle
from paddle import static

from benchmarks.programs.checkpoints import minimize_with_checkpoints

Feed = Dict[str, np.ndarray]
# Of all loops, or by block index.
TripCount = Union[int, Mapping[int, int]]
# Of all inputs, or by their names.
Rows = Union[int, Mapping[str, int]]


@dataclass(frozen=True)
class Options:
    """Sizes and kinds, honoured where they apply; None means the program's own default."""
    optimizer: str = "sgd"
    inference: bool = False
    static_batch: bool = False
    batch_size: Optional[int] = None
    image_size: Optional[int] = None
    classes: Optional[int] = None
    layers: Optional[int] = None
    length: Optional[int] = None
    width: Optional[int] = None
    heads: Optional[int] = None
    vocabulary: Optional[int] = None
    trip_count: Optional[int] = None
    dropout: Optional[float] = None
    # Paddle's RecomputeOptimizer in place of memory_optimize, with about sqrt(ops) checkpoints.
    checkpoints: bool = False
    seed: int = 7


@dataclass(frozen=True)
class Case:
    """A program ready to run. `feed(step)` gives the same bytes in every process."""
    main: static.Program
    startup: static.Program
    feed: Callable[[int], Feed]
    fetch: Tuple[Any, ...]  # names, or values of Paddle 3, which have none
    batch_size: Rows
    trip_count: Optional[TripCount]
    training: bool
    fresh_executor: bool = False


OPTIMIZERS: Tuple[str, ...] = ("sgd", "momentum", "adam")


def make_optimizer(name: str) -> Any:
    """The optimizer of that name with the benchmark's fixed settings."""
    if name == "sgd":
        return paddle.optimizer.SGD(learning_rate=0.001)
    if name == "momentum":
        return paddle.optimizer.Momentum(learning_rate=0.001, momentum=0.9)
    if name == "adam":
        return paddle.optimizer.Adam(learning_rate=0.0001)
    raise ValueError("unknown optimizer {!r}: choose one of {}".format(name, ", ".join(OPTIMIZERS)))


def pick(value: Optional[Any], default: Any) -> Any:
    """The option where it was given, else the program's default."""
    return default if value is None else value


class Draft:
    """A program while it is written: collects inputs and their generators, then becomes a Case."""

    def __init__(self,
                 options: Options,
                 batch_size: int,
                 trip_count: Optional[TripCount] = None) -> None:
        self.options = options
        self.batch_size = batch_size
        self.trip_count = trip_count
        self.main = static.Program()
        self.startup = static.Program()
        self._draws: List[Tuple[str, Callable[[np.random.RandomState], np.ndarray]]] = []

    def _declare(self, name: str, shape: Sequence[int], batch_axis: Optional[int],
                 dtype: str) -> Any:
        declared = list(shape)
        if batch_axis is not None and not self.options.static_batch:
            declared[batch_axis] = -1
        return static.data(name, declared, dtype)

    def floats(self, name: str, shape: Sequence[int], batch_axis: Optional[int] = 0) -> Any:
        """A float32 input; its batch axis is symbolic unless asked otherwise."""
        self._draws.append((name, lambda random: random.standard_normal(shape).astype("float32")))
        return self._declare(name, shape, batch_axis, "float32")

    def integers(self,
                 name: str,
                 shape: Sequence[int],
                 below: int,
                 batch_axis: Optional[int] = 0,
                 repeated: bool = True) -> Any:
        """An int64 input with values in [0, below), none twice unless they may be `repeated`."""

        def draw(random: np.random.RandomState) -> np.ndarray:
            if repeated:
                return random.randint(0, below, shape).astype("int64")
            return random.permutation(below)[:np.prod(shape)].reshape(shape).astype("int64")

        self._draws.append((name, draw))
        return self._declare(name, shape, batch_axis, "int64")

    def computed(self, name: str, value: np.ndarray, batch_axis: Optional[int] = 0) -> Any:
        """An input that is the same at every step."""
        self._draws.append((name, lambda random: value))
        return self._declare(name, value.shape, batch_axis, str(value.dtype))

    def finish(self, loss: Any, outputs: Sequence[Any]) -> Case:
        """Train on `loss`, or with `--inference` keep the forward part and fetch `outputs`."""
        options, main = self.options, self.main
        if options.inference:  # on Paddle 3 a clone is always the same: who builds says what is not trained
            main = main.clone(for_test=True) if hasattr(main, "desc") else main
        else:
            optimizer = make_optimizer(options.optimizer)
            if options.checkpoints:
                minimize_with_checkpoints(optimizer, loss)
            else:
                optimizer.minimize(loss)
        return self.case(outputs if options.inference else [loss], main, not options.inference)

    def case(self,
             fetched: Sequence[Any],
             main: Optional[static.Program] = None,
             training: bool = True) -> Case:
        """The program as it is, or another one with its inputs."""
        draws, seed = tuple(self._draws), self.options.seed

        def feed(step: int) -> Feed:
            random = np.random.RandomState(1000 * seed + step)
            return {name: draw(random) for name, draw in draws}

        return Case(main=main or self.main,
                    startup=self.startup,
                    feed=feed,
                    fetch=tuple(fetchable(variable) for variable in fetched),
                    batch_size=self.batch_size,
                    trip_count=self.trip_count,
                    training=training)


def fetchable(variable: Any) -> Any:
    """What a run is told to fetch `variable` by."""
    return variable if paddle.framework.in_pir_mode() else variable.name


@contextlib.contextmanager
def drafting(options: Options,
             batch_size: int,
             trip_count: Optional[TripCount] = None) -> Iterator[Draft]:
    """Build in a fresh program with fresh names, so that equal options give equal programs."""
    paddle.enable_static()
    paddle.seed(options.seed)
    draft = Draft(options, pick(options.batch_size, batch_size), trip_count)
    with static.program_guard(draft.main, draft.startup), paddle.utils.unique_name.guard():
        yield draft
