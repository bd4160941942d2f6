"""Prints, a line each, the operators with a variant in place whose result has more rows than the operand that it may work on, by what Paddle
infers. Each is asked in a child: some bindings read arguments that are not there."""
from __future__ import annotations

import os
from itertools import product
from typing import Iterator

import paddle
from paddle import _C_ops, static
from paddle.base.core import Place

ONE, MANY = [1, 8], [64, 8]
# After the first operand, which has one row.
_OTHERS = ((MANY,), (MANY, ONE), (ONE, MANY), (MANY, MANY))
_DTYPES = (paddle.float32, paddle.int64)
_ATTRIBUTES = ((), (1.0,))


def kinds() -> Iterator[str]:
    for name in dir(_C_ops):
        if name.endswith('_') and not name.endswith(
            ('_grad_', '__')) and hasattr(_C_ops, name[:-1]):
            yield name[:-1]


def grows(kind: str) -> bool:
    return any(_rows_of(kind, *asked) == MANY for asked in product(_DTYPES, _OTHERS, _ATTRIBUTES))


def _rows_of(kind: str, dtype: object, others: object, attributes: object) -> object:
    with static.program_guard(static.Program(), static.Program()):
        given = [
            _C_ops.data(f'x{i}', each, dtype, Place()) for i, each in enumerate((ONE, *others))
        ]
        try:
            made = getattr(_C_ops, kind)(*given, *attributes)
        except Exception:  # the bindings throw what they do
            return None
        return list((made[0] if isinstance(made, (list, tuple)) else made).shape)


def main() -> None:
    paddle.enable_static()
    paddle.disable_signal_handler()  # or each crash is told on stdout
    for kind in kinds():
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if grows(kind):
                os.write(1, f'{kind}\n'.encode())
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == '__main__':
    main()
