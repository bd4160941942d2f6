"""Layers as users write them, trained twice: as Paddle makes them static, and with memory_optimize."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

BATCH, WIDTH = 64, 8
Losses = List[Any]
Step = Callable[[Any, Any], Any]


def data(step: int) -> Any:
    numbers = np.random.RandomState(step).standard_normal([BATCH, WIDTH])
    return paddle.to_tensor(numbers.astype('float32'))


class Block(nn.Layer):
    """A hidden layer of four times the width, as in a transformer; statistics, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.drop = nn.BatchNorm1D(WIDTH), nn.Dropout(0.2)

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.norm(self.down(F.gelu(self.up(paddle.tanh(x) * 2.0)))))


class Net(nn.Layer):

    def __init__(self, blocks: int = 1) -> None:
        super().__init__()
        self.blocks = nn.LayerList([Block() for _ in range(blocks)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return paddle.mean(x * x)


class Decorated(Net):

    @paddle.jit.to_static(full_graph=True)
    def forward(self, x: Any) -> Any:
        return Net.forward(self, x)


class DecoratedInStretches(Net):

    @paddle.jit.to_static(full_graph=False)
    def forward(self, x: Any) -> Any:
        return Net.forward(self, x)


class Listed(Net):
    """Lists and dicts in."""

    def forward(self, parts: Any, named: Any) -> Any:
        return Net.forward(self, parts[0] * parts[1] + named['x'] - named['y'])


class Named(Net):
    """Arguments by name, a number and a tensor, and some that are left out."""

    def forward(self, x: Any, scale: Any = 1.0, shift: Any = None, other: Any = None) -> Any:
        assert other is None
        return Net.forward(self, x * scale + shift)


class Joined(Net):
    """What is joined runs again: of a list, on Paddle 3."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        joined = paddle.concat([F.relu(self.wide(x)), x], 1)
        return paddle.mean(paddle.square(F.silu(self.narrow(joined)))) + Net.forward(self, x)


class Several(Net):
    """Several results, one in another."""

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return paddle.mean(x * x), [x, {'sum': paddle.sum(x, axis=1)}]


class Remarked(Net):
    """Results that are no tensors, among those that are."""

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        scores = [x * 1.0, (paddle.sum(x), {'twice': x * 2.0})]
        return {'loss': paddle.mean(x * x), 'no': None, 'n': scores, 's': 'text', 'f': 3.5}


class Structured(Net):
    """Lists and dicts in, several results out, and arguments by name."""

    def forward(self, parts: Any, named: Any, scale: Any = 1.0, shift: Any = None) -> Any:
        x = parts[0] + named['x'] * scale
        for block in self.blocks:
            x = block(x)
        x = x if shift is None else x + shift
        return {'loss': paddle.mean(x * x), 'parts': [x, paddle.sum(x, axis=1)]}


class Shared(Net):
    """One block twice."""

    def forward(self, x: Any) -> Any:
        for _ in range(2):
            x = self.blocks[0](x)
        return paddle.mean(x * x)


class Looped(nn.Layer):
    """A loop of as many trips as a tensor says, with a branch in it."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.block = nn.Linear(WIDTH, WIDTH), Block()

    def forward(self, x: Any, trips: Any) -> Any:
        at, x = paddle.zeros([1], 'int64'), self.begin(x)
        while at < trips:
            x = self.block(x)
            at = at + 1
        return paddle.mean(x * x)


class Branched(nn.Layer):
    """What runs hangs on a tensor, twice. Without statistics: Paddle 3 keeps those of outside, of which one cannot tell the trip."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, trips: Any) -> Any:
        x = self.begin(x)
        if trips > 4:
            x = x + self.down(F.dropout(F.gelu(self.up(paddle.tanh(x) * 2.0)), 0.2))
        else:
            x = paddle.tanh(x) * 2.0
        if trips > 6:
            x = x + self.down(F.gelu(self.up(paddle.tanh(x) * 2.0)))
        else:
            x = x * 0.5
        return paddle.mean(x * x)


def trained(made: Any, step: Step, steps: int = 2) -> Tuple[bytes, ...]:
    """All that training leaves: losses, parameters, statistics, as bytes."""
    paddle.seed(5)
    optimizer = paddle.optimizer.Momentum(0.05, parameters=made.parameters())
    found: List[bytes] = []
    for at in range(steps):
        loss = step(made, at)
        optimizer.step()
        optimizer.clear_grad()
        found.append(loss.numpy().tobytes())
    assert len(set(found)) == steps
    return (*found, *(each.numpy().tobytes() for each in made.state_dict().values()))


def backward_of(run: Callable[[Any, int], Any]) -> Step:

    def step(made: Any, at: int) -> Any:
        loss = run(made, at)
        loss.backward()
        return loss

    return step


def _structured(made: Any, at: int) -> Any:
    found = made([data(at)], {'x': data(at + 50)}, scale=0.5, shift=data(at + 90))
    return found['loss'] + paddle.mean(found['parts'][1])


def _several(made: Any, at: int) -> Any:
    loss, (x, named) = made(data(at))
    return loss + paddle.mean(x * x) + paddle.mean(named['sum'])


def _remarked(made: Any, at: int) -> Any:
    found = made(data(at))
    assert (found['no'], found['s'], found['f']) == (None, 'text', 3.5)
    x, (total, more) = found['n']
    return found['loss'] + paddle.mean(x * x) + total * 0.01 + paddle.mean(more['twice'])


def _two_losses(made: Any, at: int) -> Any:
    first, second = made(data(at)), made(data(at + 50))
    first.backward()
    second.backward()
    return first + second


def _accumulated(made: Any, at: int) -> Any:
    losses = []
    for part in range(3):
        losses.append(made(data(at + 20 * part)))
        losses[-1].backward()
    return losses[0] + losses[1] + losses[2]


def _evaluated_between(made: Any, at: int) -> Any:
    made.eval()
    with paddle.no_grad():
        seen = made(data(at + 30))
    made.train()
    loss = made(data(at))
    loss.backward()
    with paddle.no_grad():
        more = made(data(at + 40))
    return loss.detach() + seen + more


def _other_batches(made: Any, at: int) -> Any:
    loss = made(data(at)[:BATCH - at])
    loss.backward()
    return loss


def _gradient_of_input(made: Any, at: int) -> Any:
    x = data(at)
    x.stop_gradient = False
    loss = made(x)
    loss.backward()
    return loss.detach() + paddle.sum(x.grad)


def static(net: Any, full_graph: bool, **options: Any) -> Any:
    return paddle.jit.to_static(net, full_graph=full_graph, **options)


def _inner_static(net: Any, full_graph: bool) -> Any:
    for block in net.blocks:
        static(block, full_graph)
    return net


def _any_batch(net: Any, full_graph: bool) -> Any:
    spec = [paddle.static.InputSpec([None, WIDTH], 'float32', name='x')]
    return static(net, full_graph, input_spec=spec)


def _in_bfloat16(level: str) -> Callable[[Any, int], Any]:

    def run(made: Any, at: int) -> Any:
        with paddle.amp.auto_cast(level=level, dtype='bfloat16'):
            return made(data(at)).astype('float32')

    return run


def _decorated_for_bfloat16(net: Any, full_graph: bool) -> Any:
    return static(paddle.amp.decorate(net, level='O2', dtype='bfloat16'), full_graph)


SIMPLE = backward_of(lambda made, at: made(data(at)))
# How a net is made static, and what a step is.
WAYS: Dict[str, Tuple[Callable[[], Any], Callable[[Any, bool], Any], Step]] = {
    'called': (Net, static, SIMPLE),
    'decorated': (object, lambda _, whole: (Decorated if whole else DecoratedInStretches)(),
                  SIMPLE),
    'layers inside': (Net, _inner_static, SIMPLE),
    'any batch': (Net, _any_batch, _other_batches),
    'new shapes': (Net, static, _other_batches),
    'joined': (Joined, static, SIMPLE),
    'lists and dicts': (Listed, static, backward_of(lambda made, at: made(
        [data(at), data(at + 50)], {'x': data(at + 70), 'y': data(at + 90)}))),
    'names': (Named, static, backward_of(lambda made, at: made(
        shift=data(at + 50), x=data(at), scale=0.5))),
    'several results': (Several, static, backward_of(_several)),
    'results that are no tensors': (Remarked, static, backward_of(_remarked)),
    'lists, dicts, names, several results': (Structured, static, backward_of(_structured)),
    'shared weights': (Shared, static, SIMPLE),
    'used twice': (Net, static, backward_of(lambda made, at: made(data(at)) + made(data(at + 50)))),
    'two losses': (Net, static, _two_losses),
    'gradients of three batches': (Net, static, _accumulated),
    'evaluated between': (Net, static, _evaluated_between),
    'AMP O1': (Net, static, backward_of(_in_bfloat16('O1'))),
    'AMP O2': (Net, _decorated_for_bfloat16, backward_of(_in_bfloat16('O2'))),
    'gradient of the input': (Net, static, _gradient_of_input),
}  # yapf: disable


def trips_of(step: int) -> int:
    return 2 + 3 * step % 7


# A layer whose program has a loop or a branch; a step is of as many trips as its number says.
FLOWS: Dict[str, Callable[[], Any]] = {'loop': Looped, 'branch': Branched}
FLOW_STEP = backward_of(lambda made, at: made(data(at), paddle.to_tensor([trips_of(at)])))


def flow(kind: str) -> Any:
    paddle.seed(3)
    return static(FLOWS[kind](), True)


def built(way: str, full_graph: bool) -> Tuple[Any, Step]:
    make, to_static, step = WAYS[way]
    paddle.seed(3)
    return to_static(make(), full_graph), step
