"""The picture's data: adds up to the timeline, names who is where, and goes to JSON, figures and notebooks."""
from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import paddle
import pytest

from benchmarks.programs import Options, build, small_options
from tests.builds import needs_cpu_build
from transpiler import memory_optimize
from transpiler.ir import MEMORY_KINDS, Graph, RegionKind, Site, Size
from transpiler.planning import plan
from transpiler.planning.sequences import REUSE
from transpiler.report.builder import build_report
from transpiler.report.html import page
from transpiler.report.picture import GROUPS
from transpiler.report.trace import trace
from transpiler.runtime import RETAINING


@pytest.fixture(scope='module')
def report():
    case = build('loop', small_options('loop'))
    return memory_optimize(case.main,
                           fetch_list=list(case.fetch),
                           trip_count=4,
                           runtime='retaining')


def chain(length: int, size: int = 4096):
    """relu after relu, none in place, ten in each layer of a scope; storages reused for a runtime that retains."""
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    previous = ()
    for i in range(length):
        value = graph.new_value(f'v{i}',
                                0,
                                dtype='FP32',
                                shape=(Size.of(size),),
                                size=Size.of(4 * size))
        graph.new_op('relu',
                     0,
                     operands=previous,
                     results=(value.id,),
                     label=f'File "model.py", line {i}',
                     site=Site((f'File "model.py", line {i}', 'File "train.py", line 7'),
                               f'net/layer_{i // 10}'))
        previous = (value.id,)
    graph.values[-1].fetched = True
    decided = plan(graph, RETAINING, {}, sequences=((REUSE,),))
    return build_report(decided, RETAINING, {}, [], 0.0, '')


def named(names, size: int = 4096):
    """Values of these names, all alive when the last op reads them; made by lines of files of these names."""
    graph = Graph()
    graph.new_region(RegionKind.BLOCK)
    for name in [*names, 'sum']:
        value = graph.new_value(name,
                                0,
                                dtype='FP32',
                                shape=(Size.of(size),),
                                size=Size.of(4 * size))
        graph.new_op('sum' if name == 'sum' else 'fill_constant',
                     0,
                     operands=range(len(names)) if name == 'sum' else (),
                     results=(value.id,),
                     label=f'File "{name}.py"')
    graph.values[-1].fetched = True
    decided = plan(graph, RETAINING, {}, sequences=((REUSE,),))
    return build_report(decided, RETAINING, {}, [], 0.0, '')


def test_the_peak_of_the_picture_is_the_peak_of_the_report(report):
    assert report.picture_before.peak_bytes == report.peak_bytes_before
    assert report.picture_after.peak_bytes == report.peak_bytes_after


def test_bars_of_a_straight_line_add_up_to_the_bytes_at_every_step():
    for picture in (chain(30).picture_before, chain(30).picture_after):
        for step, size in enumerate(picture.bytes):
            assert sum(bar.bytes for bar in picture.at(step)) == size


@pytest.mark.parametrize('runtime', ['collecting', 'retaining'])
@pytest.mark.parametrize('name', ['fc_chain', 'gru_loop', 'nested_loops', 'loop_in_cond'])
def test_bars_add_up_to_the_timeline_at_every_step(name, runtime):
    case = build(name, small_options(name))
    changed = memory_optimize(case.main, fetch_list=list(case.fetch), trip_count=4, runtime=runtime)
    has_loops = bool(changed.loops)
    assert has_loops == (name != 'fc_chain')
    for picture in changed.pictures:
        assert len(picture.bytes) == len(picture.ops) > 0
        for step, size in enumerate(picture.bytes):
            there = picture.at(step)
            assert sum(bar.bytes for bar in there) == size, picture.ops[step]
            # Bars that meet in one memory are as large as each other, or it would matter which of them is drawn.
            assert len({(b.memory, b.bytes) for b in picture.bars if b.first <= step <= b.last
                       }) == len(there)
        # Of what the trips leave, the last one's is not there yet while it runs.
        assert ({bar.count for bar in picture.bars} >= {3, 4}) == has_loops


def test_every_storage_of_a_loop_is_drawn(report):
    """None is lost where its memory is cut."""
    plan = report.draw.args[0].plan
    for timeline, graph, picture in ((plan.before, plan.original, report.picture_before),
                                     (plan.after, plan.graph, report.picture_after)):
        first_names = {
            graph.values[storage].name
            for lifetimes in timeline.lifetimes.by_region.values()
            for storage in lifetimes
        }
        assert len(first_names) > 3 and first_names <= {bar.storage for bar in picture.bars}


def test_branches_add_up_though_one_is_taken():
    case = build('cond_in_loop', small_options('cond_in_loop'))
    changed = memory_optimize(case.main, fetch_list=list(case.fetch), trip_count=4)
    for picture in changed.pictures:
        assert [sum(bar.bytes for bar in picture.at(step)) for step in range(len(picture.bytes))
               ] == picture.bytes


def test_tenants_of_one_storage_do_not_overlap():
    picture = chain(30).picture_after
    lanes = {}
    for bar in picture.bars:
        lanes.setdefault(bar.memory, []).append((bar.first, bar.last))
    assert len(picture.bars) > len(lanes)
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] < b[0] for a, b in zip(spans, spans[1:]))


def test_a_training_loop_is_drawn_with_its_trips_and_what_they_keep(report):
    picture = report.picture_before
    assert {loop.trips for loop in picture.loops} == {4} and len(picture.loops) == 2
    assert {bar.count for bar in picture.bars} == {1, 3, 4}


def test_all_bars_lie_within_the_steps(report):
    for picture in (report.picture_before, report.picture_after):
        assert all(0 <= b.first <= b.last < len(picture.bytes) for b in picture.bars)


def test_a_page_is_small_and_fetches_nothing():
    text = page(chain(2000), 'x')
    assert len(text) < 3 << 19 and 'http' not in text.replace('http://www.w3.org', '')


def test_a_variable_has_one_group_before_and_after(report):
    groups = {}
    for picture in (report.picture_before, report.picture_after):
        for bar in picture.bars:
            if bar.count == 1 and bar.maker != 'outside':
                groups.setdefault(bar.name, set()).add(bar.group)
    assert set().union(*groups.values()) <= set(GROUPS)
    shared = {b.name for b in report.picture_before.bars
             } & {b.name for b in report.picture_after.bars}
    assert len(shared) > 3 and all(len(groups.get(name, {''})) == 1 for name in shared)


def test_what_moves_memory_makes_nothing(report):
    for picture in (report.picture_before, report.picture_after):
        makers = {bar.maker.split(' (')[0] for bar in picture.bars}
        assert makers and not makers & set(MEMORY_KINDS)


def test_numbers_of_ops_are_steps(report):
    for picture in (report.picture_before, report.picture_after):
        assert [op.split(' (step ')[1] for op in picture.ops
               ] == [f'{i})' for i in range(len(picture.ops))]
        at = {bar.maker for bar in picture.bars if bar.maker != 'outside'}
        assert at and at <= set(picture.ops)


def test_json_leaves_the_pictures_out(report):
    data = json.loads(json.dumps(report.to_dict()))
    assert data['peak_bytes_after'] == report.peak_bytes_after
    assert not [key for key in data if key.startswith('picture')]
    assert data['peak_variables'][0]['name'] == report.peak_variables[0].name


def test_the_figure_draws_both_with_their_peaks(report):
    axes = report.plot().axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    wanted = [
        f'{t}: peak {size / 2**20:.2f} MiB' for t, size in (('before', report.peak_bytes_before),
                                                            ('after', report.peak_bytes_after))
    ]
    assert labels == wanted


@pytest.mark.parametrize('kind', ['png', 'pdf', 'svg'])
def test_a_figure_is_saved_though_paddle_is_loaded(kind, tmp_path):
    """In a process of its own: it used to end there."""
    path = tmp_path / f'memory.{kind}'
    code = ('import sys, paddle\nfrom tests.report.test_picture import chain\n'
            'chain(20).plot().savefig(sys.argv[1])')
    subprocess.run([sys.executable, '-c', code, str(path)], check=True)
    assert path.read_bytes()[:8].startswith({
        'png': b'\x89PNG',
        'pdf': b'%PDF',
        'svg': b'<?xml'
    }[kind])
    if kind == 'png':  # read where no Paddle is
        read = 'import sys; from PIL import Image; i = Image.open(sys.argv[1]); i.load(); print(len(set(i.getdata())))'
        colours = subprocess.run([sys.executable, '-c', read, str(path)],
                                 check=True,
                                 stdout=subprocess.PIPE)
        assert int(colours.stdout) > 10


def test_a_notebook_shows_the_table_and_the_figure(report):
    shown = report._repr_html_()
    assert 'peak above resting' in shown and '<svg' in shown


def test_every_slice_of_a_trace_is_complete(report):
    events = trace(report)['traceEvents']
    slices = [e for e in events if e['ph'] == 'X']
    assert {e['ph'] for e in events} == {'M', 'C', 'X'}
    assert all(e['dur'] >= 1 and {'name', 'ts', 'pid', 'tid'} <= set(e) for e in slices)
    assert len({e['pid'] for e in slices}) == 2


def _scoped(names, frame, **options):
    """Two layers, each of a product, behind each other, inside scopes of these names."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main,
                                     paddle.static.Program()), paddle.utils.unique_name.guard():
        hidden = paddle.static.data('x', [None, 64])
        for name in names:
            with paddle.static.name_scope(name) if name else contextlib.nullcontext():
                hidden = frame(hidden)
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return memory_optimize(main, fetch_list=[loss], **{'batch_size': 8, **options})


def _layer(hidden):
    return paddle.static.nn.fc(hidden, 64, activation='relu')


def test_each_step_has_its_scope_and_the_call_that_made_it_with_the_users_frame_first():
    report = _scoped(['encoder', 'head'], lambda hidden: _layer(hidden))
    for picture in report.pictures:
        assert set(picture.scopes) == {'', 'encoder', 'head', 'optimizer'}
        assert {'mul',
                'mul_grad'} <= {k for k, s in zip(picture.kinds, picture.scopes) if s == 'encoder'}
        made = zip(picture.kinds, picture.stacks, picture.lines)
        stacks = [(stack, line) for kind, stack, line in made if kind in ('mul', 'mul_grad')]
        assert len(stacks) >= 4
        for stack, line in stacks:
            assert stack[0] == line and __file__ in line and line.endswith('in _layer')
            assert [f.rsplit(' ', 1)[-1] for f in stack[1:3]] == ['<lambda>', '_scoped']
            assert '/paddle/' in stack[-1] and len(stack) > 8


def test_without_scopes_layers_are_told_by_their_parameters():
    report = _scoped(['', ''], _layer)
    scopes = report.picture_before.scopes
    assert {'fc_0', 'fc_1'} <= set(scopes)
    kinds = [k for k, s in zip(report.picture_before.kinds, scopes) if s == 'fc_1']
    assert {'mul', 'elementwise_add', 'mul_grad', 'sgd'} <= set(kinds)


def test_layers_inside_a_loop_are_told_by_their_parameters():
    """Or the one ahead of the loop would seem to last to its own gradient behind it."""
    case = build('gru_loop', small_options('gru_loop'))
    picture = memory_optimize(case.main, fetch_list=list(case.fetch), trip_count=4).picture_before
    body = next(loop for loop in picture.loops if loop.label.startswith('loop block'))
    inside = picture.scopes[body.first:body.last + 1]
    layers = set(inside) - {''}
    assert layers and layers <= {v.name.split('.')[0] for v in case.main.all_parameters()}
    last = max(i for i, layer in enumerate(inside) if layer)
    assert set(inside[last + 1:]) == {''}  # of no layer for sure, to the gradients


@pytest.mark.parametrize('names', [['encoder', 'head'], ['', '']])
def test_what_a_plan_adds_is_in_the_scope_that_it_stands_in(names):
    report = _scoped(names, _layer, batch_size=4096, runtime='retaining')
    picture, graph = report.picture_after, report.draw.args[0].plan.graph
    added = [step for step, op in enumerate(graph.regions[0].ops) if graph.ops[op].origin is None]
    assert len(graph.regions) == 1 and added[0] > 0
    assert {picture.scopes[step] == picture.scopes[step - 1] for step in added} == {True}
    assert {picture.scopes[step] for step in added} - {''}


@needs_cpu_build
def test_a_sum_that_is_made_term_by_term_is_no_recomputation():
    """Of a weight that is used often: it has the group of the sum before, and nothing says that it is computed again."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        hidden = paddle.static.data('x', [None, 64])
        weight = paddle.create_parameter([64, 64], 'float32', name='shared')
        for _ in range(6):
            hidden = paddle.tanh(paddle.matmul(hidden, weight))
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    report = memory_optimize(main, fetch_list=[loss], batch_size=1, recompute=False)
    sums = [bar for bar in report.picture_after.bars if bar.maker.split(' ')[0] == 'sum']
    assert len(sums) > 1 and {bar.group for bar in sums} == {'gradient'}
    assert 'computed again' not in report.explain('shared@GRAD')


def test_what_is_computed_again_says_so_wherever_it_is_shown():
    case = build('fc_chain', Options())
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             batch_size=256,
                             recompute='max')
    again = {bar.name for bar in report.picture_after.bars if bar.group == 'recomputed'}
    names = {bar.name for bar in report.picture_before.bars}
    copied = {name.split('@REBUILT')[0] for name in again if '@REBUILT' in name} & names
    assert copied and not again & names
    assert all('It is computed again' in report.explain(name) for name in copied)


def test_the_curve_goes_to_any_writer_of_scalars(report):
    rows = []

    class Writer:

        def add_scalar(self, tag, value, step):
            rows.append((tag, value, step))

    report.write_curve(Writer(), 'net')
    for side, picture in (('before', report.picture_before), ('after', report.picture_after)):
        own = [(value, step) for tag, value, step in rows if tag == f'net/{side}']
        assert own == [(size, step) for step, size in enumerate(picture.bytes)] and len(own) > 10
    assert len(rows) == len(report.picture_before.bytes) + len(report.picture_after.bytes)
