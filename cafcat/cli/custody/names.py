"""Reads paths of the catalog from a file or standard input, for `--files-from` of `rm` and `undelete`."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import BinaryIO

from cafcat.errors import NotFound
from cafcat.sources.names import LIST_BLOCK_BYTES, names_in

__all__ = ["names_from"]


def names_from(file: str, *, null_separated: bool) -> Iterator[str]:
    """Yield the names in a file, one per line.

    Args:
        file: The file; "-" is standard input.
        null_separated: True if each name ends with NUL instead of a newline.

    Raises:
        NotFound: There is no such file.
        InvalidInput: A name has more than 65,536 bytes.
        OSError: The file cannot be read.
    """
    with _opened(file) as stream:
        yield from names_in(iter(partial(stream.read, LIST_BLOCK_BYTES), b""), file, null_separated=null_separated)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"the list of names does not exist: there is no file {file}") from error
