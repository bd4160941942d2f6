"""The caches that glibc's malloc keeps for each thread (tcache): turned off, and on again, in a process that runs already.

An aligned tensor leaves slivers of its place. Those of at most 1,032 bytes that go to the cache of a thread count as in use: they keep what is free
around them apart, and the next tensor of that size does not fit where the last one was. glibc turns the caches off by tunables, which it reads from the
environment as a process starts and keeps beside what mallopt sets, in one structure (malloc_par). Here that structure is found by what mallopt has just
written into it, and the caches are told there to be for no class of sizes, if all else that is known of the structure is as in glibc 2.36; malloc looks at it
each time that something is made or freed.

What a thread has in its cache by then stays there. So the caches are not told to keep no chunk of each class: free takes what begins with a mark that was left
in memory for a chunk of the cache, looks for it there, and ends the process where it finds more than there may be ("too many chunks detected in tcache").

A chunk in a cache is the thread's own that freed it; any other chunk is taken by the next thread that wants one.
"""

from __future__ import annotations

import contextlib
import ctypes
from types import MappingProxyType
from typing import Any, Iterator, List, Mapping, Optional, Tuple

# Values that nobody else has set, for parameters that mallopt sets; both are as good as the usual ones while they are in force.
SIGNS: Mapping[str, int] = MappingProxyType({
    'M_TRIM_THRESHOLD': 0x3a5c6d1,
    'M_MMAP_THRESHOLD': 0x1b4e2f0,
    'M_ARENA_MAX': 1
})
# Words behind the first of them at which each stands.
_PLACES = MappingProxyType({'M_TRIM_THRESHOLD': 0, 'M_MMAP_THRESHOLD': 2, 'M_ARENA_MAX': 4})
_CLASSES = 64  # by default
# Further on, side by side: classes of sizes, the largest size, chunks kept of each class, most that are moved at once. By default, and turned off.
_CACHES = ([_CLASSES, 1032, 7, 0], [0, 1032, 7, 0])
_LENGTH = 4
_WITHIN = 24  # words


def find(library: Any) -> Optional[int]:
    """The address for `turn`. `library`: that of malloc, in which SIGNS have been set. None if its parameters are not where they are known to be, or the
    caches neither as by default nor turned off."""
    with contextlib.suppress(OSError):  # of /proc
        found = [at for area in _writable(library) for at in _classes(*area)]
        if len(found) == 1:
            return found[0]
    return None


def turn(address: int, on: bool) -> None:
    """Whether threads of this process use their caches, from now on."""
    ctypes.c_size_t.from_address(address).value = _CLASSES if on else 0


def _classes(start: int, words: int) -> Iterator[int]:
    """Addresses at which the number of classes of sizes stands that a cache has."""
    area = list((ctypes.c_size_t * words).from_address(start))
    for at in range(words - _WITHIN):
        if all(area[at + place] == SIGNS[name] for name, place in _PLACES.items()):
            behind = area[at:at + _WITHIN]
            for found in range(_WITHIN - _LENGTH):
                if behind[found:found + _LENGTH] in _CACHES:
                    yield start + (at + found) * ctypes.sizeof(ctypes.c_size_t)


def _writable(library: Any) -> List[Tuple[int, int]]:
    """Where the library of malloc has its variables: address and number of words."""
    code = ctypes.cast(library.malloc, ctypes.c_void_p).value
    areas: List[Tuple[int, int, str, str]] = []
    file: Optional[str] = None
    with open('/proc/self/maps') as maps:
        for line in maps:
            addresses, access, _, _, _, *path = line.split(maxsplit=5)
            first, last = (int(each, 16) for each in addresses.split('-'))
            areas.append((first, last, access, path[0].rstrip('\n') if path else ''))
            file = areas[-1][3] if first <= code < last else file
    size = ctypes.sizeof(ctypes.c_size_t)
    return [(first, (last - first) // size)
            for first, last, access, path in areas
            if path and path == file and access.startswith('rw')]
