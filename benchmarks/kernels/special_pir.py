"""The guesses of `special` in the words of Paddle 3: most of its kernels are those of 2.6, under other names."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Dict, Iterator, Mapping

from benchmarks.kernels.special import MODES, MOST_DIMS, SPECIAL
from transpiler.backends.kernel_tables import Case, Cases

# Operators that have another name there, but for those of their gradients.
_KINDS = MappingProxyType({
    'matmul_v2': 'matmul',
    'grid_sampler': 'grid_sample',
    'reduce_sum': 'sum',
    'top_k_v2': 'topk',
    'check_finite_and_unscale': 'check_finite_and_unscale',
})
# Slots, which are not just written small there; by operator where it has words of its own.
_SLOTS = MappingProxyType({'Output': 'out', 'PreState': 'pre_state', 'WeightList': 'weight_list',
                           'SequenceLength': 'sequence_length'})  # yapf: disable
_OWN_SLOTS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    'affine_grid': {'Theta': 'input', 'Output': 'output'},
    'conv2d_transpose': {'Input': 'x'},
    'conv3d_transpose': {'Input': 'x'},
    'depthwise_conv2d_transpose': {'Input': 'x'},
    'deformable_conv': {'Input': 'x'},
    'rnn': {'Input': 'x'},
    'trace': {'Input': 'x'},
    'set_value': {'Input': 'x'},
})  # yapf: disable
_GRADIENT = '_grad'
_SLOT = re.compile(r'(?<![\w"@])(?P<slot>[A-Z][A-Za-z]*)(?P<gradient>@GRAD)?(?![\w"])')
_TYPE = re.compile(r'(?<= of )\w+$')


def _translated() -> Dict[str, Cases]:
    found: Dict[str, Cases] = {}
    for kind, cases in SPECIAL.items():
        stem, gradient = (kind[:-len(_GRADIENT)], _GRADIENT) if kind.endswith(_GRADIENT) else (kind,
                                                                                               '')
        name = _KINDS.get(stem, stem)
        slots = {**_SLOTS, **_OWN_SLOTS.get(name, {})}
        found[name + gradient] = tuple(
            Case(tuple(_in_words(c, slots)
                       for c in case.when), _in_words(case.bytes, slots), case.at_most)
            for case in cases)
    return found


def _in_words(text: str, slots: Mapping[str, str]) -> str:
    """A condition or a formula with slots as Paddle 3 calls them."""
    if text.startswith(('@', 'not @', 'last ', 'negative ')):
        return text
    dtype = _TYPE.search(text)
    rest = text[:dtype.start()] if dtype else text
    said = _SLOT.sub(
        lambda m: slots.get(m['slot'], m['slot'].lower()) + (_GRADIENT
                                                             if m['gradient'] else ''), rest)
    return said + (dtype.group() if dtype else '')


def _recurrent_gradients() -> Iterator[Case]:
    """As in 2.6, but for gradients of the states at the start: they are made to the end of the kernel, whether somebody asks for
    them or not."""
    state, masked = 'out.item*pre_state[1:]', 'out.item*#sequence_length*'
    for mode in MODES:
        for both, halves in (('@is_bidirec = true', 2), ('not @is_bidirec = true', 0)):
            for depth, between, last in ((('@num_layers = 1',), 0, 'x'), (('@num_layers = 2',), 2,
                                                                          'out + x'), ((), 3, '')):
                found = f'{mode.gates + halves + between}*out + {mode.states}*{state}'
                found += f' + {mode.saved}*{masked}pre_state[-1] + {masked}x[0]'
                for start, states in (('has pre_state_grad', ''), ('not has pre_state_grad',
                                                                   ' + pre_state')):
                    for made, own in (('has x_grad', ''), ('not has x_grad', ' + x')):
                        more = f'{states}{own}'
                        yield Case((*mode.when, both, *depth, start, made),
                                   f'{found}{more} | {last}{more}' if last else f'{found}{more}')


def _repeated() -> Dict[str, Cases]:
    """A number for each row of the result: of 8 bytes where a tensor says how often."""
    found: Dict[str, Cases] = {}
    for kind, item in (('repeat_interleave', 4), ('repeat_interleave_with_tensor_index', 8)):
        for suffix, result in (('', 'out'), (_GRADIENT, 'out_grad')):
            found[kind + suffix] = tuple(
                Case((f'@axis = {dim}',), f'{item}*{result}[{dim}]')
                for dim in range(-MOST_DIMS, MOST_DIMS))
    return found


def _in_bfloat16(translated: Mapping[str, Cases]) -> Dict[str, Cases]:
    """oneDNN sums up the gradient of a weight behind the products, as of any other broadcast, and its convolutions make no columns; the
    CPU sums in FP32."""
    products = (case._replace(when=(*case.when,
                                    'not y of BF16')) if 'y dims 2' in case.when else case
                for case in translated['matmul_grad'])
    return {
        'matmul_grad': tuple(products),
        'sum': (Case(('x of BF16',), '4*#x + 4*#out'), *translated['sum']),
        **{
            kind: (Case(('filter of BF16',), '0'), *translated[kind]) for kind in ('conv2d', 'conv2d_grad', 'depthwise_conv2d', 'depthwise_conv2d_grad')
        },
    }


SPECIAL_PIR: Mapping[str, Cases] = MappingProxyType({
    **_translated(),
    **_in_bfloat16(_translated()),
    **_repeated(),
    'rnn_grad': tuple(_recurrent_gradients()),
    # Whatever the equation, see `backends.einsum`; the gradients are made, and copied.
    'einsum': (Case((), 'x + out', True),),
    'einsum_grad': (Case((), 'x_grad + ^x_grad + out_grad', True),),
})
