"""Graphs as text: what is printed is read back as it was, and what is no graph is refused with its line."""
from __future__ import annotations

import dataclasses
import enum
import random
import typing
from typing import Any

import pytest

from tests.graphs import generated
from transpiler.errors import InvalidProgramError
from transpiler.ir import Graph, Op, OpFacts, Region, RegionKind, Size, Value
from transpiler.ir.facts import Replay
from transpiler.ir.text import parse, printed

ODD = ('', 'x', 'a b', '"', "q'3", '%x', '# no comment', 'ä', '\n', '\udcff', 'fc_0.tmp_0@GRAD',
       '-', '0')
_SIZES = (Size(), Size.of(7), Size.dim('N') * 4, Size.dim('N(words)') * Size.dim('T1') + 3,
          Size.dim('N(a b)') + Size.dim('N') * Size.dim('N'), Size.product([Size.dim('L(x)')]) * 12)


def drawn(hint: Any, dice: random.Random, references: int) -> Any:
    """Anything that a field of this type may be; whole numbers are values."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        some = next(t for t in inner if t is not type(None))
        return None if dice.random() < 0.5 else drawn(some, dice, references)
    if origin is frozenset or origin is tuple and inner[1] is Ellipsis:
        return origin(drawn(inner[0], dice, references) for _ in range(dice.randrange(3)))
    if origin is tuple:
        return tuple(drawn(t, dice, references) for t in inner)
    if hint is bool:
        return dice.random() < 0.5
    if hint is int:
        return dice.randrange(-1, references)
    if hint is float:
        return dice.choice((0.0, 1.0, -2.5, 1e-30, 1e300, float('-inf'), float('inf')))
    if hint is str:
        return dice.choice(ODD)
    if hint is Size:
        return dice.choice(_SIZES)
    if issubclass(hint, enum.Enum):
        return dice.choice(list(hint))
    return hint(**{n: drawn(t, dice, references) for n, t in typing.get_type_hints(hint).items()})


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same with some fields of everything drawn anew: whatever the type of a field allows."""
    dice, many = random.Random(seed), len(graph.values)
    keep = {
        Value: {'id', 'region', 'storage'},
        Op: {'id', 'region', 'operands', 'results', 'regions', '_accesses'},
        Region: {'id', 'ops', 'op', 'parent'}
    }
    for thing in (*graph.values, *graph.ops, *graph.regions):
        for name, hint in typing.get_type_hints(type(thing)).items():
            if name not in keep[type(thing)] and dice.random() < 0.3:
                setattr(thing, name, drawn(hint, dice, many))
    for value in graph.values:
        value.storage = dice.randrange(many)
    for op in graph.ops:
        op.origin = op.id if op.origin == -1 else op.origin  # as for every op
    return graph


@pytest.mark.parametrize('seed', range(60))
def test_a_generated_graph_is_read_as_it_was_printed(seed: int) -> None:
    graph = generated(seed)
    text = printed(graph)
    assert parse(text) == graph
    assert printed(parse(text)) == text


@pytest.mark.parametrize('seed', range(60))
def test_whatever_the_fields_hold_is_read_as_it_was_printed(seed: int) -> None:
    graph = shuffled(generated(seed), seed)
    assert parse(printed(graph)) == graph


def test_ops_and_regions_that_nobody_runs_any_more_are_kept() -> None:
    graph = generated(2)
    while len(graph.regions) < 3:
        graph = generated(len(graph.values))
    graph.ops[graph.regions[1].op].regions = ()
    graph.regions[0].ops.remove(graph.regions[0].ops[0])
    text = printed(graph)
    assert 'lost {' in text
    assert parse(text) == graph


def test_one_region_may_be_run_by_two_ops() -> None:
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    first, second = (graph.new_op('run', 0) for _ in range(2))
    region = graph.new_region(RegionKind.BRANCH, op=first.id, parent=0)
    first.regions = second.regions = (region.id,)
    assert parse(printed(graph)) == graph


def test_every_fact_is_written() -> None:
    """Also those that somebody adds: none of them is lost without a word."""
    every = {f.name: True for f in dataclasses.fields(OpFacts) if f.type == 'bool'}
    facts = OpFacts(**{**every, 'known': False}, replay=Replay(0, 1, 2, None))
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    graph.new_op('x', 0, facts=facts)
    assert len(every) > 5 and parse(printed(graph)).ops[0].facts == facts


WRITTEN = """
# Two values in one memory.
region 0 block {
  value 0 %x: FP32[N, 8] 32*N bytes fed
  value 1 %h: FP32[N, 8] 32*N bytes storage=%x
  op 0 relu(%x) -> %h facts=(in_place=[[0, 0]] same_name)
}
"""


def test_a_graph_may_be_written_by_hand() -> None:
    graph = parse(WRITTEN)
    assert graph.values[1].storage == 0 and graph.values[0].fed
    assert graph.values[0].size == Size.dim('N') * 32
    assert graph.ops[0].facts == OpFacts(in_place=((0, 0),), same_name=True)
    assert printed(graph) == WRITTEN[WRITTEN.index('region'):]


@pytest.mark.parametrize('was, instead, says', [
    ('relu(%x)', 'relu(%y)', 'line 6: a value that is declared is expected, not %y'),
    ('op 0', 'op 1', 'there is no op 0'),
    ('value 1', 'value 0', 'line 5: there are two values 0'),
    ('%h:', '%x:', 'line 5: %x is declared twice'),
    ('same_name', 'same_game', r"line 6: '\)' is expected, not same_game"),
    ('[[0, 0]]', '[[0]]', 'line 6: 2 elements is expected'),
    ('[[0, 0]]', '[[0, 0, 0]]', r"line 6: '\]' is expected"),
    ('32*N bytes fed', '-32*N bytes fed', 'line 4: a size is expected, not -32'),
    ('block', 'blob', 'line 3: block or loop'),
    ('fed', 'fed fed', 'line 4: fed once is expected'),
    ('storage=%x', 'storage=-', ''),
    ('storage', 'persistable=maybe storage', 'line 5: true or false is expected, not maybe'),
    ('relu', '&', "line 6: '&' begins nothing"),
    ('region 0', 'region 1', 'region 0 is expected'),
    ('\n}', '', 'is expected, not the end'),
    ('same_name)', 'same_name) regions=[4]', 'op 0 runs region 4, which is not there'),
])
def test_what_is_no_graph_is_refused_in_one_line(was: str, instead: str, says: str) -> None:
    assert was in WRITTEN
    text = WRITTEN.replace(was, instead)
    if not says:  # a value is in its own memory if nobody says otherwise
        assert parse(text).values[1].storage == 1
        return
    with pytest.raises(InvalidProgramError, match=says) as caught:
        parse(text)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('seed', range(200))
def test_damaged_text_is_read_or_refused(seed: int) -> None:
    dice, text = random.Random(seed), printed(generated(seed % 7))
    at = dice.randrange(len(text))
    damaged = text[:at] + dice.choice('%"\'(){}[]0,=:*x\n ') + text[at + dice.randrange(4):]
    try:
        graph = parse(damaged)
    except InvalidProgramError:
        return
    assert parse(printed(graph)) == graph
