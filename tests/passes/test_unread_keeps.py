"""What a runtime keeps for a gradient that does not read it, and what loops are linked to."""
from __future__ import annotations

import pytest

from transpiler.analysis.timeline import Timeline
from transpiler.ir import KEEP, Graph
from transpiler.ir.text import parse
from transpiler.passes.context import PassContext
from transpiler.passes.recompute import recompute_in_regions
from transpiler.passes.unread_keeps import drop_unread_keeps
from transpiler.planning import PlanOptions, plan
from transpiler.planning.sequences import OPTIMIZE, Sequences, simpler_and_simpler
from transpiler.runtime import COLLECTING
from transpiler.verify import verify

# A loop that hands on what it makes, of 4 bytes a row; its gradient reads two of the three values that are kept for it.
LOOP = '''
region 0 block {
  value 0 %x: FP32[N] 4*N bytes fed
  value 1 %go: BOOL[1] 1 bytes
  value 2 %h: FP32[N] 4*N bytes
  value 3 %g: FP32[N] 4*N bytes fetched
  op 0 ask(%x) -> %go
  op 1 while(%go, %x) -> %h, %go, %x {
    region 1 loop links arguments=[[%h, %a]] trips=T1 keeps_scopes {
      value 4 %a: FP32[N] 4*N bytes
      value 5 %p: FP32[N] 4*N bytes
      value 6 %q: FP32[N] 4*N bytes
      op 2 exp(%a) -> %p
      op 3 add(%p, %a) -> %q
      op 4 yield(%q) -> %h facts=(side_effect)
    }
  }
  op 5 ask(%h) -> %go
  op 6 while(%go, %h) -> %g, %go, %h {
    region 2 loop_gradient links arguments=[[%g, %b]] forward=1 trips=T1 {
      value 7 %b: FP32[N] 4*N bytes
      value 8 %r: FP32[N] 4*N bytes
      op 7 keep(%a, %p, %q) facts=(shape_only=[0, 1, 2]) backward
      op 8 exp_grad(%p, %b) -> %r backward
      op 9 yield(%r) -> %g facts=(side_effect) backward
    }
  }
}
'''
ROWS, TRIPS = 10, 7


def kept(graph: Graph) -> int:
    timeline = Timeline(graph, COLLECTING, {'N': ROWS, 'T1': TRIPS})
    return timeline.evaluate(timeline.kept_per_trip(1))


def test_what_is_named_for_its_shape_alone_is_kept_until_the_pass_drops_it() -> None:
    old, new = parse(LOOP), drop_unread_keeps(parse(LOOP), None)
    assert (kept(old), kept(new)) == (3 * 4 * ROWS, 4 * ROWS)
    assert not [op for op in new.walk() if op.kind == KEEP]
    verify(old, new, {op.id: op.id for op in new.walk()})


def test_what_is_made_again_is_kept_as_long_as_that_is_said() -> None:
    """A clone stands in with readers alone: the runtime keeps what it kept."""
    graph = parse(LOOP.replace('exp_grad(%p, %b)', 'exp_grad(%p, %a)'))
    named = [op.operands for op in graph.walk() if op.kind == KEEP]
    context = PassContext(COLLECTING, {'N': ROWS, 'T1': TRIPS}, recompute='max')
    made = recompute_in_regions(graph.copy(), context)
    assert [op.kind for op in made.walk() if op.origin not in (None, op.id)] == ['exp']
    assert [op.operands for op in made.walk() if op.kind == KEEP] == named
    assert kept(made) == kept(graph) == 3 * 4 * ROWS


@pytest.mark.parametrize('sequences', list(simpler_and_simpler(OPTIMIZE))[:2])
def test_plans_that_recompute_begin_without_it(sequences: Sequences) -> None:
    graph = parse(LOOP)
    done = plan(graph, COLLECTING, {'N': ROWS, 'T1': TRIPS}, PlanOptions(recompute=''), sequences)
    assert done.changed and done.steps[0].name == 'kept for nobody'
    assert done.before.peak_bytes - done.after.peak_bytes >= 2 * 4 * ROWS * (TRIPS - 1)


def test_what_a_loop_is_linked_to_is_there_once_unless_its_gradient_needs_it() -> None:
    """Copies are made for each trip; links only of what is kept."""
    copied = LOOP.replace('loop links arguments', 'loop arguments', 1)
    assert kept(drop_unread_keeps(parse(copied), None)) == 2 * 4 * ROWS
    read = LOOP.replace('exp_grad(%p, %b)', 'exp_grad(%p, %a)')
    assert kept(drop_unread_keeps(parse(read), None)) == 2 * 4 * ROWS
