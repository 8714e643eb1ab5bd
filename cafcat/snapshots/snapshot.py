"""Read packed files with the locations in a snapshot, without a database."""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from os import pread
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.progress import Warnings
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.session import Stores
from cafcat.settings.settings import Settings
from cafcat.snapshots.cached_chunks import CachedChunks
from cafcat.snapshots.database import Rows, SnapshotFile
from cafcat.snapshots.lookup import PAGE_ROWS, SnapshotCatalog, SnapshotFiles
from cafcat.snapshots.schema import SnapshotInfo
from cafcat.support.checksums import crc32c_of
from cafcat.support.forking import keep_open, renew_after_fork
from cafcat.support.paging import pages_of
from cafcat.support.paths import file_of, folder_of, names_in_list

if TYPE_CHECKING:
    import io

    from cafcat.reading.asynchronous import AsyncReader

__all__ = ["Snapshot"]

# Python takes 0.2 us for each column of a result. So two numbers share a column, if they fit: 23 bits for the
# chunk, 40 for its first byte, 31 for the size of the file. Other files, and those that have to be decoded, are
# read by `_read_by_location`. In a damaged file, SQLite may return the row of a neighbour: then the first column
# is -1, which is no chunk.
_SPAN_1: Final = """
SELECT iif(file_path = ?1, chunk << 40 | start_byte, -1), (end_byte - start_byte) << 32 | crc32c FROM files
WHERE file_path = ?1 AND chunk < 8388608 AND end_byte < 1099511627776 AND end_byte - start_byte < 2147483648
"""
"""For a snapshot of version 1."""
_SPAN: Final = f"{_SPAN_1} AND decoding IS NULL"
_FAST_READ_ERRORS: Final = (
    AttributeError,  # the first read of this thread
    KeyError,  # the first read of this chunk
    sqlite3.Error,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
)
_START_MASK: Final = (1 << 40) - 1
_CRC_MASK: Final = (1 << 32) - 1


class Snapshot:
    """Reads packed files where `cafcat snapshot` located them, without the catalog's database.

    Use a snapshot in a `with` statement, or call `close`. Threads may share it, and so may processes that are
    forked from this one: each thread and process has a connection of its own. A snapshot can be pickled; then its
    file is opened again by its path. The snapshot file must not be changed while it is open. If another file is
    renamed to its path, the first read of another thread or forked process, or after `close`, raises Conflict.

    Attributes:
        info: When the snapshot was made, of which folder, and how many files it has.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Settings | None = None,
        *,
        warn: Callable[[str], object] | None = None,
        **overrides: Any,
    ) -> None:
        """Open a snapshot file.

        Args:
            path: Name of the file.
            settings: How stores are reached; None for the settings of environment, cafcat.toml and defaults.
            warn: Called with a message when copies are read: once for each chunk whose own object cannot be read,
                or once for a store that is out of reach. If None, the messages are logged.
            **overrides: Settings by name, as in `cafcat.open`.

        Raises:
            NotFound: The file does not exist.
            InvalidInput: The file is not a snapshot, or a setting is wrong, or both `settings` and `overrides` are
                given.
            Unsupported: The file has another version.
            Corrupt: The file is damaged.
            Unavailable: The file cannot be read.
        """
        if settings is not None and overrides:
            raise InvalidInput("give either settings or overrides, not both")
        self._arguments = (os.path.abspath(path), settings or Settings.load(**overrides), warn)
        self._start(SnapshotFile(self._arguments[0]))
        self.info: SnapshotInfo = self._catalog.files.info()
        renew_after_fork(self)

    def _start(self, file: SnapshotFile) -> None:
        """Set up readers of the snapshot file. Chunks and connections are opened by the first reads."""
        _, settings, warn = self._arguments
        self._file = file
        self._rows = Rows(file)
        self._span = _SPAN_1 if file.version == 1 else _SPAN
        self._stores = Stores(settings)
        self._catalog = SnapshotCatalog(self._rows)
        self._reader = FileReader(self._catalog, self._stores, Warnings(warn))
        self._open = CachedChunks(self._stores)
        self._async: AsyncReader | None = None

    @property
    def files(self) -> SnapshotFiles:
        """Looks up and lists the files page by page, with locations and folders."""
        return self._catalog.files

    @property
    def is_local(self) -> bool:
        """True if all chunks are in folders of this machine. Then `read` is faster than `read_many`."""
        with suppress(CafcatError):
            return not any(self._stores[url].is_remote for url in self._catalog.files.stores())
        return False  # a store that cannot be reached with these settings

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or bytes `[start, end)` of it.

        A whole file is compared with its checksum, and so is a file that has to be decoded.

        Args:
            path: Path of the file in the catalog. If no file has it, leading "./" and "/" are dropped.
            start: First byte; a negative number counts from the end of the file.
            end: One past the last byte, not negative; None for the end of the file.

        Raises:
            NotFound: The snapshot has no such file, or the chunk was removed since.
            Conflict: This thread reads for the first time, and another file has replaced the snapshot file. Or the
                object of the chunk was replaced while it was read.
            Corrupt: The file is damaged in its chunk and in every copy, or the snapshot is damaged.
            InvalidInput: The range begins at or beyond the end of a file that is not empty, or ends before it
                begins. Or no path can have this name.
            NotInstalled, Unsupported: The file cannot be decoded here.
            AccessDenied: A store refuses the credentials.
            StoreFailed, Unavailable: The store does not return the bytes, or is out of reach. Or the snapshot file
                cannot be read.
        """
        if end is None and not start:
            try:  # the fast way, for nearly every file of a local chunk
                for span, content in self._rows.execute(self._span, (path,)):  # one row, or none
                    opened = self._open[span >> 40]
                    data = pread(opened.descriptor, content >> 32, span & _START_MASK)
                    if crc32c_of(data) == content & _CRC_MASK and monotonic() < opened.until:
                        return data
            except _FAST_READ_ERRORS:
                pass
        return self._read_by_location(path, start, end)

    def _read_by_location(self, path: str, start: int, end: int | None) -> bytes:
        location = self.locate(path)
        request = ReadRequest.of(path, location, start, end)
        is_plain = request.is_whole and request.decoded_range is None
        if is_plain and (data := self._from_file(location)) is not None:
            return data
        return self._reader.read(request)

    def _from_file(self, location: Location) -> bytes | None:
        """Return the content of a file in a local chunk.

        Returns:
            None if the chunk is not local, or the content cannot be read, or has another checksum.
        """
        opened = self._open.current(self._catalog.files.chunk_of(location.path), location)
        if opened is None:
            return None
        try:
            data = pread(opened.descriptor, location.size_bytes, location.start_byte)
        except (OSError, ValueError, OverflowError, MemoryError):
            return None
        return data if crc32c_of(data) == location.crc32c else None

    def read_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, bytes | CafcatError]]:
        """Yield each path with the bytes of its file, or with the error that prevented reading the file.

        Files that are near each other in a chunk share a range read. Several requests to a bucket are in flight.
        Of each five thousand paths, those that the snapshot does not have, and those whose file has no such range,
        come first. The other paths follow in the order of stores, chunks and offsets. Errors that concern all files
        are raised.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from the end of the file.
            end: One past the last byte, not negative; None for the end of the file.

        Raises:
            InvalidInput: `paths` is one name, not a list of names.
            Conflict, Corrupt: Another file has replaced the snapshot file, or the snapshot is damaged.
            AccessDenied: A store refuses the credentials.
            Unavailable: A store is out of reach, or the snapshot file cannot be read.
        """
        from cafcat.reading.batch import Batch

        for path, content in Batch(self._reader, start, end).read(names_in_list(paths)):
            yield path, content if isinstance(content, bytes) else self._explained(content)

    def open(self, path: str) -> "io.BufferedReader":
        """Open a file for reading, as `PackedFiles.open` does.

        Raises:
            NotFound, InvalidInput, Conflict, Corrupt, Unavailable: As `locate` raises them, by the call itself.
            CafcatError: As `PackedFiles.open` describes, by the methods of the file.
        """
        from cafcat.reading.packed_file import open_packed

        try:
            return open_packed(self._reader, path)
        except NotFound as error:
            raise self._explained(error) from None

    def _async_reader(self) -> "AsyncReader":
        from cafcat.reading.asynchronous import AsyncReader

        if self._async is None:
            self._async = AsyncReader(self._reader)
        return self._async

    async def aread(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them, without blocking the event loop of asyncio.

        Calls that are made together share requests to the stores. Raises the errors of `read`.

        Args:
            path: Path of the file in the catalog.
            start: First byte; a negative number counts from the end of the file.
            end: One past the last byte; None for the end of the file.
        """
        try:
            return await self._async_reader().read(path, start, end)
        except NotFound as error:
            raise self._explained(error) from error.__cause__

    async def aread_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> AsyncIterator[tuple[str, bytes | CafcatError]]:
        """Yield what `read_many` yields, without blocking the event loop of asyncio. Raises its errors.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from its end.
            end: One past the last byte; None for the end of the file.
        """
        async with aclosing(self._async_reader().read_many(paths, start, end)) as outcomes:
            async for path, content in outcomes:
                yield path, content if isinstance(content, bytes) else self._explained(content)

    def locate(self, path: str) -> Location:
        """Return the location of a file.

        Args:
            path: Path of the file in the catalog. If no file has it, leading "./" and "/" are dropped.

        Raises:
            NotFound: The snapshot has no such file.
            InvalidInput: No path can have this name.
            Conflict, Corrupt, Unavailable: The snapshot file was replaced, is damaged, or cannot be read.
        """
        try:
            return self._reader.locate(path)
        except NotFound as error:
            raise self._explained(error) from None

    def locate_many(self, paths: Iterable[str]) -> dict[str, Location | CafcatError]:
        """Return for each path where the file is, or the NotFound or InvalidInput that `locate` would raise."""
        return {
            path: self._explained(found) if isinstance(found, CafcatError) else found
            for path, found in self._reader.locate_many([*paths]).items()
        }

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Yield the path of the file with a name, if any, and the paths of all files below the folder of this name.

        The paths are sorted by their bytes. There are no paths if neither file nor folder exists.

        Args:
            prefix: The name; "" and "." mean all files, a name that ends in "/" only the files below the folder.

        Raises:
            InvalidInput, Conflict, Corrupt, Unavailable: As `locate` raises them.
        """
        files, folder, file = self._catalog.files, folder_of(prefix), file_of(prefix)
        if file is not None and files.locate_many([file]):
            yield file
        for page in pages_of(lambda last: files.page(folder, after=last), PAGE_ROWS):
            yield from page

    def list(self, prefix: str = "") -> Iterator[Location]:
        """Yield the locations of the files that `paths` names, in path order.

        Args:
            prefix: A folder or file, as for `paths`.
        """
        for page in self._catalog.files.pages(prefix):
            yield from page

    def __contains__(self, path: object) -> bool:
        try:
            return isinstance(path, str) and bool(self.locate(path))
        except (NotFound, InvalidInput):
            return False

    def __len__(self) -> int:
        return self.info.files

    def close(self) -> None:
        """Close all open files and connections. Idempotent; the next read opens them again."""
        self._stores.close()
        if self._async is not None:
            self._async.close()
        self._start(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        path, settings, warn = self._arguments
        return partial(type(self), path, settings, warn=warn), ()

    def _explained(self, error: CafcatError) -> CafcatError:
        """Return the error of a read, in which the NotFound of a name gets a hint about the snapshot."""
        if isinstance(error, NotFound) and error.chunk is None:
            # The usual hint for a folder names commands.
            error.hint = "use list or paths" if error.hint else f"the snapshot was made at {self.info.made_at}"
        return error

    def after_fork(self) -> None:
        """Replace all connections and open files of the snapshot in a forked process.

        The connections of the parent process are neither used nor closed here: SQLite forbids both, and a fork does
        not copy the threads of S3 clients.
        """
        keep_open(self._rows, self._stores, self._reader, self._async)
        self._start(self._file)
