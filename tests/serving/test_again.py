"""Saved programs of which some runs again in the predictor: for a budget, or where all may that lowers the peak."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Tuple

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static
from paddle.base.proto import framework_pb2

from benchmarks.apart import apart
from tests.test_inference_runs import global_skip
from transpiler.backends.scopes import passing_scope
from transpiler.cli import main as command
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving.apart import RunSpec
from transpiler.serving.files import read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.running import SETTINGS, run
from transpiler.serving.wanted import Serving


@pytest.fixture(scope='module')
def skip(tmp_path_factory: Any) -> Path:
    """The network as it is saved, and an input."""
    path = tmp_path_factory.mktemp('skip') / 'skip'
    case = global_skip()
    block = case.main.global_block()
    executor = static.Executor(paddle.CPUPlace())
    with passing_scope() as scope, static.scope_guard(scope):
        executor.run(case.startup)
        static.save_inference_model(str(path), [block.var('x')], [block.var(n) for n in case.fetch],
                                    executor,
                                    program=case.main)
    np.savez(str(path) + '.npz', **case.feed(0))
    return path


def _optimized(path: Path,
               recompute: str = 'auto',
               budget: Optional[int] = None,
               serving: Serving = Serving()) -> Tuple[str, Any]:
    saved = read_program(str(path))
    done = optimize_saved(saved, Request(budget=budget), PlanOptions(recompute=recompute), serving)
    out = str(path.parent / 'out')
    write_program(out, saved, done.serialized, done.replaced, force=True)
    return out, done.report


def _measured(path: Path, program: str) -> Any:
    return apart(run, RunSpec(program, str(path) + '.npz'))


def test_every_setting_gives_the_bytes_of_the_default_predictor(skip: Path) -> None:
    out, report = _optimized(skip, 'max')
    assert report.recompute is not None and report.recompute.clones > 0
    expected = run(RunSpec(str(skip), str(skip) + '.npz', runs=1)).digests
    wrong = [
        s for s in SETTINGS
        if run(RunSpec(out, str(skip) + '.npz', settings=list(s), runs=2)).digests != expected * 2
    ]
    assert wrong == []


def test_names_are_written_once_and_clones_are_of_the_forward_part(skip: Path) -> None:
    out, _ = _optimized(skip, 'max')
    message = framework_pb2.ProgramDesc.FromString(Path(out + '.pdmodel').read_bytes())
    ops = [op for b in message.blocks[1:] for op in b.ops if op.type != 'conditional_block_infer']
    written = [n for op in ops for s in op.outputs for n in s.arguments]
    assert len(written) == len(set(written))
    assert any('@REBUILT' in name for name in written)
    assert {a.i for op in ops for a in op.attrs if a.name == 'op_role'} == {0}


@pytest.mark.parametrize('serving', [Serving(), Serving(release_inputs=True)], ids=str)
def test_the_first_run_needs_less_as_predicted(skip: Path, serving: Serving) -> None:
    first = []
    for recompute in ('auto', 'max'):
        out, report = _optimized(skip, recompute, serving=serving)
        first.append(_measured(skip, out).peak_bytes[0])
        assert first[-1] <= report.peak_bytes_after + 1024  # what is fetched, and small values
        assert (report.recompute is not None) == (recompute == 'max')
    # The value that is not kept; but the image is, which it is made from again.
    image = np.load(str(skip) + '.npz')['x'].nbytes
    value = image * 16 // 4
    assert first[1] <= first[0] - value + (image if serving.release_inputs else 0)


def test_a_budget_decides_and_what_none_keeps_to_is_refused(skip: Path) -> None:
    kept, again = (_optimized(skip, recompute)[1] for recompute in ('auto', 'max'))
    roomy, tight = (report.resting_bytes + report.sure_bytes for report in (kept, again))
    assert tight < roomy
    assert _optimized(skip, budget=roomy)[1].recompute is None
    for budget in (tight, (tight + roomy) // 2):
        out, report = _optimized(skip, budget=budget)
        assert report.recompute is not None and report.resting_bytes + report.sure_bytes <= budget
        assert _measured(skip, out).digests == _measured(skip, str(skip)).digests
    assert _optimized(skip, budget=tight, recompute='')[1].recompute is None


def test_the_command_keeps_to_a_budget_by_it_and_says_so(skip: Path) -> None:
    again = _optimized(skip, 'max')[1]
    least = again.resting_bytes + again.sure_bytes
    arguments = ['optimize', str(skip), '-o', str(skip) + '.small', '--force', '--budget']
    done = CliRunner().invoke(command, [*arguments, str(least)])
    assert done.exit_code == 0 and 'Computed again' in done.output
    before = Path(str(skip) + '.small.pdmodel').read_bytes()
    refused = CliRunner().invoke(command, [*arguments, str(least - 1)])
    assert refused.exit_code == 1 and 'no plan fits' in refused.output
    assert Path(str(skip) + '.small.pdmodel').read_bytes() == before
