"""No plan makes workers wait for each other for ever: jobs of 2 to 64 workers, split by data, model and pipeline, whose workers plan
each by itself and with options of its own, run to their ends as a state machine of their collectives."""
from __future__ import annotations

from functools import lru_cache
from typing import Dict, List, NamedTuple, Tuple

import pytest

from tests.graphs import Draft
from tests.ranks import Meeting, crossed, stuck
from transpiler.ir import Graph
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING, RETAINING

LAYERS, BATCHES = 3, 2  # of a stage; small batches that go through the pipeline
OPTIONS = (PlanOptions(), PlanOptions(recompute=""), PlanOptions(recompute="max"),
           PlanOptions(max_overhead=1.0))
RUNTIMES = (COLLECTING, RETAINING)


class Job(NamedTuple):
    """How many ways it is split: copies for the data, parts of each layer, stages."""
    data: int
    model: int
    stages: int


JOBS = [
    Job(2, 1, 1),
    Job(1, 2, 1),
    Job(1, 1, 2),
    Job(2, 2, 2),
    Job(4, 2, 4),
    Job(8, 4, 2),
    Job(64, 1, 1)
]


@lru_cache(maxsize=None)
def program(job: Job, stage: int) -> Graph:
    """A worker's: forward and backward for each small batch, then gradients are added up, and used. Its collectives have labels."""
    draft = Draft()

    def meet(kind: str, label: str, reads: str, writes: str) -> None:
        draft.op(kind, reads, writes, collective=True).label = label

    for layer in range(LAYERS):
        draft.value(f"w{layer}", persistable=True, parameter=True)
        draft.value(f"g{layer}", rows=4096)
        draft.op("fill", "", f"g{layer}")
    for batch in range(BATCHES):
        names = [f"h{batch}_{layer}" for layer in range(LAYERS + 1)]
        back = [f"d{batch}_{layer}" for layer in range(LAYERS + 1)]
        draft.value(names[0], fed=stage == 0)
        draft.values(" ".join(
            [*names[1:], *back, *(f"p{batch}_{layer}" for layer in range(LAYERS))]))
        if stage:
            meet("receive", f"up {batch}", "", names[0])
        for layer in range(LAYERS):
            draft.op("product", f"{names[layer]} w{layer}", names[layer + 1])
            if job.model > 1:
                meet("sum", f"model {batch} {layer}", names[layer + 1], names[layer + 1])
        if stage < job.stages - 1:
            meet("send", f"up {batch}", names[-1], "")
            meet("receive", f"down {batch}", "", back[-1])
        else:
            draft.op("loss", names[-1], back[-1])
        for layer in reversed(range(LAYERS)):
            draft.op("product gradient", f"{names[layer]} w{layer} {back[layer + 1]}",
                     f"{back[layer]} p{batch}_{layer}")
            draft.op("add", f"g{layer} p{batch}_{layer}", f"g{layer}")
        if stage:
            meet("send", f"down {batch}", back[0], "")
    for layer in reversed(range(LAYERS)):
        if job.data > 1:
            meet("sum", f"data {layer}", f"g{layer}", f"g{layer}")
    for layer in range(LAYERS):
        draft.op("update", f"w{layer} g{layer}", f"w{layer}")
    return draft.graph


@lru_cache(maxsize=None)
def planned(job: Job, stage: int, way: int) -> Graph:
    """What a worker of that stage makes of it."""
    runtime, options = RUNTIMES[way % 2], OPTIONS[way % len(OPTIONS)]
    return plan(program(job, stage), runtime, {"N": 4}, options).graph


def meetings(job: Job, worker: int, graph: Graph) -> List[Meeting]:
    stage, copy, part = place(job, worker)
    found = []
    for op in (op for op in graph.walk() if op.facts.collective):
        what = op.label.split()[0]
        if what == "model":
            others = [number(job, stage, copy, each) for each in range(job.model)]
        elif what == "data":
            others = [number(job, stage, each, part) for each in range(job.data)]
        else:  # up and down the pipeline: the stage that sends up is the one that receives down
            lower = stage - ((op.kind == "receive") == (what == "up"))
            others = [number(job, each, copy, part) for each in (lower, lower + 1)]
        found.append(Meeting(min(others), frozenset(others), op.label))
    return found


def number(job: Job, stage: int, copy: int, part: int) -> int:
    return (stage * job.data + copy) * job.model + part


def place(job: Job, worker: int) -> Tuple[int, int, int]:
    rest, part = divmod(worker, job.model)
    return (*divmod(rest, job.data), part)


def run_of(job: Job) -> Dict[int, List[Meeting]]:
    """What all workers do, each as it has planned."""
    found = {}
    for worker in range(job.data * job.model * job.stages):
        graph = planned(job, place(job, worker)[0], worker % 8)
        found[worker] = meetings(job, worker, graph)
    return found


@pytest.mark.parametrize("job", JOBS)
def test_workers_that_plan_apart_meet_in_all_collectives(job: Job) -> None:
    programs = run_of(job)
    assert stuck(programs) == {} and all(programs.values())


def order_of(graph: Graph) -> List[int]:
    return [op.id for op in graph.region_ops(0)]


def test_the_plans_are_some() -> None:
    """They move ops, and not all workers of a stage do it alike."""
    orders = {
        (job, stage): {tuple(order_of(planned(job, stage, way))) for way in range(8)} for job in JOBS
        for stage in range(job.stages)
    }
    moved = [key for key, found in orders.items() if found != {tuple(order_of(program(*key)))}]
    assert len(moved) > len(JOBS) and any(len(found) > 1 for found in orders.values())


@pytest.mark.parametrize("job", JOBS[:5])
def test_the_machine_finds_workers_that_wait_for_ever(job: Job) -> None:
    programs = run_of(job)
    # Two with other partners may change places without harm.
    pairs = [(worker, at)
             for worker, mine in programs.items()
             for at in range(len(mine) - 1)
             if mine[at].members == mine[at + 1].members]
    assert pairs
    for worker, at in pairs:
        assert worker in stuck(crossed(programs, worker, at))
    shorter = {**programs, 0: programs[0][:-1]}
    assert stuck(shorter) and 0 not in stuck(shorter)
