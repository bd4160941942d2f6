"""`.pdparams` are pickles: their arrays are read, and nothing in them runs."""
from __future__ import annotations

import ast
import builtins
import os
import pickle
import pickletools
import shutil
import struct
from pathlib import Path
from typing import Any, Callable, Tuple

import numpy as np
import paddle
import pytest
from click.testing import CliRunner
from paddle import static

from transpiler.backends.scopes import fresh_scope
from tests.serving.programs import contents, training_program
import transpiler
from transpiler.cli import main
from transpiler.errors import SavedFileError
from transpiler.serving import pickled_arrays
from transpiler.serving.pickled_arrays import read_arrays

MARKER = 'it-ran'


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Callable, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Tuple:
        return self._call


def written(folder: Path, raw: bytes) -> Path:
    path = folder / 'state.pdparams'
    path.write_bytes(raw)
    return path


def text(value: str) -> bytes:
    return b'\x8c' + bytes([len(value)]) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b'\x93'


def object_dtype() -> bytes:
    """A dtype as numpy writes it, of objects."""
    return named('numpy', 'dtype') + text('O8') + b'\x89\x88\x87R'


def array_head() -> bytes:
    return named('numpy.core.multiarray', '_reconstruct') + named(
        'numpy', 'ndarray') + b'K\x00\x85C\x01b\x87R'


def float_dtype() -> bytes:
    return named('numpy', 'dtype') + text('f4') + b'\x89\x88\x87R(K\x03' + text(
        '<') + b'NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb'


PROTO = b'\x80\x04'
HOSTILE = {
    'os.system':
        PROTO + b'}' + text('w') + named('posix', 'system') + text('touch ' + MARKER) + b'\x85Rs.',
    'os.system in lines':
        b'\x80\x02}X\x01\x00\x00\x00wcposix\nsystem\nX\x0c\x00\x00\x00touch it-ran\x85Rs.',
    'eval':
        PROTO + b'}' + text('w') + named('builtins', 'eval') + text(f'open("{MARKER}", "w")') +
        b'\x85Rs.',
    'a name inside of an admitted module':
        PROTO + named('numpy', 'ndarray.__class__') + b'.',
    'a module that loads':
        PROTO + named('numpy.testing', 'assert_equal') + b'.',
    'an old object (OBJ)':
        b'\x80\x02(cposix\nsystem\nU\x05ls>xxo.',
    'an old object (INST)':
        b'\x80\x02(X\x01\x00\x00\x00aiposix\nsystem\n.',
    'NEWOBJ':
        PROTO + named('numpy', 'ndarray') + b')\x81.',
    'NEWOBJ_EX':
        PROTO + named('numpy', 'ndarray') + b')}\x92.',
    'a state for a class':
        PROTO + named('numpy', 'ndarray') + b'}b.',
    'a state set anew':
        PROTO + b'}' + text('w') + float_dtype() + b'(K\x03' + text('<') +
        b'NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbs.',
    'a call of a class':
        PROTO + named('numpy', 'ndarray') + b'K\x03\x85\x85R.',
    'a call of what is no name':
        PROTO + text('posix.system') + b')R.',
    'a dtype of objects':
        PROTO + b'}' + text('w') + object_dtype() + b's.',
    'an array of objects':
        PROTO + b'}' + text('w') + array_head() + b'(K\x01K\x01\x85' + object_dtype() +
        b'\x89]K\x00atbs.',
    'an array of another class':
        PROTO + named('numpy.core.multiarray', '_reconstruct') + named('numpy', 'dtype') +
        b'K\x00\x85C\x01b\x87R.',
    'a persistent id':
        PROTO + text('file') + b'Q.',
    'a persistent id in a line':
        PROTO + b'Pfile\n.',
    'an extension code':
        PROTO + b'\x82\x01.',
    'an extension code of four bytes':
        PROTO + b'\x84\x01\x00\x00\x00.',
    'a buffer from outside':
        b'\x80\x05\x97.',
    'protocol 0':
        b'(dp0\n.',
    'protocol 5':
        pickle.dumps({}, 5),
    'a set':
        pickle.dumps({'w': {1}}, 4),
    'a number in lines':
        PROTO + b'}' + text('w') + b'I' + b'9' * 100_000 + b'\ns.',
    'a huge text':
        PROTO + b'\x8d' + struct.pack('<Q', 2**62) + b'abc.',
    'huge bytes':
        PROTO + b'\x8e' + struct.pack('<Q', 2**63 - 1) + b'abc.',
    'a huge frame':
        PROTO + b'\x95' + struct.pack('<Q', 2**60) + b'N.',
    'a huge shape':
        PROTO + b'}' + text('w') + array_head() + b'(K\x01\x8a\x08' + struct.pack('<Q', 2**60) +
        b'\x85' + float_dtype() + b'\x89C\x04abcdtbs.',
    'dims that overflow':
        PROTO + b'}' + text('w') + array_head() + b'(K\x01K\x00\x8a\x08' +
        struct.pack('<Q', 2**62) + b'\x8a\x08' + struct.pack('<Q', 2**62) + b'\x87' +
        float_dtype() + b'\x89C\x00tbs.',
    'a negative dim':
        PROTO + b'}' + text('w') + array_head() + b'(K\x01J\xff\xff\xff\xff\x85' + float_dtype() +
        b'\x89C\x04abcdtbs.',
    'an array without contents':
        PROTO + b'}' + text('w') + array_head() + b's.',
    'names that are no text':
        PROTO + b'}K\x01K\x02s.',
    'a list for a name':
        PROTO + b'}]K\x02s.',
    'no dict':
        PROTO + b'].',
    'nothing':
        b'',
    'zeros':
        bytes(64),
    'an empty stack':
        PROTO + b'.',
    'a reference to nothing':
        PROTO + b'h\x07.',
    'a call of nothing':
        PROTO + b'R.',
    'a mark of nothing':
        PROTO + b't.',
    'a rest on the stack':
        PROTO + b'NN.',
    'a dict of odd length':
        PROTO + b'}(' + text('a') + b'u.',
    'no end':
        PROTO + b'}',
    'a line that does not end':
        b'\x80\x02c' + b'a' * 5000,
    'text that is none':
        PROTO + b'\x8c\x02\xff\xfe.',
}


def doubled(levels: int) -> bytes:
    """A list of two lists of two lists ... of which each exists once: 2 ** levels leaves."""
    parts = [PROTO + b'}' + text('w') + b'(]r' + bytes(4)]
    for level in range(levels):
        below, here = struct.pack('<I', level), struct.pack('<I', level + 1)
        parts.append(b']r' + here + b'(j' + below + b'j' + below + b'e')
    return b''.join(parts) + b'ts.'


@pytest.mark.parametrize('name', HOSTILE)
def test_what_arrays_do_not_need_is_refused_and_nothing_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, HOSTILE[name])
    with pytest.raises(SavedFileError, match='Nothing in it was run') as refused:
        read_arrays(path)
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 400
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize('protocol', [2, 3, 4])
@pytest.mark.parametrize('value', [
    Calls(os.system, f'touch {MARKER}'),
    Calls(builtins.eval, f'open("{MARKER}", "w")'),
    Calls(builtins.exec, f'open("{MARKER}", "w")'),
    np.array([Calls(os.system, f'touch {MARKER}')], object),
    np.array(['text']),
    np.zeros(2, [('a', 'f4')]),
    np.array('2020-01-01', 'datetime64[D]'),
],
                         ids=lambda v: type(v).__name__ + str(getattr(v, 'dtype', '')))
def test_what_pickle_itself_writes_is_refused_unless_it_is_numbers(value, protocol, tmp_path,
                                                                   monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, pickle.dumps({'w': value}, protocol))
    with pytest.raises(SavedFileError, match='Nothing in it was run'):
        read_arrays(path)
    assert not (tmp_path / MARKER).exists()


def test_a_bomb_of_references_is_read_in_no_time_and_left_out(tmp_path):
    assert read_arrays(written(tmp_path, doubled(2000))) == {}


def test_more_operations_than_any_file_needs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pickled_arrays, '_MOST_OPERATIONS', 1000)
    with pytest.raises(SavedFileError, match='more than 1000 operations'):
        read_arrays(written(tmp_path, PROTO + b'}' * 2000))


def test_three_sparse_gigabytes_are_not_read(tmp_path):
    path = written(tmp_path, b'')
    os.truncate(path, 3 << 30)
    with pytest.raises(SavedFileError, match='does not begin as a pickle does'):
        read_arrays(path)


def test_every_damage_of_one_byte_is_refused_or_gives_arrays(tmp_path):
    raw = bytearray(pickle.dumps({'w': np.arange(6, dtype='float32').reshape(2, 3)}, 4))
    random, refused = np.random.RandomState(0), 0
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << random.randint(8)
        try:
            found = read_arrays(written(tmp_path, bytes(damaged)))
        except SavedFileError:
            refused += 1
        else:
            assert all(isinstance(a, np.ndarray) for a in found.values())
    assert refused > len(raw) // 2


ARRAYS = {
    'floats': np.arange(6, dtype='float32').reshape(2, 3),
    'reversed': np.asfortranarray(np.arange(6, dtype='float64').reshape(2, 3)),
    'number': np.array(3, 'int64'),
    'empty': np.zeros([0, 3], 'float32'),
    'halves': np.ones(3, 'float16'),
    'bytes': np.arange(5, dtype='uint8'),
    'flags': np.array([True, False]),
    'complex': np.array([1j], 'complex64'),
}


@pytest.mark.parametrize('protocol', [2, 3, 4])
def test_arrays_of_numbers_are_read_as_pickle_reads_them(protocol, tmp_path):
    raw = pickle.dumps(ARRAYS, protocol)
    found = read_arrays(written(tmp_path, raw))
    expected = pickle.loads(raw)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
        assert array.tobytes() == expected[name].tobytes()


def test_numpy_2_calls_its_modules_otherwise(tmp_path):
    raw = pickle.dumps(ARRAYS, 2).replace(b'numpy.core.multiarray', b'numpy._core.multiarray')
    assert read_arrays(written(tmp_path, raw)).keys() == ARRAYS.keys()


@pytest.mark.parametrize('protocol', [2, 3])
def test_arrays_that_paddle_cut_up_are_joined(protocol, tmp_path):
    whole = np.arange(6, dtype='float32').reshape(2, 3)
    cut = {
        'w@@.0': whole.reshape(-1)[:4],
        'w@@.1': whole.reshape(-1)[4:],
        'UnpackBigParamInfor@@': {
            'w': {
                'OriginShape': (2, 3),
                'slices': ['w@@.0', 'w@@.1']
            }
        }
    }
    found = read_arrays(written(tmp_path, pickle.dumps(cut, protocol)))
    assert list(found) == ['w'] and found['w'].tobytes() == whole.tobytes()
    del cut['w@@.1']
    with pytest.raises(SavedFileError, match="slices of 'w' are missing"):
        read_arrays(written(tmp_path, pickle.dumps(cut, protocol)))


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> Path:
    """A training program with parameters, as paddle.static.save leaves them."""
    folder = tmp_path_factory.mktemp('trained')
    program = training_program()
    random = np.random.RandomState(0)
    with fresh_scope():
        for variable in program.list_vars():
            if variable.persistable:
                value = random.uniform(0.01, 0.02, variable.shape).astype('float32')
                static.global_scope().var(variable.name).get_tensor().set(value, paddle.CPUPlace())
        static.save(program, str(folder / 'state'))
    return folder


@pytest.mark.parametrize('protocol', [2, 3, 4])
def test_what_paddle_saves_is_read_as_paddle_reads_it(protocol, trained, tmp_path):
    arrays = paddle.load(str(trained / 'state.pdparams'), return_numpy=True)
    paddle.save(arrays, str(tmp_path / 'state.pdparams'), protocol=protocol)
    for path in (trained / 'state.pdparams', tmp_path / 'state.pdparams'):
        found = read_arrays(path)
        assert {
            n: a.tobytes() for n, a in found.items()
        } == {
            n: a.tobytes() for n, a in arrays.items() if isinstance(a, np.ndarray)
        }
        assert len(found) >= 8


def checked(folder: Path) -> Any:
    return CliRunner().invoke(
        main, ['check', str(folder / 'state'),
               str(folder / 'state'), '--fetch', 'loss'])


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    for path in trained.iterdir():
        shutil.copy(str(path), str(tmp_path / path.name))
    return tmp_path


def test_check_does_not_run_what_is_next_to_a_model(folder):
    marker = folder / MARKER
    hostile = pickle.dumps({'w': Calls(os.system, f'touch {marker}')}, 4)
    assert 'system' in str(list(pickletools.genops(hostile)))
    written(folder, hostile)
    before = contents(folder)
    done = checked(folder)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    assert done.output.startswith('error: ') and len(done.output.splitlines()) == 1
    assert 'state.pdparams' in done.output and 'Nothing in it was run' in done.output
    assert contents(folder) == before


def test_parameters_of_another_program_are_refused(folder):
    arrays = read_arrays(folder / 'state.pdparams')
    name = sorted(n for n, a in arrays.items() if a.ndim == 2)[0]
    for wrong in (arrays[name][1:], arrays[name].astype('float64')):
        written(folder, pickle.dumps({**arrays, name: wrong}, 4))
        done = checked(folder)
        assert done.exit_code == 1 and 'not the parameters of this program' in done.output


def test_the_saved_parameters_run_and_modules_next_to_the_model_do_not(folder, monkeypatch):
    """Other parameters, other results; and `python -m` looks for modules in its folder first."""
    for path in list(folder.iterdir()):
        shutil.copy(str(path), str(folder / path.name.replace('state', 'other')))
    arrays = read_arrays(folder / 'other.pdparams')
    changed = {n: a * np.float32(1.5) for n, a in arrays.items()}
    (folder / 'other.pdparams').write_bytes(pickle.dumps(changed, 4))
    for module in ('numpy', 'paddle', 'json', 'hashlib', 'transpiler'):
        (folder / f'{module}.py').write_text(f'open({str(folder / MARKER)!r}, "w")')
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, ['check', 'state', 'other', '--fetch', 'loss'])
    assert done.exit_code == 3 and 'different bytes' in done.output
    assert not (folder / MARKER).exists()


def test_nothing_in_the_package_unpickles_or_evaluates():
    """numpy.load does not unpickle unless it is told to."""
    found, package = [], Path(transpiler.__file__).parent
    for path in package.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [getattr(node, 'module', None), *(a.name for a in node.names)]
                found += [(path.name, n) for n in names if n in _UNPICKLE]
            elif isinstance(node, ast.Call):
                called = _dotted(node.func)
                hidden = [k.arg for k in node.keywords if k.arg == 'allow_pickle']
                found += [(path.name, n) for n in [called, *hidden] if n in _RUN]
    assert len(list(package.rglob('*.py'))) > 100 and not found


def _dotted(node: ast.AST) -> str:
    """a.b.c as it is written; what is not a name is left out."""
    if isinstance(node, ast.Attribute):
        return f'{_dotted(node.value)}.{node.attr}'.lstrip('.')
    return node.id if isinstance(node, ast.Name) else ''


_UNPICKLE = ('pickle', 'cPickle', '_pickle', 'dill', 'cloudpickle', 'joblib', 'shelve', 'marshal',
             'torch', 'yaml')
_RUN = ('eval', 'exec', 'compile', 'paddle.load', 'static.load', 'paddle.static.load',
        'allow_pickle', 'os.system', '__import__')
