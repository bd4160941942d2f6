"""From a recipe to a program: layers, loss, optimizer, feeds, and what to fetch."""
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Dict, List

import numpy as np
import paddle

from tests.harness import Case, new_programs
from tests.scenarios.common import data
from tests.wild.blocks import BLOCKS
from tests.wild.layers import Layers, Variable
from tests.wild.recipes import CATALOGUE, Recipe

_UNREAD = {
    'image': ((3, 6, 6), 'float32'),
    'sequence': ((5, 32), 'float32'),
    'double': ((32,), 'float64'),
    'flag': ((64,), 'bool'),
}


@dataclass(frozen=True)
class Built:
    """A case, and what memory_optimize is to be told."""

    case: Case
    options: Dict[str, Any]


def build(recipe: Recipe) -> Built:
    rng = random.Random(recipe.seed + 1)
    with new_programs() as (main, startup):
        layers = first_layers(recipe, rng)
        for step in _steps(recipe, rng):
            layers.add(step(layers))
        made = [value for value in layers.values if value.block.idx == 0]
        loss = loss_of(made, rng)
        if recipe.optimizer is not None:
            _train(recipe, loss)
    names = sorted({value.name for value in made})
    fetch = [loss.name, *rng.sample(names, min(recipe.fetches, len(names)))]
    told = {
        'skip_opt_set': set(rng.sample(names, min(recipe.skips, len(names)))),
        'batch_size': max(recipe.rows),
        'trip_count': layers.trips,
    }
    case = Case(main, startup, feed_of(recipe), list(dict.fromkeys(fetch)))
    return Built(case, {**recipe.options, **told})


def first_layers(recipe: Recipe, rng: random.Random) -> Layers:
    rows = recipe.rows[0] if recipe.fixed else -1
    for name in recipe.unread:
        shape, dtype = _UNREAD[name]
        data(name, rows, *shape, dtype=dtype)
    x = data('x', rows, recipe.width)
    layers = Layers(rng, recipe.width, recipe.optimizer is not None, [x])
    weight = layers.weight(recipe.width, recipe.width)
    layers.values = [paddle.tanh(paddle.matmul(x, weight))]
    return layers


def _steps(recipe: Recipe, rng: random.Random) -> List[Any]:
    steps = [CATALOGUE[name] for name in recipe.layers]
    for _ in range(recipe.blocks):
        block = rng.choice(BLOCKS)
        steps.insert(rng.randint(0, len(steps)), lambda layers, b=block: b(layers, CATALOGUE))
    return steps


def loss_of(made: List[Variable], rng: random.Random) -> Variable:
    """Of some values, the last one among them: what is left out is computed for nobody."""
    chosen = [made[-1], *rng.sample(made, min(2, len(made)))]
    return paddle.add_n([paddle.mean(paddle.square(paddle.tanh(value))) for value in chosen]) * 1.0


def _clip(kind: Any) -> Any:
    return {
        None: lambda: None,
        'value': lambda: paddle.nn.ClipGradByValue(0.5),
        'norm': lambda: paddle.nn.ClipGradByNorm(0.5),
        'global_norm': lambda: paddle.nn.ClipGradByGlobalNorm(0.5),
    }[kind]()


def _decay(kind: Any) -> Any:
    return {
        None: lambda: None,
        'l1': lambda: paddle.regularizer.L1Decay(1e-3),
        'l2': lambda: paddle.regularizer.L2Decay(1e-3),
    }[kind]()


def optimizer_of(recipe: Recipe) -> Any:
    decay, clip, rate = _decay(recipe.decay), _clip(recipe.clip), 0.01
    more = {'weight_decay': decay, 'grad_clip': clip}
    optimizers = paddle.optimizer
    return {
        'sgd':
            lambda: optimizers.SGD(rate, **more),
        'momentum':
            lambda: optimizers.Momentum(rate, 0.9, **more),
        'adam':
            lambda: optimizers.Adam(rate, **more),
        'adamw':
            lambda: optimizers.AdamW(rate, weight_decay=0.01, grad_clip=clip),
        'adagrad':
            lambda: optimizers.Adagrad(rate, **more),
        'adadelta':
            lambda: optimizers.Adadelta(rate, **more),
        'adamax':
            lambda: optimizers.Adamax(rate, **more),
        'rmsprop':
            lambda: optimizers.RMSProp(rate, **more),
        'lamb':
            lambda: optimizers.Lamb(rate, grad_clip=clip),
        'lars':
            lambda: paddle.incubate.optimizer.LarsMomentumOptimizer(
                rate, 0.9, regularization=decay, grad_clip=clip),
    }[recipe.optimizer]()


def _train(recipe: Recipe, loss: Variable) -> None:
    optimizer = optimizer_of(recipe)
    amp = paddle.static.amp
    if recipe.scaling == 'loss_scaling':
        # No kernel of halves on a CPU: all stays as it is but the loss, whose scale follows the gradients.
        lists = amp.AutoMixedPrecisionLists(custom_black_list={'matmul_v2', 'conv2d', 'conv3d'})
        optimizer = amp.decorate(optimizer, lists, init_loss_scaling=64.0)
    elif recipe.scaling == 'bf16':
        lists = amp.bf16.AutoMixedPrecisionListsBF16(custom_bf16_list={'elementwise_add'},
                                                     custom_fp32_list={'matmul_v2', 'conv2d'})
        optimizer = amp.bf16.decorate_bf16(optimizer, lists)
    optimizer.minimize(loss)
    if recipe.averaged:
        paddle.static.ExponentialMovingAverage(0.9).update()


def feed_of(recipe: Recipe) -> Any:

    def feed(step: int) -> Dict[str, np.ndarray]:
        rng = np.random.RandomState(1000 + step)
        rows = recipe.rows[step % len(recipe.rows)]
        fed = {'x': rng.uniform(-1, 1, (rows, recipe.width)).astype('float32')}
        for name in recipe.unread:
            shape, dtype = _UNREAD[name]
            fed[name] = rng.uniform(-1, 1, (rows, *shape)).astype(dtype)
        return fed

    return feed
