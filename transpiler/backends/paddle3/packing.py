"""Programs of Paddle 3 in bytes, and where in them the values are that have no name there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import paddle
from paddle.base import core

from transpiler.backends.paddle3.blocks import CREATE
from transpiler.backends.paddle3.naming import DECLARATIONS, declared_name, value_names
from transpiler.errors import InvalidArgumentError

Place = Tuple[
    int, int]  # of a value: the op of the main block that makes it, and which of its results it is


def load(serialized: bytes) -> Any:
    """The program; whatever Paddle throws if it is none."""
    program = paddle.static.Program()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'program.json'
        path.write_bytes(serialized)
        core.deserialize_pir_program(str(path), program)
    return program


def dump(program: Any, trainable: bool) -> bytes:
    """As `paddle.static.save_inference_model` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'program.json'
        core.serialize_pir_program(program, str(path), True, False, trainable)
        return path.read_bytes()


def trains_blocks(program: Any) -> bool:
    """Whether it has trained loops or branches. Paddle 3 takes their stacks out of what it writes, and aborts at those that are in use."""
    return any(op.name() == CREATE for op in program.global_block().ops)


def dump_trained(program: Any) -> bytes:
    """The same of a program that may train, but no blocks (`trains_blocks`): what Paddle is given to write is a copy."""
    return dump(program.clone(), True)


def places(program: Any, names: Sequence[str]) -> List[Place]:
    """Where the values are that have these names in the end."""
    called = value_names(program)
    last: Dict[str, Place] = {}
    for at, op in enumerate(program.global_block().ops):
        last.update((called[value.id], (at, slot)) for slot, value in _made(op))
    return [last[name] for name in names]


def values_at(program: Any, found: Sequence[Place]) -> List[Any]:
    """The values at these places."""
    ops = program.global_block().ops
    return [ops[at].result(slot) for at, slot in found]


def places_in_copy(program: Any, copy: Any, found: Sequence[Place],
                   copies: Dict[int, int]) -> List[Place]:
    """Where the values are in `copy`, whose ops may stand in another order; `copies` has ids of its ops by those of `program`'s. What
    declares stands for what declares the same."""
    ops, there = program.global_block().ops, list(enumerate(copy.global_block().ops))
    by_id = {op.id(): at for at, op in there}
    declared = {_declares(op): at for at, op in there if op.name() in DECLARATIONS}

    def moved(at: int) -> int:
        op = ops[at]
        if op.name() in DECLARATIONS:
            return declared[_declares(op)]
        if op.id() not in copies:
            raise InvalidArgumentError(
                f'verify_runs: {op.name()} {at} is there for one part of what another operator makes, which '
                'cannot be told in a copy of the program; fetch that operator\'s operand, or something made of the part'
            )
        return by_id[copies[op.id()]]

    return [(moved(at), slot) for at, slot in found]


def _declares(op: Any) -> Tuple[str, str]:
    return op.name(), declared_name(op)


def _made(op: Any) -> Iterator[Tuple[int, Any]]:
    return ((slot, value) for slot, value in enumerate(op.results()) if value.initialized())
