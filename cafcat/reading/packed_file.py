"""A packed file as a seekable binary file, which any program can read that reads open files."""

import io
import os
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cafcat.errors import Corrupt
from cafcat.model import Location
from cafcat.reading.content import check
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.checksums import crc32c
from cafcat.support.seekable_file import SeekableFile
from cafcat.support.spool import Spool

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["BUFFER_BYTES", "CHECKED_BYTES", "PackedFile", "open_packed"]

BUFFER_BYTES: Final = 64 << 10
"""Size of the buffer around a PackedFile, in bytes."""
CHECKED_BYTES: Final = 1 << 20
"""A file up to this size, in bytes, is read at once and compared with its checksum before its first byte is
returned."""
_SPOOL_BYTES: Final = 8 << 20
"""A decoded content is kept in memory up to this size, in bytes. A larger one goes to a temporary file."""
_LOCAL_WINDOW: Final = 256 << 10
"""Most bytes that are read ahead from a folder: the operating system reads ahead, too."""
_FIRST_WINDOW: Final = 64 << 10
"""Bytes of the first request after a jump."""
_REMOTE_WINDOW: Final = 8 << 20
"""Most bytes of one request that reads ahead from a server."""


def open_packed(reader: FileReader, path: str) -> io.BufferedReader:
    """Find a packed file, and open it for reading, with a buffer of 64 KiB.

    Args:
        reader: Finds and reads the file.
        path: Path of the file in the catalog.

    Raises:
        NotFound: No file has this path.
        InvalidInput: No path can have this text.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    return io.BufferedReader(PackedFile(reader, path, reader.locate(path)), BUFFER_BYTES)


class PackedFile(SeekableFile, io.RawIOBase):
    """A packed file that is open for reading, without a buffer. `open_packed` puts a buffer around it.

    A file of at most 1 MiB is read at once and compared with its checksum; so is a file that its format has to
    decode, whatever its size. A larger file is read in ranges. If it is read from its first to its last byte in
    order, it is compared with its checksum before the last bytes are returned.

    If bytes are read in order, more of them are read than requested: twice as much as before, up to 8 MiB from a
    server, and the next range is requested while the caller uses the present one.

    A file must not be used by several threads at once; the buffer around it has a lock.

    Attributes:
        name: Path of the file in the catalog.
        location: Where the file is packed.
        mode: "rb".
    """

    mode = "rb"

    def __init__(self, reader: FileReader, path: str, location: Location) -> None:
        """Open a packed file. This reads nothing yet.

        Args:
            reader: Reads the bytes of the file from its chunk or from a copy.
            path: Path of the file as the caller gave it.
            location: Where the file is packed.
        """
        super().__init__()
        self.name = path
        self.location = location
        whole = location.size_bytes <= CHECKED_BYTES or location.decoding is not None
        self._content = _Whole(reader, path, location) if whole else _Ranges(reader, path, location)

    def readable(self) -> bool:
        """Return True."""
        return True

    def _size_bytes(self) -> int:
        return self.location.size_bytes

    def readinto(self, buffer: Any) -> int:
        """Read some of the next bytes into a buffer, and return their number; 0 at the end of the file.

        Raises:
            ValueError: The file is closed.
            CafcatError: The bytes cannot be read, as `PackedFiles.read` raises it.
        """
        self._check_open()
        with memoryview(buffer).cast("B") as view:
            end = min(self._position + len(view), self.location.size_bytes)
            if end <= self._position:
                return 0
            data = self._content.some(self._position, end)
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        """Return all bytes from the position to the end of the file. Raises the errors of `readinto`."""
        self._check_open()
        if self._position >= self.location.size_bytes:
            return b""
        data = self._content.rest(self._position)
        self._position = self.location.size_bytes
        return data

    def close(self) -> None:
        """Close the file, and free its memory. Idempotent."""
        if not self.closed:
            self._content.close()
        super().close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an open file cannot be pickled: pickle the repository, and open the file again by its path"
        )


class _Whole:
    """The content of a file that is read at once, at the first use. A large one is in a temporary file."""

    def __init__(self, reader: FileReader, path: str, location: Location) -> None:
        self._reader = reader
        self._request = ReadRequest.of(path, location, 0, None)
        self._data: bytes | None = None
        self._spool: Spool | None = None

    def some(self, start: int, end: int) -> bytes | memoryview:
        """Return the bytes `[start, end)` of the file."""
        if self._data is None and self._spool is None:
            self._load()
        if self._spool is None:
            return memoryview(self._data or b"")[start:end]
        self._spool.seek(start)
        return self._spool.read(end - start)

    def rest(self, start: int) -> bytes:
        """Return the bytes of the file from `start` to its end."""
        return bytes(self.some(start, self._request.location.size_bytes))

    def _load(self) -> None:
        if self._request.location.size_bytes <= _SPOOL_BYTES:
            self._data = self._reader.read(self._request)
        else:
            self._spool = self._reader.save(self._request, self._reader.stream(self._request), _spooled)

    def close(self) -> None:
        self._data = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def _spooled(blocks: Any) -> Spool:
    spool = Spool("a decoded file", _SPOOL_BYTES)
    try:
        for block in blocks:
            spool.write(block)
        spool.flush()
    except BaseException:
        spool.close()
        raise
    return spool


class _Ranges:
    """The content of a large file, read in ranges that grow while the file is read in order."""

    def __init__(self, reader: FileReader, path: str, location: Location) -> None:
        self._reader = reader
        self._path = path
        self._location = location
        self._is_remote = reader.stores[location.store].is_remote
        self._most_bytes = _REMOTE_WINDOW if self._is_remote else _LOCAL_WINDOW
        self._window_bytes = _FIRST_WINDOW
        self._start = 0
        self._data = b""
        self._checked_to = 0
        self._checksum = 0
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, int, Future[bytes]] | None = None
        self._process = os.getpid()

    def some(self, start: int, end: int) -> memoryview:
        """Return the bytes of the file from `start` on: at least one of them, and at most those before `end`."""
        if not self._start <= start < self._start + len(self._data):
            self._fetch(start, min(end, start + self._most_bytes))
        return memoryview(self._data)[start - self._start : end - self._start]

    def rest(self, start: int) -> bytes:
        """Return the bytes of the file from `start` to its end. A whole file is compared with its checksum."""
        request = ReadRequest.of(self._path, self._location, start)
        return self._reader.save(request, self._reader.stream(request), b"".join)

    def _fetch(self, start: int, end: int) -> None:
        """Read the window that begins at `start`, and request the next one if a server is read in order.

        Args:
            start: First byte that is needed, from the start of the file.
            end: One past the last byte that is needed.
        """
        self._forget_threads_of_parent()
        in_order = start == self._start + len(self._data)
        self._window_bytes = min(2 * self._window_bytes, self._most_bytes) if in_order else _FIRST_WINDOW
        if self._ahead is not None and self._ahead[0] == start:
            _, window_end, future = self._ahead
            self._ahead = None
            data = future.result()
        else:
            self._forget_ahead()
            window_end = min(max(end, start + self._window_bytes), self._location.size_bytes)
            data = self._read(start, window_end)
        self._check(start, data)
        self._start, self._data = start, data
        if in_order and self._is_remote and window_end < self._location.size_bytes:
            self._request_ahead(window_end)

    def _read(self, start: int, end: int) -> bytes:
        return self._reader.read(ReadRequest.of(self._path, self._location, start, end))

    def _request_ahead(self, start: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="cafcat-ahead")
        end = min(start + self._window_bytes, self._location.size_bytes)
        self._ahead = (start, end, self._pool.submit(self._read, start, end))

    def _forget_threads_of_parent(self) -> None:
        """Forget the thread that reads ahead in a forked process: only the parent process has it."""
        if self._process != os.getpid():
            self._process, self._pool, self._ahead = os.getpid(), None, None

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead[2].cancel()
            self._ahead = None

    def _check(self, start: int, data: bytes) -> None:
        """Extend the checksum of the bytes from the start of the file on, and compare it at the end of the file.

        Raises:
            Corrupt: All bytes of the file were read in order, and the checksum is wrong.
        """
        end = start + len(data)
        if not start <= self._checked_to < end:
            return
        self._checksum = crc32c(data[self._checked_to - start :], self._checksum)
        self._checked_to = end
        if end == self._location.size_bytes:
            try:
                check(self._location, self._checksum)
            except Corrupt as error:
                self._reader.record_damage(self._location, error)
                raise

    def close(self) -> None:
        self._forget_ahead()
        self._data = b""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
