"""What is released keeps its type, as it does when the executor's collector frees it: gradients ask for it with the shape."""
from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.harness import Case, Mode, assert_same_bytes, new_programs, run_case
from tests.scenarios.common import data
from transpiler import memory_optimize
from transpiler.backends.paddle2.importer import empty_of_type, is_release, type_of_empty

ROWS, WIDTH = 64, 16
MODES = (Mode(), Mode(order='sequential'), Mode(order='serial'), Mode(collect=False))


def _case(dtype: str, mean: bool) -> Case:
    """A sum whose operand only its gradient names again, for its shape; and one that leaves out what is no number."""
    with new_programs() as (main, startup):
        x = data('x', -1, WIDTH, dtype=dtype)
        weight = paddle.create_parameter([WIDTH, WIDTH], dtype)
        hidden = paddle.tanh(paddle.matmul(x, weight))
        scaled = hidden * 1.5 + hidden * 0.25
        total = paddle.sum(scaled, axis=0)
        if mean:
            total = total + paddle.nanmean(hidden, axis=0)
        loss = paddle.mean(total * total)
        paddle.optimizer.SGD(0.001).minimize(loss)
    batch = np.random.RandomState(2).rand(ROWS, WIDTH).astype(dtype)
    return Case(main, startup, lambda step: {'x': batch + step}, [loss.name])


def _released(case: Case) -> List[Tuple[str, str]]:
    """(type of the tensor without elements, type declared) by name that a release empties."""
    found = []
    for block in case.main.blocks:
        for op in (o.desc for o in block.ops):
            message = framework_pb2.OpDesc.FromString(op.serialize_to_string())
            if message.type == 'share_buffer' and is_release(message):
                given = type_of_empty(op.input('X')[0])
                declared = [block._var_recursive(n).desc.dtype().name for n in op.output('Out')]
                found += [(given, each) for each in declared]
    return found


@pytest.mark.parametrize('mode', MODES, ids=str)
@pytest.mark.parametrize('dtype, mean', (('float64', False), ('float32', True)))
def test_sums_train_to_equal_bytes_when_what_they_added_is_released(dtype: str, mean: bool,
                                                                    mode: Mode) -> None:
    case, plain = _case(dtype, mean), _case(dtype, mean)
    options: Any = {'runtime': 'executor' if mode.collect else 'predictor'}
    free = memory_optimize(_case(dtype, mean).main,
                           fetch_list=case.fetch,
                           batch_size=ROWS,
                           **options)
    report = memory_optimize(case.main,
                             fetch_list=case.fetch,
                             batch_size=ROWS,
                             budget=free.resting_bytes + free.budget_bytes,
                             **options)
    own = {'float64': 'FP64', 'float32': 'BOOL'}[dtype]
    assert report.changed and own in {given for given, _ in _released(case)}
    assert_same_bytes(run_case(plain, steps=3, mode=mode), run_case(case, steps=3, mode=mode))


def test_names_of_tensors_without_elements_say_their_type() -> None:
    assert empty_of_type('FP32') == 'transpiler.empty'
    for dtype in ('FP32', 'FP64', 'BOOL', 'BF16'):
        assert type_of_empty(empty_of_type(dtype)) == dtype
    wrong = ('transpiler.empty.', 'transpiler.empty.FP32', 'transpiler.empty.FP65', 'x',
             'transpiler.empty_array', 'x.transpiler.empty.FP64')
    assert not any(map(type_of_empty, wrong))
