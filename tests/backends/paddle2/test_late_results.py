"""Results that kernels make elsewhere, or ask memory for late: found by running kernels."""

from __future__ import annotations

import json
from typing import Any, Callable

import paddle
from benchmarks.kernels.late import find
from benchmarks.kernels.recipes import all_recipes
from tests.harness import fingerprint, new_programs
from tests.scenarios.common import data
from transpiler.backends.paddle2.importer import import_program
from transpiler.backends.paddle2.registry import LATE
from transpiler.ir import Op


def test_the_table_says_what_the_kernels_do() -> None:
    kept = json.loads(LATE.read_text(encoding='utf-8'))
    found = find({
        name: all_recipes()[name]
        for name in ('images.deform_conv', 'shapes.matmul_broadcast', 'shapes.matmul_left',
                     'shapes.einsum', 'shapes.einsum_heads', 'shapes.einsum_one',
                     'images.conv2d_channels_last')
    })
    assert {'deformable_conv_v1', 'matmul_v2_grad', 'einsum', 'einsum_grad',
            'conv2d_grad'} == {*found}
    assert found == {kind: kept[kind] for kind in found}


def _only(kind: str, build: Callable[[], Any]) -> Op:
    with new_programs() as (main, _):
        build()
    made, = (op for op in import_program(fingerprint(main)).graph.walk() if op.kind == kind)
    return made


def test_an_op_has_what_the_table_says() -> None:
    product = _only('einsum',
                    lambda: paddle.einsum('ij,jk->ik', data('x', 8, 16), data('y', 16, 4)))
    assert 0 in product.facts.elsewhere and not product.facts.late
    solved = _only('cholesky_solve',
                   lambda: paddle.linalg.cholesky_solve(data('x', 4, 2), data('y', 4, 4)))
    assert solved.facts.late == {0} and not solved.facts.elsewhere
