"""What watches for dropped plans, in conftest, sees one."""
from __future__ import annotations

from typing import Any

import pytest

from benchmarks.programs import Options, build
from transpiler import MemoryReport, flow, memory_optimize
from transpiler.errors import VerificationError


@pytest.fixture
def nothing_proved(monkeypatch: pytest.MonkeyPatch) -> None:

    def prove(*_: Any) -> None:
        raise VerificationError("one operand is another")

    monkeypatch.setattr(flow, "prove", prove)


def optimized() -> MemoryReport:
    case = build("fc_chain", Options(layers=3, width=64))
    return memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)


def test_a_plan_that_is_rejected_is_an_error_in_tests(nothing_proved: None) -> None:
    with pytest.raises(AssertionError, match="a plan would be dropped: one operand is another"):
        optimized()


@pytest.mark.drops_plans
def test_elsewhere_it_is_dropped_and_the_report_says_so(nothing_proved: None) -> None:
    report = optimized()
    assert not report.changed and "could not be proved equal: one operand" in report.note
