"""Random programs with loops and branches: whatever is done to them, they give the bytes that they gave."""
from __future__ import annotations

import pytest

from tests.backends.paddle3.generated_blocks import generated
from tests.backends.paddle3.running import assert_same, in_order, optimized, run, run_planned

# Paddle 3.3 cannot build or run four of these, untouched.
SEEDS, STEPS, PARTS = [seed for seed in range(64) if seed not in (0, 15, 47, 54)], 3, 4
MODES = ('auto', 'max', False)


@pytest.mark.parametrize('part', range(PARTS))
def test_generated_loops_and_branches_give_the_same_bytes(part: int) -> None:
    changed = varied = 0
    for at, seed in enumerate(SEEDS[part::PARTS]):
        with in_order():
            plain = run(generated(seed), STEPS)
        case = generated(seed)
        report = optimized(case, recompute=MODES[at % len(MODES)])
        seen = run_planned(case, report, STEPS)
        assert_same(plain, seen)
        assert report.changed or 'could not be proved' not in report.note, (seed, report.note)
        changed += report.changed
        varied += len(set(plain.fetched)) > 1
    count = len(SEEDS[part::PARTS])
    assert changed >= count - 1 and varied >= count - 1
