"""Every back end has what the interface names, with the same arguments."""
from __future__ import annotations

import importlib
import inspect
from typing import Tuple

import pytest

from transpiler.backends.base import Backend, Imported, LiveBackend

BACKENDS = (('text', 'TextPrograms', 'ImportedText'), ('paddle2', 'LivePrograms',
                                                       'ImportedProgram'),
            ('paddle2', 'SerializedPrograms', 'ImportedProgram'), ('paddle3', 'LivePrograms',
                                                                   'ImportedProgram'))


def named_by(protocol: type) -> Tuple[str, ...]:
    return tuple(n for n in (*vars(protocol), *protocol.__annotations__) if not n.startswith('_'))


def installed_folder() -> str:
    paddle = pytest.importorskip('paddle')
    return f'paddle{paddle.__version__[0]}'


def check_members(protocol: type, found: type) -> None:
    for member in named_by(protocol):
        wanted = vars(protocol)[member]
        if inspect.isfunction(wanted):
            expected = list(inspect.signature(wanted).parameters)
            assert list(inspect.signature(getattr(found, member)).parameters) == expected
        else:
            assert hasattr(found, member) or member in found.__annotations__


def test_a_back_end_for_programs_in_hand_has_what_its_interface_names() -> None:
    programs = importlib.import_module(f'transpiler.backends.{installed_folder()}.programs')
    assert {'named', 'keep', 'packs', 'pack', 'pack_written', 'unpack', 'copied',
            'copied_written'} == set(named_by(LiveBackend))
    check_members(LiveBackend, programs.LivePrograms)


@pytest.mark.parametrize('folder, name, imported', BACKENDS)
def test_a_back_end_has_what_the_interface_names(folder: str, name: str, imported: str) -> None:
    if folder != 'text' and folder != installed_folder():
        pytest.skip(f'needs the Paddle of backends/{folder}')
    programs = importlib.import_module(f'transpiler.backends.{folder}.programs')
    found, read = getattr(programs, name), getattr(programs, imported)
    assert {
        'read', 'write', 'kept', 'reread', 'apply', 'session', 'runtime', 'cost', 'run_kernels'
    } == set(named_by(Backend))
    check_members(Backend, found)
    for member in named_by(Imported):
        assert hasattr(read, member) or member in read.__annotations__
