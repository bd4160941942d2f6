"""The nets of Checkmate's paper as static programs of Paddle, at its image and batch sizes, and smaller ones.

VGG16, VGG19, MobileNet and ResNet-50 are those of paddle.vision (224 x 224). U-Net (on VGG16), FCN8 and SegNet (on five plain
stages) are written here after the networks of image-segmentation-keras that the paper used, at 416 x 608 and with the 19 classes of
Cityscapes. Batch sizes: 256, MobileNet 512, U-Net 32; the paper's code tells none for FCN8 and SegNet: 32, too.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs import Case, Options, build
from benchmarks.programs.case import drafting

SEGMENTED_CLASSES = 19

Pixels = Tuple[int, int]


@dataclass(frozen=True)
class Net:
    """One net: rows and pixels as published, and what builds it from a batch, pixels and channels by which it is narrower."""
    batch_size: int
    pixels: Pixels
    make: Callable[[int], nn.Layer]
    per_pixel: bool = False

    def case(self,
             batch_size: Optional[int] = None,
             pixels: Optional[Pixels] = None,
             narrower: int = 1) -> Case:
        """The training program, with SGD."""
        height, width = pixels or self.pixels
        with drafting(Options(batch_size=batch_size), self.batch_size) as draft:
            image = draft.floats("image", [draft.batch_size, 3, height, width])
            result = self.make(narrower)(image)
            places = list(result.shape[2:]) if self.per_pixel else [1]
            label = draft.integers("label", [draft.batch_size, *places], below=result.shape[1])
            loss = F.cross_entropy(result, label, axis=1 if self.per_pixel else -1)
            return draft.finish(loss, [result])


def _block(channels: int, filters: int, kernel: int = 3, relu: bool = True) -> nn.Layer:
    layers = [nn.Conv2D(channels, filters, kernel, padding=kernel // 2), nn.BatchNorm2D(filters)]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class _Stages(nn.Layer):
    """An encoder: after each stage its image is half as high and wide. Gives back what each stage made."""

    def __init__(self, stages: Sequence[nn.Layer]) -> None:
        super().__init__()
        self.stages = nn.LayerList(stages)

    def forward(self, image: Any) -> List[Any]:
        found = []
        for stage in self.stages:
            image = F.max_pool2d(stage(image), 2, 2)
            found.append(image)
        return found


def _vgg_stages(narrower: int) -> Tuple[nn.Layer, List[int]]:
    filters = [each // narrower for each in (64, 128, 256, 512, 512)]
    stages, channels = [], 3
    for width, convolutions in zip(filters, (2, 2, 3, 3, 3)):
        layers: List[nn.Layer] = []
        for _ in range(convolutions):
            layers += [nn.Conv2D(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        stages.append(nn.Sequential(*layers))
    return _Stages(stages), filters


def _plain_stages(narrower: int) -> Tuple[nn.Layer, List[int]]:
    filters = [each // narrower for each in (64, 128, 256, 256, 256)]
    return _Stages([_block(*pair) for pair in zip([3, *filters], filters)]), filters


class UNet(nn.Layer):
    """Up from the fourth stage of VGG16, with what the three stages before it have made beside it."""

    def __init__(self, narrower: int) -> None:
        super().__init__()
        self.down, widths = _vgg_stages(narrower)
        filters = [each // narrower for each in (512, 256, 128, 64)]
        beside = [0, *widths[2::-1]]
        inputs = [widths[3], *filters[:-1]]
        self.up = nn.LayerList(
            [_block(a + b, c, relu=False) for a, b, c in zip(inputs, beside, filters)])
        self.last = nn.Conv2D(filters[-1], SEGMENTED_CLASSES, 3, padding=1)

    def forward(self, image: Any) -> Any:
        made = self.down(image)
        result = self.up[0](made[3])
        for block, other in zip(self.up[1:], made[2::-1]):
            result = block(paddle.concat([F.upsample(result, scale_factor=2), other], axis=1))
        return self.last(result)


class SegNet(nn.Layer):
    """Up from the fourth of five plain stages."""

    def __init__(self, narrower: int) -> None:
        super().__init__()
        self.down, widths = _plain_stages(narrower)
        filters = [each // narrower for each in (512, 256, 128, 64)]
        self.up = nn.LayerList(
            [_block(*pair, relu=False) for pair in zip([widths[3], *filters], filters)])
        self.last = nn.Conv2D(filters[-1], SEGMENTED_CLASSES, 3, padding=1)

    def forward(self, image: Any) -> Any:
        result = self.up[0](self.down(image)[3])
        for block in self.up[1:]:
            result = block(F.upsample(result, scale_factor=2))
        return self.last(result)


class FCN8(nn.Layer):
    """Scores of the last three of five plain stages, made larger and added."""

    def __init__(self, narrower: int) -> None:
        super().__init__()
        self.down, widths = _plain_stages(narrower)
        wide = 4096 // narrower
        self.top = nn.Sequential(nn.Conv2D(widths[4], wide, 7, padding=3), nn.ReLU(),
                                 nn.Dropout(0.5), nn.Conv2D(wide, wide, 1), nn.ReLU(),
                                 nn.Dropout(0.5))
        self.scores = nn.LayerList(
            [nn.Conv2D(each, SEGMENTED_CLASSES, 1) for each in (wide, widths[3], widths[2])])
        self.larger = nn.LayerList([
            nn.Conv2DTranspose(SEGMENTED_CLASSES, SEGMENTED_CLASSES, size, stride, padding=pad)
            for size, stride, pad in ((4, 2, 1), (4, 2, 1), (16, 8, 4))
        ])

    def forward(self, image: Any) -> Any:
        _, _, third, fourth, fifth = self.down(image)
        result = self.scores[0](self.top(fifth))
        for score, larger, other in zip(self.scores[1:], self.larger, (fourth, third)):
            # Of an odd number of rows half a row is lost on the way down.
            shape = other.shape[2:]
            result = larger(result, output_size=shape) + score(other)
        return self.larger[2](result)


def _of_paddle(name: str, narrower: int) -> nn.Layer:
    del narrower  # as they are
    network: nn.Layer = getattr(paddle.vision.models, name)(num_classes=1000)
    return network


_IMAGE, _STREET = (224, 224), (416, 608)
NETS: Mapping[str, Net] = MappingProxyType({
    "vgg16": Net(256, _IMAGE, partial(_of_paddle, "vgg16")),
    "vgg19": Net(256, _IMAGE, partial(_of_paddle, "vgg19")),
    "mobilenet": Net(512, _IMAGE, partial(_of_paddle, "mobilenet_v1")),
    "resnet50": Net(256, _IMAGE, partial(_of_paddle, "resnet50")),
    "unet": Net(32, _STREET, UNet, per_pixel=True),
    "fcn8": Net(32, _STREET, FCN8, per_pixel=True),
    "segnet": Net(32, _STREET, SegNet, per_pixel=True),
})


def _conv_chain(narrower: int) -> nn.Layer:
    width = 16 // narrower
    return nn.Sequential(nn.Conv2D(3, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2D(width, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2D(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2D(1),
                         nn.Flatten(), nn.Linear(width, 10))


class _Residual(nn.Layer):
    """Two blocks of two convolutions, each with its input added."""

    def __init__(self, narrower: int) -> None:
        super().__init__()
        width = 16 // narrower
        self.first = nn.Conv2D(3, width, 3, padding=1)
        self.blocks = nn.LayerList([
            nn.Sequential(nn.Conv2D(width, width, 3, padding=1), nn.ReLU(),
                          nn.Conv2D(width, width, 3, padding=1)) for _ in range(2)
        ])
        self.last = nn.Linear(width, 10)

    def forward(self, image: Any) -> Any:
        result = self.first(image)
        for block in self.blocks:
            result = F.relu(result + block(result))
        return self.last(F.adaptive_avg_pool2d(result, 1).flatten(1))


# Small enough for the whole integer program.
SMALL: Mapping[str, Callable[[], Case]] = MappingProxyType({
    "tanh-8": lambda: build("tanh_chain", Options(layers=8)),
    "tanh-16": lambda: build("tanh_chain", Options(layers=16)),
    "fc-6": lambda: build("fc_chain", Options(layers=6)),
    "conv-3": lambda: Net(16, (64, 64), _conv_chain).case(),
    "residual-2": lambda: Net(16, (64, 64), _Residual).case(),
    "transformer-1": lambda: build("transformer_gelu", Options(layers=1, dropout=0.0)),
})
# Benchmark programs of ours, as they are measured elsewhere.
OURS: Mapping[str, Callable[[], Case]] = MappingProxyType({
    "chain-50": lambda: build("tanh_chain", Options()),
    "transformer-dry": lambda: build("transformer_gelu", Options(dropout=0.0)),
    "transformer-512-dry": lambda: build("transformer_gelu", Options(dropout=0.0, length=512)),
    "resnet50-32": lambda: build("resnet50", Options(batch_size=32, image_size=224)),
    "resnet50-64px": lambda: build("resnet50", Options()),
    "mobilenet_v2-64px": lambda: build("mobilenet_v2", Options()),
    "bert": lambda: build("bert", Options()),
})
CASES: Mapping[str, Callable[[], Case]] = MappingProxyType({
    **SMALL,
    **OURS,
    **{
        name: net.case for name, net in NETS.items()
    },
})
