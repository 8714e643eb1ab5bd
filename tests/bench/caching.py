"""The page cache, which is emptied for rows about cold data."""

import os
from collections.abc import Iterable
from pathlib import Path

_DROP = Path("/proc/sys/vm/drop_caches")
_EVERYTHING = "3"


def forget_all(paths: Iterable[Path]) -> str:
    """Drop contents, names and inodes from memory, and return the method, for the table.

    Raises NotImplementedError if no method is available.
    """
    os.sync()
    try:
        _DROP.write_text(_EVERYTHING)
    except OSError:
        forget_contents(paths)
        return "contents only, by posix_fadvise: not root, so names and inodes stayed in memory"
    return "drop_caches"


def forget_contents(paths: Iterable[Path]) -> None:
    """Drop the contents of these files, and nothing else, from the page cache."""
    if not hasattr(os, "posix_fadvise"):
        raise NotImplementedError("this system has no way to empty the page cache")
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
