"""What `optimize` wrote gives the same bytes under every way of running a predictor, in less memory."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import inference, static
from paddle.base.proto import framework_pb2

from benchmarks.apart import apart
from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import contents, save_benchmark
from transpiler.planning import PlanOptions
from transpiler.report.data import human
from transpiler.request import Request
from transpiler.serving.enclosure import enclose
from transpiler.serving.files import read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.wanted import Serving
from transpiler.serving.predictor import fuse
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import SETTINGS, run

MODELS = ('resnet50', 'mobilenet_v2', 'densenet121', 'inception_v3', 'transformer', 'lstm', 'demo')


def optimized(path: Path, batch_size: int = 2, serving: Serving = Serving()):
    saved = read_program(str(path))
    done = optimize_saved(saved, Request(batch_size=batch_size), PlanOptions(), serving)
    out = str(path.parent / 'out')
    write_program(out, saved, done.serialized, done.replaced, force=True)
    return out, done.report


@pytest.mark.parametrize('name', MODELS)
def test_every_setting_gives_the_bytes_of_the_default_predictor(name, tmp_path):
    path = save_benchmark(tmp_path, name)
    feed = str(path) + '.npz'
    out, _ = optimized(path)
    expected = run(RunSpec(str(path), feed, runs=1)).digests
    wrong = [
        s for s in SETTINGS
        if run(RunSpec(out, feed, settings=list(s), runs=2)).digests != expected * 2
    ]
    assert wrong == []


@pytest.mark.parametrize('name', ('mobilenet_v2', 'transformer', 'demo'))
def test_inputs_that_are_released_change_no_bytes_under_any_setting(name, tmp_path):
    path = save_benchmark(tmp_path, name)
    feed = str(path) + '.npz'
    out, _ = optimized(path, serving=Serving(release_inputs=True))
    expected = run(RunSpec(str(path), feed, runs=1)).digests
    wrong = [
        s for s in SETTINGS
        if run(RunSpec(out, feed, settings=list(s), runs=3)).digests != expected * 3
    ]
    assert wrong == []


@pytest.mark.parametrize('setting', [(), ('memory_optim',), ('new_executor',)])
def test_released_inputs_are_not_in_the_peak_and_the_peak_is_the_predicted_one(tiny, setting):
    kept, released = (optimized(tiny, serving=Serving(release_inputs=r))[1] for r in (False, True))
    image = np.load(str(tiny) + '.npz')['image'].nbytes
    assert released.peak_bytes_after == kept.peak_bytes_after - image
    measured = apart(run,
                     RunSpec(str(tiny.parent / 'out'), str(tiny) + '.npz', settings=list(setting)))
    assert max(measured.peak_bytes) <= 1.05 * released.peak_bytes_after + 1024
    assert measured.held_bytes < image


def test_a_run_without_its_released_inputs_fails_and_the_next_with_them_is_right(tiny):
    out, _ = optimized(tiny, serving=Serving(release_inputs=True))
    predictor = inference.create_predictor(inference.Config(out + '.pdmodel', out + '.pdiparams'))
    image = np.load(str(tiny) + '.npz')['image']
    results = []
    for _ in range(2):
        predictor.get_input_handle('image').copy_from_cpu(image)
        predictor.run()
        results.append(predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu())
        with pytest.raises(Exception, match="memory's size is 0"):
            predictor.run()
    assert results[0].tobytes() == results[1].tobytes()


def test_the_report_says_what_keeping_the_inputs_costs(tiny):
    kept, released = (optimized(tiny, serving=Serving(release_inputs=r))[1] for r in (False, True))
    assert human(kept.peak_bytes_after - released.peak_bytes_after) in kept.note
    assert '--release-inputs' in kept.note and '--release-inputs' not in released.note


def test_many_runs_give_the_same_bytes(tiny):
    out, _ = optimized(tiny)
    assert len(set(run(RunSpec(out, str(tiny) + '.npz', runs=50)).digests)) == 1


def test_the_input_is_untouched(tiny):
    before = {n: c for n, c in contents(tiny.parent).items() if n.startswith('tiny')}
    optimized(tiny)
    assert {n: c for n, c in contents(tiny.parent).items() if n.startswith('tiny')} == before


@pytest.mark.parametrize('setting', [(), ('memory_optim',), ('new_executor',)])
def test_the_measured_peak_is_the_predicted_one(tiny, setting):
    out, report = optimized(tiny)
    measured = apart(run, RunSpec(out, str(tiny) + '.npz', settings=list(setting)))
    assert report.peak_bytes_after < report.peak_bytes_before
    assert max(measured.peak_bytes) <= 1.05 * report.peak_bytes_after + 1024


def test_no_name_is_written_twice(tiny):
    out, _ = optimized(tiny)
    message = framework_pb2.ProgramDesc.FromString(Path(out + '.pdmodel').read_bytes())
    written = [
        n for b in message.blocks[1:] for op in b.ops
        if op.type != 'conditional_block_infer' for s in op.outputs for n in s.arguments
    ]
    assert len(written) == len(set(written)) > 0


def test_no_op_keeps_pointers_into_a_scope_that_ends(tiny):
    out, _ = optimized(tiny)
    message = framework_pb2.ProgramDesc.FromString(Path(out + '.pdmodel').read_bytes())
    assert not [
        a for b in message.blocks[1:] for op in b.ops for a in op.attrs if 'CACHE_RUNTIME' in a.name
    ]


def test_a_second_optimize_changes_nothing(tiny):
    out, _ = optimized(tiny)
    again = optimize_saved(read_program(out), Request(batch_size=2), PlanOptions())
    assert not again.report.changed
    assert again.serialized == Path(out + '.pdmodel').read_bytes()


def test_without_onednn_no_op_asks_for_it(tiny):
    done = optimize_saved(read_program(str(tiny)), Request(), PlanOptions(), Serving(onednn=False))
    message = framework_pb2.ProgramDesc.FromString(done.serialized)
    assert not [
        op.type
        for b in message.blocks
        for op in b.ops
        if op.type.startswith('fused_conv2d') or any(a.name == 'use_mkldnn' and a.b
                                                     for a in op.attrs)
    ]


def test_source_lines_survive_paddles_passes(tiny):
    _, report = optimized(tiny)
    assert any('programs.py' in v.made_by for v in report.peak_variables)


def test_the_executor_runs_it_too(tiny):
    out, _ = optimized(tiny)
    image = np.load(str(tiny) + '.npz')['image']
    paddle.enable_static()
    executor = static.Executor(paddle.CPUPlace())
    results = []
    for path in (out, str(tiny)):
        with fresh_scope():
            program, feeds, fetches = static.load_inference_model(path, executor)
            results.append(executor.run(program, feed={feeds[0]: image}, fetch_list=fetches)[0])
    assert results[0].shape == results[1].shape
    assert np.abs(results[0] - results[1]).max() <= 1e-5 * np.abs(results[1]).max()


def test_a_program_of_jit_save_is_optimised(tmp_path):
    paddle.disable_static()
    try:
        layer = paddle.nn.Sequential(paddle.nn.Linear(16, 64), paddle.nn.ReLU(),
                                     paddle.nn.Linear(64, 4))
        paddle.jit.save(layer,
                        str(tmp_path / 'layer'),
                        input_spec=[paddle.static.InputSpec([None, 16], 'float32')])
    finally:
        paddle.enable_static()
    saved = read_program(str(tmp_path / 'layer'))
    name = next(n for op in saved.message.blocks[0].ops if op.type == 'feed'
                for n in op.outputs[0].arguments)
    np.savez(str(tmp_path / 'x.npz'), **{name: np.ones([3, 16], 'float32')})
    out, report = optimized(tmp_path / 'layer')
    feed = str(tmp_path / 'x.npz')
    assert report.changed and (tmp_path / 'out.pdiparams.info').exists()
    assert run(RunSpec(out, feed)).digests == run(RunSpec(str(tmp_path / 'layer'), feed)).digests


def test_an_old_model_directory_is_optimised(tiny, tmp_path):
    (tmp_path / '__model__').write_bytes(Path(str(tiny) + '.pdmodel').read_bytes())
    (tmp_path / '__params__').write_bytes(Path(str(tiny) + '.pdiparams').read_bytes())
    saved = read_program(str(tmp_path))
    done = optimize_saved(saved, Request(), PlanOptions())
    write_program(str(tmp_path / 'new'), saved, done.serialized, done.replaced, force=False)
    feed = str(tiny) + '.npz'
    assert run(RunSpec(str(tmp_path / 'new'), feed)).digests == run(RunSpec(str(tiny),
                                                                            feed)).digests


def test_the_ops_and_their_order_are_those_of_paddles_passes(tiny):
    fused = fuse(read_program(str(tiny)), onednn=True).message
    enclosed = enclose(fused)
    inside = [op for op in _flat(enclosed, enclosed.blocks[1])]
    assert [_plain(op) for op in inside
           ] == [_plain(op) for op in fused.blocks[0].ops if op.type not in ('feed', 'fetch')]


def _flat(message, block):
    for op in block.ops:
        if op.type == 'conditional_block_infer':
            yield from _flat(message, message.blocks[op.attrs[0].block_idx])
        else:
            yield op


def _plain(op):
    attributes = [a.SerializeToString() for a in op.attrs if 'CACHE_RUNTIME' not in a.name]
    return op.type, str(op.inputs), str(op.outputs), attributes
