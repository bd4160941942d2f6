"""Formulas that no search over single tensors finds, as guesses: each goes into the table only if it explains all runs.

A convolution lays out one image at a time as columns, for a product with its filter: `[channels / groups, kernel,
result]`; the transposed one has a column for each element of its operand. A kernel of one element that neither skips
nor pads needs none. Channels that come last are moved to the front, and back.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

from transpiler.backends.kernel_tables import Case

MOST_DIMS = 4
_COLUMNS = 'Filter.item*Filter[1:]*'
_TURNED = 'Filter.item*Output@GRAD[1]*Filter[2:]*Input[2:]'


def _convolutions() -> Dict[str, Tuple[Case, ...]]:
    found: Dict[str, Tuple[Case, ...]] = {}
    for kind in ('conv2d', 'conv3d'):
        for suffix, result in (('', 'Output'), ('_grad', 'Output@GRAD')):
            point = ('Filter[2:] = 1', f'Input[2:] = {result}[2:]')
            moved = f'Input + {result}' if not suffix else f'2*Input + {result}'
            last = (Case((f'@data_format = "{name}"',), f'{_COLUMNS}{result}[1:-1] + {moved}', True)
                    for name in ('NHWC', 'NDHWC'))
            found[kind + suffix] = (*last, Case(point, '0'), Case((), f'{_COLUMNS}{result}[2:]'))
        for suffix in ('', '_grad'):
            result = 'Output@GRAD' if suffix else 'Output'
            last = (Case((f'@data_format = "{name}"',),
                         f'{_COLUMNS}Input[1:-1] + 2*Input + {result}', True)
                    for name in ('NHWC', 'NDHWC'))
            found[f'{kind}_transpose{suffix}'] = (*last,
                                                  Case((), _TURNED
                                                       if suffix else f'{_COLUMNS}Input[2:]'))
    found['depthwise_conv2d'] = (Case((), f'{_COLUMNS}Output[2:]'),)
    found['depthwise_conv2d_grad'] = (Case((), f'{_COLUMNS}Output@GRAD[2:]'),)
    found['depthwise_conv2d_transpose'] = (Case((), f'{_COLUMNS}Input[2:]'),)
    found['depthwise_conv2d_transpose_grad'] = (Case((), _TURNED),)
    return found


def _products() -> Dict[str, Tuple[Case, ...]]:
    """A gradient of an operand that was broadcast is made for each product, and then summed up."""
    whole_x, whole_y = (f'{side}.item*Out@GRAD[:-2]*{side}[-2:]' for side in 'XY')
    like_x, like_y = (f'{side}[:-2] = Out@GRAD[:-2]' for side in 'XY')
    return {
        'matmul_v2_grad': (
            Case((like_x, like_y), '0'),
            Case((like_x, 'Y dims 2'), '0'),
            Case(('Y dims 1',), '0'),
            Case(('X dims 2',), 'Out@GRAD', True),
            Case(('X dims 1',), 'Out@GRAD', True),
            Case((like_x,), whole_y, True),
            Case((like_y,), whole_x, True),
            Case((), f'{whole_x} + {whole_y}', True),
        )
    }  # yapf: disable


def _sampling() -> Dict[str, Tuple[Case, ...]]:
    item = 'Output.item*Output'
    ends = f'{item}[1] + {item}[2]'
    flat = f'3/2*Output + 8*{item}[1:3] + {ends}'
    deep = f'4/3*Output + 13*{item}[1:4] + {ends} + {item}[3]'
    found = {
        'affine_grid': (Case(('Theta[1] = 2',), flat), Case((), deep)),
        'grid_sampler': (Case(('@mode = "nearest"',), 'Grid'),
                         Case(('Grid dims 4',), '5*Grid + 4*Output'),
                         Case((), '5*Grid + 8*Output')),
        'grid_sampler_grad': (Case(('@mode = "nearest"',), '2*Grid'),
                              Case(('Grid dims 4',), '7*Grid + 4*Output@GRAD'),
                              Case((), '7*Grid + 8*Output@GRAD')),
    }  # yapf: disable
    found['affine_grid_grad'] = tuple(
        Case(case.when, case.bytes.replace('Output', 'Output@GRAD'))
        for case in found['affine_grid'])
    return found


def _laid_out() -> Dict[str, Tuple[Case, ...]]:
    """Windows as columns: of words, and of places that are sampled, of all images forwards and of one backwards."""
    words = Case((), 'X.item*X[0]*Filter[0]')
    found = {'sequence_conv': (words,), 'sequence_conv_grad': (words,)}
    for kind in ('deformable_conv', 'deformable_conv_v1'):
        columns = 'Filter.item*Filter[2:]*Input[1]*'
        found[kind] = (Case((), f'{columns}Output[0]*Output[2:] + Output', True),)
        found[kind + '_grad'] = (Case((), f'{columns}Output@GRAD[2:] + Filter', True),)
    return found


def _recurrent() -> Dict[str, Tuple[Case, ...]]:
    """State of a step; what goes from layer to layer, of both directions if there are two; a GRU's weights, masked."""
    state, weights = 'Out.item*PreState[1:]', '3*Out.item*PreState[-1]*PreState[-1]'
    found = [
        *_recurrent_tests(state, weights),
        Case(('@is_test = true',), f'6*Out + 3*{state} + {weights} + WeightList', True),
        Case(('has SequenceLength',), f'3*Out + 3*{state} + {weights}', True),
    ]
    for mode, more in ((('@mode = "GRU"',), f'{state} + {weights}'), ((), state)):
        for both, times in (('@is_bidirec = true', 1), ('not @is_bidirec = true', 0)):
            found.append(Case((*mode, both, '@num_layers = 1'), _and_out(times, more)))
            found.append(Case((*mode, both), _and_out(times + 1, more)))
    return {'rnn': tuple(found), 'rnn_grad': tuple(_recurrent_gradients())}


class _Gates(NamedTuple):
    """Of a recurrent layer: gates, states that its gradient holds if those at the start get gradients and if not, states that
    are saved where sequences differ in length, and states that it holds in test mode."""

    when: Tuple[str, ...]
    gates: int
    states: int
    more_states: int
    saved: int
    tested: int


MODES = (_Gates(('@mode = "LSTM"',), 4, 2, 4, 2, 3), _Gates(('@mode = "GRU"',), 3, 2, 3, 1, 3),
         _Gates((), 1, 1, 2, 1, 1))  # yapf: disable


def _recurrent_tests(state: str, weights: str) -> Iterator[Case]:
    """What training keeps for the gradient, of one layer at a time: gates, of both directions, and states."""
    for mode in MODES:
        for both, halves in (('@is_bidirec = true', 1), ('not @is_bidirec = true', 0)):
            for depth, between in ((('@num_layers = 1',), 0), ((), 1)):
                when = ('@is_test = true', 'not has SequenceLength', *mode.when, both, *depth)
                more = f' + {weights}' if '@mode = "GRU"' in when else ''
                yield Case(when,
                           f'{mode.gates + halves + between}*Out + {mode.tested}*{state}{more}')


def _recurrent_gradients() -> Iterator[Case]:
    """Gradients of the gates; what came out of the layer and its gradient, by direction if there are two; states; what goes
    from layer to layer; masks; the gradient of what came in, if nobody asked for it. When the last layer is through, once more
    what came in."""
    state, masked = 'Out.item*PreState[1:]', 'Out.item*#SequenceLength*'
    for mode in MODES:
        for both, halves in (('@is_bidirec = true', 2), ('not @is_bidirec = true', 0)):
            for depth, between, last in ((('@num_layers = 1',), 0, ' | Input'),
                                         (('@num_layers = 2',), 2, ' | Out + Input'), ((), 3, '')):
                for start, states in (('has PreState@GRAD', mode.states), ('not has PreState@GRAD',
                                                                           mode.more_states)):
                    found = f'{mode.gates + halves + between}*Out + {states}*{state}'
                    masks = f'{mode.saved}*{masked}PreState[-1] + {masked}Input[0]'
                    for made, own in (('has Input@GRAD', ''), ('not has Input@GRAD', ' + Input')):
                        yield Case((*mode.when, both, *depth, start, made),
                                   f'{found} + {masks}{own}{last}{own if last else ""}')


def _and_out(times: int, more: str) -> str:
    return f'{times}*Out + {more}' if times else more


def _summed_as_another_type() -> Dict[str, Tuple[Case, ...]]:
    """What is summed up in another type is converted before it, and its gradient after it."""
    return {
        'reduce_sum': (Case(('alike X Out',), '0'), Case((), '#X*Out.item')),
        'reduce_sum_grad': (Case(('alike X@GRAD Out@GRAD',), '0'), Case((),
                                                                        '#X@GRAD*Out@GRAD.item')),
    }


def _placed() -> Dict[str, Tuple[Case, ...]]:
    """Where fewer dims are indexed than there are, each place is written out in full: a number for each dim. What is put there is
    spread over the places, unless it is one number."""
    found: Dict[str, List[Case]] = {'index_put': [], 'index_put_grad': []}
    for dims in range(1, MOST_DIMS + 1):
        for indexed in range(1, dims + 1):
            places = f'^#indices*x[{indexed}:]' if indexed < dims else '^#indices'
            numbers = [f'{8 * dims}*{places}', *(f'8*x[{dim}]' for dim in range(indexed, dims))]
            own = ' + '.join(numbers) if indexed < dims else '0'
            # All indices are of one size, so that none is spread over those of another.
            when = ('not indices of BOOL', f'x dims {dims}', f'{indexed}*^#indices = #indices')
            spread = f'{own} + value.item*{places}'
            found['index_put'] += [Case((*when, '#value = 1'), own), Case(when, spread)]
            found['index_put_grad'].append(Case(when, spread, True))
    return {kind: tuple(cases) for kind, cases in found.items()}


def _unique() -> Dict[str, Tuple[Case, ...]]:
    """Along a dim, whichever it is, that is brought to the front, and the result back."""
    cases = (Case(('@axis = []',), '0'), Case((), '2*X + Out'))
    return {'unique': cases, 'unique_consecutive': cases}


def _along_dims() -> Dict[str, Tuple[Case, ...]]:
    """By the dim that an attribute names. A number for each row of a result that repeats rows; a diagonal, which is as long as the
    shorter of its dims, before it is summed up."""
    dims = range(-MOST_DIMS, MOST_DIMS)
    found = {
        'trace':
            tuple(
                Case((f'@axis1 = {dim}',), f'Input.item*#Out*Input[{dim}]', True) for dim in dims)
    }
    for kind, result in (('repeat_interleave', 'Out'), ('repeat_interleave_grad', 'Out@GRAD')):
        given = tuple(
            Case(('has RepeatsTensor', f'@dim = {dim}'), f'8*{result}[{dim}]') for dim in dims)
        found[kind] = given + tuple(
            Case(('not has RepeatsTensor', f'@dim = {dim}'), f'4*{result}[{dim}]') for dim in dims)
    return found


def _spectra() -> Dict[str, Tuple[Case, ...]]:
    """Of both sides, one is computed apart, and the other from it: half of the last dim that is turned, and one more."""
    one_sided = ('@onesided = true',)
    return {
        'fft_r2c': (Case(one_sided, '0'), Case((), 'Out', True)),
        'fft_r2c_grad': (Case(one_sided, '4*X'), Case((), '2*X'))
    }


def _bounds() -> Dict[str, Tuple[Case, ...]]:
    """What depends on values of attributes or of tensors, and what takes the search long."""
    return {
        'check_finite_and_unscale': (Case((), '^#X + 1'),),
        'top_k_v2': (Case(('last @axis',), '0'), Case((), 'X + Indices + Out')),
        'top_k_v2_grad': (Case(('last @axis',), '0'), Case((), 'X + Indices + Out@GRAD')),
        'set_value': (Case((), 'Input + 64', True),),
        'set_value_grad': (Case((), 'Out@GRAD + 64', True),),
        'einsum': (Case((), 'Operands', True),),
        'einsum_grad': (Case((), 'Operands@GRAD + Out@GRAD', True),),
    }  # yapf: disable


SPECIAL: Mapping[str, Tuple[Case, ...]] = MappingProxyType({
    **_convolutions(),
    **_products(),
    **_sampling(),
    **_laid_out(),
    **_recurrent(),
    **_summed_as_another_type(),
    **_placed(),
    **_unique(),
    **_along_dims(),
    **_spectra(),
    **_bounds()
})
