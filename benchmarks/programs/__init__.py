"""The registry of benchmark programs; each is built from Options, for tests from small ones."""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Mapping

from benchmarks.programs import dynamic_rnn, loops, mirroring, recurrent, simple, skips, transformer, translation, vision
from benchmarks.programs.case import OPTIMIZERS, Case, Options

Builder = Callable[[Options], Case]

PROGRAMS: Mapping[str, Builder] = MappingProxyType({
    **{
        name: partial(vision.classifier, name) for name in vision.NETWORKS
    },
    "transformer": transformer.transformer,
    "transformer_gelu": transformer.transformer_gelu,
    "bert": transformer.bert,
    "lstm": recurrent.lstm,
    "gru": recurrent.gru,
    "fc_chain": simple.fc_chain,
    "rnn_cell": mirroring.rnn_cell,
    "attention_steps": mirroring.attention_steps,
    "tanh_product": mirroring.tanh_product,
    "tanh_chain": mirroring.tanh_chain,
    "nmt": mirroring.nmt,
    "wide": simple.wide,
    "super_resolution": skips.super_resolution,
    "residual_dense": skips.residual_dense,
    "nested_unet": skips.nested_unet,
    "loop": loops.loop,
    "gru_loop": loops.gru_loop,
    "attention_loop": loops.attention_loop,
    "nested_loops": loops.nested_loops,
    "loop_in_cond": loops.loop_in_cond,
    "cond_in_loop": loops.cond_in_loop,
    "weights_in_cond_in_loop": loops.weights_in_cond_in_loop,
    "dynamic_rnn": dynamic_rnn.dynamic_rnn,
    "demo": translation.demo,
})

# Every size as small as the programs allow; only the kinds of ops are those of the real ones.
SMALL = Options(batch_size=2,
                classes=4,
                layers=2,
                length=4,
                width=8,
                heads=2,
                vocabulary=16,
                trip_count=3)


class UnknownProgramError(ValueError):
    """The name is in no registry."""


def check_name(name: str) -> None:
    """One error that lists the names there are, if this is none of them."""
    if name not in PROGRAMS:
        raise UnknownProgramError("unknown program {!r}: choose from {}".format(
            name, ", ".join(PROGRAMS)))


def build(name: str, options: Options) -> Case:
    """The case of that name."""
    check_name(name)
    return PROGRAMS[name](options)


def small_options(name: str, **changes: Any) -> Options:
    """Options of a version for tests: quick to build, with tiny tensors."""
    check_name(name)
    sizes = vision.NETWORKS.get(name)
    return replace(SMALL, image_size=sizes.smallest if sizes else None, **changes)


__all__ = [
    "Builder", "Case", "OPTIMIZERS", "Options", "PROGRAMS", "UnknownProgramError", "build",
    "check_name", "small_options"
]
