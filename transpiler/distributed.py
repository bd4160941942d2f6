"""memory_optimize as a pass of `paddle.distributed.passes`: to import this module registers it under the name 'memory_optimize'.

    import transpiler.distributed
    passes = [new_pass('fuse_all_reduce', {...}), new_pass('memory_optimize', {'fetch_list': [loss], 'batch_size': 8})]
    context = PassManager(passes).apply([main], [startup])
    print(context.get_attr('memory_report'))

Paddle 2.6. It runs behind all others: what they do after it would not be planned for.
"""

from __future__ import annotations

import inspect
from typing import Any, FrozenSet

from paddle.distributed.passes.pass_base import PassBase, PassType, register_pass

from transpiler.api import memory_optimize
from transpiler.errors import InvalidArgumentError

NAME = 'memory_optimize'
REPORT = 'memory_report'
_PROGRAM = 'input_program'


def _arguments() -> FrozenSet[str]:
    return frozenset(inspect.signature(memory_optimize).parameters) - {_PROGRAM}


@register_pass(NAME)
class MemoryOptimizePass(PassBase):  # type: ignore[misc]
    """Its attributes are memory_optimize's arguments. The context gets the report, or those of several programs, as
    'memory_report'.

    Raises, when it is applied:
        InvalidArgumentError: an attribute that is no argument of memory_optimize.
        TranspilerError: see memory_optimize; programs that stand before the one at fault are rewritten then.
    """

    def _type(self) -> Any:
        return PassType.FUSION_OPT  # these come last, in an order that Paddle lists

    def _check_self(self) -> bool:
        return True  # Paddle would leave out a pass that says no, without a word

    def _check_conflict(self, other_pass: Any) -> bool:
        return True

    def _apply_single_impl(self, main_program: Any, startup_program: Any, context: Any) -> None:
        unknown = sorted(set(self._attrs) - _arguments())
        if unknown:
            raise InvalidArgumentError(
                f'the pass {NAME!r} has no attribute {unknown[0]!r}; its attributes are the '
                f'arguments of memory_optimize: {", ".join(sorted(_arguments()))}')
        report = memory_optimize(main_program, **self._attrs)
        made = context.get_attr(REPORT)
        if made is None:
            context.set_attr(REPORT, report)
        else:
            context.set_attr(REPORT, [*(made if isinstance(made, list) else [made]), report])


if NAME not in PassBase._PASS_PROCESS_ORDER_LIST:
    PassBase._PASS_PROCESS_ORDER_LIST.append(NAME)
