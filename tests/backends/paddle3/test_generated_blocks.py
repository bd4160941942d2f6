"""Random programs with loops and branches: whatever is done to them, they give the bytes that they gave."""
from __future__ import annotations

import pytest

from tests.backends.paddle3.generated_blocks import generated
from tests.backends.paddle3.running import assert_same, in_order, optimized, run, run_planned

# Paddle 3.3 cannot build or run these, untouched; and it may crash at the next that it builds.
_NOT_RUN = (2, 8, 10, 20, 22, 23, 46, 52, 54, 59, 62)
SEEDS, STEPS, PARTS = [seed for seed in range(72) if seed not in _NOT_RUN], 3, 4
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
