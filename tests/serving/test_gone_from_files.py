"""Each intermediate name of a file that `optimize` wrote gives the bytes that it gave, or Paddle's error: nothing else, and nothing empty."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import paddle
from click.testing import CliRunner
from paddle import static
from paddle.base import core

from tests.harness import fresh_scope
from tests.serving.programs import save_tiny, training_program
from transpiler.cli import main as command

Values = Dict[str, Optional[bytes]]  # None: Paddle refuses to fetch it


def optimized(path: Path, *options: str) -> Path:
    out = path.parent / f'small{path.suffix}'
    done = CliRunner().invoke(command, ['optimize', str(path), '-o', str(out), '--force', *options])
    assert done.exit_code == 0, done.output
    return out


def intermediates(program: static.Program) -> List[str]:
    """Names of tensors of the main block that an operator writes."""
    block = program.global_block()
    written = {n for op in block.ops if op.type != 'fetch' for n in op.output_arg_names}
    return sorted(n for n in written & set(block.vars) if not block.var(n).persistable and
                  not block.var(n).is_data and block.var(n).type == core.VarDesc.VarType.LOD_TENSOR)


def fetched(executor: Any, program: static.Program, feed: Dict[str, Any],
            names: List[str]) -> Values:
    found: Values = {}
    for name in names:
        try:
            value = executor.run(program, feed=feed, fetch_list=[name])[0]
        except Exception:  # whatever Paddle says; an answer is what is judged
            found[name] = None
        else:
            found[name] = value.tobytes()
    return found


def compared(before: Values, after: Values) -> None:
    """What is answered is right, and something is answered."""
    answered = {n: v for n, v in after.items() if v is not None}
    assert answered == {n: before[n] for n in answered}
    assert answered
    assert all(before.values())


def test_a_served_model(tmp_path: Path) -> None:
    plain = save_tiny(tmp_path)
    small = optimized(tmp_path / 'tiny.pdmodel', '--batch-size', '4', '--no-onednn')
    image = np.random.RandomState(0).rand(4, 3, 8, 8).astype('float32')
    values = []
    for path in (plain, small.with_suffix('')):
        with fresh_scope():
            executor = static.Executor(paddle.CPUPlace())
            program, feeds, _ = static.load_inference_model(str(path), executor)
            names = intermediates(program) if path == plain else names
            values.append(fetched(executor, program, {feeds[0]: image}, names))
    compared(*values)
    assert None in values[1].values()


def test_a_training_program(tmp_path: Path) -> None:
    plain = training_program()
    (tmp_path / 'train').write_bytes(plain.desc.serialize_to_string())
    small = static.Program.parse_from_string(
        optimized(tmp_path / 'train', '--fetch', 'loss').read_bytes())
    block, weights = plain.global_block(), {}
    dice = np.random.RandomState(0)
    for variable in block.vars.values():
        if variable.persistable:
            weights[variable.name] = dice.random_sample(variable.shape).astype('float32')
    feed = {'x': dice.rand(8, 64).astype('float32')}
    values = []
    for program in (plain, small):
        values.append({})
        for name in intermediates(plain)[::2]:  # each from the same weights: a run changes them
            with fresh_scope() as scope:
                for weight, value in weights.items():
                    scope.var(weight).get_tensor().set(value, paddle.CPUPlace())
                executor = static.Executor(paddle.CPUPlace())
                values[-1].update(fetched(executor, program, feed, [name]))
    compared(*values)
