"""Any number of paths on their way into a temporary table of the catalog, or out of one.

As of Mapping: beyond 16 MiB they are in a temporary file, as Postgres' binary COPY takes them.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

from cafcat.errors import StoreFailed

__all__ = ["PathList"]

_MEMORY_BYTES: Final = 16 << 20
_BLOCK_BYTES: Final = 256 << 10
# PostgreSQL documentation, COPY, "Binary Format": see mapping.py.
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_ROW: Final = Struct(">hi")
"""One field, and its length."""


class PathList:
    """Paths in the order in which they were added. A context manager: leaving it frees the temporary file."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - closed by close()
        self.count = 0
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Raises UnicodeEncodeError for what is not valid UTF-8, StoreFailed."""
        encoded = path.encode()
        try:
            self._file.write(_ROW.pack(1, len(encoded)) + encoded)
        except OSError as error:
            hint = "free space in the folder for temporary files, or set TMPDIR"
            raise StoreFailed(f"the temporary file for paths failed: {error.strerror}", hint=hint) from error
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """The whole COPY stream in blocks of at most 256 KiB. Can be read again."""
        self._file.seek(0)
        yield _HEADER
        while block := self._file.read(_BLOCK_BYTES):
            yield block
        yield _TRAILER

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        while head := self._file.read(_ROW.size):
            yield self._file.read(_ROW.unpack(head)[1]).decode()

    def close(self) -> None:
        """Frees the temporary file. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
