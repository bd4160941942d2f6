"""Programs that fleet's pipeline has cut into sections, which are rewritten: what is given is not what runs."""
from __future__ import annotations

from collections import Counter
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Dict, Iterable, List, Mapping

import pytest
from paddle.base.proto import framework_pb2

from benchmarks.apart import apart
from tests.harness import Case, fingerprint
from tests.pipelines import BATCHES, ONCE, ROLE, SCHEDULES, STAGES, Section, run, section
from tests.scenarios.straight import chain_without_extra_fetches, inference_chain
from transpiler import InvalidArgumentError, memory_optimize

STEPS = 3


@lru_cache(maxsize=None)
def sections(mode: str) -> List[Section]:
    return [apart(section, stage, mode) for stage in range(STAGES)]


@pytest.mark.parametrize("mode", SCHEDULES)
def test_sections_that_are_rewritten_train_to_the_same_bytes_in_less_memory(mode: str) -> None:
    found = sections(mode)
    assert all(each.changed and each.peaks[1] < each.peaks[0] for each in found)
    startups, loss = [each.startup for each in found], found[-1].loss
    untouched = apart(run, [each.before for each in found], startups, loss, mode, STEPS)
    optimized = apart(run, [each.after for each in found], startups, loss, mode, STEPS)
    assert optimized.values == untouched.values and len(set(untouched.values)) > STEPS * BATCHES
    for ran, predicted in zip((untouched, optimized), map(sum,
                                                          zip(*(each.peaks for each in found)))):
        assert 0.95 < ran.peak / predicted < 1.02  # not all sections are at their peaks at one time


@pytest.mark.parametrize("mode", SCHEDULES)
def test_what_runs_again_is_of_the_backward_part_and_messages_keep_their_order(mode: str) -> None:
    for each in sections(mode):
        before, after = (framework_pb2.ProgramDesc.FromString(side).blocks[0].ops
                         for side in (each.before, each.after))
        more = Counter(map(part_of, after)) - Counter(map(part_of, before))
        assert set(more) == {1} and not Counter(map(part_of, before)) - Counter(map(part_of, after))
        sent = [messages(ops) for ops in (before, after)]
        assert sent[0] == sent[1] and len(sent[0]) == 2
        parts = [part_of(op) for op in after if part_of(op) != ONCE]
        assert parts == sorted(parts) and set(parts) == {0, 1, 2}


def part_of(op: framework_pb2.OpDesc) -> int:
    role, = (a.i for a in op.attrs if a.name == ROLE)
    return role % 256


def messages(ops: Iterable[framework_pb2.OpDesc]) -> List[str]:
    return [op.type for op in ops if op.type in ("send_v2", "recv_v2")]


@pytest.mark.parametrize("mode, under_way", [("F-then-B", [BATCHES] * STAGES),
                                             ("1F1B", [STAGES - stage for stage in range(STAGES)])])
def test_the_report_says_how_many_small_batches_there_are_at_a_time(mode: str,
                                                                    under_way: List[int]) -> None:
    assert [each.under_way for each in sections(mode)] == under_way
    for each in sections(mode):
        assert f"Of up to {each.under_way} there is something at a time" in each.said


def trained(roles: Mapping[int, int] = MappingProxyType({})) -> Case:
    """A section of one stage; `roles` of some ops by their position, in the place of their own."""
    case = chain_without_extra_fetches()
    for at, role in roles.items():
        case.main.global_block().ops[at]._set_attr(ROLE, role)
    case.main._pipeline_opt = {"section_program": case.main.clone(), "num_microbatches": 4}
    return case


@pytest.mark.parametrize("roles", [{0: 1}, {0: 2}, {0: 4}])
def test_a_section_of_other_parts_is_left_as_it_is_and_the_report_says_why(
        roles: Mapping[int, int]) -> None:
    case = trained(roles)
    section_program = case.main._pipeline_opt["section_program"]
    before = fingerprint(section_program)
    report = memory_optimize(case.main, fetch_list=case.fetch)
    assert not report.changed and fingerprint(section_program) == before
    assert "a section of a pipeline, whose operators fleet runs by their roles" in report.note
    assert report.note in " ".join(str(report).split())


def test_a_section_is_rewritten_once_and_not_the_program_that_it_was_cut_from() -> None:
    case = trained()
    whole = fingerprint(case.main)
    section_program = case.main._pipeline_opt["section_program"]
    assert memory_optimize(case.main, fetch_list=case.fetch, batch_size=1024,
                           recompute="max").changed
    after = fingerprint(section_program)
    again = memory_optimize(case.main, fetch_list=case.fetch, batch_size=1024, recompute="max")
    assert not again.changed and "earlier call" in again.note
    assert fingerprint(section_program) == after and fingerprint(case.main) == whole


@pytest.mark.parametrize("more, words", [({
    "budget": 1 << 30
}, "no budget can be promised"),
                                         ({
                                             "verify_runs": 1,
                                             "verify_feed": {}
                                         }, "the sections of a pipeline run together")])
def test_what_a_section_cannot_have_is_refused(more: Dict[str, Any], words: str) -> None:
    case = trained()
    before = fingerprint(case.main._pipeline_opt["section_program"])
    with pytest.raises(InvalidArgumentError, match=words):
        memory_optimize(case.main, fetch_list=case.fetch, batch_size=1024, **more)
    assert fingerprint(case.main._pipeline_opt["section_program"]) == before


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
