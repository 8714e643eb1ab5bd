"""Copies packed files to files on disk, for `get`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from cafcat.support.new_file import new_file
from cafcat.support.syncing import FOLDER_FLAGS

__all__ = ["save_small", "save_stream"]

_BLOCK_BYTES: Final = 1 << 20


def save_small(data: bytes, output: str | os.PathLike[str]) -> None:
    """Write a file. If this fails, an old file of that name stays."""
    with _replacing(output) as file:
        file.write(data)


def save_stream(open_packed: Callable[[str], IO[bytes]], path: str, output: Any, callback: Any) -> None:
    """Copy a packed file to a file on disk, block by block. If this fails, an old file of that name stays.

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
        with _replacing(output) as file:
            _copy(source, file, callback)


@contextmanager
def _replacing(output: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new binary file, which gets its name at the end of the `with` block; after an error, nothing is left.

    A device, pipe or socket is written to directly.
    """
    if os.path.exists(output) and not os.path.isfile(output):
        with open(output, "wb") as file:
            yield file
        return
    path = os.path.realpath(output)
    folder = os.open(os.path.dirname(path), FOLDER_FLAGS)
    try:
        new = new_file(folder)
        try:
            with open(new.descriptor, "wb", closefd=False) as file:
                yield file
            new.take_name(os.path.basename(path), overwrite=True)
        finally:
            new.discard()
    finally:
        os.close(folder)


def _copy(source: Any, output: IO[bytes], callback: Any) -> None:
    callback.set_size(source.size)
    while block := source.read(_BLOCK_BYTES):
        output.write(block)
        callback.relative_update(len(block))
