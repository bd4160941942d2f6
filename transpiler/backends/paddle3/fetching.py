"""Who fetches what an optimized program has let go of is told so, by name, and what to do about it.

Paddle would say that a tensor has no room for its elements; and where two results are one variable, it would give out the later one.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set

from transpiler.backends.paddle3.naming import value_names
from transpiler.backends.paddle3.releases import is_release, unites
from transpiler.errors import MergedVariableError

FETCH = 'pd_op.fetch'


def refuse_what_is_gone(program: Any) -> None:
    """Raises MergedVariableError if `program`, which was rewritten, is to give out what it releases, or overwrites with another result."""
    block = program.global_block()
    gone = _gone(block)
    asked = [op.operand_source(0) for op in block.ops if op.name() == FETCH]
    name = next((value_names(program)[v.id] for v in asked if v.id in gone), None)
    if name is not None:
        raise MergedVariableError(
            f'{name!r} cannot be fetched: memory_optimize releases it after its last use, or has others in its memory. '
            'Build the program again and pass what is to be fetched in fetch_list: '
            'memory_optimize(program, fetch_list=[...])')


def _gone(block: Any) -> Set[str]:
    """Ids of the values of `block` that hold something else, or nothing, when it has run. Of those in one variable the last one is left,
    unless it is released."""
    variables: Dict[str,
                    List[str]] = {}  # by each value in it: ids, in the order in which they are made
    released: Set[str] = set()
    for op in block.ops:
        if unites(op):
            first, second = (v.id for v in op.operands_source())
            variable = variables.setdefault(first, [first])
            variable.append(second)
            variables[second] = variable
        elif is_release(op):
            released.add(op.operand_source(0).id)
    return {v for variable in variables.values() for v in _lost(variable, released)} | released


def _lost(variable: List[str], released: Set[str]) -> Iterator[str]:
    yield from variable if not released.isdisjoint(variable) else variable[:-1]
