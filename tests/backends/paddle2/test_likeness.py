"""Shapes that were inferred for an op hold for all that are alike."""
from __future__ import annotations

from typing import List

import pytest
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from transpiler.backends.paddle2 import shapes
from transpiler.backends.paddle2.importer import parse
from transpiler.backends.paddle2.likeness import UNLIKE, likenesses, without_framework


def message_of(name: str, **options: int) -> framework_pb2.ProgramDesc:
    main = build(name, small_options(name, **options)).main
    return parse(main.desc.serialize_to_string())


def all_unlike(message: framework_pb2.ProgramDesc) -> List[int]:
    return [UNLIKE] * len(message.blocks[0].ops)


@pytest.mark.parametrize('name', ['transformer', 'mobilenet_v2', 'lstm', 'nmt'])
def test_shapes_are_those_that_each_op_would_infer(name: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    message = message_of(name)
    found = shapes.infer(message).shapes
    monkeypatch.setattr(shapes, 'likenesses', all_unlike)
    assert shapes.infer(message).shapes == found


def test_more_layers_bring_no_new_kinds_of_ops() -> None:
    few, many = (likenesses(without_framework(message_of('transformer', layers=layers)))
                 for layers in (3, 6))
    assert len(many) > 1.5 * len(few) and len(set(many)) == len(set(few))


def test_what_runs_blocks_is_like_nothing() -> None:
    assert set(likenesses(without_framework(message_of('loop')))) == {UNLIKE}


def test_the_message_keeps_its_attributes() -> None:
    message = message_of('lstm')
    before = message.SerializeToString(deterministic=True)
    without_framework(message)
    assert message.SerializeToString(deterministic=True) == before
