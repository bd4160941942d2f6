"""Random programs with loops and branches: whatever is done to them, they give the bytes that they gave."""
from __future__ import annotations

from tests.backends.paddle3.generated_blocks import generated
from tests.backends.paddle3.running import assert_same, in_order, optimized, run

SEEDS, STEPS = (1, 5, 12, 20, 22, 25), 3
MODES = ('auto', 'max', False)


def test_generated_loops_and_branches_give_the_same_bytes() -> None:
    changed = varied = 0
    for at, seed in enumerate(SEEDS):
        with in_order():
            plain = run(generated(seed), STEPS)
        case = generated(seed)
        report = optimized(case, recompute=MODES[at % len(MODES)])
        seen = run(case, STEPS)
        assert_same(plain, seen)
        assert report.changed or 'could not be proved' not in report.note, (seed, report.note)
        changed += report.changed
        varied += len(set(plain.fetched)) > 1
    assert changed >= len(SEEDS) - 1 and varied == len(SEEDS)
