"""Buffers bytes in memory while they are few, and in a temporary file without a name when they are many."""

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
    """Return a record preceded by its size, to be written to a Spool and read by `Spool.records`."""
    return _SIZE.pack(len(record)) + record


class Spool:
    """A temporary file, which is in memory while it is small. Methods raise TemporaryFileFailed if the disk fails.

    The file is removed by `close`, at the end of a `with` block, or when the last reference to the Spool is gone.
    """

    def __init__(self, label: str, memory_bytes: int) -> None:
        """Create an empty file in memory.

        Args:
            label: Name of the contents, for messages.
            memory_bytes: If the contents exceed this size, all of them move to disk. 0 has the effect of 1.
        """
        self._label = label
        # For SpooledTemporaryFile, the size 0 means that the contents never move to disk.
        self._file = SpooledTemporaryFile(max_size=max(memory_bytes, 1))  # noqa: SIM115 - closed by close()
        # An abandoned owner, such as an unfinished generator, never calls close().
        self._close = weakref.finalize(self, self._file.close)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write the data at the current position, and move the position to the end of the data."""
        try:
            self._file.write(data)
        except OSError as error:
            raise _failure(self._label, error) from error

    def flush(self) -> None:
        """Write buffered bytes to the file, so that no later call fails for lack of space unless it writes more."""
        try:
            self._file.flush()
        except OSError as error:
            raise _failure(self._label, error) from error

    def seek(self, start_byte: int) -> None:
        """Move the position to the byte `start_byte` of the file."""
        try:
            self._file.seek(start_byte)
        except OSError as error:
            raise _failure(self._label, error) from error

    def seek_end(self) -> None:
        """Move the position to the end of the file."""
        try:
            self._file.seek(0, 2)
        except OSError as error:
            raise _failure(self._label, error) from error

    def skip(self, size_bytes: int) -> None:
        """Move the position forward by `size_bytes` bytes."""
        try:
            self._file.seek(size_bytes, 1)
        except OSError as error:
            raise _failure(self._label, error) from error

    def read(self, size_bytes: int) -> bytes:
        """Read and return `size_bytes` bytes from the current position; fewer only at the end of the file."""
        try:
            return self._file.read(size_bytes)
        except OSError as error:
            raise _failure(self._label, error) from error

    def blocks_from(self, start_byte: int, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """Yield all bytes from `start_byte` to the end of the file, in blocks of at most `block_bytes` bytes.

        The caller must not use other methods of the Spool between two blocks.
        """
        with temporary_file_of(self._label):
            self._file.seek(start_byte)
            while block := self._file.read(block_bytes):
                yield block

    def records(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the records in `[start_byte, end_byte)` of the file, which were written as `packed` returns them.

        The caller may use other methods of the Spool between two records.

        Raises:
            TemporaryFileFailed: The disk failed, or the file ends before `end_byte`.
        """
        rest = b""
        while start_byte < end_byte:
            self.seek(start_byte)
            block = self.read(min(_READ_BYTES, end_byte - start_byte))
            if not block:
                raise TemporaryFileFailed(f"the temporary file for {self._label} ends too early")
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
        """Remove the file. Further calls of `close` do nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def temporary_file_of(label: str) -> Iterator[None]:
    """Convert an OSError inside the `with` block to TemporaryFileFailed, with a hint about space.

    Args:
        label: Name of the temporary file's contents, for the message.
    """
    try:
        yield
    except OSError as error:
        raise _failure(label, error) from error


def _failure(label: str, error: OSError) -> TemporaryFileFailed:
    hint = "free space in the folder for temporary files, or set TMPDIR"
    return TemporaryFileFailed(f"the temporary file for {label} failed: {error.strerror or error}", hint=hint)
