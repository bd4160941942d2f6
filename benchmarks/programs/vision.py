"""Image classifiers of paddle.vision.models, with the image sizes that each is built for."""
from __future__ import annotations

from types import MappingProxyType
from typing import Any, List, Mapping, NamedTuple, Optional

import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs.case import Case, Options, drafting, pick


class ImageSizes(NamedTuple):
    """Pixels of a square image's side: the default, and the least that can be built."""
    usual: int
    smallest: int


# GoogLeNet's early heads are fully connected layers made for the size that 224 pixels shrink to,
# and Inception v3 pools to nothing below 75.
NETWORKS: Mapping[str, ImageSizes] = MappingProxyType({
    "resnet18": ImageSizes(64, 32),
    "resnet50": ImageSizes(64, 32),
    "resnet152": ImageSizes(64, 32),
    "vgg16": ImageSizes(64, 32),
    "mobilenet_v2": ImageSizes(64, 32),
    "densenet121": ImageSizes(64, 32),
    "inception_v3": ImageSizes(96, 75),
    "googlenet": ImageSizes(224, 192),
})

# GoogLeNet adds two early heads to its loss with this weight.
AUXILIARY_WEIGHT = 0.3


def _network(name: str, options: Options) -> nn.Layer:
    classes = pick(options.classes, 1000)
    if name != "vgg16" or options.width is None:
        return getattr(paddle.vision.models, name)(num_classes=classes)
    # The classifier holds 120 of VGG's 138 million parameters: a small version needs a narrow one.
    features = paddle.vision.models.vgg16(num_classes=0)
    return nn.Sequential(features, nn.Flatten(), nn.Linear(512 * 7 * 7, options.width), nn.ReLU(),
                         nn.Dropout(0.5), nn.Linear(options.width, classes))


def _set_dropout(network: nn.Layer, probability: Optional[float]) -> None:
    """With 0 the builder leaves the dropout ops out; None keeps each network's own."""
    if probability is None:
        return
    for layer in network.sublayers(include_self=True):
        if isinstance(layer, nn.Dropout):
            layer.p = probability


def _loss(outputs: List[Any], label: Any) -> Any:
    loss = F.cross_entropy(outputs[0], label)
    for auxiliary in outputs[1:]:
        loss = loss + AUXILIARY_WEIGHT * F.cross_entropy(auxiliary, label)
    return loss


def classifier(name: str, options: Options) -> Case:
    """The network of that name in paddle.vision.models on random images, batch 8 by default.

    GoogLeNet's loss counts its early heads; its inference fetches all three outputs.
    """
    size = options.image_size or NETWORKS[name].usual
    with drafting(options, batch_size=8) as draft:
        image = draft.floats("image", [draft.batch_size, 3, size, size])
        network = _network(name, options)
        _set_dropout(network, options.dropout)
        if options.inference:
            network.eval()
        result = network(image)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        if options.inference:
            return draft.finish(None, outputs)
        label = draft.integers("label", [draft.batch_size, 1], below=outputs[0].shape[-1])
        return draft.finish(_loss(outputs, label), outputs)
