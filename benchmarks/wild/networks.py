"""Networks that paddle.vision does not have, trained and served: BiSeNet V2 and MobileViT, after their papers.

BiSeNet V2 (Yu et al., 2021): two branches, one wide and shallow, one narrow and deep, that weigh each other; four more heads in
training. MobileViT (Mehta and Rastegari, 2022), its smallest variant: inverted residuals, and transformers over pixels that have
the same place in their patches. Widths and depths are those of the papers, images small.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List

import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.wild.script import Builder, Script, trained, writing

BATCH, SIDE, CLASSES = 2, 64, 10


def builders() -> Dict[str, Builder]:
    """By name: `mobilevit`, and `mobilevit served`."""
    makers: Dict[str, Callable[[bool], Script]] = {'bisenet_v2': bisenet, 'mobilevit': mobilevit}
    found: Dict[str, Builder] = {}
    for name, make in makers.items():
        found[name] = partial(make, False)
        found[f'{name} served'] = partial(make, True)
    return found


def _served_or_trained(draft: Any, outputs: List[Any], loss: Callable[[Any], Any],
                       served: bool) -> Script:
    """Of several outputs all are trained, and the first is served."""
    if served:
        test = draft.main.clone(for_test=True)
        return Script((draft.case(outputs[:1], main=test, training=False),))
    optimizer = paddle.optimizer.Momentum(0.01, weight_decay=5e-4)
    return trained(draft, sum(map(loss, outputs)), optimizer)


def _conv(inputs: int,
          outputs: int,
          size: int = 3,
          stride: int = 1,
          groups: int = 1,
          activation: Any = nn.ReLU) -> nn.Sequential:
    """A convolution that keeps the side but for its stride, normalised."""
    layers = [
        nn.Conv2D(inputs, outputs, size, stride, size // 2, groups=groups, bias_attr=False),
        nn.BatchNorm2D(outputs)
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


def _depthwise(inputs: int, times: int = 1, stride: int = 1) -> nn.Sequential:
    return _conv(inputs, times * inputs, stride=stride, groups=inputs, activation=None)


def _larger(x: Any, times: int) -> Any:
    return F.interpolate(x, scale_factor=times, mode='bilinear')


class Stem(nn.Layer):
    """A convolution and a pooling beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _conv(3, 16, stride=2)
        self.left = nn.Sequential(_conv(16, 8, 1), _conv(8, 16, stride=2))
        self.pool = nn.MaxPool2D(3, 2, 1)
        self.last = _conv(32, 16)

    def forward(self, image: Any) -> Any:
        x = self.first(image)
        return self.last(paddle.concat([self.left(x), self.pool(x)], 1))


class GatherExpand(nn.Layer):
    """An inverted residual; with a stride both ways have depthwise convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, times: int = 6) -> None:
        super().__init__()
        wide = times * inputs
        shrinks = stride > 1
        self.way = nn.Sequential(_conv(inputs, inputs), _depthwise(inputs, times, stride),
                                 *([_depthwise(wide)] if shrinks else [nn.ReLU()]),
                                 _conv(wide, outputs, 1, activation=None))
        self.other = nn.Sequential(_depthwise(inputs, 1, stride),
                                   _conv(inputs, outputs, 1,
                                         activation=None)) if shrinks else nn.Identity()

    def forward(self, x: Any) -> Any:
        return F.relu(self.way(x) + self.other(x))


class Context(nn.Layer):
    """The mean of all pixels is added to each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.of_all = nn.BatchNorm2D(width), _conv(width, width, 1)
        self.last = _conv(width, width)

    def forward(self, x: Any) -> Any:
        return self.last(x + self.of_all(self.norm(F.adaptive_avg_pool2d(x, 1))))


class Guided(nn.Layer):
    """Each branch is weighed by the other, at its own resolution and at that of the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        plain = partial(nn.Conv2D, width, width, 1, bias_attr=False)
        self.detail = nn.Sequential(_depthwise(width), plain())
        self.small_detail = nn.Sequential(_conv(width, width, stride=2, activation=None),
                                          nn.AvgPool2D(3, 2, 1))
        self.meaning = nn.Sequential(_depthwise(width), plain())
        self.large_meaning = _conv(width, width, activation=None)
        self.last = _conv(width, width, activation=None)

    def forward(self, detail: Any, meaning: Any) -> Any:
        large = self.detail(detail) * F.sigmoid(_larger(self.large_meaning(meaning), 4))
        small = self.small_detail(detail) * F.sigmoid(self.meaning(meaning))
        return self.last(large + _larger(small, 4))


class BiSeNet(nn.Layer):
    """The scores of pixels, and in training those of the heads besides."""

    def __init__(self) -> None:
        super().__init__()
        self.detail = nn.Sequential(_conv(3, 64, stride=2), _conv(64, 64), _conv(64, 64, stride=2),
                                    _conv(64, 64), _conv(64, 64), _conv(64, 128, stride=2),
                                    _conv(128, 128), _conv(128, 128))
        self.stages = nn.LayerList([
            Stem(),
            nn.Sequential(GatherExpand(16, 32, 2), GatherExpand(32, 32)),
            nn.Sequential(GatherExpand(32, 64, 2), GatherExpand(64, 64)),
            nn.Sequential(GatherExpand(64, 128, 2), *(GatherExpand(128, 128) for _ in range(3)))
        ])
        self.context, self.guided = Context(128), Guided(128)
        self.heads = nn.LayerList([
            nn.Sequential(_conv(width, inner), nn.Dropout(0.1), nn.Conv2D(inner, CLASSES, 1))
            for width, inner in ((128, 1024), (16, 128), (32, 128), (64, 128), (128, 128))
        ])

    def forward(self, image: Any) -> List[Any]:
        levels = [image]
        for stage in self.stages:
            levels.append(stage(levels[-1]))
        merged = self.guided(self.detail(image), self.context(levels[-1]))
        scales = (8, 4, 8, 16, 32)
        return [
            _larger(head(x), times)
            for head, x, times in zip(self.heads, [merged, *levels[1:]], scales)
        ]


def bisenet(served: bool) -> Script:
    """A class for each pixel."""
    with writing(BATCH) as draft:
        image = draft.floats('image', [BATCH, 3, SIDE, SIDE])
        outputs = BiSeNet()(image)
        if served:
            return _served_or_trained(draft, outputs, F.relu, served)
        label = draft.integers('label', [BATCH, SIDE, SIDE], below=CLASSES)
        loss = lambda scores: F.cross_entropy(scores, label, axis=1)
        return _served_or_trained(draft, outputs, loss, served)


class Inverted(nn.Layer):
    """An inverted residual of MobileNetV2, with SiLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, times: int = 2) -> None:
        super().__init__()
        wide = times * inputs
        self.way = nn.Sequential(_conv(inputs, wide, 1, activation=nn.Silu),
                                 _conv(wide, wide, 3, stride, wide, nn.Silu),
                                 _conv(wide, outputs, 1, activation=None))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.way(x) if self.adds else self.way(x)


class PatchTransformer(nn.Layer):
    """Attention among the pixels that have the same place in 2 by 2 patches."""

    def __init__(self, width: int, inner: int, depth: int, side: int) -> None:
        super().__init__()
        self.inner, self.half = inner, side // 2
        self.local = nn.Sequential(_conv(width, width, activation=nn.Silu),
                                   nn.Conv2D(width, inner, 1, bias_attr=False))
        layer = nn.TransformerEncoderLayer(inner,
                                           4,
                                           2 * inner,
                                           activation='silu',
                                           normalize_before=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(inner))
        self.back = _conv(inner, width, 1, activation=nn.Silu)
        self.last = _conv(2 * width, width, activation=nn.Silu)

    def forward(self, x: Any) -> Any:
        half, inner = self.half, self.inner
        pixels = self.local(x).reshape([-1, inner, half, 2, half, 2]).transpose([0, 3, 5, 2, 4, 1])
        seen = self.encoder(pixels.reshape([-1, half * half, inner]))
        seen = seen.reshape([-1, 2, 2, half, half, inner]).transpose([0, 5, 3, 1, 4, 2])
        seen = self.back(seen.reshape([-1, inner, 2 * half, 2 * half]))
        return self.last(paddle.concat([x, seen], 1))


class MobileViT(nn.Sequential):
    """A classifier."""

    def __init__(self) -> None:
        side = SIDE // 8
        super().__init__(_conv(3, 16, stride=2, activation=nn.Silu), Inverted(16, 16),
                         Inverted(16, 24, 2), Inverted(24, 24), Inverted(24,
                                                                         24), Inverted(24, 48, 2),
                         PatchTransformer(48, 64, 2, side), Inverted(48, 64, 2),
                         PatchTransformer(64, 80, 4, side // 2), Inverted(64, 80, 2),
                         PatchTransformer(80, 96, 3, side // 4),
                         _conv(80, 320, 1, activation=nn.Silu), nn.AdaptiveAvgPool2D(1),
                         nn.Flatten(), nn.Dropout(0.1), nn.Linear(320, CLASSES))


def mobilevit(served: bool) -> Script:
    """A class for each image."""
    with writing(BATCH) as draft:
        scores = MobileViT()(draft.floats('image', [BATCH, 3, SIDE, SIDE]))
        if served:
            return _served_or_trained(draft, [scores], F.relu, served)
        label = draft.integers('label', [BATCH, 1], below=CLASSES)
        return _served_or_trained(draft, [scores], lambda x: F.cross_entropy(x, label), served)
