"""Files that wait for their commit: the contents are in a temporary file."""

import io
import time
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from cafcat.errors import Conflict
from cafcat.filesystem.errors import file_exists
from cafcat.model import OnConflict
from cafcat.support.seekable_file import SeekableFile
from cafcat.support.spool import Spool

if TYPE_CHECKING:
    from types import TracebackType

    from cafcat.filesystem.filesystem import CafcatFileSystem
    from cafcat.repository import Repository

__all__ = ["PendingFiles"]

_PENDING_MEMORY: Final = 32 << 20
"""The files that wait for their commit are kept in memory up to this size, in bytes, and then in one temporary
file."""
_WHOLE_BYTES: Final = 1 << 20
"""A content up to this size, in bytes, is added in one piece."""


class _PendingFile(NamedTuple):
    """A file that waits for its commit.

    Attributes:
        path: Path of the file in the catalog.
        start_byte: First byte of its content in the Spool.
        size_bytes: Size of the content.
        modified_ns: Modification time, in nanoseconds since 1970 UTC.
        is_new: True if the catalog must not have the path yet.
    """

    path: str
    start_byte: int
    size_bytes: int
    modified_ns: int
    is_new: bool


class PendingFiles:
    """Files that wait for their commit. Several threads may add files."""

    def __init__(self, fs: "CafcatFileSystem") -> None:
        """Begin without files.

        Args:
            fs: The file system whose catalog gets the files.
        """
        self._fs = fs
        self._spool = Spool("files to write", _PENDING_MEMORY)
        self._end_byte = 0
        self._files: dict[str, _PendingFile] = {}
        self._lock = Lock()

    def add(
        self, path: str, blocks: Iterable[bytes], *, modified_ns: int | None = None, is_new: bool = False
    ) -> None:
        """Add a file, which replaces an earlier one with the same path.

        Args:
            path: Path of the file in the catalog.
            blocks: The content.
            modified_ns: Modification time, in nanoseconds since 1970 UTC; None for the present time.
            is_new: True if the catalog must not have the path when the files are committed.

        Raises:
            TemporaryFileFailed: The temporary file failed. Errors of the iteration are raised unchanged.
        """
        with self._lock:
            start, modified_ns = self._end_byte, time.time_ns() if modified_ns is None else modified_ns
            self._spool.seek(start)
            size_bytes = 0
            for block in blocks:
                self._spool.write(block)
                size_bytes += len(block)
            self._end_byte = start + size_bytes
            self._files[path] = _PendingFile(path, start, size_bytes, modified_ns, is_new)

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def commit(self) -> None:
        """Pack all files, and commit them: in one transaction of the database, unless they fill several chunks.

        Raises:
            FileExistsError: The catalog has a path that must be new. No file is committed.
            CafcatError: The files cannot be written, as `Writer.add` raises it.
        """
        with self._lock:
            files = [self._files[path] for path in sorted(self._files)]
            if files:
                with self._fs.writing() as repository:
                    self._write(repository, files)

    def _write(self, repository: "Repository", files: Sequence[_PendingFile]) -> None:
        new = [file.path for file in files if file.is_new]
        existing = next((path for path in new if path in repository), None)
        if existing is not None:
            raise file_exists(existing)
        # An ingest checks this in its commit, but for all files of a chunk alike.
        on_conflict = OnConflict.FAIL if len(new) == len(files) else OnConflict.REPLACE
        try:
            with repository.writer(on_conflict=on_conflict) as writer:
                for file in files:
                    writer.add(file.path, self._content(file), modified_ns=file.modified_ns)
        except Conflict as error:
            if on_conflict is OnConflict.REPLACE:
                raise
            raise file_exists(error.path or "") from error

    def _content(self, file: _PendingFile) -> Any:
        if file.size_bytes > _WHOLE_BYTES:
            return _Section(self._spool, file.start_byte, file.size_bytes)
        self._spool.seek(file.start_byte)
        return self._spool.read(file.size_bytes)

    def close(self) -> None:
        """Forget the files, and remove the temporary file. Idempotent."""
        self._files = {}
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Commit the files, unless an error leaves the `with` block."""
        try:
            if error is None:
                self.commit()
        finally:
            self.close()


class _Section(SeekableFile, io.RawIOBase):
    """A part of a Spool as a binary file."""

    def __init__(self, spool: Spool, start_byte: int, size_bytes: int) -> None:
        super().__init__()
        self._spool = spool
        self._start = start_byte
        self._size = size_bytes

    def readable(self) -> bool:
        return True

    def _size_bytes(self) -> int:
        return self._size

    def readinto(self, buffer: Any) -> int:
        self._spool.seek(self._start + self._position)
        data = self._spool.read(min(len(buffer), max(self._size - self._position, 0)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
