"""The table of workspaces says what kernels of Paddle 3 allocate, to the byte, or bounds it; what it does not know is said."""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import paddle
import pytest
from paddle import static

from benchmarks.apart import apart
from benchmarks.kernels import pir
from benchmarks.kernels.fit import Sample
from benchmarks.kernels.recipes import Recipe, all_recipes
from benchmarks.kernels.recipes.training import tested_layers
from benchmarks.kernels.table import misses
from benchmarks.programs import recurrent
from benchmarks.programs.case import Case, Options, drafting
from tests.backends.paddle3.running import MIB, Build, first_peak, optimized
from tests.processor import needs_bfloat16
from transpiler import memory_optimize
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.known_workspaces import is_covered, look_up, table, workspace

pytestmark = pytest.mark.skipif(not is_covered(), reason='the table is of later kernels')
# One of each sort of formula: columns, buffers like an operand, sorts along a middle dim, lists, what is kept for a gradient.
SAMPLE = ('images.conv3d', 'images.conv2d_strided', 'images.conv2d_transpose_groups', 'images.batch_norm_layer',
          'images.layer_norm_layer', 'images.grid_sample_bilinear_zeros', 'reductions.argsort_middle',
          'reductions.topk_last', 'shapes.concat', 'shapes.matmul_broadcast', 'training.lamb', 'training.lars',
          'images.norm_op_last', 'training.lstm_3',
          'training.lstm_lengths', 'training.lstm_states', 'training.gru_both', 'training.gru_given_3',
          'training.rnn_2', 'pointwise.add_middle', 'pointwise.add_middle_first', 'pointwise.multiply_ones',
          'pointwise.divide_both_first', 'shapes.index_put_rows', 'shapes.repeat_interleave_middle',
          'shapes.einsum', 'shapes.einsum_heads', 'shapes.einsum_three',
          *(f'training.{name}' for name in tested_layers()))  # yapf: disable
# Operands of sums, by their shapes: where the smaller one's dims stand side by side in the other, and where not.
SHAPES = [([4, 8], [8]), ([4, 8], [1, 8]), ([4, 8], [4, 1]), ([2, 4, 8], [2, 1, 8]),
          ([2, 4, 8], [4, 8]), ([2, 4, 8], [1, 4, 8]), ([2, 4, 8], [2, 4, 1]), ([2, 4, 8], [1]),
          ([1, 8], [1, 8]), ([4, 8], [1, 1]), ([2, 1, 8], [1, 4, 8]), ([8], [2, 4, 8])]


def _printed(x: Any) -> Any:
    return static.Print(x, first_n=1, summarize=1)


def _asserted(x: Any) -> Any:
    static.nn.control_flow.Assert(paddle.max(x) < 10.0, [x])
    return x * 2.0


def _looked_at(look: Callable[[Any], Any]) -> Case:
    """Its peak is where what was made is looked at."""
    with drafting(Options(static_batch=True, inference=True), batch_size=1024) as draft:
        seen = look(paddle.flip(draft.floats('x', [1024, 64]), [0]))
        case: Case = draft.case([paddle.mean(seen)], training=False)
    return case


PROGRAMS: Dict[str, Build] = {
    'print': lambda: _looked_at(_printed),
    'assert': lambda: _looked_at(_asserted),
    'lstm': lambda: recurrent.lstm(Options(static_batch=True)),
    'gru': lambda: recurrent.gru(Options(static_batch=True, layers=1)),
}  # yapf: disable


def seen_of(recipe: Recipe) -> List[Sample]:
    return [pir.sample(each) for each in pir.observe(recipe, 1)]


@pytest.mark.parametrize('name', SAMPLE)
def test_kernels_allocate_what_the_table_says(name: str) -> None:
    seen = seen_of(all_recipes()[name])
    assert seen
    assert misses(table(), seen, workspace) == []


def test_a_wrong_table_is_found_out() -> None:
    seen = seen_of(all_recipes()['images.conv3d'])
    kinds = {kind: cases for kind, cases in table().items() if 'conv3d' not in kind}
    assert {miss.kind for miss in misses(kinds, seen, workspace)} == {'conv3d', 'conv3d_grad'}


def test_the_gradient_of_a_broadcast_makes_its_results_twice_or_not() -> None:
    found = []
    for x, y in SHAPES:
        seen = seen_of(lambda d: paddle.add(d.x(*x), d.x(*y)))
        assert misses(table(), seen, workspace) == []
        found += [one.bytes for one in seen if one.kernel.kind == 'add_grad']
    assert len(found) == len(SHAPES) and 0 in found and any(found)


def test_the_table_covers_most_of_what_a_cpu_can_run() -> None:
    assert sum(map(bool, table().values())) >= 550
    assert sum(any(c.bytes != '0' for c in cases) for cases in table().values()) >= 85


def test_what_nobody_has_run_is_said_to_be_unknown() -> None:
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        x = paddle.static.data('x', [4, 8])
        values = paddle.linalg.eigvalsh(paddle.matmul(paddle.exp(x), x, transpose_y=True))
    report = memory_optimize(main, fetch_list=[values])
    assert report.unknown_workspaces == ['eigvalsh']


def test_columns_of_an_open_batch_are_counted() -> None:
    """One image at a time: their columns do not grow with the batch; a layer's norm does."""
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        image = paddle.static.data('image', [-1, 3, 6, 6])
        kernel = paddle.create_parameter([4, 3, 3, 3], 'float32')
        hidden = paddle.flatten(paddle.nn.functional.conv2d(image, kernel), 1)
        normed = paddle.nn.LayerNorm(64)(hidden)
        paddle.optimizer.SGD(0.1).minimize(paddle.mean(normed**2.0))
    imported = import_program(main)
    look_up(imported)
    taken = {op.kind: op.workspace for op in imported.graph.walk() if op.workspace}
    assert taken['conv2d'].evaluate({}) == 4 * 3 * 3**2 * 4**2
    assert taken['layer_norm_grad'].evaluate({'N': 5}) == 4 * 5 * (2 * 64 + 1)


def _needed_and_measured(build: Build) -> Tuple[float, float]:
    needed = optimized(build()).needed_bytes / MIB
    return needed, first_peak(build, needed * 1.01, ordered=True, rewrite=optimized)


@pytest.mark.parametrize('name', PROGRAMS)
def test_the_peak_with_workspaces_is_what_was_predicted(name: str) -> None:
    """Most of it is a kernel's own, or kept for its gradient."""
    needed, measured = apart(_program_needs, name)
    assert abs(needed - measured) <= 0.01 * measured


def _program_needs(name: str) -> Tuple[float, float]:
    assert memory_optimize(PROGRAMS[name]().main, recompute=False).unknown_workspaces == []
    return _needed_and_measured(PROGRAMS[name])


# By equation the shapes of its operands. What is turned around: of the second, of both, nothing; the result's gradient, too.
EQUATIONS: Dict[str, Tuple[List[int], List[int]]] = {
    'btw,bsw->bts': ([16, 64, 128], [16, 64, 128]),
    'bij,bjk->bik': ([8, 64, 96], [8, 96, 128]),
    'bqhd,bkhd->bhqk': ([4, 32, 4, 64], [4, 48, 4, 64]),
    'ki,kl->il': ([256, 128], [256, 512]),
    'jk,ij->ki': ([256, 128], [300, 256]),
    'i,j->ij': ([512], [300]),
}


def product(equation: str) -> Case:
    """Of two values, none of them in place; most is needed in its gradient."""
    shapes = EQUATIONS[equation]
    with drafting(Options(static_batch=True), batch_size=shapes[0][0]) as draft:
        operands = []
        for name, shape in zip('xy', shapes):
            weight = paddle.create_parameter([shape[-1]], 'float32')
            operands.append(paddle.flip(draft.floats(name, shape) * weight, [0]))
        loss = paddle.mean(paddle.einsum(equation, *operands))
        paddle.optimizer.SGD(0.1).minimize(loss)
        case: Case = draft.case([loss])
    return case


def _products_needed_and_measured() -> Dict[str, Tuple[float, float]]:
    return {equation: _needed_and_measured(partial(product, equation)) for equation in EQUATIONS}


def test_what_an_einsum_needs_is_what_was_predicted() -> None:
    found = apart(_products_needed_and_measured)
    assert set(found) == set(EQUATIONS)
    for needed, measured in found.values():
        assert abs(needed - measured) <= 0.01 * measured


def _halves(make: Callable[..., Any], *shapes: Sequence[int]) -> Recipe:
    """`make` of numbers in bfloat16, for most of which oneDNN has the only kernel."""
    return lambda d: paddle.cast(make(*(paddle.cast(d.x(*s), 'bfloat16')
                                        for s in shapes)), 'float32')


@pytest.mark.parametrize('recipe', [
    pytest.param(_halves(paddle.matmul, [4, 8, 16], [16, 8]), marks=needs_bfloat16),
    pytest.param(_halves(paddle.matmul, [8, 16], [16, 8]), marks=needs_bfloat16),
    pytest.param(_halves(paddle.matmul, [4, 8, 16], [4, 16, 8]), marks=needs_bfloat16),
    _halves(paddle.sum, [4, 8, 16]),
    _halves(lambda x: paddle.sum(x, -1), [4, 8, 16]),
    pytest.param(_halves(paddle.nn.functional.gelu, [4, 8, 16]), marks=needs_bfloat16),
    pytest.param(_halves(paddle.nn.functional.conv2d, [2, 16, 8, 8], [32, 16, 3, 3]),
                 marks=needs_bfloat16),
    pytest.param(_halves(partial(paddle.nn.functional.conv2d, groups=16), [2, 16, 8, 8],
                         [16, 1, 3, 3]),
                 marks=needs_bfloat16),
])
def test_kernels_in_bfloat16_allocate_what_the_table_says(recipe: Recipe) -> None:
    seen = seen_of(recipe)
    assert any('BF16' in str(each) for each in seen)
    assert misses(table(), seen, workspace) == []
