"""Branches of which one runs: what is there with the others is not counted, worked out by hand."""
from __future__ import annotations

from typing import Dict, List

import pytest

from tests.graphs import Draft
from transpiler.analysis.elsewhere import other_ways, without
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RegionKind, Size
from transpiler.runtime import COLLECTING, IDEAL, RETAINING, Runtime

UNIT = 4096  # bytes of the 1024 float32 rows that a draft's values have by default


def branch(draft: Draft,
           name: str,
           kept: int,
           around: int,
           exclusive: bool,
           truth: bool,
           condition: str = 'c') -> int:
    """A branch that makes `name`, of `around`, and keeps so many values of its own for its gradient."""
    op = draft.op('conditional_block', condition, name, around)
    when = frozenset({(draft.id(condition, around), truth)}) if exclusive else frozenset()
    region = draft.region(op, RegionKind.BRANCH, keeps_scopes=True, when=when)
    for i in range(kept):
        draft.value(f'{name}{i}', region=region)
        draft.op('make', '', f'{name}{i}', region)
    draft.op('assign', f'{name}{kept - 1}', name, region)
    return region


def gradient(draft: Draft, name: str, kept: int, forward: int, around: int) -> None:
    op = draft.op('conditional_block_grad', 'g', '', around)
    when = draft.graph.regions[forward].when
    region = draft.region(op, RegionKind.BRANCH_GRADIENT, forward=forward, when=when)
    draft.value('d', region=region)
    draft.op('grad', ' '.join([name, *(f'{name}{i}' for i in range(kept))]), 'd', region)


def branches(exclusive: bool) -> Draft:
    """Of `a`, which keeps three values, and `b`, which keeps one, each makes a result; then come their gradients."""
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.values('a b g')
    first = branch(draft, 'a', 3, 0, exclusive, True)
    second = branch(draft, 'b', 1, 0, exclusive, False)
    draft.op('fill', '', 'g')
    gradient(draft, 'b', 1, second, 0)
    gradient(draft, 'a', 3, first, 0)
    draft.op('end', '', '')
    return draft


def units(timeline: Timeline) -> Dict[str, List[int]]:
    """Live units by kind of op, without the condition's four bytes."""
    found: Dict[str, List[int]] = {}
    for point in timeline.points:
        op = timeline.graph.ops[point.op]
        assert point.bytes % UNIT == 4
        found.setdefault(op.kind, []).append(point.bytes // UNIT)
    return found


def test_of_branches_that_exclude_each_other_the_larger_counts() -> None:
    alone = units(Timeline(branches(exclusive=True).graph, COLLECTING, {}))
    assert alone['fill'] == [5]  # a, its three and g
    assert alone['conditional_block_grad'] == [5, 5]
    assert alone['grad'] == [4, 6]  # b, its one, g and d; a, its three, g and d
    both = units(Timeline(branches(exclusive=False).graph, COLLECTING, {}))
    assert both['fill'] == [7]
    assert both['grad'] == [8, 6]


def test_what_runs_is_not_above_what_the_other_would_have_left() -> None:
    found = units(Timeline(branches(exclusive=True).graph, COLLECTING, {}))
    assert found['make'] == [1, 2, 3, 1]  # each begins with nothing of the other
    assert found['assign'] == [4, 2]  # which makes the result


@pytest.mark.parametrize('gives_away', [False, True])
def test_what_branches_in_branches_make_is_there_when_it_is_made(gives_away: bool) -> None:
    """Once, where the runtime takes over the buffer of what the innermost has made of its own."""
    draft = Draft()
    draft.value('out')
    around = 0
    for depth in range(3):
        op = draft.op('conditional_block', '', 'out', around)
        around = draft.region(op, RegionKind.BRANCH, keeps_scopes=True)
        draft.value(f'own{depth}', region=around)
        draft.op('make', '', f'own{depth}', around)
    draft.op('assign', 'own2', 'out', around, in_place=((0, 0),) if gives_away else ())
    draft.op('end', 'out', '')
    timeline = Timeline(draft.graph, COLLECTING, {})
    points = {draft.graph.ops[p.op].kind: p.bytes // UNIT for p in timeline.points}
    assert points['make'] == 1 and points['assign'] == (1 if gives_away else 2)
    for point in timeline.points:
        assert point.bytes == sum(timeline.evaluate(r.size) for r in timeline.residents(point.op))


def test_what_a_runtime_retains_from_run_to_run_is_no_alternative() -> None:
    found = [Timeline(branches(each).graph, RETAINING, {}).peak_bytes for each in (True, False)]
    assert found[0] == found[1]


def test_what_nothing_frees_before_the_end_of_a_run_is_no_alternative() -> None:
    """The next run, which takes the other branch, finds it."""
    draft = branches(exclusive=True)
    draft.op('last', 'a b', '')
    assert units(Timeline(draft.graph, COLLECTING, {}))['last'] == [2]


@pytest.mark.parametrize('trips', [1, 3, 24])
def test_a_trip_keeps_the_larger_branch(trips: int) -> None:
    draft = Draft()
    draft.value('g')
    op = draft.op('while', '', '')
    body = draft.region(op, RegionKind.LOOP, trips=Size.dim('T'), keeps_scopes=True)
    draft.value('c', 1, region=body)
    draft.values('a b', region=body)
    draft.op('test', '', 'c', body)
    first = branch(draft, 'a', 3, body, True, True)
    second = branch(draft, 'b', 1, body, True, False)
    draft.op('fill', '', 'g')
    back_op = draft.op('while_grad', 'g', 'g')
    back = draft.region(back_op, RegionKind.LOOP_GRADIENT, forward=body, trips=Size.dim('T'))
    gradient(draft, 'b', 1, second, back)
    gradient(draft, 'a', 3, first, back)
    timeline = Timeline(draft.graph, COLLECTING, {'T': trips})
    assert timeline.kept_per_trip(body) == Size.of(4 * UNIT)  # a and its three
    assert timeline.peak_bytes == (4 * trips + 2) * UNIT  # and g and d
    for point in timeline.points:
        listed = sum(
            timeline.evaluate(r.size) * timeline.evaluate(r.count)
            for r in timeline.residents(point.op))
        assert listed == point.bytes, draft.graph.ops[point.op]


def test_of_the_results_of_an_op_that_chooses_one_is_made() -> None:
    for chooses, expected in ((True, 2), (False, 3)):
        draft = Draft()
        draft.values('x a b')
        draft.op('fill', '', 'x')
        draft.op('select_output', 'x', 'a b', chooses=chooses)
        draft.op('last', 'a b', '')
        draft.op('end', '', '')
        assert Timeline(draft.graph, COLLECTING, {}).peak_bytes == expected * UNIT


def test_what_is_chosen_for_a_branch_that_is_not_taken_is_not_made() -> None:
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.values('a b x ga gb')
    draft.op('fill', '', 'x')
    taken = branch(draft, 'a', 1, 0, True, True)
    other = branch(draft, 'b', 1, 0, True, False)
    draft.op('select_output', 'x', 'ga gb', chooses=True)
    back = {}
    for name, forward in (('b', other), ('a', taken)):
        op = draft.op('conditional_block_grad', f'g{name}', '')
        back[name] = draft.region(op, RegionKind.BRANCH_GRADIENT, forward=forward)
    draft.op('end', '', '')
    whole = Timeline(draft.graph, COLLECTING, {})
    assert units(whole)['conditional_block_grad'] == [1, 1]  # nobody knows which was chosen
    ways = {name: frozenset({forward, back[name]}) for name, forward in (('a', taken), ('b', other))}
    assert set(ways.values()) < set(other_ways(draft.graph))
    found = {name: without(draft.graph, way) for name, way in ways.items()}
    assert {
        name: units(Timeline(each, COLLECTING, {}))['conditional_block_grad']
        for name, each in found.items()
    } == {
        'a': [1, 0],
        'b': [1, 1]  # which waits for the second
    }


def test_of_a_few_conditions_each_is_true_or_false_on_other_ways() -> None:
    """Of two branches that exclude each other one is left out, and not both."""
    draft = Draft()
    draft.values('c d', 1, fed=True)
    draft.values('w x y z g')
    made = [
        branch(draft, name, 1, 0, True, truth, condition)
        for name, condition, truth in (('w', 'c', True), ('x', 'c', False), ('y', 'd', True),
                                       ('z', 'd', False))
    ]
    back = draft.region(draft.op('conditional_block_grad', 'g', ''),
                        RegionKind.BRANCH_GRADIENT,
                        forward=made[0])
    w, x, y, z = made
    ways = other_ways(draft.graph)
    assert len(ways) == len(set(ways)) == 4 + 1 + 4
    assert {frozenset({x, z}),
            frozenset({x, y}),
            frozenset({w, back, z}),
            frozenset({w, back, y})} < set(ways)


@pytest.mark.parametrize('exclusive', [True, False])
@pytest.mark.parametrize('model', [COLLECTING, RETAINING, IDEAL])
def test_the_peak_is_the_sum_of_its_residents(model: Runtime, exclusive: bool) -> None:
    timeline = Timeline(branches(exclusive).graph, model, {})
    assert timeline.points
    for point in timeline.points:
        listed = sum(timeline.evaluate(r.size) for r in timeline.residents(point.op))
        assert listed == point.bytes


def test_what_a_branch_leaves_to_a_late_collector_is_there_when_it_is_through() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    op = draft.op('conditional_block', 'x', '')
    inner = draft.region(op, RegionKind.BRANCH)
    draft.values('a b', region=inner)
    draft.op('make', '', 'a', inner)
    draft.op('make', 'a', 'b', inner)
    draft.values('c d')
    draft.op('make', 'x', 'c')
    draft.op('make', 'c', 'd')
    draft.op('end', 'd', '')
    draft.op('end', '', '')
    timeline = Timeline(draft.graph, COLLECTING, {})
    assert timeline.peak_bytes == 3 * UNIT
    assert timeline.lagging()[4] == 5 * UNIT  # x, a and b beside c and d
    assert timeline.lagging()[-1] == 3 * UNIT  # x, c and d


def test_which_branch_is_the_fullest_depends_on_the_dims() -> None:
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.value('a', 4096)
    draft.value('b', Size.dim('N') * 1024)
    branch(draft, 'a', 1, 0, True, True)
    branch(draft, 'b', 1, 0, True, False)
    draft.op('both', 'a b', '')
    draft.op('end', '', '')
    timeline = Timeline(draft.graph, COLLECTING, {'N': 1})
    for rows, expected in ((1, 4), (4, 4), (9, 9), (2, 4)):
        other = timeline.at({'N': rows})
        assert units(other)['both'] == [expected]
        assert [p.bytes for p in other.points
               ] == [p.bytes for p in Timeline(draft.graph, COLLECTING, {
                   'N': rows
               }).points]


def nested(inner_kept: int) -> Draft:
    """A branch that keeps one value of its own and has a branch inside that keeps some; then their gradients, of which the
    outer one makes `e` of what it kept, and hands it out as `sum`."""
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.values('out g sum')
    op = draft.op('conditional_block', 'c', 'out')
    when = frozenset({(draft.id('c'), True)})
    outer = draft.region(op, RegionKind.BRANCH, keeps_scopes=True, when=when)
    draft.values('own b', region=outer)
    draft.op('make', '', 'own', outer)
    inner = branch(draft, 'b', inner_kept, outer, False, True)
    draft.op('assign', 'own b', 'out', outer)
    draft.op('fill', '', 'g')
    op = draft.op('outer_gradient', 'g', 'sum')
    back = draft.region(op, RegionKind.BRANCH_GRADIENT, forward=outer, when=when)
    draft.value('e', region=back)
    gradient(draft, 'b', inner_kept, inner, back)
    draft.op('backward', 'own', 'e', back)
    draft.graph.regions[back].results = [(draft.id('e', back), draft.id('sum'))]
    draft.op('end', 'sum', '')
    return draft


@pytest.mark.parametrize('kept', [1, 2, 5])
def test_scopes_inside_a_branch_are_gone_when_its_gradient_hands_out(kept: int) -> None:
    timeline = Timeline(nested(kept).graph, COLLECTING, {})
    found = units(timeline)
    # Either it was taken: g, sum, own, b and e; or not, and nothing was made or dropped.
    assert found['outer_gradient'] == [max(5, 4 + kept)]
    assert found['backward'] == [4 + kept]  # g, own, b, what is inside, and e
    for point in timeline.points:
        assert point.bytes == sum(timeline.evaluate(r.size) for r in timeline.residents(point.op))


def test_what_a_gradients_ops_write_around_it_ends_with_its_last_reader() -> None:
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.values('a g w x y')
    forward = branch(draft, 'a', 1, 0, False, True)
    draft.op('fill', '', 'g')
    op = draft.op('conditional_block_grad', 'g', 'w')
    back = draft.region(op, RegionKind.BRANCH_GRADIENT, forward=forward)
    # As the gradient of a weight, which the block does not declare.
    draft.op('grad', 'a0', 'w', back)
    draft.graph.regions[back].results = ((draft.id('w'), draft.id('w')),)
    draft.op('clip', 'w', 'x')
    draft.op('scale', 'x', 'y')
    draft.op('end', 'y', '')
    timeline = Timeline(draft.graph, COLLECTING, {})
    found = units(timeline)
    assert (found['clip'], found['scale'], found['end']) == ([2], [2], [1])  # w and x, x and y, y
    order = list(draft.graph.regions[0].ops)
    assert timeline.peak_within(0, order) == timeline.peak_bytes


def test_what_is_copied_for_a_gradient_is_there_twice_when_a_branch_ends_and_gone_behind_its_last_reader(
) -> None:
    """Measured on Paddle 3: tests/backends/paddle3/test_loops.py. Residents say the same."""
    draft = Draft()
    draft.value('c', 1, fed=True)
    draft.values('out g')
    op = draft.op('if', 'c', 'out')
    when = frozenset({(draft.id('c'), True)})
    forward = draft.region(op, RegionKind.BRANCH, keeps_scopes=True, copies_kept=True, when=when)
    draft.values('a b', region=forward)
    draft.op('make', '', 'a', forward)
    draft.op('make', 'a', 'b', forward)
    draft.op('yield', 'b', 'out', forward)
    draft.op('fill', 'out', 'g')
    op = draft.op('if', 'c g', '')
    back = draft.region(op, RegionKind.BRANCH_GRADIENT, forward=forward, when=when, pops=True)
    draft.values('d e', region=back)
    draft.op('grad', 'b g', 'd', back)
    draft.op('grad', 'a d', 'e', back)
    draft.op('end', 'e', '', back)
    draft.op('last', 'c', '')
    timeline = Timeline(draft.graph, COLLECTING, {})
    found = units(timeline)
    assert found['make'] == [1, 2] and found['yield'] == [5]  # both, their copies, and the result
    assert found['fill'] == [4] and found['grad'] == [4, 4] and found['end'] == [2]
    assert found['if'] == [1, 1] and found['last'] == [0]
    for point in timeline.points:
        assert point.bytes == sum(
            timeline.evaluate(r.size * r.count) for r in timeline.residents(point.op))
