"""Names of files in the catalog, from a file or standard input: --files-from."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, Final

from cafcat.errors import InvalidInput, NotFound

__all__ = ["names_from"]

_READ_BYTES: Final = 1 << 16
_MAX_NAME_BYTES: Final = 1 << 16
"""Far above what the catalog takes: a longer one means that this is no such list."""


def names_from(file: str, *, null_separated: bool) -> Iterator[str]:
    """The names in a file ("-": standard input), one a line, or each ended by NUL. Raises NotFound, InvalidInput
    for a name of more than 65,536 bytes, OSError."""
    separator = b"\0" if null_separated else b"\n"
    rest = b""
    with _opened(file) as stream:
        while block := stream.read(_READ_BYTES):
            *names, rest = (rest + block).split(separator)
            yield from map(os.fsdecode, filter(None, names))
            if len(rest) > _MAX_NAME_BYTES:
                hint = "names are separated by newlines, or by NUL bytes with -0"
                raise InvalidInput(f"{file}: a name is longer than {_MAX_NAME_BYTES:,} bytes", hint=hint)
    if rest:
        yield os.fsdecode(rest)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"there is no file {file}") from error
