"""What the verifier says of real programs: see tests/verify for graphs that need no Paddle."""
from __future__ import annotations

import pytest

from benchmarks.programs import build, small_options
from tests.verify.test_verify import accepted_overlaps, check_further_merges, planned
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Graph
from transpiler.verify import verify

REAL = ('fc_chain', 'loop', 'cond_in_loop')


def real_graph(name: str) -> Graph:
    case = build(name, small_options(name, dropout=0.1))
    return import_program(case.main.desc.serialize_to_string(), case.fetch).graph


@pytest.mark.parametrize('name', REAL)
def test_every_merge_of_two_interfering_values_of_real_programs_is_rejected(name: str) -> None:
    assert accepted_overlaps(real_graph(name)) == []


@pytest.mark.parametrize('name', REAL)
def test_every_further_merge_of_a_valid_plan_of_a_real_program_is_rejected(name: str) -> None:
    check_further_merges(real_graph(name))


@pytest.mark.parametrize('name', REAL)
def test_what_the_passes_make_of_real_programs_is_accepted(name: str) -> None:
    graph = real_graph(name)
    plan = planned(graph)
    assert plan.storage_members()
    verify(graph, plan, {op.id: op.origin for op in plan.ops})
