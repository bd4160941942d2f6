"""Workers agree on what they plan for: on paper, over a store in this process. Real workers: test_fleet.py."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, List

import pytest

from transpiler import InvalidArgumentError, MemoryBudgetError, arguments, memory_optimize
from transpiler.agreement import OtherStoppedError, Rounds, agreed, stopped, telling
from transpiler.analysis.cost import CostModel
from transpiler.ir import Graph, RegionKind, Size
from transpiler.planning import PlanOptions
from transpiler.request import Request


@dataclass
class Round:
    """That of `rank`, in which the others have spoken already."""
    rank: int
    said: Dict[int, str]
    count: int = 2

    def tell(self, text: str) -> None:
        self.said[self.rank] = text

    leave = tell

    def heard(self) -> List[str]:
        return [self.said[rank] for rank in range(self.count)]


def told(request: Request, options: PlanOptions, cost: Any, runs: int = 0) -> str:
    """What one who is alone would tell."""
    alone = Round(0, {}, count=1)
    agreed(request, options, cost, alone, runs)
    return alone.said[0]


def heard_by_1(first: str, second: Request, options: PlanOptions = PlanOptions()) -> Any:
    return agreed(second, options, CostModel(flops_per_second=1e9), Round(1, {0: first}))


def test_hints_options_and_speed_are_those_of_worker_0_and_the_budget_is_the_smallest() -> None:
    fast = CostModel(flops_per_second=3e11)
    hints = {"batch_size": {"words": 7, "label": 2}, "trip_count": {1: 5, 3: 9}}
    first = told(Request(budget="2KiB", fetch_list="a", **hints),
                 PlanOptions(1, False, "max", 0.5, True, segments=40), fast)
    request, options = heard_by_1(first, Request("b", "c", 64, 3, "retaining", 1500))
    assert request == Request("b",
                              "c",
                              runtime="retaining",
                              budget=1500,
                              cost=fast,
                              workers=2,
                              **hints)
    assert options == PlanOptions(1, False, "max", 0.5, True, segments=40)
    request, _ = heard_by_1(first, Request(budget=3000))
    assert request.budget == 2048
    assert heard_by_1(told(Request(), PlanOptions(), None), Request(budget=9))[0].budget == 9
    assert heard_by_1(told(Request(), PlanOptions(), None), Request())[0].budget is None


def test_what_is_told_is_plain_text_whatever_names_have() -> None:
    said = told(Request(batch_size={"wörter\n": 3}), PlanOptions(), None)
    assert said.isascii() and "\n" not in said
    assert heard_by_1(said, Request())[0].batch_size == {"wörter\n": 3}
    assert json.loads(said)["cost"] == asdict(CostModel())


def test_who_stops_is_named_with_the_reason() -> None:
    other = Round(0, {})
    stopped(InvalidArgumentError("level is 0 or 1, not 7"), other)
    with pytest.raises(InvalidArgumentError, match="worker 0 of 2 stopped: level is 0 or 1"):
        heard_by_1(other.said[0], Request())


def test_none_goes_on_where_one_has_found_no_plan() -> None:
    said: Dict[int, str] = {1: "{}"}
    with pytest.raises(MemoryBudgetError):
        with telling(Round(0, said), stays=True):
            raise MemoryBudgetError("no plan stays below 3 bytes", 9)
    with pytest.raises(OtherStoppedError, match="worker 0 of 2 stopped: no plan stays below 3"):
        rounds = Rounds(lambda: Round(1, said))
        with telling(rounds):
            rounds.any_of(False)
    assert json.loads(said[1]) == {"so": False}  # who stopped was the other


@pytest.mark.parametrize(
    "wrong", ("print_log", "heap", "level", "segments", "progress", "verify_runs", "verify_feed"))
def test_others_are_told_of_any_argument_that_is_wrong(wrong: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they would wait for this one."""
    other = Round(0, {})
    monkeypatch.setattr("transpiler.api.workers", lambda: other)
    with pytest.raises(InvalidArgumentError, match=wrong):
        memory_optimize(None, shared=True, **{wrong: "nonsense"})
    with pytest.raises(InvalidArgumentError, match=f"worker 0 of 2 stopped: .*{wrong}"):
        heard_by_1(other.said[0], Request())


def test_each_round_is_another_and_whoever_says_so_is_heard_by_all() -> None:
    begun: List[Round] = []

    def begin() -> Round:
        others_say = ("false", "true", "false")[len(begun)]
        begun.append(Round(0, {1: '{"so": %s}' % others_say}))
        return begun[-1]

    rounds = Rounds(begin)
    assert [rounds.any_of(True), rounds.any_of(False)] == [True, True]
    assert not rounds.any_of(False, is_last=True) and len(begun) == 3
    with pytest.raises(ValueError), telling(rounds, stays=True):
        raise ValueError("nobody would be in a round more")
    assert len(begun) == 3
    assert json.loads(begun[-1].said[0]) == {"failed": "nobody would be in a round more"}


def test_all_run_equally_often_or_nobody_runs() -> None:
    """One would wait for another in a collective."""
    first = told(Request(), PlanOptions(), None, runs=2)
    with pytest.raises(OtherStoppedError, match="verify_runs is 2 on worker 0, 0 on worker 1"):
        heard_by_1(first, Request())


def test_hints_for_what_another_program_has_are_left_out() -> None:
    """A worker of a pipeline has inputs that the next has not."""
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    graph.new_value("x", 0, size=Size.dim("N(x)") * 4 + Size.dim("T1"), fed=True)
    hints = Request(batch_size={"x": 3, "y": 5}, trip_count={1: 6, 2: 7})
    dims, assumed = replace(hints, workers=2).sizes(graph, frozenset(["x"]))
    assert dims == {"N(x)": 3, "T1": 6} and not assumed
    with pytest.raises(ValueError, match="'y'"):
        hints.sizes(graph, frozenset(["x"]))


def test_one_process_alone_is_told_how_to_start_several(monkeypatch: pytest.MonkeyPatch) -> None:
    paddle = pytest.importorskip("paddle")
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    with pytest.raises(InvalidArgumentError, match="paddle.distributed.launch"):
        memory_optimize(paddle.static.Program(), shared=True)


def test_trips_are_checked_before_others_wait_for_them() -> None:
    for trips in (0, {1: 0}, "three"):
        with pytest.raises(InvalidArgumentError, match="trip_count"):
            Request(trip_count=trips).checked()
    assert arguments.loops_of(["N", "T3", "T12"]) == {3, 12}
