"""What Paddle Inference makes of a saved program: its own passes, run once and kept."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.descs import keep_variables, named_by
from transpiler.backends.paddle2.importer import import_message, parse
from transpiler.backends.scopes import passing_scope
from transpiler.errors import InvalidProgramError, SavedFileError
from transpiler.serving.files import SavedProgram
from transpiler.serving.forks import in_a_fork
from transpiler.serving.parameters import check_parameters, parameters_of


@dataclass(frozen=True)
class FusedProgram:
    """A program after Paddle's passes, and the file contents of the parameters that go with it."""

    message: framework_pb2.ProgramDesc
    parameters: bytes


def fuse(saved: SavedProgram, onednn: bool) -> FusedProgram:
    """Runs the passes that a predictor runs on the CPU when it loads `saved`.

    Raises:
        InvalidProgramError: Paddle cannot load the program.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, parameters = Path(folder) / 'program', Path(folder) / 'parameters'

        def work() -> None:
            import_message(saved.message)  # which asks Paddle about each operator
            made = _fused(saved, onednn)
            program.write_bytes(made.message.SerializeToString())
            parameters.write_bytes(made.parameters)

        in_a_fork(work, str(saved.path))
        return FusedProgram(parse(program.read_bytes()), parameters.read_bytes())


def _fused(saved: SavedProgram, onednn: bool) -> FusedProgram:
    config = core.AnalysisConfig(*saved.location)
    config.disable_glog_info()
    if not onednn:
        config.disable_mkldnn()
    try:
        predictor = core.create_paddle_predictor(config)
    except Exception as error:  # Paddle's own errors have no common base
        raise InvalidProgramError(f'{saved.path}: Paddle Inference cannot load it: '
                                  f'{_first_line(error)}') from error
    message = parse(predictor.program().serialize_to_string())
    _drop_unused(message)
    return FusedProgram(message, _saved_parameters(message, predictor.scope()))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _drop_unused(message: framework_pb2.ProgramDesc) -> None:
    """Variables that no op names any more, such as weights that were folded into others."""
    named = named_by(*(op for block in message.blocks for op in block.ops))
    for block in message.blocks:
        keep_variables(block, named)


def parameter_names(message: framework_pb2.ProgramDesc) -> List[str]:
    """Names of all parameters, in the order in which a combined file has them."""
    return sorted(v.name
                  for v in message.blocks[0].vars
                  if v.persistable and v.type.type == framework_pb2.VarType.LOD_TENSOR)


def _saved_parameters(message: framework_pb2.ProgramDesc, scope: Any) -> bytes:
    """What Paddle's own save operator, which refuses to write none, writes for the tensors in `scope`."""
    if not parameter_names(message):
        return b''
    # A scope of its own: running in the predictor's would drop the scope that the predictor works in.
    with passing_scope() as shared, tempfile.TemporaryDirectory() as folder:
        for name in parameter_names(message):
            shared.var(name).get_tensor()._share_data_with(scope.find_var(name).get_tensor())
        target = Path(folder) / 'parameters'
        program = core.ProgramDesc(_save_program(message, str(target)).SerializeToString())
        place = core.Place()
        place.set_place(core.CPUPlace())
        core.Executor(place).run(program, shared, 0, False, True, [])
        _check_whole(target, message)
        return target.read_bytes()


def _check_whole(target: Path, message: framework_pb2.ProgramDesc) -> None:
    """Paddle says nothing of what it could not write."""
    names = set(parameter_names(message))
    try:
        check_parameters(target,
                         parameters_of(v for v in message.blocks[0].vars if v.name in names))
    except SavedFileError as error:
        raise SavedFileError(
            f'the parameters could not be written to {target.parent}, where temporary files go: {error}; '
            'make room there, or set TMPDIR') from error


def _save_program(message: framework_pb2.ProgramDesc, path: str) -> framework_pb2.ProgramDesc:
    names = parameter_names(message)
    program = framework_pb2.ProgramDesc()
    block = program.blocks.add(idx=0, parent_idx=-1)
    block.vars.extend(v for v in message.blocks[0].vars if v.name in set(names))
    result = block.vars.add(name='transpiler.saved', persistable=True)
    result.type.type = framework_pb2.VarType.RAW
    op = block.ops.add(type='save_combine')
    op.inputs.add(parameter='X', arguments=names)
    op.outputs.add(parameter='Y', arguments=[result.name])
    op.attrs.add(name='file_path', type=framework_pb2.STRING, s=path)
    return program
