"""Small saved programs of every kind that Paddle writes."""
from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import paddle
from click.testing import CliRunner
from paddle import static
from paddle.base import core
from paddle.base.proto import framework_pb2

from benchmarks.programs import small_options
from benchmarks.saving import save
from transpiler.backends.scopes import passing_scope
from transpiler.cli import main as command


def save_tiny(folder: Path, name: str = 'tiny') -> Path:
    """A convolution, batch norm, relu, a residual and a classifier, by save_inference_model."""
    paddle.enable_static()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        paddle.seed(1)
        image = static.data('image', [-1, 3, 8, 8], 'float32')
        hidden = paddle.nn.functional.relu(
            paddle.nn.BatchNorm2D(8)(paddle.nn.Conv2D(3, 8, 3, padding=1)(image)))
        for _ in range(3):
            hidden = hidden + paddle.nn.functional.relu(
                paddle.nn.Conv2D(8, 8, 3, padding=1)(hidden))
        scores = static.nn.fc(hidden, 10)
        main = main.clone(for_test=True)
        executor = static.Executor(paddle.CPUPlace())
        with passing_scope() as scope, static.scope_guard(scope):
            executor.run(startup)
            static.save_inference_model(str(folder / name), [image],
                                        [main.global_block().var(scores.name)],
                                        executor,
                                        program=main,
                                        clip_extra=False)
    return folder / name


def save_benchmark(folder: Path, name: str) -> Path:
    """The inference version of a benchmark program at test size, and its inputs as .npz."""
    return save(folder, name, small_options(name))


def training_program() -> static.Program:
    """A small perceptron with its backward and SGD; the loss is called `loss`."""
    paddle.enable_static()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data('x', [-1, 64], 'float32')
        for width in (256, 256, 256, 64):
            x = static.nn.fc(x, width, activation='relu')
        loss = paddle.assign(paddle.mean(x))
        main.global_block()._rename_var(loss.name, 'loss')
        paddle.optimizer.SGD(0.1).minimize(main.global_block().var('loss'))
    return main


def contents(folder: Path) -> Dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob('*') if p.is_file()}


def names(folder: Path) -> List[str]:
    return sorted(contents(folder))


def save_old_folder(saved: Path, folder: Path) -> Path:
    """The program as a folder of 1.x, with a file for each parameter, as Paddle's own `save` operator writes it."""
    paddle.enable_static()
    executor, saving = static.Executor(paddle.CPUPlace()), static.Program()
    folder.mkdir()
    with passing_scope() as scope, static.scope_guard(scope):
        program = static.load_inference_model(str(saved), executor)[0]
        for variable in program.list_vars():
            if variable.persistable and variable.type == core.VarDesc.VarType.LOD_TENSOR:
                block = saving.global_block()
                kept = block.create_var(name=variable.name, persistable=True)
                block.append_op(type='save',
                                inputs={'X': [kept]},
                                outputs={},
                                attrs={'file_path': str(folder / variable.name)})
        executor.run(saving)
    message = framework_pb2.ProgramDesc.FromString(Path(f'{saved}.pdmodel').read_bytes())
    message.ClearField('op_version_map')  # which came with 2.0
    message.version.version = 0
    (folder / '__model__').write_bytes(message.SerializeToString())
    return folder


def refused(path: Path, *arguments: str) -> str:
    """What `optimize` says in one line when it refuses; it leaves the files as they are."""
    before = contents(path.parent)
    done = CliRunner().invoke(
        command,
        ['optimize', str(path), '-o', str(path) + '.new', *arguments])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    assert contents(path.parent) == before
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith('error: ')
    return lines[0]
