"""Programs of older Paddles: optimised, or one clear line that names the operator or the attribute."""
from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static
from paddle.base.proto import framework_pb2

from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import refused, training_program
from transpiler.cli import main
from transpiler.serving.apart import RunSpec
from transpiler.serving.running import run

Message = framework_pb2.ProgramDesc


def edited(tiny: Path, folder: Path, edit: Callable[[Message], None]) -> Path:
    """The program as an older Paddle would have it, next to the same parameters."""
    message = Message.FromString(Path(f'{tiny}.pdmodel').read_bytes())
    edit(message)
    (folder / 'old.pdmodel').write_bytes(message.SerializeToString())
    (folder / 'old.pdiparams').write_bytes(Path(f'{tiny}.pdiparams').read_bytes())
    return folder / 'old'


def the_same(path: Path, feed: str, expected: List[str]) -> bool:
    out = str(path) + '.new'
    done = CliRunner().invoke(main, ['optimize', str(path), '-o', out])
    assert done.exit_code == 0, done.output
    return run(RunSpec(out, feed, runs=1)).digests == expected


def operators(message: Message, kind: str):
    return [op for op in message.blocks[0].ops if op.type == kind]


def with_version(number: int) -> Callable[[Message], None]:

    def edit(message: Message) -> None:
        message.ClearField('op_version_map')  # which came with 2.0
        message.version.version = number

    return edit


def with_attributes_of_old(message: Message) -> None:
    for op in operators(message, 'conv2d'):
        for name in ('use_cudnn', 'use_mkldnn', 'use_quantizer', 'fuse_relu_before_depthwise_conv',
                     'exhaustive_search', 'with_quant_attr', 'gone_with_1_8'):
            op.attrs.add(name=name, type=framework_pb2.BOOLEAN, b=False)
        op.attrs.add(name='mkldnn_data_type', type=framework_pb2.STRING, s='float32')
        op.attrs.add(name='workspace_size_MB', type=framework_pb2.INT, i=512)


def without_attributes_that_came_later(message: Message) -> None:
    later = {
        'conv2d': ('padding_algorithm', 'data_format'),
        'batch_norm': ('trainable_statistics',)
    }
    for kind, names in later.items():
        for op in operators(message, kind):
            kept = [
                framework_pb2.OpDesc.Attr.FromString(a.SerializeToString())
                for a in op.attrs
                if a.name not in names
            ]
            del op.attrs[:]
            op.attrs.extend(kept)


@pytest.mark.parametrize('edit', [
    with_version(0),
    with_version(1008000),
    with_version(2000000), with_attributes_of_old, without_attributes_that_came_later
])
def test_older_versions_and_attributes_give_the_same_bytes(tiny, tmp_path, edit):
    feed = str(tiny) + '.npz'
    path = edited(tiny, tmp_path, edit)
    assert the_same(path, feed, run(RunSpec(str(tiny), feed, runs=1)).digests)


def test_operators_of_version_1_are_optimised(tmp_path):
    """The kinds that 1.x wrote and today's layers do not: mul, matmul, reshape, transpose, lookup_table, top_k."""
    paddle.enable_static()
    program, startup = static.Program(), static.Program()
    with static.program_guard(program, startup), paddle.utils.unique_name.guard():
        words = static.data('words', [-1, 6, 1], 'int64')
        table = paddle.create_parameter([20, 8], 'float32')
        weight = paddle.create_parameter([8, 8], 'float32')
        block = program.global_block()

        def append(kind, inputs, attributes, results=('Out',), dtype='float32'):
            made = [block.create_var(dtype=dtype) for _ in results]
            block.append_op(type=kind,
                            inputs=inputs,
                            outputs=dict(zip(results, made)),
                            attrs=attributes)
            return made[0]

        embedded = append('lookup_table', {'Ids': words, 'W': table}, {'padding_idx': -1})
        turned = append('transpose', {'X': embedded}, {'axis': [0, 2, 1]})
        back = append('transpose', {'X': turned}, {'axis': [0, 2, 1]})
        scores = append('matmul', {'X': back, 'Y': back}, {'transpose_Y': True, 'alpha': 0.5})
        mixed = append('matmul', {'X': scores, 'Y': embedded}, {})
        flat = append('reshape', {'X': mixed}, {'shape': [-1, 8]})
        hidden = append('mul', {'X': flat, 'Y': weight}, {'x_num_col_dims': 1, 'y_num_col_dims': 1})
        best = append('top_k', {'X': hidden}, {'k': 3}, ('Out', 'Indices'))
        executor = static.Executor(paddle.CPUPlace())
        with fresh_scope():
            executor.run(startup)
            static.save_inference_model(str(tmp_path / 'v1'), [words], [best],
                                        executor,
                                        program=program)
    feed = str(tmp_path / 'v1.npz')
    np.savez(feed, words=np.random.RandomState(0).randint(0, 20, [3, 6, 1]))
    assert the_same(tmp_path / 'v1', feed, run(RunSpec(str(tmp_path / 'v1'), feed, runs=1)).digests)


# Kinds that Paddle 1.x had and this one has not.
@pytest.mark.parametrize('kind', ['lstm_unit', 'cos_sim', 'smooth_l1_loss', 'target_assign'])
def test_an_operator_that_is_gone_is_named(tiny, tmp_path, kind):

    def edit(message: Message) -> None:
        with_version(1008000)(message)
        operators(message, 'relu')[0].type = kind

    said = refused(edited(tiny, tmp_path, edit))
    assert f"operator '{kind}' (op 5 of block 0)" in said and 'saved by Paddle 1.8.0' in said


def test_an_operator_that_is_gone_from_a_training_program_is_named(tmp_path):
    message = Message.FromString(training_program().desc.serialize_to_string())
    operators(message, 'relu')[0].type = 'cos_sim'
    (tmp_path / 'train.bin').write_bytes(message.SerializeToString())
    assert "operator 'cos_sim'" in refused(tmp_path / 'train.bin', '--fetch', 'loss')


def test_an_attribute_that_is_gone_from_a_training_program_is_kept(tmp_path):
    message = Message.FromString(training_program().desc.serialize_to_string())
    for op in message.blocks[0].ops:
        op.attrs.add(name='gone_with_1_8', type=framework_pb2.INT, i=7)
    (tmp_path / 'train.bin').write_bytes(message.SerializeToString())
    done = CliRunner().invoke(main, [
        'optimize',
        str(tmp_path / 'train.bin'), '-o',
        str(tmp_path / 'new.bin'), '--fetch', 'loss', '--recompute', 'off'
    ])
    assert done.exit_code == 0, done.output
    rewritten = Message.FromString((tmp_path / 'new.bin').read_bytes())
    kept = [
        op for op in rewritten.blocks[0].ops if any(a.name == 'gone_with_1_8' for a in op.attrs)
    ]
    assert len(kept) == len(message.blocks[0].ops)


def test_an_attribute_of_another_type_is_named(tiny, tmp_path):

    def edit(message: Message) -> None:
        strides = next(a for a in operators(message, 'conv2d')[0].attrs if a.name == 'strides')
        strides.type, strides.s = framework_pb2.STRING, '1,1'
        del strides.ints[:]

    said = "(op 1 of block 0) has attribute 'strides' as STRING, which is INTS"
    assert said in refused(edited(tiny, tmp_path, edit))


def test_a_slot_of_another_name_is_named_with_its_operator(tiny, tmp_path):

    def edit(message: Message) -> None:
        slot = next(s for s in operators(message, 'conv2d')[0].inputs if s.parameter == 'Filter')
        slot.parameter = 'Weights'

    said = refused(edited(tiny, tmp_path, edit))
    assert 'conv2d' in said and 'Filter' in said


def test_a_variable_that_is_not_declared_is_named(tiny, tmp_path):

    def edit(message: Message) -> None:
        name = operators(message, 'relu')[0].outputs[0].arguments[0]
        kept = [
            framework_pb2.VarDesc.FromString(v.SerializeToString())
            for v in message.blocks[0].vars
            if v.name != name
        ]
        del message.blocks[0].vars[:]
        message.blocks[0].vars.extend(kept)

    said = refused(edited(tiny, tmp_path, edit))
    assert "of operator 'relu' (op 5 of block 0) is not declared" in said


def test_a_block_that_is_not_there_is_named(tiny, tmp_path):

    def edit(message: Message) -> None:
        operators(message, 'relu')[0].attrs.add(name='sub_block',
                                                type=framework_pb2.BLOCK,
                                                block_idx=9)

    assert "attribute 'sub_block' of operator 'relu'" in refused(edited(tiny, tmp_path, edit))


def test_a_block_with_another_number_is_named(tiny, tmp_path):

    def edit(message: Message) -> None:
        message.blocks.add(idx=4, parent_idx=0)

    assert 'block 1 says that it is block 4' in refused(edited(tiny, tmp_path, edit))
