"""Programs that fleet's pipeline has cut into sections: what is given is not what runs."""
from __future__ import annotations

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
