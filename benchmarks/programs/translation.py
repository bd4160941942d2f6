"""The machine translation demo as a benchmark: its programs on random sentences."""
from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import static

from benchmarks.programs.case import Case, Feed, Options, fetchable, make_optimizer, pick

# Tokens below are the demo's padding and sentence marks.
FIRST_WORD = 4


def _config(options: Options) -> Any:
    from demos.machine_translation.config import ModelConfig
    default = ModelConfig()
    width, vocabulary = options.width, options.vocabulary
    return ModelConfig(source_vocabulary=pick(vocabulary, default.source_vocabulary),
                       target_vocabulary=pick(vocabulary, default.target_vocabulary),
                       source_length=pick(options.length, default.source_length),
                       target_length=pick(options.trip_count, default.target_length),
                       embedding=pick(width, default.embedding),
                       hidden=pick(width, default.hidden),
                       attention=pick(width, default.attention),
                       dropout=pick(options.dropout, default.dropout),
                       seed=options.seed)


def _lengths(random: np.random.RandomState, batch: int, longest: int) -> np.ndarray:
    """Sentence lengths; one sentence is as long as it may be, so that the trips are known."""
    lengths = random.randint(max(1, longest // 2), longest + 1, [batch]).astype("int64")
    lengths[0] = longest
    return lengths


def _sentences(config: Any, batch: int, random: np.random.RandomState) -> Feed:
    source_shape, target_shape = [batch, config.source_length], [batch, config.target_length]
    target = random.randint(FIRST_WORD, config.target_vocabulary, target_shape).astype("int64")
    return {
        "source":
            random.randint(FIRST_WORD, config.source_vocabulary, source_shape).astype("int64"),
        "source_length":
            _lengths(random, batch, config.source_length),
        "target_in":
            target,
        "target_out":
            np.roll(target, -1, axis=1),
        "target_length":
            _lengths(random, batch, config.target_length),
    }


def demo(options: Options) -> Case:
    """demos.machine_translation at its own sizes: batch 32, trips up to the target length.

    `length` is the source length, `trip_count` the target length, `width` every hidden size. The
    batch is always symbolic.
    """
    from demos.machine_translation.model import build_training_program, build_translation_program
    paddle.enable_static()
    paddle.seed(options.seed)
    config, batch = _config(options), pick(options.batch_size, 32)
    training = build_training_program(config, optimize=False)
    main, names, fetched = training.main, training.feed_names, training.loss
    if options.inference:
        main, names, fetched = build_translation_program(config)
    else:
        with static.program_guard(main, training.startup), paddle.utils.unique_name.guard("bench_"):
            make_optimizer(options.optimizer).minimize(fetched)

    def feed(step: int) -> Feed:
        arrays = _sentences(config, batch, np.random.RandomState(1000 * options.seed + step))
        return {name: arrays[name] for name in names}

    return Case(main=main,
                startup=training.startup,
                feed=feed,
                fetch=(fetchable(fetched),),
                batch_size=batch,
                trip_count=config.target_length,
                training=not options.inference)
