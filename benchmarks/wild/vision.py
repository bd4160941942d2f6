"""Every network of paddle.vision.models, trained and served, on small images."""
from __future__ import annotations

import inspect
from functools import partial
from typing import Dict, List

from paddle.vision import models

from benchmarks.programs.case import Options
from benchmarks.programs.vision import classifier
from benchmarks.wild.script import Builder, Script

BATCH, CLASSES = 2, 10
# Below these the classifier of the network gets another number of inputs than it was made for.
SIDES = {
    'alexnet': 224,
    'googlenet': 224,
    'inception_v3': 96,
    'squeezenet1_0': 64,
    'squeezenet1_1': 64
}
SIDE = 32
# Half a gigabyte of weights: a velocity for each of them would take the process beyond two.
HEAVY = ('alexnet', 'vgg', 'wide_resnet101', 'resnext152_64x4d', 'resnext101_64x4d')


def networks() -> List[str]:
    """The functions of paddle.vision.models that make a network."""
    return [name for name, _ in inspect.getmembers(models, inspect.isfunction)]


def builders() -> Dict[str, Builder]:
    """By name: `resnet18`, and `resnet18 served`."""
    found: Dict[str, Builder] = {}
    for name in networks():
        found[name] = partial(_script, name, False)
        found[f'{name} served'] = partial(_script, name, True)
    return found


def _script(name: str, inference: bool) -> Script:
    options = Options(optimizer='sgd' if name.startswith(HEAVY) else 'momentum',
                      inference=inference,
                      batch_size=BATCH,
                      image_size=SIDES.get(name, SIDE),
                      classes=CLASSES)
    return Script((classifier(name, options),))
