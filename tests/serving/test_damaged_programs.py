"""Programs that are damaged or forged, field by field: each is refused in one line or still is a program; nothing ends the process."""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Callable

import pytest
from click.testing import CliRunner
from paddle.base.proto import framework_pb2

from benchmarks.programs import build, small_options
from tests.serving.damage import damage
from tests.serving.programs import contents, save_tiny, training_program
from transpiler.cli import main

Edit = Callable[[framework_pb2.ProgramDesc], None]
CASES = 12  # of each program


@pytest.fixture(scope='module')
def programs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('programs')
    save_tiny(folder)
    (folder / 'train').write_bytes(training_program().desc.serialize_to_string())
    case = build('loop_in_cond', small_options('loop_in_cond'))
    (folder / 'loop').write_bytes(case.main.desc.serialize_to_string())
    return folder


FETCH = {'tiny': [], 'train': ['--fetch', 'loss'], 'loop': ['--fetch', 'reduce_mean_0.tmp_0']}


def run(folder: Path, name: str, edit: Edit, *arguments: str):
    """What `optimize` makes of the program once it is edited."""
    suffix = '.pdmodel' if name == 'tiny' else ''
    message = framework_pb2.ProgramDesc.FromString((folder / (name + suffix)).read_bytes())
    edit(message)
    target = folder / f'{name}-damaged{suffix}'
    target.write_bytes(message.SerializePartialToString())
    if name == 'tiny':
        shutil.copy(folder / 'tiny.pdiparams', folder / 'tiny-damaged.pdiparams')
    before = contents(folder)
    done = CliRunner().invoke(
        main,
        ['optimize',
         str(target), '-o',
         str(folder / 'out'), '--force', *FETCH[name], *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert 'internal error' not in lines[0]
    if done.exit_code:
        assert done.exit_code == 1 and lines[0].startswith('error: ')
        assert contents(folder) == before
    return done


@pytest.mark.parametrize('seed', range(CASES))
@pytest.mark.parametrize('name', FETCH)
def test_a_damaged_program_is_refused_in_one_line_or_still_is_one(name, seed, programs, tmp_path):
    shutil.copytree(programs, tmp_path / 'here')
    run(tmp_path / 'here', name, lambda m: damage(m, 1000 + seed) and None)


def first(message: framework_pb2.ProgramDesc, kind: str) -> framework_pb2.OpDesc:
    return next(op for block in message.blocks for op in block.ops if op.type == kind)


def attribute(op: framework_pb2.OpDesc, name: str) -> framework_pb2.OpDesc.Attr:
    return next(a for a in op.attrs if a.name == name)


def variable(message: framework_pb2.ProgramDesc, name: str) -> framework_pb2.VarDesc:
    return next(v for v in message.blocks[0].vars if v.name == name)


def runs(outer: int, inner: int) -> Edit:
    """An edit that gives block `inner` to an operator of block `outer`."""

    def edit(message: framework_pb2.ProgramDesc) -> None:
        message.blocks[outer].ops[0].attrs.add(name='sub_block',
                                               type=framework_pb2.BLOCK,
                                               block_idx=inner)

    return edit


def typed(kind: str, name: str, given: int) -> Edit:

    def edit(message: framework_pb2.ProgramDesc) -> None:
        found = attribute(first(message, kind), name)
        found.Clear()
        found.name, found.type = name, given

    return edit


def doubled(message: framework_pb2.ProgramDesc) -> None:
    again = message.blocks[0].vars.add()
    again.CopyFrom(variable(message, 'fc_0.tmp_0'))
    again.type.lod_tensor.tensor.data_type = framework_pb2.VarType.FP64


def elements_of(kind: int) -> Edit:

    def edit(message: framework_pb2.ProgramDesc) -> None:
        variable(message, 'fc_0.tmp_0').type.lod_tensor.tensor.data_type = kind

    return edit


def huge(message: framework_pb2.ProgramDesc) -> None:
    variable(message, 'x').type.lod_tensor.tensor.dims[1] = 2**61


MALFORMED = {
    'a block that runs itself': ('loop', runs(1, 1), 'runs itself'),
    'blocks that run each other': ('loop', runs(2, 1), 'runs itself'),
    'a block that runs the main block': ('loop', runs(1, 0), 'runs itself'),
    'a block that is not there': ('train', runs(0, 7), "names a block that is not there"),
    'a gradient of no block': ('loop', lambda m: setattr(m.blocks[1], 'forward_block_idx', 40),
                               'says that it is the gradient of block 40'),
    'op_role': ('train', typed('relu', 'op_role', framework_pb2.STRING),
                "has attribute 'op_role' as STRING, which is INT"),
    'op_callstack': ('train', typed('relu', 'op_callstack', framework_pb2.INT),
                     "has attribute 'op_callstack' as INT, which is STRINGS"),
    'op_role of a gradient': ('train', typed('relu_grad', 'op_role', framework_pb2.FLOAT),
                              "has attribute 'op_role' as FLOAT, which is INT"),
    'no input': ('train', lambda m: first(m, 'relu').inputs.pop() and None, "has no input 'X'"),
    'no input of a gradient':
        ('train', lambda m: first(m, 'mul_grad').ClearField('inputs'), 'damaged'),
    'no variable': ('train', lambda m: m.blocks[0].vars.remove(variable(m, 'fc_0.tmp_0')),
                    "variable 'fc_0.tmp_0' of operator 'mul' (op 0 of block 0) is not declared"),
    'two variables of one name': ('train', doubled, "'fc_0.tmp_0' of block 0 is declared twice"),
    'a dtype that is none': ('train', elements_of(framework_pb2.VarType.TUPLE),
                             'has elements of type TUPLE, which is none'),
    'dims that are none':
        ('train', lambda m: variable(m, 'x').type.lod_tensor.tensor.dims.__setitem__(0, -5),
         'dims that no tensor has'),
    'more bytes than there are': ('train', huge, 'bytes, more than there are'),
}


@pytest.mark.parametrize('what', MALFORMED)
def test_what_is_malformed_is_named(what, programs, tmp_path):
    name, edit, said = MALFORMED[what]
    shutil.copytree(programs, tmp_path / 'here')
    done = run(tmp_path / 'here', name, edit)
    assert done.exit_code == 1 and said in done.output, done.output


def test_what_paddle_ends_on_ends_no_more_than_a_fork(programs, tmp_path):
    """The shape inference of relu writes to an output that is not there."""
    shutil.copytree(programs, tmp_path / 'here')
    done = run(tmp_path / 'here', 'train', lambda m: first(m, 'relu').outputs.pop() and None)
    assert done.exit_code == 1 and 'damaged: Paddle ends with SIGSEGV' in done.output, done.output
    target = str(tmp_path / 'here' / 'train-damaged')
    done = CliRunner().invoke(main, ['check', target, target, '--fetch', 'loss'])
    assert done.exit_code == 1 and 'damaged: Paddle ends with SIGSEGV' in done.output, done.output
    assert len(done.output.splitlines()) == 1


def test_a_duplicate_that_is_alike_is_harmless(programs, tmp_path):
    shutil.copytree(programs, tmp_path / 'here')
    done = run(tmp_path / 'here', 'train',
               lambda m: m.blocks[0].vars.add().CopyFrom(variable(m, 'fc_0.tmp_0')))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize('name', ['[/]', '<a href="x">', '\x1b[31m', ':smile:'])
def test_a_variable_of_any_name_is_reported(name, programs, tmp_path):
    shutil.copytree(programs, tmp_path / 'here')

    def edit(message: framework_pb2.ProgramDesc) -> None:
        for op in message.blocks[0].ops:
            for slot in [*op.inputs, *op.outputs]:
                slot.arguments[:] = [name if n == 'fc_0.tmp_0' else n for n in slot.arguments]
        variable(message, 'fc_0.tmp_0').name = name

    done = run(tmp_path / 'here', 'train', edit, '--batch-size', '2048', '--recompute', 'off')
    assert done.exit_code == 0, done.output
    assert '\x1b' not in done.output


@pytest.mark.parametrize('depth', [12, 1000])
def test_nested_blocks_are_planned_or_refused_in_one_line(depth, programs, tmp_path):
    """Each block runs the next one under a condition."""
    shutil.copytree(programs, tmp_path / 'here')

    def nested(message: framework_pb2.ProgramDesc) -> None:
        flag = message.blocks[0].vars.add(name='flag')
        flag.type.type = framework_pb2.VarType.LOD_TENSOR
        flag.type.lod_tensor.tensor.data_type = framework_pb2.VarType.BOOL
        flag.type.lod_tensor.tensor.dims.append(1)
        flag.persistable = True
        for inner in range(1, depth + 1):
            message.blocks.add(idx=inner, parent_idx=inner - 1)
            op = message.blocks[inner - 1].ops.add(type='conditional_block_infer')
            op.inputs.add(parameter='Cond', arguments=['flag'])
            op.inputs.add(parameter='Input')
            op.outputs.add(parameter='Out')
            scope = message.blocks[inner - 1].vars.add(name=f'scope{inner}')
            scope.type.type = framework_pb2.VarType.STEP_SCOPES
            op.outputs.add(parameter='Scope', arguments=[scope.name])
            op.attrs.add(name='sub_block', type=framework_pb2.BLOCK, block_idx=inner)
            op.attrs.add(name='is_scalar_condition', type=framework_pb2.BOOLEAN, b=True)
        last = message.blocks[depth].ops.add(type='assign')
        last.inputs.add(parameter='X', arguments=['flag'])
        last.outputs.add(parameter='Out', arguments=['flag'])

    done = run(tmp_path / 'here', 'train', nested)
    assert done.exit_code == 0 or depth == 1000, done.output
