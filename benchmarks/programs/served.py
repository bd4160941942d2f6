"""Networks that are served at another image size with every request: a detector and a recogniser of text."""
from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn, static

_CHANNELS = 128  # of the detector's pyramid
_HEIGHT, _CHARACTERS, _HIDDEN = 32, 6625, 256  # of a line of text, what may stand there, and what reads it


class _Pyramid(nn.Layer):
    """ResNet-18, its four stages added up from the coarsest, and a map of the text at a fourth of the size, then whole."""

    def __init__(self) -> None:
        super().__init__()
        whole = paddle.vision.models.resnet18(num_classes=0, with_pool=False)
        self.stem = nn.Sequential(whole.conv1, whole.bn1, whole.relu, whole.maxpool)
        self.stages = nn.LayerList([whole.layer1, whole.layer2, whole.layer3, whole.layer4])
        self.lateral = nn.LayerList([nn.Conv2D(c, _CHANNELS, 1) for c in (64, 128, 256, 512)])
        self.smooth = nn.LayerList([nn.Conv2D(_CHANNELS, 32, 3, padding=1) for _ in range(4)])
        self.head = nn.Sequential(nn.Conv2D(128, 32, 3, padding=1, bias_attr=False),
                                  nn.BatchNorm2D(32), nn.ReLU(),
                                  nn.Conv2DTranspose(32, 32, 2, stride=2, bias_attr=False),
                                  nn.BatchNorm2D(32), nn.ReLU(),
                                  nn.Conv2DTranspose(32, 1, 2, stride=2), nn.Sigmoid())

    def forward(self, image: Any) -> Any:
        stages, top = [self.stem(image)], None
        for stage in self.stages:
            stages.append(stage(stages[-1]))
        maps: List[Any] = []
        for level in reversed(range(4)):
            lateral = self.lateral[level](stages[level + 1])
            top = lateral if top is None else lateral + F.interpolate(top, scale_factor=2)
            smooth = self.smooth[level](top)
            maps.append(F.interpolate(smooth, scale_factor=2**level) if level else smooth)
        return self.head(paddle.concat(maps, axis=1))


class _Reader(nn.Layer):
    """Convolutions down to a height of one, two recurrent layers along the width, a character for each column."""

    def __init__(self) -> None:
        super().__init__()
        layers: List[Any] = []
        channels = 3
        for wide, pool in ((64, (2, 2)), (128, (2, 2)), (256, None), (256, (2, 1)), (512, None),
                           (512, (2, 1)), (512, (2, 1))):
            layers += [
                nn.Conv2D(channels, wide, 3, padding=1, bias_attr=False),
                nn.BatchNorm2D(wide),
                nn.ReLU()
            ]
            channels = wide
            if pool is not None:
                layers.append(nn.MaxPool2D(pool, stride=pool))
        self.convolutions = nn.Sequential(*layers)
        self.recurrent = nn.LSTM(channels, _HIDDEN, num_layers=2, direction="bidirect")
        self.classify = nn.Linear(2 * _HIDDEN, _CHARACTERS)

    def forward(self, image: Any) -> Any:
        columns = paddle.transpose(paddle.squeeze(self.convolutions(image), 2), [0, 2, 1])
        return F.softmax(self.classify(self.recurrent(columns)[0]))


NETWORKS = {"detector": (_Pyramid, [-1, 3, -1, -1]), "recogniser": (_Reader, [-1, 3, _HEIGHT, -1])}


def save(name: str, path: str) -> None:
    """The network, with the same weights each time, as `save_inference_model` writes it."""
    paddle.enable_static()
    make, shape = NETWORKS[name]
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 1
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        image = static.data("image", shape)
        network = make()
        network.eval()
        result = network(image)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(startup)
    static.save_inference_model(path, [image], [result], executor, program=main)


def shapes(name: str, count: int) -> List[Sequence[int]]:
    """Of inputs, as requests have them: a detector's images of 320 to 960 pixels a side, a recogniser's of 160 to 960 in width."""
    if name == "recogniser":
        widths = [8 * round(width / 8) for width in np.linspace(160, 960, count)]
        return [(1, 3, _HEIGHT, width) for width in widths]
    random = np.random.RandomState(0)
    sides = [(320, 320), (960, 960), *(32 * random.randint(10, 31, 2) for _ in range(count - 2))]
    return [(1, 3, int(height), int(width)) for height, width in sides]
