"""Operators of saved programs of Paddle 3 that run for a part of the batch at a time: the same bytes, in less memory."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from click.testing import CliRunner
from paddle import nn, static

from tests.backends.paddle3.running import MIB
from tests.backends.paddle3.saved import save
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.naming import DECLARATIONS
from transpiler.backends.paddle3.packing import dump, load
from transpiler.cli import main
from transpiler.ir import Size
from transpiler.serving import comparing
from transpiler.serving.apart import RunSpec, predictor_of, served_once
from transpiler.serving.chains import Chain
from transpiler.serving.pir import probing
from transpiler.serving.pir.in_parts import constants_first, run_in_parts
from transpiler.serving.pir.row_operators import row_view
from transpiler.serving.pir.running import SETTINGS, run
from transpiler.serving.row_view import key_of

paddle.enable_static()
ROWS, SIZE = 8, 32
N = Size.dim('N')


@pytest.fixture(autouse=True)
def probes_here(monkeypatch: Any) -> None:
    """Programs are compared in this process: another would first import Paddle each time."""
    monkeypatch.setattr(
        comparing, 'answer_apart',
        lambda _module, question, _path: comparing.compare(comparing.ProbeSpec(**question)))


def convolved(x: Any) -> Any:
    """Wide maps, two of which come together again, a member of a list, and a product at the end."""
    for channels in (16, 32):
        x = nn.Conv2D(x.shape[1], channels, 3, padding=1, bias_attr=False)(x)
        x = F.relu(normed(x))
    left, right = paddle.split(x, 2, axis=1)
    x = paddle.concat([left, F.sigmoid(right) * left, x], axis=1)
    x = F.max_pool2d(nn.Conv2D(x.shape[1], 8, 3, padding=1)(x) + 1.0, 2)
    return static.nn.fc(paddle.flatten(F.adaptive_avg_pool2d(x, 2), 1), 10)


def with_a_parameter(x: Any) -> Any:
    """Paddle 3.0 loads no program without one."""
    return x * paddle.create_parameter([x.shape[-1]], 'float32')


def spread(x: Any) -> Any:
    """Wide maps that are there at once in the order in which they are built. No product: on some machines that of a part of the rows has
    other bytes than that of all."""
    x = with_a_parameter(x)
    large = [F.sigmoid(paddle.concat([x] * (60 + n), axis=-1)) for n in range(4)]
    return paddle.concat([paddle.mean(each, axis=-1, keepdim=True) for each in large], axis=-1)


def normed(x: Any, training: bool = False) -> Any:
    norm = (nn.BatchNorm2D if len(x.shape) == 4 else nn.BatchNorm1D)(x.shape[1])
    norm.training = training
    return norm(x)


@pytest.fixture(scope='module')
def saved(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp('parts')
    save(folder / 'net', convolved, [None, 3, SIZE, SIZE])
    np.savez(str(folder / 'x.npz'), x=image(ROWS))
    return folder


def image(rows: int) -> np.ndarray:
    return np.random.RandomState(rows).randn(rows, 3, SIZE, SIZE).astype('float32')


def optimized(folder: Path, out: str, *arguments: str, name: str = 'net') -> Dict[str, Any]:
    done = CliRunner().invoke(
        main,
        ['optimize',
         str(folder / name), '-o',
         str(folder / out), '--json', '--force', *arguments])
    assert done.exit_code == 0, done.output
    report: Dict[str, Any] = json.loads(done.stdout)
    return report


def in_parts(folder: Path,
             out: str = 'parts',
             batch: int = ROWS,
             name: str = 'net') -> Dict[str, Any]:
    return optimized(folder, out, '--in-parts', '--batch-size', str(batch), name=name)


def saving(report: Dict[str, Any]) -> int:
    return dict(map(tuple, report['savings'])).get('run in parts', 0)


def seen(folder: Path, name: str, settings: Tuple[str, ...] = (), runs: int = 2) -> Any:
    return run(
        RunSpec(str(folder / name), str(folder / 'x.npz'), settings=list(settings), runs=runs))


def results(folder: Path, name: str, x: np.ndarray) -> np.ndarray:
    given: np.ndarray = served_once(
        predictor_of((str(folder / f'{name}.json'), str(folder / f'{name}.pdiparams')), ()),
        {'x': x})[0]
    return given


def test_every_setting_gives_the_bytes_that_it_gave(saved: Path) -> None:
    report = in_parts(saved)
    assert saving(report) > 0 and 'Run in parts' in report['note']
    assert len(SETTINGS) > 1
    for settings in SETTINGS:
        plain, parts = (seen(saved, name, settings) for name in ('net', 'parts'))
        assert parts.digests == plain.digests and len(set(plain.digests)) == 1, settings


def test_the_peak_falls_as_promised(saved: Path) -> None:
    """Unfused, as the program is saved, kernels' own memory included; of some runs, the least has no late collector."""
    whole, report = optimized(saved, 'whole', '--batch-size', str(ROWS)), in_parts(saved)
    assert report['peak_bytes_after'] == whole['peak_bytes_after'] - saving(report)
    assert report['peak_bytes_after'] < 0.5 * whole['peak_bytes_after']
    if not paddle.__version__.startswith('3.0.'):  # what kernels allocate there is in no table
        measured = min(seen(saved, 'parts', ('no_onednn',), runs=60).peak_bytes)
        assert measured <= 1.05 * report['needed_bytes'] + 0.1 * MIB
    parts, plain = (min(seen(saved, name, runs=60).peak_bytes) for name in ('parts', 'whole'))
    assert parts <= 1.05 * report['peak_bytes_after'] + 0.1 * MIB < 0.5 * plain


def test_other_batch_sizes_are_right(saved: Path) -> None:
    assert saving(in_parts(saved)) > 0
    for rows in (1, 3, 8, 9, 16):
        ours, plain = (results(saved, name, image(rows)) for name in ('parts', 'net'))
        assert ours.shape == plain.shape == (rows, 10)
        assert np.abs(ours - plain).max() <= 1e-5 * np.abs(plain).max()


def test_only_parts_that_share_the_batch_evenly_are_made(saved: Path) -> None:
    assert ' in 2 parts' in in_parts(saved, batch=6)['note']
    assert 'Nothing is run in parts. Not in parts: ' in in_parts(saved, batch=7)['note']
    assert (saved / 'parts.json').read_bytes() == (saved / 'net.json').read_bytes()


def elementwise(x: Any) -> Any:
    """Its bytes are those of any part by construction; the first result is read behind the chain, too."""
    first = with_a_parameter(paddle.abs(x))
    low, high = paddle.split(F.relu(x - first), 2, axis=1)
    return first + paddle.concat([high, low], axis=1)


@pytest.mark.parametrize('parts', [2, 4, 8])
def test_any_number_of_rows_is_shared_out_whatever_the_number_of_parts(parts: int,
                                                                       tmp_path: Path) -> None:
    save(tmp_path / 'net', elementwise, [None, 6])
    program = load((tmp_path / 'net.json').read_bytes())
    constants_first(program)
    whole = dump(program, True)
    read = import_program(load(whole))
    ops = row_view(read).row_wise(N)
    inside = sorted(ops)[:-1]
    chain = Chain(tuple(key_of(ops[at].operator) for at in inside), parts, frozenset({'x'}), 'x')
    assert len(chain.ops) == 6
    (tmp_path / 'parts.json').write_bytes(dump(run_in_parts(whole, [chain]).program, True))
    for rows in (1, 2, 3, 5, 8, 13):
        x = np.random.RandomState(rows).randn(rows, 6).astype('float32')
        ours, plain = (served_once(
            predictor_of((str(tmp_path / f'{name}.json'), str(tmp_path / 'net.pdiparams')), ()),
            {'x': x})[0] for name in ('parts', 'net'))
        assert ours.shape == (rows, 6) and ours.tobytes() == plain.tobytes()


def biased(x: Any) -> Any:
    """Biases, each put into the shape of a map right where it is added, and a gain that takes several operators to make."""
    x = nn.Conv2D(3, 32, 3, padding=1)(x)
    x = F.relu(nn.Conv2DTranspose(32, 16, 2, stride=2)(F.max_pool2d(F.relu(x), 2)))
    x = F.max_pool2d(nn.Conv2D(16, 8, 3, padding=1)(x), 4)
    gain = paddle.reshape(F.relu(paddle.create_parameter([8], 'float32')) + 1.0, [1, 8, 1, 1])
    return static.nn.fc(paddle.flatten(x * gain, 1), 10)


def test_biases_do_not_end_a_chain(saved: Path) -> None:
    save(saved / 'biased', biased, [None, 3, SIZE, SIZE])
    plain = optimized(saved, 'whole', '--batch-size', str(ROWS), name='biased')
    report = in_parts(saved, 'cut', name='biased')
    assert report['note'].startswith('Run in parts: 1') and '; ' not in report['note'].split('.')[0]
    assert report['peak_bytes_after'] < 0.4 * plain['peak_bytes_after']
    for settings in SETTINGS:
        given, ours = (seen(saved, name, settings) for name in ('biased', 'cut'))
        assert ours.digests == given.digests and len(set(given.digests)) == 1, settings


def recognised(x: Any) -> Any:
    """Columns of maps as the words of a sentence."""
    x = F.relu(nn.Conv2D(3, 32, 3, padding=1)(x))
    x = F.max_pool2d(nn.Conv2D(32, 8, 3, padding=1)(x), 4)
    words = paddle.transpose(paddle.flatten(x, 1, 2), [0, 2, 1])
    layers = nn.LSTM(words.shape[-1], 8, direction='bidirect')
    layers.eval()
    return static.nn.fc(layers(words)[0], 10, num_flatten_dims=2)


def test_what_stands_before_recurrent_layers_runs_in_parts(saved: Path) -> None:
    save(saved / 'recognised', recognised, [None, 3, SIZE, SIZE])
    plain = optimized(saved, 'whole', '--batch-size', str(ROWS), name='recognised')
    report = in_parts(saved, 'cut', name='recognised')
    assert report['note'].startswith('Run in parts: 6 operators from conv2d')
    assert report['peak_bytes_after'] < 0.4 * plain['peak_bytes_after']
    for settings in SETTINGS:
        given, ours = (seen(saved, name, settings) for name in ('recognised', 'cut'))
        assert ours.digests == given.digests and len(set(given.digests)) == 1, settings


def test_only_vectors_that_are_the_same_in_all_runs_go_first(tmp_path: Path) -> None:
    """Not what is drawn, what is read of the inputs, or a matrix of parameters; declarations and numbers go ahead of them."""

    def build(x: Any) -> Any:
        bias, matrix = (paddle.create_parameter(s, 'float32') for s in ([4], [4, 4]))
        drawn = paddle.uniform([4]) + paddle.reshape(bias, [1, 4])
        return drawn + paddle.mean(x * 2.0, axis=0) + paddle.sum(paddle.exp(matrix), axis=0)

    def rank(name: str) -> int:
        if name in DECLARATIONS:
            return 0
        return 1 if name.startswith('pd_op.full') else 2 if name == 'pd_op.reshape' else 3

    save(tmp_path / 'net', build, [None, 4])
    program = load((tmp_path / 'net.json').read_bytes())
    given = [op.name() for op in program.global_block().ops]
    constants_first(program)
    names = [op.name() for op in program.global_block().ops]
    assert {'pd_op.full', 'pd_op.uniform', 'pd_op.exp', 'pd_op.mean', 'pd_op.reshape'} <= set(given)
    assert names != given and names == sorted(given, key=rank)


def test_a_better_order_is_cut_too(saved: Path) -> None:
    save(saved / 'spread', spread, [None, 64])
    report = in_parts(saved, 'both', batch=64, name='spread')
    savings = dict(map(tuple, report['savings']))
    assert min(savings['schedule'], savings['run in parts']) > 0
    x = np.random.RandomState(3).rand(64, 64).astype('float32')
    assert results(saved, 'both', x).tobytes() == results(saved, 'spread', x).tobytes()


def test_what_is_computed_twice_is_probed(saved: Path) -> None:
    """The predictor computes it once."""

    def twice(x: Any) -> Any:
        x = with_a_parameter(x)
        wide = [F.sigmoid(paddle.concat([x] * 64, axis=-1) + float(n)) for n in range(4)]
        return paddle.concat([paddle.mean(each, axis=-1, keepdim=True) for each in wide], axis=-1)

    save(saved / 'twice', twice, [None, 64])
    assert saving(in_parts(saved, 'once', batch=64, name='twice')) > 0
    x = np.random.RandomState(3).rand(64, 64).astype('float32')
    assert results(saved, 'once', x).tobytes() == results(saved, 'twice', x).tobytes()


def test_what_was_written_reports_its_peak_and_is_not_cut_again(saved: Path) -> None:
    report = in_parts(saved)
    again = in_parts(saved, 'again', name='parts')
    assert saving(report) > 0 and saving(again) == 0 and not again['changed']
    assert again['peak_bytes_after'] == report['peak_bytes_after']
    assert (saved / 'again.json').read_bytes() == (saved / 'parts.json').read_bytes()


def test_what_differs_in_parts_is_not_split_and_is_named(saved: Path, monkeypatch: Any) -> None:
    tried: List[Any] = []

    def differs(_: Any, chains: Any) -> Optional[str]:
        tried.append(chains)
        return chains[0].ops[1][0] if len(tried) == 1 else None

    monkeypatch.setattr(probing.Probe, '__call__', differs)
    note = in_parts(saved, batch=2)['note']
    refused = tried[0][0].ops[1]
    assert len(tried) > 1
    assert all(refused not in chain.ops for chains in tried[1:] for chain in chains)
    assert refused[0] in note and 'other bytes' in note


def test_a_difference_that_a_later_operator_hides_is_found(saved: Path, tmp_path: Path) -> None:
    """The operators' own results are compared, not only what is fetched: weights differ, and a relu drops that."""

    def hidden(x: Any) -> Any:
        return F.relu(static.nn.fc(x, 4, bias_attr=False) * 0.0 - 1.0)

    for name, seed in (('one', 1), ('other', 2)):
        save(tmp_path / name, hidden, [None, 4])
        raw = bytearray((tmp_path / f'{name}.pdiparams').read_bytes())
        raw[-64:] = np.random.RandomState(seed).rand(16).astype('float32').tobytes()
        (tmp_path / f'{name}.pdiparams').write_bytes(bytes(raw))
    np.savez(str(tmp_path / 'x.npz'), x=np.ones([2, 4], 'float32'))
    opened, names = probing._opened((tmp_path / 'one.json').read_bytes(), True)
    (tmp_path / 'open.json').write_bytes(opened)
    predictors = [
        predictor_of((str(tmp_path / 'open.json'), str(tmp_path / f'{name}.pdiparams')), ())
        for name in ('one', 'other')
    ]
    given = [
        dict(zip(p.get_output_names(), served_once(p, {'x': np.ones([2, 4], 'float32')})))
        for p in predictors
    ]
    different = {
        names.get(n, n) for n in given[0] if given[0][n].tobytes() != given[1][n].tobytes()
    }
    assert {n.split('.')[0] for n in different} == {'matmul'}


def rows_known(build: Any) -> List[str]:
    """Kinds of the operators whose rows are known to be independent, in order."""
    program = static.Program()
    with static.program_guard(program, static.Program()):
        paddle.cumsum(build(static.data(
            'x', [None, 4])))  # which reads what is made, and is no such operator
    found = row_view(import_program(program)).row_wise(N)
    return [op.operator.kind for _, op in sorted(found.items())]


def maps(x: Any) -> Any:
    return paddle.reshape(x, [-1, 1, 2, 2])


INDEPENDENT = {
    'softmax2': (lambda x: F.softmax(x), ['softmax']),
    'softmax of rows': (lambda x: F.softmax(x, axis=0), []),
    'sum2': (lambda x: paddle.sum(x, axis=1), ['reduce_sum']),
    'sum of rows': (lambda x: paddle.sum(x, axis=0), []),
    'sum of all': (lambda x: paddle.sum(x), []),
    'mean of rows': (lambda x: paddle.mean(x, axis=[0, 1]), []),
    'product': (lambda x: paddle.matmul(x, paddle.ones([4, 3])), ['matmul_v2']),
    'product turned': (lambda x: paddle.matmul(x, x, transpose_x=True), []),
    'product of rows': (lambda x: paddle.matmul(x, x, transpose_y=True), []),
    'turned': (lambda x: paddle.transpose(x, [1, 0]), []),
    'joined': (lambda x: paddle.concat([x, x], axis=-1), ['concat']),
    'rows joined': (lambda x: paddle.concat([x, x], axis=0), []),
    'shaped': (lambda x: paddle.reshape(x, [-1, 2, 2]), ['reshape2']),
    'rows shaped': (lambda x: paddle.reshape(x, [-1, 2]), []),
    'cut': (lambda x: x[:, 1:], ['slice']),
    'rows cut': (lambda x: x[1:], []),
    'running sum': (lambda x: paddle.cumsum(x, axis=0), []),
    'shared by all': (lambda x: x + paddle.ones([4]), ['elementwise_add']),
    'of one row': (lambda x: x + paddle.ones([1, 4]), ['elementwise_add']),
    'statistics of the batch': (lambda x: normed(x, training=True), []),
    'fixed statistics': (normed, ['batch_norm']),
    'convolved': (lambda x: nn.Conv2D(1, 3, 1, bias_attr=False)(maps(x)), ['reshape2', 'conv2d']),
    'spread out': (lambda x: nn.Conv2DTranspose(1, 3, 2, bias_attr=False)(maps(x)), ['reshape2', 'conv2d_transpose']),
    'looked up': (lambda x: F.embedding(paddle.cast(x, 'int64'), paddle.ones([3, 2])), ['cast', 'lookup_table_v2']),
}  # yapf: disable


@pytest.mark.parametrize('name', INDEPENDENT)
def test_operators_have_the_rows_that_they_have(name: str) -> None:
    build, expected = INDEPENDENT[name]
    assert rows_known(build) == expected
