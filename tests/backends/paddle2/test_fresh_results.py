"""Results that kernels work on as they find them: found by running kernels, kept out of memory that held anything else."""

from __future__ import annotations

import json

import numpy as np
import paddle
from benchmarks.kernels.fresh import find
from benchmarks.kernels.recipes import all_recipes
from tests.harness import fingerprint, new_programs
from tests.scenarios.common import data
from transpiler.analysis.interference import Interference
from transpiler.backends.paddle2.importer import import_program
from transpiler.backends.paddle2.registry import FRESH


def test_the_table_says_what_the_kernels_do() -> None:
    kept = json.loads(FRESH.read_text(encoding='utf-8'))
    found = find({
        name: all_recipes()[f'shapes.{name}']
        for name in ('index_put', 'index_put_add', 'scatter', 'put_along_axis', 'einsum')
    })
    assert found == {'index_put': kept['index_put']} == {'index_put': ['out']}


def test_what_such_a_kernel_makes_gets_a_name_of_its_own() -> None:
    with new_programs() as (main, _):
        place = [paddle.to_tensor(np.array([1, 3], 'int64'))] * 2
        paddle.index_put(data('x', 16, 32), place, paddle.to_tensor(np.array([7., 9.], 'float32')))
    graph = import_program(fingerprint(main)).graph
    made, = (op for op in graph.ops if op.kind == 'index_put')
    assert made.facts.fresh == {0}
    rules = Interference(graph)
    assert 'works on what it finds' in rules.alone[made.results[0]]
    assert made.results[0] not in rules.unreleased()
