"""One storage for all trips: which values leave the scope of the trip, what it saves, and real programs."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Set

import pytest
from click.testing import CliRunner

pytest.importorskip('paddle')  # make test-core has none

from benchmarks.__main__ import main
from tests.graphs import Draft, dims_of, generated, traces, trained_loop
from tests.harness import BASIC_MODES, Build, Case, check
from tests.scenarios import loops
from transpiler import MemoryReport, memory_optimize
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, RegionKind
from transpiler.passes.context import PassContext
from transpiler.passes.hoist import hoist_storages
from transpiler.passes.reuse import reuse_inside
from transpiler.runtime import COLLECTING, RETAINING, Runtime
from transpiler.verify import verify

NAME = 'one storage for all trips'


def context(graph: Graph, model: Runtime = RETAINING) -> PassContext:
    return PassContext(model, dims_of(graph, 4))


def loop_in_loop() -> Draft:
    """The gradient reads `a`; `b` and `c` are dead at the end of the trip, `d` at the end of the inner one."""
    draft, body = trained_loop('a b c')
    draft.op('op', 'x h', 'a', body)
    draft.op('op', 'a', 'b', body)
    inner = draft.region(draft.op('while', 'x', '', body), RegionKind.LOOP, keeps_scopes=True)
    draft.values('d e', region=inner)
    draft.op('op', 'x', 'd', inner)
    draft.op('op', 'd', 'e', inner)
    draft.op('op', 'b', 'c', body)
    draft.op('op', 'c', 'h', body)
    back = draft.region(draft.op('while_grad', 'h', 'g'), RegionKind.LOOP_GRADIENT, forward=body)
    draft.op('grad', 'a', 'g', back)
    return draft


def hoisted(graph: Graph, model: Runtime = RETAINING) -> Set[str]:
    new = hoist_storages(graph.copy(), context(graph, model))
    return {v.name for old, v in zip(graph.values, new.values) if v.region != old.region}


def test_what_no_gradient_reads_leaves_the_loops_at_any_depth() -> None:
    assert hoisted(loop_in_loop().graph) == {'b', 'c', 'd', 'e'}


def test_nothing_leaves_where_the_runtime_frees_it() -> None:
    assert hoisted(loop_in_loop().graph, COLLECTING) == set()


def test_nothing_leaves_a_loop_that_keeps_no_scope() -> None:
    graph = loop_in_loop().graph
    for region in graph.regions:
        region.keeps_scopes = False
    assert hoisted(graph) == set()


def test_a_name_that_the_main_block_has_already_stays_where_it_is() -> None:
    draft = loop_in_loop()
    draft.value('b')
    assert hoisted(draft.graph) == {'c', 'd', 'e'}


@pytest.mark.parametrize('seed', range(60))
def test_each_hoisted_value_is_written_before_it_is_read_in_every_trip(seed: int) -> None:
    """Else a trip would read what the one before it left; and the gradient would read the last trip's."""
    graph = generated(seed)
    moved = hoist_storages(reuse_inside(graph.copy(), context(graph)), context(graph))
    names = {v.id for old, v in zip(graph.values, moved.values) if v.region != old.region}
    home = {v.id: v.region for v in graph.values}
    for trace in traces(graph):
        for at, event in enumerate(trace):
            for value in event.reads & names:
                writers = [i for i in range(at) if value in trace[i].writes]
                assert writers
                region = graph.ops[event.op].region
                assert graph.regions[region].forward != home[value]


@pytest.mark.parametrize('seed', range(60))
def test_hoisting_is_proved_equal_and_a_trip_leaves_less_behind(seed: int) -> None:
    """Of the whole it saves only if there are trips enough: the planner finds out."""
    graph = generated(seed)
    told = context(graph)
    reused = reuse_inside(graph.copy(), told)
    moved = hoist_storages(reused.copy(), told)
    before, after = (Timeline(g, told.runtime, told.dims) for g in (reused, moved))
    assert all(before.kept_per_trip(r.id) >= after.kept_per_trip(r.id) for r in graph.regions)
    verify(graph, moved, {op.id: op.id for op in graph.ops})


# ---------------------------------------------------------------------------------------------------
# Real programs


@pytest.mark.parametrize('build', [loops.attention_at_each_step, loops.nested])
def test_equal_bytes_where_the_runtime_holds_and_where_it_collects(build: Build) -> None:

    def optimise(case: Case) -> MemoryReport:
        return memory_optimize(case.main,
                               fetch_list=list(case.fetch),
                               runtime='predictor',
                               batch_size=64)

    report = check(build, optimise, modes=BASIC_MODES, steps=3)
    assert dict(report.savings)[NAME] > 0


def test_a_training_loop_with_collection_off_takes_what_was_predicted(tmp_path: Path) -> None:
    """Per trip it keeps what the gradient reads, and no more: measured, in fresh processes."""
    target = tmp_path / 'rows.json'
    arguments = ['gru_loop', '--both', '--collection', 'off', '--steps', '3', '--trip-count', '24']
    done = CliRunner().invoke(main, [*arguments, '--json', str(target)])
    assert done.exit_code == 0, done.output
    plain, optimised = json.loads(target.read_text())
    said = optimised['results'][0]['prediction']
    measured = optimised['later_peak_bytes']['maximum']
    assert optimised['same_bytes_as_reference'] == 'equal'
    assert measured <= said['peak_bytes_after'] * 1.05
    assert measured <= said['lower_bound_bytes'] * 1.5
    assert measured * 6 < plain['later_peak_bytes']['minimum']
