"""Files that are written through fsspec: files that are open for writing, and transactions."""

import io
import os
import warnings
from typing import TYPE_CHECKING, Any, Final

from fsspec.transaction import Transaction

from cafcat.filesystem.pending import PendingFiles
from cafcat.support.seekable_file import SeekableFile
from cafcat.support.spool import Spool

if TYPE_CHECKING:
    from types import TracebackType

    from cafcat.filesystem.filesystem import CafcatFileSystem

__all__ = ["CafcatTransaction", "NewFile", "NewText"]

_FILE_MEMORY: Final = 1 << 20
"""A new file is kept in memory up to this size, in bytes. A larger one goes to a temporary file."""
_BLOCK_BYTES: Final = 1 << 20


class NewFile(SeekableFile, io.BufferedIOBase):
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
        self._size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def _size_bytes(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, and return the new one. Bytes between the end and a later position become zeros."""
        position = super().seek(offset, whence)
        self._spool.seek(position)
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
