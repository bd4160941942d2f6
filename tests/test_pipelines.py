"""Programs that fleet's pipeline has cut into sections: what is given is not what runs."""
from __future__ import annotations

import pytest

from tests.harness import Case, fingerprint
from tests.scenarios.straight import inference_chain
from transpiler import memory_optimize


def test_a_program_that_a_pipeline_has_cut_is_left_as_it_is_and_the_report_says_why() -> None:
    case: Case = inference_chain()
    assert memory_optimize(inference_chain().main, fetch_list=case.fetch,
                           runtime="retaining").changed
    # As PipelineOptimizer leaves it.
    case.main._pipeline_opt = {"section_program": case.main.clone(), "num_microbatches": 4}
    before = fingerprint(case.main)
    report = memory_optimize(case.main, fetch_list=case.fetch, runtime="retaining")
    assert not report.changed and fingerprint(case.main) == before
    assert "fleet's pipeline cut it into sections" in report.note
    assert report.note in " ".join(str(report).split())


@pytest.mark.parametrize("kind, slot", [("send_v2", "inputs"), ("recv_v2", "outputs")])
def test_a_section_of_a_pipeline_is_left_as_it_is_when_it_is_given_itself(kind: str,
                                                                          slot: str) -> None:
    """It is run by the roles of its ops, forward for all small batches first: not as its ops stand."""
    case: Case = inference_chain()
    block = case.main.global_block()
    message = block.create_var(name="message", dtype="float32", shape=[4, 8])
    attributes = {"ring_id": 0, "peer": 1}
    if kind == "recv_v2":
        attributes.update(dtype=message.dtype, out_shape=[4, 8])
    block.append_op(type=kind,
                    attrs=attributes,
                    **{slot: {
                        "X" if slot == "inputs" else "Out": message
                    }})
    before = fingerprint(case.main)
    report = memory_optimize(case.main, fetch_list=case.fetch, runtime="retaining")
    assert not report.changed and fingerprint(case.main) == before
    assert "a section of a pipeline" in report.note
