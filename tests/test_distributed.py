"""memory_optimize as a pass of paddle.distributed.passes."""
from __future__ import annotations

from typing import Any, Dict, List

import pytest
import paddle
from paddle.distributed.passes import PassContext, PassManager, new_pass

from tests.harness import Case, check, fingerprint, new_programs
from tests.scenarios.common import data, fc, floats, random_feed, square_loss
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


BACKWARD = 1  # an attribute of ops: their role


def data_parallel() -> Case:
    """Each gradient is summed over the workers, not fused."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, 64)
        for _ in range(4):
            hidden = fc(hidden, 64, "tanh")
        loss = square_loss(hidden)
        optimizer = paddle.optimizer.Momentum(0.05, 0.9)
        pairs = optimizer.backward(loss)
        for _, gradient in pairs:
            main.global_block().append_op(type="c_allreduce_sum",
                                          inputs={"X": gradient},
                                          outputs={"Out": gradient},
                                          attrs={
                                              "ring_id": 0,
                                              "use_calc_stream": True,
                                              "op_role": BACKWARD
                                          })
        optimizer.apply_gradients(pairs)
    return Case(main, startup, random_feed(x=floats(4, 64)), [loss.name])


def test_passes_of_paddle_still_take_a_program_that_was_rewritten() -> None:
    case = data_parallel()
    assert memory_optimize(case.main, fetch_list=case.fetch, runtime="retaining").changed
    case.main.desc.get_op_deps()  # raises for two ops of one id
    new_pass("fuse_all_reduce", {"max_memory_size": 1 << 20}).apply([case.main], [case.startup])
    kinds = [op.type for op in case.main.global_block().ops]
    assert "coalesce_tensor" in kinds and kinds.count("c_allreduce_sum") < 8
