"""Counts the files and bytes of each folder of a chunk, while the chunk's files are added in path order.

The counts are encoded as rows of folder_deltas, in the binary format of PostgreSQL's COPY. More than 4 MiB of rows
are in a temporary file.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from cafcat.catalog.binary_copy import HEADER, TRAILER
from cafcat.support.spool import Spool

__all__ = ["COLUMNS", "FolderCounts", "OpenFolder"]

COLUMNS: Final = "files, bytes, depth, folder_path"
"""Columns of folder_deltas, in the order of the encoded rows."""

_MEMORY_BYTES: Final = 4 << 20
_FLUSH_ROWS: Final = 1024
# As in binary_copy.py: a field count, then each field with its length before it.
_ROW: Final = Struct(">hiqiqiii")


class OpenFolder:
    """A folder to which files are still added.

    Attributes:
        path: The folder, with a slash at its end; "" for the folder of all files.
        length: Number of characters of the path.
        files: Number of files in the folder and in its subfolders that are complete.
        bytes: Total size of these files.
    """

    __slots__ = ("bytes", "files", "length", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = len(path)
        self.files = 0
        self.bytes = 0

    def add(self, files: int, size_bytes: int) -> None:
        """Count further files of the folder, or of a folder in it.

        Args:
            files: Number of files.
            size_bytes: Their total size.
        """
        self.files += files
        self.bytes += size_bytes


class FolderCounts(Spool):
    """The number and size of files in each folder. Each folder includes all folders below it.

    The files must come in the order of their paths. Then all files of a folder come one after another, and the
    folder is complete as soon as a file outside of it comes. Only the open folders are in memory.
    """

    def __init__(self) -> None:
        super().__init__("the folders of a chunk's files", _MEMORY_BYTES)
        self._open = [OpenFolder("")]
        self._rows: list[bytes] = []

    def open(self, path: str) -> OpenFolder:
        """Return the folder `path`, so that the caller adds files to its counts until it opens the next folder.

        Args:
            path: The folder, with a slash at its end; "" for files without a folder.

        Raises:
            TemporaryFileFailed: The temporary file cannot be written.
        """
        folders = self._open
        while not path.startswith(folders[-1].path):
            self._complete_last()
        end = len(folders[-1].path)
        while end < len(path):
            end = path.index("/", end) + 1
            folders.append(OpenFolder(path[:end]))
        return folders[-1]

    def _complete_last(self) -> None:
        folder = self._open.pop()
        self._open[-1].add(folder.files, folder.bytes)
        self._rows.append(_encode(folder.path, folder.files, folder.bytes))
        if len(self._rows) >= _FLUSH_ROWS:
            self._flush_rows()

    def _flush_rows(self) -> None:
        self.write(b"".join(self._rows))
        self._rows.clear()

    def blocks(self) -> Iterator[bytes]:
        """Yield the rows of all folders as a COPY stream. Each call yields all rows again."""
        self._flush_rows()
        yield HEADER
        yield from self.blocks_from(0)
        yield b"".join(self._open_rows())
        yield TRAILER

    def _open_rows(self) -> Iterator[bytes]:
        """Yield the rows of the folders that are still open. Their subfolders among these are added to them."""
        files = size_bytes = 0
        for folder in reversed(self._open):
            files += folder.files
            size_bytes += folder.bytes
            yield _encode(folder.path, files, size_bytes)


def _encode(path: str, files: int, size_bytes: int) -> bytes:
    encoded = path.encode()
    return _ROW.pack(4, 8, files, 8, size_bytes, 4, path.count("/"), len(encoded)) + encoded
