"""Reading packed files by a snapshot: no database is asked, and none need be there."""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from os import pread
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.session import Stores
from cafcat.settings.settings import Settings
from cafcat.snapshots.database import Rows, SnapshotFile
from cafcat.snapshots.kept_chunks import CachedChunks
from cafcat.snapshots.lookup import PAGE_ROWS, SnapshotCatalog
from cafcat.snapshots.schema import SnapshotInfo
from cafcat.support.checksums import crc32c_of
from cafcat.support.paths import file_of, folder_of

__all__ = ["Snapshot"]

# Python takes 0.2 us for each column of a result. So two numbers come in one, where they fit: 23 bits for the
# chunk, 40 for a byte of it, 31 for the size of a file. What does not fit, or has to be decoded, is read with care.
# Where a neighbour's path is damaged, SQLite may find that one: -1, no chunk has it.
_PLACE_1: Final = """
SELECT iif(file_path = ?1, chunk << 40 | start_byte, -1), (end_byte - start_byte) << 32 | crc32c FROM files
WHERE file_path = ?1 AND chunk < 8388608 AND end_byte < 1099511627776 AND end_byte - start_byte < 2147483648
"""
"""In a snapshot of version 1."""
_PLACE: Final = f"{_PLACE_1} AND decoding IS NULL"
_NOT_SO_SIMPLE: Final = (
    AttributeError,  # the first read of this thread
    KeyError,  # the first of this chunk
    sqlite3.Error,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
)
_START_MASK: Final = (1 << 40) - 1
_CRC_MASK: Final = (1 << 32) - 1


class Snapshot:
    """Files as they were when `cafcat snapshot` was run. Use it as a context manager, or call close.

    Threads may share it, and processes that are forked from this one: each thread and process gets a connection of
    its own. It can be pickled, and is opened anew from its path. The file must not be changed while it is open; one
    that takes its name is not seen.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Settings | None = None,
        *,
        warn: Callable[[str], object] | None = None,
        **overrides: Any,
    ) -> None:
        """Settings, overrides and `warn` as in `cafcat.open`: they say how stores are reached. Raises NotFound,
        InvalidInput if the file is not a snapshot, Unsupported for one of another version, Corrupt, Unavailable."""
        if settings is not None and overrides:
            raise InvalidInput("give settings or overrides, not both")
        self._arguments = (os.path.abspath(path), settings or Settings.load(**overrides), warn)
        self._start(SnapshotFile(self._arguments[0]))
        self.info: SnapshotInfo = self._catalog.files.info()
        _SNAPSHOTS.add(self)

    def _start(self, file: SnapshotFile) -> None:
        """Everything that is open, or will be."""
        _, settings, warn = self._arguments
        self._file = file
        self._rows = Rows(file)
        self._place = _PLACE_1 if file.version == 1 else _PLACE
        self._stores = Stores(settings)
        self._catalog = SnapshotCatalog(self._rows)
        store_of = self._stores.__getitem__
        self._reader = FileReader(self._catalog, store_of, warn or logging.getLogger("cafcat").warning)
        self._open = CachedChunks(store_of)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or `[start, end)` of them; a negative start counts from the end. A whole file is
        checked against its checksum. Raises NotFound, also if the chunk was removed since, Corrupt, InvalidInput
        for a range beyond the file, AccessDenied, StoreFailed, Unavailable for a store out of reach."""
        if end is None and not start:
            try:  # the short way, for nearly every file of a folder's chunks
                for place, content in self._rows.execute(self._place, (path,)):  # one row, or none
                    opened = self._open[place >> 40]
                    data = pread(opened.descriptor, content >> 32, place & _START_MASK)
                    if crc32c_of(data) == content & _CRC_MASK and monotonic() < opened.until:
                        return data
            except _NOT_SO_SIMPLE:
                pass
        return self._read_with_care(path, start, end)

    def _read_with_care(self, path: str, start: int, end: int | None) -> bytes:
        location = self.locate(path)
        wanted = ReadRequest.of(path, location, start, end)
        is_simple = wanted.is_whole and location.decoding is None
        if is_simple and (data := self._from_file(location)) is not None:
            return data
        try:
            return self._reader.read(wanted)
        except Corrupt as error:
            raise self._explained(error) from error.__cause__

    def _from_file(self, location: Location) -> bytes | None:
        """None if it is not in a file of this machine, or anything is wrong with it."""
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
        """As `Repository.read_many`: near files by one range read, several requests in flight to a bucket. They
        come as they are read, by archive and offset, under the names that were asked for; what is wrong with one
        comes in place of its bytes."""
        from cafcat.reading.batch import Batch

        if isinstance(paths, str | bytes):
            raise InvalidInput("paths are a list of names", hint=f"write [{paths!r}]")
        for path, content in Batch(self._reader, start, end).read(paths):
            yield path, content if isinstance(content, bytes) else self._explained(content)

    def locate(self, path: str) -> Location:
        """Where a file is. Raises NotFound."""
        try:
            return self._reader.locate(path)
        except NotFound as error:
            raise self._explained(error) from None

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Everything below a folder (or the file of that name), in path order."""
        files, folder, itself = self._catalog.files, folder_of(prefix), file_of(prefix)
        if itself is not None and files.locate_many([itself]):
            yield itself
        after: str | None = None
        while page := files.page(folder, after=after):
            yield from page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1]

    def __contains__(self, path: object) -> bool:
        try:
            return isinstance(path, str) and bool(self.locate(path))
        except (NotFound, InvalidInput):
            return False

    def __len__(self) -> int:
        return self.info.files

    def close(self) -> None:
        """Closes what is open. Idempotent; what is read next opens it anew."""
        self._stores.close()
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
        """An object that is gone is damage to who asks the catalog. A snapshot does not know what was pruned, or
        packed, since."""
        if isinstance(error, Corrupt) and isinstance(error.__cause__, NotFound):
            hint = "if it was pruned or repacked since, make a new snapshot"
            return NotFound(error.message, path=error.path, chunk=error.chunk, byte=error.byte, hint=hint)
        if isinstance(error, NotFound):
            error.hint = error.hint or f"the snapshot is of {self.info.made_at}"
        return error

    def _forked(self) -> None:
        """In the child. What the parent had open is neither used nor closed here: SQLite forbids it, and clients of
        buckets have threads that did not come along."""
        _INHERITED.append((self._rows, self._stores, self._reader))
        self._start(self._file)


_SNAPSHOTS: WeakSet[Snapshot] = WeakSet()
_INHERITED: list[object] = []


def _after_fork() -> None:
    for snapshot in list(_SNAPSHOTS):
        snapshot._forked()


os.register_at_fork(after_in_child=_after_fork)
