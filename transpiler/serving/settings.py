"""What a process that serves a saved program should set: what no file can say of itself.

With each new shape of its inputs oneDNN makes new kernels and another copy of the weights in the layout that these like, and
Paddle keeps all of them; and glibc keeps what tensors of one size leave, which those of the next size do not fit into.
"""

from __future__ import annotations

import platform
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from transpiler.backends.paddle2.descs import is_onednn
from transpiler.backends.paddle2.run_once import RUNS_BLOCK
from transpiler.plain import printable
from transpiler.serving.apart import CACHE_OF_ONE
from transpiler.serving.files import SavedProgram

# A tensor of more bytes is a mapping of its own, which goes back to the system when the tensor is freed.
_OWN_MAPPING = 2**20
_TUNABLES = ':'.join(('glibc.malloc.hugetlb=1', f'glibc.malloc.mmap_threshold={_OWN_MAPPING}',
                      'glibc.malloc.arena_max=1'))
_HUGE_PAGES = Path('/sys/kernel/mm/transparent_hugepage/enabled')
_FIRST_WITH_HUGE_PAGES = (2, 35)


@dataclass(frozen=True)
class Setting:
    """`name` of SWITCHES, or of a variable of the environment; `line` is what to write, `does` why."""

    name: str
    line: str
    does: str


@dataclass(frozen=True)
class Settings:
    """For one program on this machine; `file` is what should be done to the file itself first, if anything."""

    predictor: Tuple[Setting, ...]
    environment: Tuple[Setting, ...]
    file: Tuple[Setting, ...] = ()

    @property
    def switches(self) -> List[str]:
        """Names of SWITCHES."""
        return [each.name for each in self.predictor]

    @property
    def variables(self) -> Dict[str, str]:
        """What the environment has to have before the process starts."""
        return dict(each.line.split('=', 1) for each in self.environment)

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def serve_settings(saved: SavedProgram) -> Settings:
    """What a process that serves `saved` on this machine should set."""
    optimized = any(op.type == RUNS_BLOCK for op in saved.message.blocks[0].ops)
    return Settings(predictor=tuple(_predictor(saved, optimized)),
                    environment=tuple(heap_settings(_glibc(), _huge_pages())),
                    file=() if optimized else (_optimize(saved),))


def _optimize(saved: SavedProgram) -> Setting:
    return Setting('optimize',
                   f'python -m transpiler optimize {shlex.quote(str(saved.path))} -o OUT',
                   'frees each tensor after its last use; serve OUT')


def _predictor(saved: SavedProgram, optimized: bool) -> Iterator[Setting]:
    if open_dims(saved) and (not optimized or _runs_onednn(saved)):
        yield Setting(
            CACHE_OF_ONE, 'config.set_mkldnn_cache_capacity(1)',
            'oneDNN keeps kernels and a copy of the weights for the latest shape of the inputs only, '
            'not for every shape that there was')
    if not optimized:
        yield Setting('new_executor', 'config.enable_new_executor()',
                      'frees tensors after their last use, as what optimize writes does by itself')


def _runs_onednn(saved: SavedProgram) -> bool:
    return any(is_onednn(op) for block in saved.message.blocks for op in block.ops)


def open_dims(saved: SavedProgram) -> int:
    """How many dims of its inputs a request may choose."""
    shapes = [
        variable.type.lod_tensor.tensor.dims
        for variable in saved.message.blocks[0].vars
        if variable.name in saved.feeds
    ]
    return sum(size < 0 for dims in shapes for size in dims)


def heap_settings(glibc: Tuple[int, ...], huge_pages: bool) -> Iterator[Setting]:
    """For the environment of a process; nothing where malloc is not glibc's, which is then ().

    A page that comes again costs time: huge ones are few.
    """
    if glibc >= _FIRST_WITH_HUGE_PAGES and huge_pages:
        yield Setting(
            'GLIBC_TUNABLES', f'GLIBC_TUNABLES={_TUNABLES}',
            'tensors of 1 MiB and more go back to the system when they are freed, and come in '
            'huge pages, which are few; one heap for all threads')
    elif glibc:
        yield Setting(
            'MALLOC_MMAP_THRESHOLD_', f'MALLOC_MMAP_THRESHOLD_={_OWN_MAPPING}',
            'tensors of 1 MiB and more go back to the system when they are freed; their pages '
            'come again with each request, which takes time')
        yield Setting('MALLOC_ARENA_MAX', 'MALLOC_ARENA_MAX=1', 'one heap for all threads')


def _glibc() -> Tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(map(int, version.split('.'))) if name == 'glibc' else ()


def _huge_pages() -> bool:
    """Whether a process gets huge pages where it asks for them."""
    try:
        return '[never]' not in _HUGE_PAGES.read_text()
    except OSError:
        return False


def text(settings: Settings) -> str:
    """Lines to copy, under where they go, each after a comment that says why."""
    places = (('The file', settings.file), ('The paddle.inference.Config', settings.predictor),
              ('The environment, before the process starts', settings.environment))
    lines: List[str] = []
    for place, found in places:
        lines.append(f'{place}:')
        lines += [f'    {line}' for each in found for line in (f'# {each.does}', each.line)]
        lines += [] if found else ['    # nothing to change']
    return ''.join(f'{printable(line)}\n' for line in lines)
