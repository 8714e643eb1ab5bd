"""Files that are written through fsspec. They wait in a temporary file, and are committed together."""

import io
import os
import time
import warnings
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from fsspec.transaction import Transaction

from cafcat.errors import Conflict
from cafcat.filesystem.errors import file_exists
from cafcat.model import OnConflict
from cafcat.support.spool import Spool

if TYPE_CHECKING:
    from types import TracebackType

    from cafcat.filesystem.filesystem import CafcatFileSystem
    from cafcat.repository import Repository

__all__ = ["CafcatTransaction", "NewFile", "NewText", "PendingFiles"]

_FILE_MEMORY: Final = 1 << 20
"""A new file is kept in memory up to this size, in bytes. A larger one goes to a temporary file."""
_PENDING_MEMORY: Final = 32 << 20
"""The files that wait for their commit are kept in memory up to this size, in bytes, and then in one temporary
file."""
_WHOLE_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 1 << 20


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


class _Section(io.RawIOBase):
    """A part of a Spool as a binary file."""

    def __init__(self, spool: Spool, start_byte: int, size_bytes: int) -> None:
        super().__init__()
        self._spool = spool
        self._start = start_byte
        self._size = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._spool.seek(self._start + self._position)
        data = self._spool.read(min(len(buffer), max(self._size - self._position, 0)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class NewFile(io.BufferedIOBase):
    """A file that is open for writing.

    `close` adds the file to the files of its transaction. Without a transaction, it commits the file. An error that
    leaves a `with` block of the file discards the file, and so does dropping the file without `close`.

    Attributes:
        path: Path of the file in the catalog.
        mode: "wb", or "xb" for a file that must not exist yet.
    """

    def __init__(self, path: str, mode: str, pending: PendingFiles, *, commits: bool) -> None:
        """Open a new file.

        Args:
            path: Path of the file in the catalog.
            mode: "wb" or "xb".
            pending: Receives the file when it is closed.
            commits: True to commit `pending` then.
        """
        super().__init__()
        self.path = path
        self.mode = mode
        self._pending = pending
        self._commits = commits
        self._spool = Spool("a file to write", _FILE_MEMORY)
        self._position = 0
        self._size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes from the start of the file."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, and return the new one. Bytes between the end and a later position become zeros.

        Args:
            offset: Number of bytes.
            whence: os.SEEK_SET, os.SEEK_CUR or os.SEEK_END: from which place the bytes are counted.

        Raises:
            ValueError: The file is closed, or the new position is negative.
        """
        self._check_open()
        position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek position: {position}")
        self._spool.seek(position)
        self._position = position
        return position

    def write(self, data: Any) -> int:
        """Write bytes at the position, and return their number.

        Raises:
            ValueError: The file is closed.
            TemporaryFileFailed: The temporary file failed.
        """
        self._check_open()
        with memoryview(data).cast("B") as view:
            self._spool.write(view)
            self._position += len(view)
            self._size = max(self._size, self._position)
            return len(view)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def close(self) -> None:
        """Add the file to its transaction, or commit it. Idempotent.

        Raises:
            FileExistsError: The mode is "xb", and the catalog has the path.
            CafcatError: The file cannot be written, as `Writer.add` raises it.
        """
        if self.closed:
            return
        try:
            self._pending.add(self.path, self._spool.blocks_from(0, _BLOCK_BYTES), is_new=self.mode == "xb")
            if self._commits:
                self._pending.commit()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file without writing it. Idempotent."""
        if not self.closed:
            super().close()
            self._spool.close()
            if self._commits:
                self._pending.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if error is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        """Discard a file that was not closed. It may be half written, and a garbage collector must not commit."""
        if not getattr(self, "closed", True):
            self.discard()
            warnings.warn(f"{self.path} was opened for writing and not closed: discarded", ResourceWarning, 2)


class NewText(io.TextIOWrapper):
    """A text file that is open for writing. An error that leaves its `with` block discards the file."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if error is not None and isinstance(self.buffer, NewFile):
            self.buffer.discard()
            return
        self.close()


class CafcatTransaction(Transaction):  # type: ignore[misc]
    """A transaction of fsspec. Its files become visible together, by one commit at its end.

    Attributes:
        fs: The file system; None after the end of the transaction.
        pending: The files that were closed so far.
    """

    fs: Any

    def __init__(self, fs: "CafcatFileSystem", **options: Any) -> None:
        """Begin without files.

        Args:
            fs: The file system.
            **options: Options of fsspec's Transaction.
        """
        super().__init__(fs, **options)
        self.pending = PendingFiles(fs)

    def complete(self, commit: bool = True) -> None:
        """End the transaction.

        Args:
            commit: True to commit the files, False to discard them.

        Raises:
            ValueError: A file is still open for writing. No file is committed.
            FileExistsError, CafcatError: As `PendingFiles.commit` raises them.
        """
        fs = self.fs
        try:
            if commit:
                self._check_closed()
                self.pending.commit()
        finally:
            while self.files:
                self.files.popleft().discard()
            self.pending.close()
            fs._intrans, fs._transaction, self.fs = False, None, None

    def _check_closed(self) -> None:
        for file in self.files:
            if not file.closed:
                raise ValueError(f"{file.path} is still open for writing; close it before the transaction ends")
