"""Copies packed files to files on disk, for `get`."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

__all__ = ["save_small", "save_stream"]

_BLOCK_BYTES: Final = 1 << 20


def save_small(data: bytes, output: str | os.PathLike[str]) -> None:
    """Write a file."""
    with open(output, "wb") as file:
        file.write(data)


def save_stream(open_packed: Callable[[str], IO[bytes]], path: str, output: Any, callback: Any) -> None:
    """Copy a packed file to a file on disk, block by block. If this fails, the new file is removed.

    Args:
        open_packed: Opens the packed file.
        path: Path of the packed file.
        output: Name of the file on disk, or an open binary file.
        callback: fsspec's callback: gets the number of bytes.
    """
    with open_packed(path) as source:
        if hasattr(output, "write"):
            _copy(source, output, callback)
            return
        with open(output, "wb") as file:
            try:
                _copy(source, file, callback)
            except BaseException:
                with suppress(OSError):  # the first error is raised
                    os.unlink(output)
                raise


def _copy(source: Any, output: IO[bytes], callback: Any) -> None:
    callback.set_size(source.size)
    while block := source.read(_BLOCK_BYTES):
        output.write(block)
        callback.relative_update(len(block))
