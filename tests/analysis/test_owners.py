"""Which layer an op belongs to, told by the parameters that it reads."""
from __future__ import annotations

from typing import Dict

from tests.graphs import Draft
from transpiler.analysis.owners import layers_of_ops
from transpiler.ir import OpFacts
from transpiler.ir.boundary import BOUNDARY

HOLDERS = {
    'up': ('', 'blocks', 'blocks.0', 'blocks.0.up'),
    'down': ('', 'blocks', 'blocks.0', 'blocks.0.down'),
    'next': ('', 'blocks', 'blocks.1', 'blocks.1.up'),
    'named': ('', 'blocks', 'blocks.1', 'blocks.1.upper'),
}


def told(draft: Draft, *around: str) -> Dict[str, str]:
    layers = layers_of_ops(draft.graph, HOLDERS, around)
    return {draft.graph.ops[op].kind: layer for op, layer in layers.items()}


def draft_of(values: str) -> Draft:
    draft = Draft()
    draft.values(' '.join(HOLDERS), persistable=True, parameter=True)
    draft.value('x', fed=True)
    draft.values(values)
    return draft


def test_an_op_between_two_layers_is_in_what_both_are_in() -> None:
    draft = draft_of('a b c d e f g h')
    for kind, reads, makes in (('first', 'x', 'a'), ('matmul', 'a up', 'b'), ('gelu', 'b', 'c'),
                               ('product', 'c down', 'd'), ('add', 'd x', 'e'),
                               ('third', 'e next', 'f'), ('norm', 'f named', 'g')):
        draft.op(kind, reads, makes)
    draft.op(BOUNDARY, '', 'h').facts = OpFacts(boundary=True)
    draft.op('backward', 'h down', '')
    assert told(draft, '') == {
        'first': '',
        'matmul': 'blocks.0.up',
        'gelu': 'blocks.0',
        'product': 'blocks.0.down',
        'add': 'blocks',
        'third': 'blocks.1.up',
        'norm': 'blocks.1.upper',
        'backward': 'blocks.0.down'
    }


def test_what_is_made_of_a_parameter_is_its_layers_wherever_that_is_done() -> None:
    """All are cast at once, and one is given another shape, which an op of its own makes."""
    draft = draft_of('low shape flat a b')
    draft.op('cast', 'down', 'low')
    draft.op('full', '', 'shape')
    draft.op('reshape', 'up shape', 'flat')
    draft.op('add', 'x flat', 'a')
    draft.op('matmul', 'a low', 'b')
    assert told(draft, '', 'blocks', 'blocks.0') == {
        'cast': 'blocks.0.down',
        'full': 'blocks.0',
        'reshape': 'blocks.0.up',
        'add': 'blocks.0.up',
        'matmul': 'blocks.0.down'
    }


def test_gradients_are_told_behind_the_boundary_and_sums_of_them_are_their_parameters() -> None:
    """`up` is cast and used twice, so its gradient is a sum that is cast; the last is that of the input."""
    draft = draft_of('low s a b c g gc gb gb2 ga gs once twice sum')
    draft.value('gx', rows=8, fetched=True)
    draft.values('gup gdown', fetched=True)
    draft.op('cast', 'up', 'low')
    for kind, reads, makes in (('scale', 'x', 's'), ('matmul', 's low', 'a'),
                               ('again', 'a low', 'b'), ('product', 'b down', 'c'), (BOUNDARY, '',
                                                                                     'g')):
        draft.op(kind, reads, makes).facts = OpFacts(boundary=kind == BOUNDARY)
    for kind, reads, makes in (('loss_grad', 'g', 'gc'), ('product_grad', 'gc b down', 'gb gdown'),
                               ('gelu_grad', 'gb a', 'gb2'), ('again_grad', 'gb2 low', 'ga once'),
                               ('matmul_grad', 'ga low', 'gs twice'), ('sum', 'once twice', 'sum'),
                               ('cast_grad', 'sum', 'gup'), ('scale_grad', 'gs', 'gx')):
        draft.op(kind, reads, makes)
    found = told(draft, '', 'blocks')
    assert {
        kind: found[kind] for kind in found if kind.endswith('_grad')
    } == {
        'loss_grad': 'blocks',
        'product_grad': 'blocks.0.down',
        'gelu_grad': 'blocks.0',
        'again_grad': 'blocks.0.up',
        'matmul_grad': 'blocks.0.up',
        'cast_grad': 'blocks.0.up',
        'scale_grad': 'blocks'
    }
