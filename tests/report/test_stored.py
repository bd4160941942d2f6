"""What a report keeps of its plan, in arrays: it answers as the plan would, and keeps no object of it alive."""
from __future__ import annotations

import copy
import gc
import sys
from dataclasses import replace

from benchmarks.apart import apart
from benchmarks.planning import TINY
from benchmarks.programs import build, small_options
from transpiler import memory_optimize
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.planning import plan
from transpiler.report.stored import StoredPlan
from transpiler.runtime import COLLECTING
from tests.report.test_picture import chain


def _decided():
    return plan(chain(12).draw.args[0].plan.original, COLLECTING, {})


def test_a_stored_plan_is_the_plan():
    decided = _decided()
    again = StoredPlan(decided).plan
    assert again.graph == decided.graph and again.original == decided.original
    assert again.changed == decided.changed and again.steps == decided.steps
    for one, other in ((again.before, decided.before), (again.after, decided.after)):
        assert one is not other and one.live == other.live and one.dims == other.dims
    assert again.sure_bytes == decided.sure_bytes


def test_what_is_asked_gets_the_plan_and_what_it_is_called_with():
    stored = StoredPlan(_decided())
    ask = stored.later(lambda plan, *rest: (len(plan.original.ops), *rest), 'first')
    assert ask('second') == (len(stored.plan.original.ops), 'first', 'second')


def _report():
    case = build('transformer', TINY)
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    assert report.recompute.clones
    return report, _told(report)


def _told(report):
    name = report.peak_variables[0].name
    return str(report), report.explain(name), report.recompute.least_extra_seconds


def test_a_report_can_be_copied_and_sent_from_process_to_process():
    report, told = apart(_report)
    assert _told(report) == told == _told(copy.deepcopy(report))


def _kept_objects():
    """Graphs and timelines that are there once a program is planned, while its report is kept."""
    case = build('transformer', replace(TINY, layers=12))
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    gc.collect()
    kinds = [type(each) for each in gc.get_objects()]
    loaded = 'ortools' in sys.modules
    clones = report.recompute.clones
    least = report.recompute.least_extra_seconds
    return (kinds.count(Graph), kinds.count(Timeline), loaded, clones, least,
            report.to_dict()['recompute']['least_extra_seconds'])


def test_a_report_keeps_no_graph_and_planning_loads_no_solver_for_it():
    graphs, timelines, loaded, clones, least, told = apart(_kept_objects)
    assert clones and least == told
    assert (graphs, timelines, loaded) == (0, 0, False)


def _planning(program):
    from benchmarks.planning import plan as planned
    return planned(program, TINY, 2000)


def test_planning_of_2000_ops_takes_at_most_60_mb():
    """And less of it stays than was taken."""
    for program in ('fc_chain', 'transformer'):
        done = apart(_planning, program)
        assert done.ops >= 2000
        assert done.held_bytes < done.grown_bytes <= 60e6, program


def _freeze_counts(frozen):
    case = build('fc_chain', small_options('fc_chain'))
    if frozen:
        gc.freeze()
    before = gc.get_freeze_count()
    memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    return before, gc.get_freeze_count()


def test_what_the_user_froze_stays_so_and_nothing_else():
    assert apart(_freeze_counts, False) == (0, 0)
    before, after = apart(_freeze_counts, True)
    assert 0 < after <= before  # some of it is gone
