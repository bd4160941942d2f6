"""What is true of layers on any Paddle: imported by the tests of each."""
from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator, Tuple

import paddle
import pytest

from tests.backends.layers import SIMPLE, Net, built, data, static, trained
from transpiler import InvalidArgumentError, InvalidProgramError, memory_optimize


@pytest.fixture(autouse=True)
def dygraph() -> Iterator[None]:
    paddle.disable_static()
    yield
    paddle.enable_static()


@lru_cache(maxsize=None)
def untouched(way: str, full_graph: bool) -> Tuple[bytes, ...]:
    return trained(*built(way, full_graph))


def simple(full_graph: bool = True) -> Any:
    return built('called', full_graph)[0]


def called(made: Any, step: int) -> None:
    paddle.seed(9)
    SIMPLE(made, step)


@pytest.mark.parametrize('full_graph', [True, False])
def test_programs_made_before_are_made_again_and_on_release_too(full_graph: bool) -> None:
    """One step each: untouched, optimized, released. Another layer of the same class is not touched at all."""
    paddle.seed(3)
    other = static(Net(), full_graph)
    steps = {}
    for optimized in (False, True):
        made = simple(full_graph)
        called(made, 0)
        report = memory_optimize(made, recompute='max') if optimized else None
        called(made, 1)
        if report is not None:
            assert [each.report.changed for each in report.programs] == [True]
            called(other, 1)
            report.release()
        called(made, 2)
        assert report is None or len(report.programs) == 1
        steps[optimized] = [
            p.grad.numpy().tobytes() for p in made.parameters() if p.grad is not None
        ]
    assert steps[True] == steps[False]


def test_twice_changes_nothing() -> None:
    made = simple()
    report = memory_optimize(made, recompute='max')
    assert memory_optimize(made, recompute=False) is report
    SIMPLE(made, 0)
    assert len(report.programs) == 1 and report.programs[0].report.changed
    report.release()
    assert memory_optimize(made) is not report


def test_what_is_saved_is_the_untouched_program(tmp_path: Path) -> None:
    saved = {}
    for optimized in (False, True):
        made = simple()
        if optimized:
            memory_optimize(made, recompute='max')
        SIMPLE(made, 0)
        made.eval()
        spec = [paddle.static.InputSpec([None, data(0).shape[1]], 'float32', name='x')]
        path = str(tmp_path / f'{optimized}')
        paddle.jit.save(made, path, input_spec=spec)
        loaded = paddle.jit.load(path)
        saved[optimized] = [
            op.type if hasattr(op, "type") else op.name()
            for op in loaded.program().global_block().ops
        ]
        assert loaded(data(7)).numpy().tobytes() == made(data(7)).numpy().tobytes()
    assert saved[True] == saved[False]


def test_what_cannot_be_planned_is_said_and_left_alone() -> None:
    made, step = built('called', True)
    report = memory_optimize(made, budget=1000)
    with pytest.warns(UserWarning, match='budget'):
        found = trained(made, step)
    assert found == untouched('called', True)
    assert [each.report for each in report.programs] == [None]
    assert 'budget' in report.programs[0].why_not and report.programs[0].why_not[:40] in ' '.join(
        str(report).split())


def test_bad_calls_are_answered_at_once() -> None:
    with pytest.raises(InvalidProgramError, match='to_static'):
        memory_optimize(Net())
    for options in ({'batch_size': 0}, {'budget': 'much'}, {'fetch_list': ['x']}):
        made = simple()
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            memory_optimize(made, **options)
        assert trained(made, SIMPLE) == untouched('called', True)
