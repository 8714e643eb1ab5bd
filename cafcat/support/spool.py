"""Bytes that wait for their use: in memory as long as they are few, else in a temporary file without a name."""

import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

from cafcat.errors import TemporaryFileFailed

__all__ = ["Spool", "packed", "temporary_file_of"]

_BLOCK_BYTES: Final = 256 << 10
_READ_BYTES: Final = 64 << 10
_SIZE: Final = struct.Struct("<I")


def packed(record: bytes) -> bytes:
    """As Spool.records finds it."""
    return _SIZE.pack(len(record)) + record


class Spool:
    """A file of its own for one piece of work. A context manager: leaving it frees the file, and so does letting go
    of it. Methods raise TemporaryFileFailed where there is no room."""

    def __init__(self, what: str, memory_bytes: int) -> None:
        """Args: what: it holds, for messages; memory_bytes: more than these are on disk."""
        self._what = what
        self._file = SpooledTemporaryFile(max_size=memory_bytes)  # noqa: SIM115 - closed by close()
        # Who is given up has no last call in which to close the file.
        self._close = weakref.finalize(self, self._file.close)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """At the place of the last seek, read or write."""
        with temporary_file_of(self._what):
            self._file.write(data)

    def flush(self) -> None:
        """Afterwards nothing asks for more space."""
        with temporary_file_of(self._what):
            self._file.flush()

    def seek(self, start_byte: int) -> None:
        """To a place counted from the beginning."""
        with temporary_file_of(self._what):
            self._file.seek(start_byte)

    def seek_end(self) -> None:
        """To where the next bytes are to be added."""
        with temporary_file_of(self._what):
            self._file.seek(0, 2)

    def skip(self, size_bytes: int) -> None:
        """Over bytes that nobody wants."""
        with temporary_file_of(self._what):
            self._file.seek(size_bytes, 1)

    def read(self, size_bytes: int) -> bytes:
        """So many, or fewer at the end."""
        with temporary_file_of(self._what):
            return self._file.read(size_bytes)

    def blocks_from(self, start_byte: int, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """All from there to the end, in blocks of at most 256 KiB, or so many bytes."""
        self.seek(start_byte)
        while block := self.read(block_bytes):
            yield block

    def records(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The records in this part of the file, which were written as `packed` gives them. Others may read and
        write between one and the next."""
        rest = b""
        while start_byte < end_byte:
            self.seek(start_byte)
            block = self.read(min(_READ_BYTES, end_byte - start_byte))
            start_byte += len(block)
            rest += block
            at = 0
            while at + _SIZE.size <= len(rest):
                (size_bytes,) = _SIZE.unpack_from(rest, at)
                if at + _SIZE.size + size_bytes > len(rest):
                    break
                yield rest[at + _SIZE.size : at + _SIZE.size + size_bytes]
                at += _SIZE.size + size_bytes
            rest = rest[at:]

    def close(self) -> None:
        """Frees the file. Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def temporary_file_of(what: str) -> Iterator[None]:
    """What goes wrong within is the fault of a temporary file."""
    try:
        yield
    except OSError as error:
        hint = "free space in the folder for temporary files, or set TMPDIR"
        raise TemporaryFileFailed(
            f"the temporary file for {what} failed: {error.strerror or error}", hint=hint
        ) from error
