"""Shapes that were inferred for an op hold for all that are alike."""
from __future__ import annotations

from typing import List

import paddle
import pytest
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from tests.harness import new_programs
from tests.scenarios.common import data, fc, train
from tests.test_scaling import branches
from transpiler.backends.paddle2 import shapes
from transpiler.backends.paddle2.importer import parse
from transpiler.backends.paddle2.likeness import UNLIKE, likenesses, without_framework


def message_of(name: str, **options: int) -> framework_pb2.ProgramDesc:
    main = build(name, small_options(name, **options)).main
    return parse(main.desc.serialize_to_string())


def of_branches(n: int) -> framework_pb2.ProgramDesc:
    """Trained branches, one inside of the other."""
    with new_programs() as (main, _):
        train(paddle.mean(branches(n, fc(data('x', -1, 8), 8))))
    return parse(main.desc.serialize_to_string())


def all_unlike(message: framework_pb2.ProgramDesc) -> List[List[int]]:
    return [[UNLIKE] * len(block.ops) for block in message.blocks]


@pytest.mark.parametrize('name', ['transformer', 'mobilenet_v2', 'lstm', 'nmt', 'loop', 'branches'])
def test_shapes_are_those_that_each_op_would_infer(name: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    message = of_branches(4) if name == 'branches' else message_of(name)
    found = shapes.infer(message)
    monkeypatch.setattr(shapes, 'likenesses', all_unlike)
    assert shapes.infer(message) == found


def test_more_layers_bring_no_new_kinds_of_ops() -> None:
    [few], [many] = (likenesses(without_framework(message_of('transformer', layers=layers)))
                     for layers in (3, 6))
    assert len(many) > 1.5 * len(few) and len(set(many)) == len(set(few))


def test_more_branches_bring_no_new_kinds_of_ops_but_what_is_of_one_alone() -> None:
    few, many = (likenesses(without_framework(of_branches(n))) for n in (4, 8))
    kinds = [{number for block in found for number in block} for found in (few, many)]
    assert sum(map(len, many)) > 1.5 * sum(map(len, few))
    # Each branch has a number of its own, by which it scales, forward and back, and with which its index is compared.
    assert len(kinds[1]) - len(kinds[0]) <= 3 * 4


@pytest.mark.parametrize('name', ['loop', 'branches'])
def test_what_runs_blocks_is_like_nothing(name: str) -> None:
    message = without_framework(of_branches(4) if name == 'branches' else message_of(name))
    found = [(op, number)
             for block, numbers in zip(message.blocks, likenesses(message))
             for op, number in zip(block.ops, numbers)]
    running = {number for op, number in found if any(a.name == 'sub_block' for a in op.attrs)}
    assert running == {UNLIKE}
    assert {number for _, number in found} > {UNLIKE}


def test_the_message_keeps_its_attributes() -> None:
    message = message_of('lstm')
    before = message.SerializeToString(deterministic=True)
    without_framework(message)
    assert message.SerializeToString(deterministic=True) == before
