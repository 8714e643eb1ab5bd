"""Paths of files from a file or standard input, for --files-from."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import BinaryIO

from cafcat.errors import NotFound
from cafcat.sources.names import LIST_BLOCK_BYTES, names_in

__all__ = ["names_from"]


def names_from(file: str, *, null_separated: bool) -> Iterator[str]:
    """Give the names in a file ("-" is standard input), one per line, or each with NUL at its end. Raises NotFound,
    OSError, and InvalidInput for a name of more than 65,536 bytes."""
    with _opened(file) as stream:
        yield from names_in(iter(partial(stream.read, LIST_BLOCK_BYTES), b""), file, null_separated=null_separated)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"there is no file {file}") from error
