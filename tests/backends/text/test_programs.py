"""The text back end: programs that no Paddle made are planned, written, proved and applied by the same flow."""
from __future__ import annotations

from pathlib import Path
from typing import Callable, Tuple

import pytest

from tests.graphs import dims_of, generated
from transpiler.backends.base import OPTIMIZED, RELEASED
from transpiler.backends.text.programs import TextProgram, TextPrograms
from transpiler.errors import (InvalidArgumentError, InvalidProgramError, MemoryBudgetError,
                               UnknownVariableError, VerificationError)
from transpiler.flow import RELEASING, Decision, decide, prove, rewrite
from transpiler.ir import RELEASE, Graph
from transpiler.ir.text import parse, printed
from transpiler.planning import PlanOptions, plan
from transpiler.planning.elsewhere import Elsewhere
from transpiler.request import Request
from transpiler.runtime import COLLECTING as COLLECTS, RETAINING as RETAINS

RETAINING = TextPrograms(RETAINS)
COLLECTING = TextPrograms(COLLECTS)
PLANS = sorted(path.stem for path in (Path(__file__).parent / 'plans').glob('*.txt'))


def golden(name: str) -> Tuple[str, str]:
    """A program and its plan, one after the other in one file."""
    text = (Path(__file__).parent / 'plans' / f'{name}.txt').read_text()
    before, after = text.split('# becomes\n')
    return before, after


def optimized(text: str, back_end: TextPrograms = RETAINING) -> Tuple[str, Decision]:
    program = TextProgram(text)
    done = rewrite(back_end, program, Request(batch_size=4, trip_count=3), PlanOptions())
    return program.text, done


@pytest.mark.parametrize('name', PLANS)
def test_the_plan_is_the_one_that_was_written_down(name: str) -> None:
    before, after = golden(name)
    assert optimized(before)[0] == after


def test_there_are_plans_written_down() -> None:
    assert len(PLANS) > 2


@pytest.mark.parametrize('back_end', [RETAINING, COLLECTING], ids=['retaining', 'collecting'])
def test_generated_programs_are_planned_as_their_graphs_are_and_proved(
        back_end: TextPrograms) -> None:
    changed = 0
    for seed in range(40):
        graph = generated(seed)
        dims = {**dims_of(graph, 3), 'N': 4}
        expected = plan(generated(seed), back_end.runtime, dims, PlanOptions())
        text, done = optimized(printed(graph), back_end)
        assert done.report.peak_bytes_after <= done.report.peak_bytes_before
        if not done.plan.changed:
            assert text == printed(graph)
            continue
        changed += 1
        assert text.startswith(f'# {OPTIMIZED}\n')
        if not Elsewhere(expected.original, back_end.runtime, dims).grows(expected.graph):
            assert done.report.peak_bytes_after == expected.after.peak_bytes
            assert parse(text) == done.plan.graph == expected.graph
    assert changed > 10


def test_an_optimized_program_is_left_as_it_is() -> None:
    text, _ = optimized(golden('chain')[0])
    again, done = optimized(text)
    assert again == text and not done.report.changed
    assert 'earlier call' in done.report.note


def test_releasing_is_another_note() -> None:
    program = TextProgram(golden('chain')[0])
    done = rewrite(RETAINING, program, Request(batch_size=4), PlanOptions(skip_grads=False),
                   RELEASING)
    assert done.report.changed and program.text.startswith(f'# {RELEASED}\n')
    assert any(op.kind == RELEASE for op in parse(program.text).walk())


def test_names_are_fetched_skipped_and_refused() -> None:
    chain = golden('chain')[0]
    decided = decide(RETAINING, TextProgram(chain), Request(['b'], 'c', batch_size=4),
                     PlanOptions())
    b, c = (next(v for v in decided.plan.original.values if v.name == n) for n in 'bc')
    assert b.fetched and b.copied_out and c.skipped
    assert decided.plan.graph.values[c.id].storage == c.id
    for request, error in ((Request('bb'), UnknownVariableError), (Request(batch_size={'b': 3}),
                                                                   UnknownVariableError),
                           (Request(runtime='slow'), InvalidArgumentError)):
        with pytest.raises(error):
            decide(RETAINING, TextProgram(chain), request, PlanOptions())


def test_a_budget_that_nothing_keeps_to_leaves_the_text() -> None:
    program = TextProgram(golden('chain')[0])
    with pytest.raises(MemoryBudgetError):
        rewrite(RETAINING, program, Request(batch_size=4, budget=1), PlanOptions())
    assert program.text == golden('chain')[0]


def test_a_text_that_is_no_graph_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match='line 1'):
        decide(RETAINING, TextProgram('main: {'), Request(), PlanOptions())


def _edited(text: str, was: str, instead: str) -> str:
    assert was in text
    return text.replace(was, instead, 1)


@pytest.mark.parametrize('edit', [
    lambda text: _edited(text, 'storage=%a', 'storage=%x'),
    lambda text: _edited(text, 'relu(%a)', 'relu(%x)'),
    lambda text: _edited(text, 'relu(%a)', 'tanh(%a)'),
    lambda text: _edited(text, '%b: FP32[N, 64] 256*N bytes', '%b: FP32[N, 32] 128*N bytes'),
    lambda text: _edited(text, 'in_place=[[0, 0]]', 'random in_place=[[0, 0]]'),
    lambda text: _edited(text, ' fed', ''),
    lambda text: _edited(text, 'region 0 block', 'region 0 branch'),
],
                         ids=['storage', 'operand', 'kind', 'shape', 'facts', 'fed', 'region'])
def test_a_damaged_plan_is_not_proved(edit: Callable[[str], str]) -> None:
    imported = RETAINING.read(TextProgram(golden('chain')[0]), frozenset(), frozenset())
    good = golden('chain')[1]
    prove(RETAINING, imported, good)
    with pytest.raises((VerificationError, InvalidProgramError)):
        prove(RETAINING, imported, edit(good))


def test_reading_leaves_the_target_as_it_is() -> None:
    program = TextProgram(golden('loop')[0])
    imported = RETAINING.read(program, frozenset({'y'}), frozenset())
    assert isinstance(imported.graph, Graph) and program.text == golden('loop')[0]
