"""Whether the gradient of a broadcast works in place is what Paddle's kernel does."""
from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import paddle
import pytest

from transpiler.backends.paddle2.broadcasts import works_in_place
from transpiler.backends.paddle2.importer import import_program

SHAPES = [([4, 8], [8]), ([4, 8], [1, 8]), ([4, 8], [4, 1]), ([2, 4, 8], [2, 1, 8]),
          ([2, 4, 8], [4, 8]), ([2, 4, 8], [1, 4, 8]), ([2, 4, 8], [2, 4, 1]), ([2, 4, 8], [1]),
          ([1, 8], [1, 8]), ([4, 8], [1, 1])]


def gradient_of_a_sum(x: List[int], y: List[int]) -> Tuple[Any, Any, str]:
    """A program whose gradient of x has the memory of the sum's gradient when its kernel starts."""
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        block = main.global_block()
        given = paddle.scale(paddle.static.data('given', x), 2.0)
        operands = paddle.static.data('x', x), paddle.static.data('y', y)
        made = [
            block.create_var(name=name, shape=shape, dtype='float32', persistable=True)
            for name, shape in (('dx', x), ('dy', y))
        ]
        given.persistable = True
        block.append_op(type='share_buffer',
                        inputs={'X': [given]},
                        outputs={
                            'Out': [made[0]],
                            'XOut': [given]
                        },
                        attrs={'share_dims_and_dtype': [False]})
        gradient = block.desc.append_op()
        gradient.set_type('elementwise_add_grad')
        for slot, value in zip(('X', 'Y', 'Out@GRAD'), (*operands, given)):
            gradient.set_input(slot, [value.name])
        for slot, value in zip(('X@GRAD', 'Y@GRAD'), made):
            gradient.set_output(slot, [value.name])
        gradient._set_attr('axis', -1)
        main._sync_with_cpp()
    return main, given, made[0].name


@pytest.mark.parametrize('x,y', SHAPES, ids=str)
def test_a_kernel_works_in_place_where_it_is_said_to(x: List[int], y: List[int]) -> None:
    main, given, made = gradient_of_a_sum(x, y)
    graph = import_program(main.desc.serialize_to_string(), []).graph
    said = next(works_in_place(graph, op) for op in graph.ops if op.kind == 'elementwise_add_grad')
    scope = paddle.static.Scope()
    feed = {'x': np.ones(x, 'float32'), 'y': np.ones(y, 'float32'), 'given': np.ones(x, 'float32')}
    with paddle.static.scope_guard(scope):
        paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=['dy'])
        memories = {scope.find_var(name).get_tensor()._ptr() for name in (given.name, made)}
    assert said == (len(memories) == 1)
