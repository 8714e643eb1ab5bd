"""Packed files that are opened through fsspec."""

import asyncio
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast

from fsspec.asyn import AbstractAsyncStreamedFile

from cafcat.errors import Conflict
from cafcat.filesystem.lookups import Info, info_of
from cafcat.reading.packed_file import BUFFER_BYTES, PackedFile

if TYPE_CHECKING:
    from cafcat.filesystem.filesystem import CafcatFileSystem

__all__ = ["AsyncOpenFile", "OpenFile"]


class OpenFile(io.BufferedReader):
    """A packed file that is open for reading. It can be pickled, and is opened again at the same position.

    Attributes:
        fs: The file system.
        path: Path of the file.
        details: What `fs.info` returns for the file, as of the time when it was opened.
        size: Size in bytes.
    """

    def __init__(self, fs: "CafcatFileSystem", path: str, raw: PackedFile) -> None:
        """Put a buffer around a PackedFile.

        Args:
            fs: The file system.
            path: Path of the file.
            raw: The open file.
        """
        super().__init__(raw, BUFFER_BYTES)
        self.fs = fs
        self.path = path
        self.details: Info = info_of(raw.location)
        self.size: int = raw.location.size_bytes

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return cast(Callable[..., Self], _opened_again), (self.fs, self.path, self.details, self.tell())

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return self.__reduce__()


def _opened_again(fs: "CafcatFileSystem", path: str, details: Info, position: int) -> OpenFile:
    """Open a file that was pickled.

    Raises:
        Conflict: The path has another content since: the first and the last bytes would be of two files.
    """
    file = cast(OpenFile, fs.open(path))
    if (file.details["size"], file.details["crc32c"]) != (details["size"], details["crc32c"]):
        file.close()
        raise Conflict("the file was replaced after it was opened", path=path, hint="open the file again")
    file.seek(position)
    return file


class AsyncOpenFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """A packed file that is open for reading in an asyncio program. It is read in threads.

    All bytes are of the file that the path had when it was opened.
    """

    def __init__(self, file: OpenFile) -> None:
        """Wrap an open file, which is closed with this one.

        Args:
            file: The open file.
        """
        super().__init__(file.fs, file.path, "rb", size=file.size, cache_type="none")
        self._file = file

    async def _fetch_range(self, start: int, end: int) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, self._read, start, end)

    def _read(self, start: int, end: int) -> bytes:
        self._file.seek(start)
        return self._file.read(end - start)

    async def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()
        await super().close()
