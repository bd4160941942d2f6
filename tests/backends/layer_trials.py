"""Trains a generated layer, as Paddle makes it static and with memory_optimize, and compares all that a user can see.

`python -m tests.backends.layer_trials A..B` prints each seed whose layer gives something else, of the Paddle that is installed.
"""
from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import paddle

from tests.backends.generated_layers import WIDE, WIDTH, Network, inputs
from tests.wild.children import Ended, in_child
from transpiler import memory_optimize

# Seeds of layers that Paddle itself trains, on 2.6.2 and 3.3.1, and that plans change. 57 calls one twice before it goes backward; of
# 76, what is given out is read, too, and its gradient was made first.
GENERATED = (0, 4, 7, 9, 57, 76)
_CHANGED = 'ChangedTensorError'
_STEPS, _SECONDS = 6, 200.0
_OPTIONS: Tuple[Dict[str, Any], ...] = ({}, {
    'recompute': 'max'
}, {
    'recompute': 'cheap'
}, {
    'recompute': 'max',
    'max_overhead': 1.0
})
_OPTIMIZERS = (paddle.optimizer.SGD, paddle.optimizer.Momentum, paddle.optimizer.Adam,
               paddle.optimizer.AdamW)
# What holds the order of ops, so that random numbers are drawn in that of dynamic mode, and 3.3's elimination of common expressions,
# which is wrong where a buffer was written in between; a planned program has both as here.
_FLAGS = {'FLAGS_new_executor_sequential_run': True, 'FLAGS_enable_cse_in_dy2st': False}


@dataclass(frozen=True)
class Habits:
    """How a user trains."""

    full_graph: bool
    open_batch: bool
    rows: Tuple[int, ...]
    optimizer: Any
    clip: Any
    input_gradients: bool
    calls: int
    every: int  # steps between updates
    evaluates: bool
    twice: bool  # the same backward
    mixed: bool
    to_zero: bool
    updates_between: bool  # two calls and their backward


def habits(seed: int) -> Habits:
    rng = random.Random(seed * 7 + 1)
    # Of what the catalogue asks, Paddle's translation of byte code can not follow all.
    return Habits(full_graph=rng.random() < 0.6 or seed >= WIDE,
                  open_batch=rng.random() < 0.4,
                  rows=rng.choice([(6,) * 6, (6, 3, 6, 9, 6, 3), (1, 4, 1, 4, 4, 1)]),
                  optimizer=rng.choice(_OPTIMIZERS),
                  clip=rng.choice([None, paddle.nn.ClipGradByGlobalNorm(0.5)]),
                  input_gradients=rng.random() < 0.3,
                  calls=rng.choice([1, 1, 1, 2]),
                  every=rng.choice([1, 1, 1, 2]),
                  evaluates=rng.random() < 0.3,
                  twice=rng.random() < 0.12,
                  mixed=rng.random() < 0.1,
                  to_zero=rng.random() < 0.5,
                  updates_between=rng.random() < 0.2)


class Trial:
    """One training of the layer of `seed`. `values` are digests, by what and when."""

    def __init__(self, seed: int, optimized: bool, options: Mapping[str, Any]) -> None:
        paddle.seed(seed)
        self.values: Dict[str, str] = {}
        self._network, self._habits = Network(seed), habits(seed)
        spec = None
        if self._habits.open_batch and not self._network.extra:
            spec = [paddle.static.InputSpec([None, WIDTH], 'float32', 'x')]
        self._made = paddle.jit.to_static(self._network,
                                          input_spec=spec,
                                          full_graph=self._habits.full_graph)
        self._optimizer = self._habits.optimizer(learning_rate=0.05,
                                                 parameters=self._network.parameters(),
                                                 grad_clip=self._habits.clip)
        self._report = memory_optimize(self._made, **options) if optimized else None

    def run(self) -> Dict[str, Any]:
        for step in range(_STEPS):
            if self._habits.evaluates and step % 2:
                self._evaluate(step)
            self._train(step)
        programs = self._report.programs if self._report else []
        changed = sum(bool(each.report and each.report.changed) for each in programs)
        return {'values': self.values, 'changed': changed}

    def _note(self, what: str, tensor: Any) -> None:
        if isinstance(tensor, paddle.Tensor):
            data = tensor.numpy()
            self.values[what] = hashlib.sha256(f'{data.dtype} {data.shape}'.encode() +
                                               data.tobytes()).hexdigest()

    def _call(self, step: int, call: int) -> Tuple[Any, List[Any]]:
        rng = np.random.RandomState(step * 10 + call)
        x, more = (paddle.to_tensor(
            rng.standard_normal([self._habits.rows[step], WIDTH]).astype('float32')) for _ in 'ab')
        x.stop_gradient = not self._habits.input_gradients
        by_position, by_keyword = inputs(self._network, x, more)
        with paddle.amp.auto_cast(enable=self._habits.mixed, level='O1', dtype='bfloat16'):
            outs = _flat(self._made(*by_position, **by_keyword))
        for i, out in enumerate(outs):
            self._note(f'output {i} of call {call} at step {step}', out)
        return x, outs

    def _evaluate(self, step: int) -> None:
        self._network.eval()
        with paddle.no_grad():
            self._call(step, 9)
        self._network.train()

    def _train(self, step: int) -> None:
        called = [self._call(step, call) for call in range(self._habits.calls)]
        losses = [_loss(outs) for _, outs in called]
        if self._habits.updates_between and len(losses) > 1:
            losses.pop(0).backward(retain_graph=True)
            self._optimizer.step()
        loss = sum(losses[1:], losses[0])
        if self._habits.twice:
            loss.backward(retain_graph=True)
        loss.backward()
        for call, (x, _) in enumerate(called):
            self._note(f'gradient of input {call} at step {step}', x.grad)
        for name, parameter in self._network.named_parameters():
            self._note(f'gradient of {name} at step {step}', parameter.grad)
        if step % self._habits.every == self._habits.every - 1:
            self._optimizer.step()
            self._optimizer.clear_grad(set_to_zero=self._habits.to_zero)
        for name, state in self._network.state_dict().items():
            self._note(f'{name} after step {step}', state)


def _loss(outs: List[Any]) -> Any:
    trained = (out for out in outs if not out.stop_gradient)
    return sum((paddle.mean(out * out) for out in trained), paddle.zeros([]))


def _flat(outs: Any) -> List[Any]:
    if isinstance(outs, dict):
        outs = list(outs.values())
    return [out for each in outs for out in _flat(each)] if isinstance(outs,
                                                                       (list, tuple)) else [outs]


def trained(seed: int, optimized: bool, **options: Any) -> Ended:
    """In a child, as Paddle sometimes ends a process. `options`: others than the seed's."""

    def train() -> Dict[str, Any]:
        known = paddle.get_flags(
            [name for name in _FLAGS if name in paddle.base.core.globals().keys()])
        paddle.set_flags({name: _FLAGS[name] for name in known})
        try:
            return Trial(seed, optimized, options or _OPTIONS[seed % len(_OPTIONS)]).run()
        except OSError as error:  # of a hook's error the last line says nothing
            if _CHANGED not in str(error):
                raise
            raise RuntimeError(_CHANGED) from error

    return in_child(train, _SECONDS)


def trial(seed: int) -> Tuple[str, List[str], int]:
    """Why it was not run; what differs, or how the optimized one failed; how many programs a plan has changed."""
    plain = trained(seed, False)
    if plain.failure:
        return plain.failure, [], 0
    planned = trained(seed, True)
    if habits(seed).updates_between and _CHANGED in planned.failure:
        planned = trained(seed, True, recompute=False)  # the way out that the error names
    if planned.failure:
        return '', [planned.failure], 0
    one, other = plain.value['values'], planned.value['values']
    return '', sorted(
        k for k in {*one, *other} if one.get(k) != other.get(k)), planned.value['changed']


def main(words: List[str]) -> int:
    """A line for each seed that failed, and a summary; 1 if there was one."""
    failed, ran, changed = 0, 0, 0
    for seed in range(*map(int, words[0].split('..'))):
        why_not, wrong, plans = trial(seed)
        ran, changed = ran + (not why_not), changed + plans
        if wrong:
            failed += 1
            print(f'{seed}: {len(wrong)}, first {wrong[0]}', flush=True)
    print(
        f'{ran} layers ran untouched, {changed} programs were changed by a plan, {failed} layers failed'
    )
    return int(bool(failed))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
