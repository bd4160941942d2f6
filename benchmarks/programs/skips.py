"""Networks without gradients in which values wait for readers far behind: inference programs whatever the options say."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Tuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from benchmarks.programs.case import Case, Options, drafting, pick

_Make = Callable[[Any, int, int], Any]  # of an image, channels, and blocks


def super_resolution(options: Options) -> Case:
    """EDSR (Lim et al., CVPRW 2017) without its last enlargement: 6 residual blocks of 32 channels, and one skip over all of them."""
    return _program(options, _enhanced, 32, 6)


def residual_dense(options: Options) -> Case:
    """RDN (Zhang et al., CVPR 2018): 4 dense blocks of 3 convolutions, 16 channels; all blocks are read at the end, and so is the stem."""
    return _program(options, _dense, 16, 4)


def nested_unet(options: Options) -> Case:
    """UNet++ (Zhou et al., 2018): 4 levels from 16 channels on, each reads all that lies left of it and the level below."""
    return _program(options, _nested, 16, 4)


def _program(options: Options, make: _Make, width: int, blocks: int) -> Case:
    """Batch 8, 64x64 by default."""
    size = pick(options.image_size, 64)
    with drafting(replace(options, inference=True), batch_size=8) as draft:
        image = draft.floats("image", [draft.batch_size, 3, size, size])
        result = make(image, pick(options.width, width), pick(options.layers, blocks))
        return draft.finish(None, [result])


def _enhanced(image: Any, width: int, blocks: int) -> Any:
    hidden = stem = _convolution(image, width)
    for _ in range(blocks):
        hidden = hidden + _convolution(F.relu(_convolution(hidden, width)), width)
    return _convolution(_convolution(hidden, width) + stem, 3)


def _dense(image: Any, width: int, blocks: int) -> Any:
    hidden = stem = _convolution(image, width)
    made: List[Any] = []
    for _ in range(blocks):
        inner = hidden
        for _ in range(3):
            inner = paddle.concat([inner, F.relu(_convolution(inner, width))], axis=1)
        hidden = hidden + _convolution(inner, width, kernel=1)
        made.append(hidden)
    return _convolution(_convolution(paddle.concat(made, axis=1), width, kernel=1) + stem, 3)


def _nested(image: Any, width: int, levels: int) -> Any:
    made: Dict[Tuple[int, int], Any] = {}
    for level in range(levels):
        above = image if level == 0 else F.max_pool2d(made[level - 1, 0], 2)
        made[level, 0] = _normed(above, width << level)
    for column in range(1, levels):
        for level in range(levels - column):
            below = F.interpolate(made[level + 1, column - 1], scale_factor=2)
            left = [made[level, each] for each in range(column)]
            made[level, column] = _normed(paddle.concat([*left, below], axis=1), width << level)
    return _convolution(made[0, levels - 1], 2, kernel=1)


def _normed(hidden: Any, width: int) -> Any:
    norm = nn.BatchNorm2D(width)
    norm.eval()
    return F.relu(norm(_convolution(hidden, width)))


def _convolution(hidden: Any, width: int, kernel: int = 3) -> Any:
    return nn.Conv2D(hidden.shape[1], width, kernel, padding=kernel // 2)(hidden)
