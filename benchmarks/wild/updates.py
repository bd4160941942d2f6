"""Features of training scripts: how parameters are updated."""
from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict

import paddle
import paddle.nn.functional as F
from paddle import nn, static
from paddle.incubate import optimizer as incubate

from benchmarks.programs.case import Draft
from benchmarks.programs.checkpoints import minimize_with_checkpoints
from benchmarks.wild.script import BATCH, Builder, Script, fetching, stepping, trained, writing

WIDTH, CLASSES, LAYERS = 256, 10, 4
RATE = 0.01


def builders() -> Dict[str, Builder]:
    """By name."""
    return {
        **{
            name: partial(_with_optimizer, make) for name, make in _optimizers().items()
        },
        **{
            f'schedule {name}': partial(_with_schedule, make) for name, make in _schedules().items()
        },
        'own regularizers': own_regularizers,
        'frozen layers': frozen_layers,
        'two optimizers': two_optimizers,
        'shared weights': shared_weights,
        'moving average of weights': moving_average,
        'model average': model_average,
        'look ahead': look_ahead,
        'gradient merge': gradient_merge,
        'recompute optimizer': recompute_optimizer,
        'loss scaling': loss_scaling,
        'amp bf16': amp_bf16,
        'amp bf16 pure': amp_bf16_pure,
        'save and load': save_and_load,
        'train and evaluate': train_and_evaluate,
        'gan': gan,
    }


def mlp(draft: Draft, attribute: Callable[[int], Any] = lambda layer: None) -> Any:
    """The loss of a classifier of some layers."""
    hidden = draft.floats('x', [BATCH, WIDTH])
    for layer in range(LAYERS):
        hidden = static.nn.fc(hidden, WIDTH, activation='relu', weight_attr=attribute(layer))
    label = draft.integers('label', [BATCH, 1], below=CLASSES)
    return F.cross_entropy(static.nn.fc(hidden, CLASSES), label)


def _optimizers() -> Dict[str, Callable[[], Any]]:
    make, decay = paddle.optimizer, paddle.regularizer
    return {
        'sgd': lambda: make.SGD(RATE),
        'sgd, L2': lambda: make.SGD(RATE, weight_decay=1e-4),
        'momentum, L1': lambda: make.Momentum(RATE, weight_decay=decay.L1Decay(1e-4)),
        'adam, global norm': lambda: make.Adam(RATE, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
        'adam, by norm': lambda: make.Adam(RATE, grad_clip=nn.ClipGradByNorm(1.0)),
        'adam, by value': lambda: make.Adam(RATE, grad_clip=nn.ClipGradByValue(0.1)),
        'adamw': lambda: make.AdamW(RATE, apply_decay_param_fun=lambda name: '.w_' in name),
        'lamb': lambda: make.Lamb(RATE),
        'lars': lambda: incubate.LarsMomentumOptimizer(RATE, 0.9),
        'rmsprop': lambda: make.RMSProp(RATE, centered=True, momentum=0.9),
        'adagrad': lambda: make.Adagrad(RATE),
        'adadelta': lambda: make.Adadelta(RATE),
        'adamax': lambda: make.Adamax(RATE),
    }


def _schedules() -> Dict[str, Callable[[], Any]]:
    lr = paddle.optimizer.lr
    return {
        'noam': lambda: lr.NoamDecay(64, 10),
        'warmup, cosine': lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(RATE, 10), 5, 0.0, RATE),
        'piecewise': lambda: lr.PiecewiseDecay([1, 2], [RATE, RATE / 2, RATE / 4]),
        'polynomial': lambda: lr.PolynomialDecay(RATE, 10),
        'one cycle': lambda: lr.OneCycleLR(RATE, 10),
    }


def _with_optimizer(make: Callable[[], Any]) -> Script:
    with writing() as draft:
        return trained(draft, mlp(draft), make())


def _with_schedule(make: Callable[[], Any]) -> Script:
    schedule = make()
    with writing() as draft:
        return stepping(trained(draft, mlp(draft), paddle.optimizer.SGD(schedule)), schedule)


def own_regularizers() -> Script:
    """L1 and L2 in turns, by parameter."""
    kinds = paddle.regularizer.L1Decay, paddle.regularizer.L2Decay
    with writing() as draft:
        loss = mlp(draft, lambda layer: paddle.ParamAttr(regularizer=kinds[layer % 2](1e-4)))
        return trained(draft, loss)


def frozen_layers() -> Script:
    """The lower half is not trained."""
    with writing() as draft:
        loss = mlp(draft, lambda layer: paddle.ParamAttr(trainable=layer >= LAYERS // 2))
        return trained(draft, loss)


def two_optimizers() -> Script:
    """Adam for one half of the parameters, SGD for the other."""
    with writing() as draft:
        loss = mlp(draft)
        weights = draft.main.all_parameters()
        for make, part in ((paddle.optimizer.Adam, weights[::2]), (paddle.optimizer.SGD,
                                                                   weights[1::2])):
            make(RATE).minimize(loss, parameters=part)
        return fetching(draft, loss)


def shared_weights() -> Script:
    """All layers have one weight."""
    with writing() as draft:
        return trained(draft, mlp(draft, lambda layer: paddle.ParamAttr(name='shared')))


def moving_average() -> Script:
    """An exponential average of each weight is kept."""
    with writing() as draft:
        loss = mlp(draft)
        paddle.optimizer.SGD(RATE).minimize(loss)
        static.ExponentialMovingAverage(0.9).update()
        return fetching(draft, loss)


def model_average() -> Script:
    """Sums of weights over windows of steps."""
    with writing() as draft:
        loss = mlp(draft)
        paddle.optimizer.SGD(RATE).minimize(loss)
        average = incubate.ModelAverage(0.15, min_average_window=2, max_average_window=4)
        average.minimize(loss)
        return fetching(draft, loss)


def look_ahead() -> Script:
    """Slow weights follow fast ones each second step."""
    with writing() as draft:
        return trained(draft, mlp(draft),
                       incubate.LookAhead(paddle.optimizer.SGD(RATE), alpha=0.5, k=2))


def gradient_merge() -> Script:
    """Gradients of two steps are added up before an update."""
    with writing() as draft:
        optimizer = incubate.GradientMergeOptimizer(paddle.optimizer.Adam(RATE), k_steps=2)
        return trained(draft, mlp(draft), optimizer)


def recompute_optimizer() -> Script:
    """Paddle's own recomputation."""
    with writing() as draft:
        loss = mlp(draft)
        minimize_with_checkpoints(paddle.optimizer.SGD(RATE), loss)
        return fetching(draft, loss)


def loss_scaling() -> Script:
    """Dynamic loss scaling, as in float16 training."""
    with writing() as draft:
        return trained(draft, mlp(draft), static.amp.decorate(paddle.optimizer.Adam(RATE)))


def amp_bf16() -> Script:
    """Matrix products in bfloat16."""
    amp = static.amp.bf16
    lists = amp.AutoMixedPrecisionListsBF16(custom_bf16_list={'matmul_v2'},
                                            custom_fp32_list={'elementwise_add'})
    with writing() as draft:
        return trained(draft, mlp(draft),
                       amp.decorate_bf16(paddle.optimizer.SGD(RATE), amp_lists=lists))


def amp_bf16_pure() -> Script:
    """Parameters in bfloat16, too."""
    with writing() as draft:
        optimizer = static.amp.bf16.decorate_bf16(paddle.optimizer.SGD(RATE), use_pure_bf16=True)
        return trained(draft, mlp(draft), optimizer)


def save_and_load() -> Script:
    """After the first step all is written, and read back after the second."""
    with writing() as draft:
        script = trained(draft, mlp(draft))
    program = script.cases[0].main
    folder = tempfile.TemporaryDirectory()

    def after(executor: static.Executor, step: int) -> None:
        path = str(Path(folder.name, 'model'))
        if step == 0:
            static.save(program, path)
        elif step == 1:
            static.load(program, path, executor)

    return replace(script, after_step=after)


def train_and_evaluate() -> Script:
    """A clone for testing runs after each step."""
    with writing() as draft:
        loss = mlp(draft)
        test = draft.main.clone(for_test=True)
        script = trained(draft, loss)
        return replace(script,
                       cases=script.cases + (draft.case([loss], main=test, training=False),))


def gan() -> Script:
    """A generator and a discriminator with programs of their own, which share parameters."""
    with writing() as critic:
        real, noise = critic.floats('real', [BATCH, WIDTH]), critic.floats('noise', [BATCH, 64])
        loss = _critic_loss(real, True) + _critic_loss(_generated(noise), False)
        script = trained(critic, loss, _Of('critic'))
    with writing() as maker:
        noise = maker.floats('noise', [BATCH, 64])
        other = trained(maker, _critic_loss(_generated(noise), True), _Of('maker'))
    return Script(script.cases + other.cases)


class _Of:
    """An optimizer of the parameters whose names begin so."""

    def __init__(self, start: str) -> None:
        self._start = start

    def minimize(self, loss: Any) -> None:
        """As an optimizer does."""
        weights = [
            each for each in loss.block.program.all_parameters()
            if each.name.startswith(self._start)
        ]
        paddle.optimizer.Adam(0.001).minimize(loss, parameters=weights)


def _named_fc(x: Any, size: int, name: str, activation: Any = None) -> Any:
    weight, bias = (paddle.ParamAttr(name=f'{name}.{kind}') for kind in 'wb')
    return static.nn.fc(x, size, activation=activation, weight_attr=weight, bias_attr=bias)


def _generated(noise: Any) -> Any:
    return _named_fc(_named_fc(noise, WIDTH, 'maker0', 'relu'), WIDTH, 'maker1', 'tanh')


def _critic_loss(image: Any, real: bool) -> Any:
    score = _named_fc(_named_fc(image, WIDTH, 'critic0', 'relu'), 1, 'critic1')
    wanted = paddle.full_like(score, float(real))
    return F.binary_cross_entropy_with_logits(score, wanted)
