"""Straight-line programs whose best peak is known by hand."""
from __future__ import annotations

from dataclasses import replace

import paddle
import paddle.nn.functional as F
from paddle import static

from benchmarks.programs.case import Case, Options, drafting, pick


def fc_chain(options: Options) -> Case:
    """8 fully connected layers of 1024 at batch 256: parameter gradients rule the peak."""
    width = pick(options.width, 1024)
    with drafting(options, batch_size=256) as draft:
        hidden = draft.floats("x", [draft.batch_size, width])
        for _ in range(pick(options.layers, 8)):
            hidden = static.nn.fc(hidden, width, activation="relu")
            if options.dropout:
                hidden = F.dropout(hidden, options.dropout, training=not options.inference)
        return draft.finish(paddle.mean(hidden), [hidden])


def wide(options: Options) -> Case:
    """`layers` (16) branches of a large intermediate and a small result, built level by level.

    The given order holds all large intermediates at once; one branch after the other holds one. It
    is an inference program: nothing is trained whatever the options say.
    """
    branches, width = pick(options.layers, 16), pick(options.width, 16384)
    with drafting(_inference(options), batch_size=64) as draft:
        x = draft.floats("x", [draft.batch_size, 64])
        large = [static.nn.fc(x, width) for _ in range(branches)]
        small = [static.nn.fc(each, 8) for each in large]
        return draft.finish(None, [paddle.concat(small, axis=-1)])


def _inference(options: Options) -> Options:
    return replace(options, inference=True)
