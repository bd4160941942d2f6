"""Every back end has what the interface names, with the same arguments."""
from __future__ import annotations

import importlib
import inspect
from typing import Tuple

import pytest

from transpiler.backends.base import Backend, Imported

BACKENDS = (('text', 'TextPrograms', 'ImportedText'),
            ('paddle2', 'LivePrograms', 'ImportedProgram'), ('paddle2', 'SerializedPrograms',
                                                             'ImportedProgram'))


def named_by(protocol: type) -> Tuple[str, ...]:
    return tuple(n for n in (*vars(protocol), *protocol.__annotations__) if not n.startswith('_'))


@pytest.mark.parametrize('folder, name, imported', BACKENDS)
def test_a_back_end_has_what_the_interface_names(folder: str, name: str, imported: str) -> None:
    if folder == 'paddle2':
        pytest.importorskip('paddle')
    programs = importlib.import_module(f'transpiler.backends.{folder}.programs')
    found, read = getattr(programs, name), getattr(programs, imported)
    assert {'read', 'write', 'reread', 'apply', 'session', 'runtime',
            'cost'} == set(named_by(Backend))
    for member in named_by(Backend):
        wanted = vars(Backend)[member]
        if inspect.isfunction(wanted):
            expected = list(inspect.signature(wanted).parameters)
            assert list(inspect.signature(getattr(found, member)).parameters) == expected
        else:
            assert hasattr(found, member) or member in found.__annotations__
    for member in named_by(Imported):
        assert hasattr(read, member) or member in read.__annotations__
