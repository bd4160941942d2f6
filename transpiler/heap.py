"""What has been freed goes back to the operating system.

Paddle takes each tensor from malloc and gives it back with free (CPU, 2.6). glibc then keeps it: a thread has a heap of its own, an
aligned tensor does not fit into the place that one of its size has left (before glibc 2.38), and what is free between two that
are not stays resident. So a process grows from run to run, to several times the peak of its tensors. Here the heap is told
to use one arena, and no caches of threads, and is trimmed between the runs of a program. MKL keeps buffers for each thread that has ever called it, and the
executor's threads take turns: each new one's lie in the middle of the heap from then on, and what was free around them no longer
fits. They are given back between runs as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Union

from transpiler import thread_caches

# Numbers of malloc.h.
_OPTIONS: Mapping[str, int] = MappingProxyType({
    'M_TRIM_THRESHOLD': -1,
    'M_MMAP_THRESHOLD': -3,
    'M_ARENA_MAX': -8
})
# In the first run the executor builds what it keeps of a program, and throws away what it built that of: tensors that come from
# the system, page by page, leave no holes between these. A page costs more than a place in the heap, so later runs use that.
_FIRST_RUN = MappingProxyType({'M_MMAP_THRESHOLD': 256 * 2**10, 'M_TRIM_THRESHOLD': 128 * 2**10})
_LATER_RUNS = MappingProxyType({'M_MMAP_THRESHOLD': 32 * 2**20, 'M_TRIM_THRESHOLD': 64 * 2**20})
SETTINGS: Mapping[str, int] = MappingProxyType({'M_ARENA_MAX': 1, **_LATER_RUNS})
SMALL_SETTINGS: Mapping[str, int] = MappingProxyType({'M_ARENA_MAX': 1, **_FIRST_RUN})

_SET_BY_USERS = ('MALLOC_ARENA_MAX', 'MALLOC_ARENA_TEST', 'MALLOC_MMAP_MAX_',
                 'MALLOC_MMAP_THRESHOLD_', 'MALLOC_TOP_PAD_', 'MALLOC_TRIM_THRESHOLD_')
# What a thread keeps of small chunks that were freed: it does not stand against what mallopt sets.
_OF_THREADS = 'glibc.malloc.tcache_'
CACHES = 'tcache_count'
# What a page costs that is used again after it has been given back. Alone it is 2.2 us on a virtual machine, where it is most; but what is written into
# a page that has just been cleared is in the cache: steps of a transformer took 8 ms more for 10,000 pages.
_SECONDS_A_PAGE = 1e-6
_MOST_SHARE = 0.03  # of the processor time, by this count, for giving back and for pages that come again
_LOOKS_A_SECOND = 100  # of processor time
_SLACK = 8 * 2**20


class Malloc:
    """glibc's, of this process."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._caches: Optional[int] = None  # where they are turned on and off

    def set(self, settings: Mapping[str, int]) -> None:
        """By the names of malloc.h; the process is set back by nothing."""
        for name, value in settings.items():
            self._library.mallopt(_OPTIONS[name], value)

    def find_caches(self) -> bool:
        """Those of threads: whether `turn_caches` can turn them on and off. What is named in SIGNS has to be set anew."""
        self.set(thread_caches.SIGNS)
        self._caches = thread_caches.find(self._library)
        return self._caches is not None

    def turn_caches(self, on: bool) -> None:
        """If they were found."""
        if self._caches is not None:
            thread_caches.turn(self._caches, on)

    def trim(self) -> None:
        """Gives back every whole page that is free."""
        self._library.malloc_trim(0)


class Kept(NamedTuple):
    """How the heap is kept for a program whose tensors need `peak_bytes` at once. `small`: in later runs, too, its tensors come from the
    system page by page, whatever time that takes."""

    peak_bytes: int
    small: bool = False

    @property
    def settings(self) -> Mapping[str, int]:
        return SMALL_SETTINGS if self.small else SETTINGS


def keeper_for(kept: Kept, collects: Callable[[], bool]) -> Union[Keeper, str]:
    """Sets the heap of this process, once and for all but for the caches of threads, and gives the keeper for a program; or why it is left as it
    is. `collects`: whether the runtime frees what nobody will read, asked ahead of each run, too."""
    malloc, found = glibc_malloc(), set_by_the_user()
    if malloc is None:
        return 'malloc is not that of glibc'
    if found:
        return f'{", ".join(found)} in the environment'
    settings, off = dict(kept.settings), collects()
    if not _tunables() and malloc.find_caches() and off:
        settings[CACHES] = 0
    malloc.turn_caches(not off)
    malloc.set(kept.settings)
    return Keeper(malloc, kept, collects, settings)


def give_back() -> None:
    """Gives back what is free now."""
    malloc = glibc_malloc()
    if malloc is not None:
        malloc.trim()


class _Where(ctypes.Structure):
    """Dl_info of dlfcn.h."""
    _fields_ = [('file', ctypes.c_char_p), ('base', ctypes.c_void_p), ('name', ctypes.c_char_p),
                ('address', ctypes.c_void_p)]


def glibc_malloc() -> Optional[Malloc]:
    """The malloc in use; None if that is another than glibc's."""
    if not sys.platform.startswith('linux'):
        return None
    library = ctypes.CDLL(None)
    needed = ('gnu_get_libc_version', 'mallopt', 'malloc_trim', 'malloc', 'free', 'posix_memalign',
              'dladdr')
    if not all(hasattr(library, name) for name in needed):
        return None
    homes = {_home(library, name) for name in needed[:-1]}
    return Malloc(library) if len(homes) == 1 else None


def _home(library: Any, name: str) -> Optional[int]:
    """Where the library begins that `name` comes from."""
    where = _Where()
    library.dladdr(ctypes.cast(getattr(library, name), ctypes.c_void_p), ctypes.byref(where))
    return where.base


def set_by_the_user(environment: Mapping[str, str] = os.environ) -> List[str]:
    """The variables of the environment that say how glibc's heap is to be; tunables of the threads' caches (tcache) do not."""
    found = [name for name in _SET_BY_USERS if name in environment]
    if not all(name.startswith(_OF_THREADS) for name in _tunables(environment)):
        found.append('GLIBC_TUNABLES')
    return found


def _tunables(environment: Mapping[str, str] = os.environ) -> List[str]:
    """Those of malloc that are set in the environment."""
    names = [each.partition('=')[0] for each in environment.get('GLIBC_TUNABLES', '').split(':')]
    return [name for name in names if name.startswith('glibc.malloc.')]


def mkl_free_buffers() -> Callable[[], Any]:
    """Frees the buffers of MKL that are not in use: they are allocated again when they are needed. Does nothing where no MKL is loaded:
    Paddle loads it with the first kernel that asks for it."""
    with contextlib.suppress(OSError), open('/proc/self/maps') as maps:  # or the file is gone
        files = {line.split(maxsplit=5)[-1].rstrip('\n') for line in maps if 'mkl' in line}
        for file in sorted(files):
            library = ctypes.CDLL(file, os.RTLD_LAZY | os.RTLD_NOLOAD)
            if hasattr(library, 'MKL_Free_Buffers'):
                return library.MKL_Free_Buffers
    return lambda: None


class Keeper:
    """Keeps the heap as `kept` says for the runs of one program; `before_run` is called ahead of each. `settings`: all that was set."""

    def __init__(self,
                 malloc: Malloc,
                 kept: Kept,
                 collects: Callable[[], bool] = lambda: True,
                 settings: Optional[Mapping[str, int]] = None) -> None:
        self.settings = kept.settings if settings is None else settings
        self._malloc = malloc
        self._kept = kept
        self._collects = collects
        self._runs = 0
        self._least = 0
        self._next_look = 0.0
        self._free_buffers: Callable[[], Any] = lambda: None

    def fresh(self) -> Keeper:
        """For a copy of the program, which has its own first run."""
        return Keeper(self._malloc, self._kept, self._collects, self.settings)

    def before_run(self) -> None:
        """Gives back what is free if that is much, as often as it may cost."""
        # Without a collector a result that grows has its old memory freed as it grows, and Paddle reads once more what that was: it stands there
        # yet if nobody but this thread could have taken it.
        self._malloc.turn_caches(not self._collects())
        self._runs += 1
        if self._runs == 1:
            self._malloc.set(_FIRST_RUN)
            self._malloc.trim()  # what initializing parameters has left
            return
        if self._runs == 2:
            self._free_buffers = mkl_free_buffers()
        self._free_buffers()
        now = time.process_time()
        if now < self._next_look:
            return
        self._next_look = now + 1 / _LOOKS_A_SECOND
        self._malloc.set(self._kept.settings)  # or another program's would last
        with contextlib.suppress(OSError):  # of /proc
            # A run may take other places than the last one did: what that has left is then there besides. All that is left for long
            # is what giving back may not cost.
            most = self._least + self._kept.peak_bytes // 4 + _SLACK
            if self._runs == 2 or _resident_bytes() > most:
                self._give_back(now)

    def _give_back(self, now: float) -> None:
        had = _resident_bytes()
        self._malloc.trim()
        self._least = _resident_bytes()
        pages = max(0, had - self._least) / os.sysconf('SC_PAGE_SIZE')
        cost = time.process_time() - now + pages * _SECONDS_A_PAGE
        self._next_look = now + cost / _MOST_SHARE


def _resident_bytes() -> int:
    with open('/proc/self/statm', 'rb') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
