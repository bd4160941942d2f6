"""The peak that is promised for a window is that of the program in parts."""
from __future__ import annotations

import pytest

pytest.importorskip('paddle')  # make test-core has none

from tests.serving.programs import save_benchmark
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.windows import Windows
from transpiler.backends.paddle2.importer import import_program
from transpiler.ir import Size
from transpiler.runtime import COLLECTING
from transpiler.serving.enclosure import enclose
from transpiler.serving.files import read_program
from transpiler.serving.in_parts import run_in_parts
from transpiler.serving.predictor import fuse
from transpiler.serving.described import row_view

BATCH = 8
SLACK = 2048  # bounds of parts, and results of a few bytes


def measured(message):
    program = import_program(enclose(message).SerializeToString())
    return program, Timeline(program.graph, COLLECTING, {'N': BATCH})


@pytest.mark.parametrize('parts', [2, 4])
@pytest.mark.parametrize('name', ['mobilenet_v2', 'densenet121', 'inception_v3', 'transformer'])
def test_the_estimate_is_the_peak_of_the_program_in_parts(name, parts, tmp_path):
    message = fuse(read_program(str(save_benchmark(tmp_path, name))), onednn=True).message
    program, timeline = measured(message)
    view, rows = row_view(program), Size.dim('N')
    ops = view.row_wise(rows)
    windows = list(
        Windows(program.graph, timeline, view.region, parts, {
            p: o.sliced for p, o in ops.items()
        }, {
            p: o.shared for p, o in ops.items()
        }).around_peak())
    assert windows
    for window in windows[::max(1, len(windows) // 12)]:
        chain = view.chain(window, parts, rows)
        peak = measured(run_in_parts(message, [chain]))[1].peak_bytes
        assert abs(peak - window.peak) <= SLACK + 0.01 * peak, window
