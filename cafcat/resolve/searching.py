"""Records in archives of logs: the catalog says which archives may have them, the program clp-s finds them."""

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import IO, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.log_units import SearchedArchive
from cafcat.checksums import crc64nvme, to_base64
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, Corrupt, TemporaryFileFailed
from cafcat.formats.clp import CLP, program
from cafcat.spool import temporary_file_of
from cafcat.stores.base import OpensFiles, Store

__all__ = ["FoundRecord", "LogSearch", "SearchQuery", "SearchReport"]

_FATAL: Final = (CatalogUnavailable, CatalogOutdated, TemporaryFileFailed)
"""What would be wrong with every other archive, too."""


class SearchQuery(NamedTuple):
    """What is sought. prefix: in log files below that folder, or of that name; from_ms, to_ms: times in
    milliseconds since 1970, inclusive; projection: only these columns of what is found."""

    text: str
    prefix: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    ignore_case: bool = False
    projection: tuple[str, ...] = ()


class FoundRecord(NamedTuple):
    """A record as clp-s prints it, in JSON, and the archive that has it."""

    record: bytes
    chunk: UUID


@dataclass(slots=True)
class SearchReport:
    """archives: of this kind in the catalog; searched: those of them that may have what is sought, and could be
    read; records: that were found; failed: messages, of archives that could not be searched to their end."""

    archives: int = 0
    searched: int = 0
    records: int = 0
    failed: list[str] = field(default_factory=list)


class LogSearch:
    """One search. One archive is searched at a time; that of a bucket is fetched before, into a temporary file that
    has no name, and so is gone with the process."""

    def __init__(
        self,
        catalog: Catalog,
        store_of: Callable[[str], Store],
        query: SearchQuery,
        warn: Callable[[str], object],
    ) -> None:
        """`warn` is told of an archive of which a copy is searched. Raises InvalidInput for a query that is none,
        NotInstalled without clp-s."""
        program.check_query(query.text)
        self._catalog = catalog
        self._store_of = store_of
        self._query = query
        self._warn = warn
        self.report = SearchReport()

    def records(self) -> Generator[FoundRecord, None, None]:
        """As they are found. What is wrong with one archive costs only itself. Raises CatalogUnavailable,
        CatalogOutdated, TemporaryFileFailed."""
        query, logs = self._query, self._catalog.logs
        self.report.archives = logs.count(CLP.name)
        for archive in logs.archives(CLP.name, query.prefix, query.from_ms, query.to_ms):
            with closing(self._found(archive)) as found:
                for record in found:
                    self.report.records += 1
                    yield FoundRecord(record, archive.uuid)

    def _found(self, archive: SearchedArchive) -> Generator[bytes, None, None]:
        try:
            with self._readable(archive) as place:
                yield from self._run(place)
            self.report.searched += 1
        except _FATAL:
            raise
        except CafcatError as error:
            self.report.failed.append(f"archive {archive.uuid}: {error}")

    def _run(self, place: str | int) -> Generator[bytes, None, None]:
        query = self._query
        return program.search(
            place,
            program.below(query.prefix, query.text) if query.prefix else query.text,
            from_ms=query.from_ms,
            to_ms=query.to_ms,
            ignore_case=query.ignore_case,
            projection=query.projection,
        )

    @contextmanager
    def _readable(self, archive: SearchedArchive) -> Iterator[str | int]:
        """A file with the archive, from the first store that has it whole."""
        *before, last = [archive.store, *archive.copies]
        with ExitStack() as stack:
            for url in before:
                try:
                    place = stack.enter_context(self._open(url, archive))
                except _FATAL:
                    raise
                except CafcatError as error:
                    self._warn(f"archive {archive.uuid}: {error}; a copy is searched")
                else:
                    break
            else:
                place = stack.enter_context(self._open(last, archive))
            yield place

    @contextmanager
    def _open(self, url: str, archive: SearchedArchive) -> Iterator[str | int]:
        """Raises NotFound, Corrupt if it has another size than the catalog says, or was fetched and has another
        checksum; StoreFailed, AccessDenied."""
        store = self._store_of(url)
        size_bytes = store.stat(archive.object_key).size_bytes
        if size_bytes != archive.size_bytes:
            message = f"it has {size_bytes:,} bytes, the catalog says {archive.size_bytes:,}"
            raise Corrupt(message, chunk=store.locate(archive.object_key))
        if isinstance(store, OpensFiles):
            yield store.locate(archive.object_key)
            return
        with tempfile.TemporaryFile() as file:
            _fetch(store, archive, file)
            yield file.fileno()


def _fetch(store: Store, archive: SearchedArchive, file: IO[bytes]) -> None:
    checksum = 0
    for block in store.stream(archive.object_key, 0, archive.size_bytes):
        checksum = crc64nvme(block, checksum)
        with temporary_file_of("an archive"):
            file.write(block)
    with temporary_file_of("an archive"):
        file.flush()
    if archive.crc64nvme not in (None, to_base64(checksum)):
        message = f"it has CRC-64/NVME {to_base64(checksum)}, the catalog says {archive.crc64nvme}"
        raise Corrupt(message, chunk=store.locate(archive.object_key))
