"""The file of all parameters (`.pdiparams`): one tensor after the other, in the order of their names.

Files of one parameter each, one after the other in that order, are the same bytes.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import BinaryIO, Iterable, NamedTuple, Sequence

from google.protobuf.message import DecodeError
from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.errors import SavedFileError

_MOST_LEVELS = 64
_LONGEST_DESC = 1 << 16


class Parameter(NamedTuple):
    """What a program says of one; `data_type` is a number of `VarType`, a dim of -1 is any."""

    name: str
    data_type: int
    dims: Sequence[int]


def parameters_of(variables: Iterable[framework_pb2.VarDesc]) -> Iterable[Parameter]:
    """As a program of Paddle 2 declares them."""
    for variable in variables:
        tensor = variable.type.lod_tensor.tensor
        yield Parameter(variable.name, tensor.data_type, tensor.dims)


def check_parameters(path: Path, parameters: Iterable[Parameter]) -> None:
    """Raises SavedFileError unless `path` holds exactly `parameters`, by shape and type, to the last byte.

    Only the headers are read.
    """
    try:
        with open(path, 'rb') as stream:
            end = os.fstat(stream.fileno()).st_size
            for parameter in sorted(parameters):
                _check_tensor(stream, parameter, path, end)
            if stream.tell() != end:
                raise SavedFileError(f'{path}: {end - stream.tell()} bytes too many; not the '
                                     'parameters of this program')
    except OSError as error:
        raise SavedFileError(f'cannot read {path}: {error.strerror}') from error
    except (struct.error, DecodeError) as error:
        raise SavedFileError(f'{path}: damaged or cut off ({error})') from error


def check_parameter_files(paths: Iterable[Path], parameters: Iterable[Parameter]) -> None:
    """The same for files of one parameter each, in the order of their names."""
    for path, parameter in zip(paths, sorted(parameters)):
        check_parameters(path, [parameter])


def _check_tensor(stream: BinaryIO, wanted: Parameter, path: Path, end: int) -> None:
    """LoD version, LoD, tensor version, description, data: what Paddle's SerializeToStream writes."""
    name = wanted.name
    _unpack(stream, '<I')
    levels = _unpack(stream, '<Q')
    if levels > _MOST_LEVELS:
        raise SavedFileError(f'{path}: damaged at parameter {name!r}')
    for _ in range(levels):
        stream.seek(_unpack(stream, '<Q'), os.SEEK_CUR)
    _unpack(stream, '<I')
    length = _unpack(stream, '<i')
    if not 0 <= length <= _LONGEST_DESC:
        raise SavedFileError(f'{path}: damaged at parameter {name!r}')
    found = framework_pb2.VarType.TensorDesc.FromString(stream.read(length))
    if found.data_type != wanted.data_type or not fits(found.dims, wanted.dims):
        raise SavedFileError(f'{path}: has {list(found.dims)} where parameter {name!r} is '
                             f'{list(wanted.dims)}; not the parameters of this program')
    stream.seek(
        math.prod(found.dims) * core.size_of_dtype(core.VarDesc.VarType(found.data_type)),
        os.SEEK_CUR)
    if stream.tell() > end:
        raise SavedFileError(f'{path}: cut off in parameter {name!r}')


def fits(found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a tensor of dims `found` may be the parameter that is declared with `wanted`."""
    return len(found) == len(wanted) and all(w in (-1, f) for f, w in zip(found, wanted))


def _unpack(stream: BinaryIO, layout: str) -> int:
    return struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
