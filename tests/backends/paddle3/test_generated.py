"""Random programs: whatever is done to them, they give the bytes that they gave."""
from __future__ import annotations

import pytest

from tests.backends.paddle3.generated import generated
from tests.backends.paddle3.running import assert_same, in_order, optimized, run, run_planned

SEEDS, PARTS, STEPS = 240, 8, 3
MODES = ('auto', 'max', 'cheap', False)


@pytest.mark.parametrize('part', range(PARTS))
def test_generated_programs_give_the_same_bytes(part: int) -> None:
    changed = varied = 0
    for seed in range(part, SEEDS, PARTS):
        with in_order():
            plain = run(generated(seed), STEPS)
        case = generated(seed)
        report = optimized(case, recompute=MODES[seed // PARTS % len(MODES)])
        seen = run_planned(case, report, STEPS)
        assert_same(plain, seen)
        assert report.changed or 'could not be proved' not in report.note, (seed, report.note)
        changed += report.changed
        varied += len(set(plain.fetched)) > 1
    assert changed >= SEEDS // PARTS // 2 and varied >= SEEDS // PARTS * 0.8


@pytest.mark.parametrize('seed', range(3))
def test_what_is_generated_is_the_same_each_time(seed: int) -> None:
    first, second = (generated(seed) for _ in range(2))
    kinds = [[op.name() for op in case.main.global_block().ops] for case in (first, second)]
    assert kinds[0] == kinds[1] and len(kinds[0]) > 20


def test_call_stacks_begin_where_a_script_would() -> None:
    """At the test; most end in Paddle, where the op is made."""
    stacks = [op.callstack for op in generated(5).main.global_block().ops if op.callstack]
    assert len(stacks) > 20
    for stack in stacks:
        assert 'in test_call_stacks_begin' in stack[0] and __file__ in stack[0]
    assert sum('/paddle/' in stack[-2] for stack in stacks) > len(stacks) // 2
