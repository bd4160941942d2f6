"""Benchmark programs as saved inference models: what `save_inference_model` writes, and inputs for it."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Iterable, List, Mapping

import numpy as np
import paddle
from paddle import static

from benchmarks.programs import Options, build
from transpiler.backends.scopes import passing_scope

# Sizes that serving is measured at: images as the networks were published for.
SERVED: Mapping[str, Options] = MappingProxyType({
    "resnet18": Options(batch_size=8, image_size=224),
    "resnet50": Options(batch_size=8, image_size=224),
    "mobilenet_v2": Options(batch_size=8, image_size=224),
    "densenet121": Options(batch_size=8, image_size=224),
    "inception_v3": Options(batch_size=8, image_size=299),
    "transformer": Options(batch_size=8),
    "lstm": Options(batch_size=32, length=50),
})


def save(folder: Path, name: str, options: Options) -> Path:
    """The inference version of a program, and its inputs as .npz; returns the path without suffix."""
    paddle.enable_static()
    case = build(name, replace(options, inference=True))
    executor = static.Executor(paddle.CPUPlace())
    feed = case.feed(0)
    inputs, outputs = _values(case.main, feed), _values(case.main, case.fetch)
    with passing_scope() as scope, static.scope_guard(scope):
        executor.run(case.startup)
        static.save_inference_model(str(folder / name),
                                    inputs,
                                    outputs,
                                    executor,
                                    program=case.main)
    np.savez(str(folder / name) + ".npz", **feed)
    return folder / name


def _values(main: Any, named: Iterable[Any]) -> List[Any]:
    """What is fed or fetched: on Paddle 3 fed values alone have names, which their ops know."""
    block = main.global_block()
    if hasattr(main, "desc"):
        return [block.var(n) for n in named]
    fed = {op.attrs()["name"]: op.result(0) for op in block.ops if op.name() == "pd_op.data"}
    return [fed[n] if isinstance(n, str) else n for n in named]
