"""Copies of files: their blocks shared until one is written to, where the file system can (reflinks), never links."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import BinaryIO

_FICLONE = 0x40049409  # linux/fs.h
_MOST_AT_ONCE = 1 << 30


def append_copy(source: Path, target: BinaryIO) -> None:
    """Puts the contents of `source` behind what `target`, a file that is open for writing, has.

    Raises:
        OSError: `source` cannot be read, or `target` not written.
    """
    target.flush()
    with open(source, 'rb') as stream:
        if target.tell() == 0 and _clone(stream, target):
            target.seek(0, os.SEEK_END)
        else:
            _copy_inside(stream, target)
            shutil.copyfileobj(stream, target)  # what is left


def _clone(source: BinaryIO, target: BinaryIO) -> bool:
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:  # not this file system, or not across two
        return False
    return True


def _copy_inside(source: BinaryIO, target: BinaryIO) -> None:
    """Lets the system copy, which may share blocks, too. It may stop at any point, or refuse."""
    copy = getattr(os, 'copy_file_range', None)
    copied, start = 0, target.tell()
    try:
        while copy and copy(source.fileno(), target.fileno(), _MOST_AT_ONCE, copied,
                            start + copied):
            copied = os.fstat(target.fileno()).st_size - start
    except OSError:
        pass  # from here on it is read and written
    source.seek(copied)
    target.seek(start + copied)
