"""memory_optimize as a pass of paddle.distributed.passes."""
from __future__ import annotations

from typing import Any, Dict, List

import pytest
from paddle.distributed.passes import PassContext, PassManager, new_pass

from tests.harness import check, fingerprint
from tests.scenarios.straight import inference_chain
from transpiler import InvalidArgumentError, UnknownVariableError, distributed, memory_optimize


def optimized(**attributes: Any) -> Any:
    return new_pass(distributed.NAME, {"runtime": "retaining", **attributes})


def test_the_pass_does_what_the_call_does_and_gives_its_report() -> None:
    called, passed = inference_chain(), inference_chain()
    expected = memory_optimize(called.main, fetch_list=called.fetch, runtime="retaining")
    context = PassManager([optimized(fetch_list=passed.fetch)]).apply([passed.main],
                                                                      [passed.startup])
    report = context.get_attr(distributed.REPORT)
    assert expected.changed and fingerprint(called.main) == fingerprint(passed.main)
    assert report.peak_bytes_after == expected.peak_bytes_after < report.peak_bytes_before


def test_programs_that_a_pass_manager_rewrites_give_equal_bytes() -> None:

    def optimise(case: Any) -> Any:
        ours = optimized(fetch_list=case.fetch)
        return PassManager([ours]).apply([case.main], [case.startup]).get_attr(distributed.REPORT)

    assert check(inference_chain, optimise, steps=3).changed


def test_several_programs_have_a_report_each() -> None:
    cases = [inference_chain() for _ in range(3)]
    ours = optimized(fetch_list=cases[0].fetch)
    context = PassContext()
    ours.apply([c.main for c in cases], [c.startup for c in cases], context)
    reports: List[Any] = context.get_attr(distributed.REPORT)
    assert len(reports) == 3 and all(each.changed for each in reports)


def test_it_runs_behind_the_passes_that_it_is_given_with() -> None:
    """Whichever stands first: what others fuse after it would not be planned for."""
    fusing = [new_pass(name) for name in ("fuse_relu_depthwise_conv", "fuse_optimizer")]
    ours = optimized()
    for passes in ([ours, *fusing], [*fusing, ours], [fusing[0], ours, fusing[1]]):
        manager = PassManager(passes)
        assert [each.name for each in manager.passes][-1] == distributed.NAME


@pytest.mark.parametrize('attributes, error, named', [
    ({
        "batchsize": 3
    }, InvalidArgumentError, "'batchsize'"),
    ({
        "fetch_list": ["nobody"]
    }, UnknownVariableError, "'nobody'"),
])
def test_bad_attributes_are_answered_and_leave_the_program(attributes: Dict[str, Any], error: type,
                                                           named: str) -> None:
    case = inference_chain()
    before = fingerprint(case.main)
    with pytest.raises(error, match=named):
        PassManager([optimized(**attributes)]).apply([case.main], [case.startup])
    assert fingerprint(case.main) == before
