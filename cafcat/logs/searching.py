"""Records in archives of logs: the catalog says which archives may have them, the program clp-s finds them."""

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.log_units import SearchedArchive
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Corrupt,
    InvalidInput,
    TemporaryFileFailed,
)
from cafcat.formats.clp import CLP, program
from cafcat.stores.base import FileStore, Store
from cafcat.support.checksums import crc64nvme, to_base64
from cafcat.support.spool import temporary_file_of

__all__ = ["FoundRecord", "LogSearch", "SearchQuery", "SearchReport", "folder_of_logs"]

_FATAL: Final = (CatalogUnavailable, CatalogOutdated, TemporaryFileFailed)
"""What would be wrong with every other archive, too."""
_HELD_BACK_BYTES: Final = 1 << 20
"""So much of what an archive has is not handed out before it is all there, or more of it."""
_NO_MATCH: Final = (
    "the query cannot be true of any record there: < and > are for numbers, and for times as "
    'timestamp("2026-11-22T00:00:00")'
)


class SearchQuery(NamedTuple):
    """What is sought. prefix: in log files below that folder, or of that name; from_ms, to_ms: times in
    milliseconds since 1970, inclusive; projection: only these columns of what is found."""

    text: str
    prefix: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    ignore_case: bool = False
    projection: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        text: str,
        prefix: str,
        from_ms: int | None,
        to_ms: int | None,
        *,
        ignore_case: bool,
        projection: Sequence[str],
    ) -> "SearchQuery":
        """Return a checked query. Raises InvalidInput."""
        if not text.strip() or "\0" in text:
            raise InvalidInput("there is nothing to search for", hint="write a query as level: ERROR")
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise InvalidInput("the time that a search begins with is after the one that it ends with")
        if isinstance(projection, str) or any(not name or "\0" in name for name in projection):
            raise InvalidInput("columns are a list of names")
        return cls(text, folder_of_logs(prefix), from_ms, to_ms, ignore_case, tuple(projection))


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
        stores: Mapping[str, Store],
        query: SearchQuery,
        warn: Callable[[str], object],
    ) -> None:
        """`warn` is told of an archive of which a copy is searched, and of a query that no record can match. Raises
        InvalidInput for a query that is none, NotInstalled without clp-s."""
        program.check_query(query.text)
        self._catalog = catalog
        self._stores_by_url = stores
        self._query = query
        self._warn = warn
        self._without_match = 0
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
        if self._without_match and self._without_match == self.report.searched:
            self._warn(_NO_MATCH)

    def _found(self, archive: SearchedArchive) -> Generator[bytes, None, None]:
        count = 0
        try:
            with closing(self._searched(archive)) as found:
                for record in found:
                    count += 1
                    yield record
            self.report.searched += 1
        except _FATAL:
            raise
        except CafcatError as error:
            so_far = f"; {count:,} records of it came before that" if count else ""
            self.report.failed.append(f"archive {archive.uuid}: {error}{so_far}")

    def _searched(self, archive: SearchedArchive) -> Generator[bytes, None, None]:
        """From the first store that has it whole. What was handed out cannot be taken back: as long as there are
        stores left, the first records are held back."""
        stores = self._stores(archive)
        for url, following in pairwise(stores):
            with closing(self._records_in(url, archive)) as records:
                try:
                    first = _first_of(records)
                except (*_FATAL, program.ProgramFailed):
                    raise
                except CafcatError as error:
                    self._warn(f"archive {archive.uuid}: {error}; it is searched in {following} instead")
                    continue
                yield from first
                yield from records
                return
        yield from self._records_in(stores[-1], archive)

    def _stores(self, archive: SearchedArchive) -> list[str]:
        """URLs, in the order in which they are tried: clp-s does not notice all damage, verify does."""
        known = self._catalog.verification.damaged([archive.uuid])
        if not known:
            return [archive.store, *archive.copies]
        then = f"it is searched in {archive.copies[0]}" if archive.copies else "what is found there may be wrong"
        self._warn(f"archive {archive.uuid}: verify found it {known[0].verdict}; {then}")
        return [*archive.copies, archive.store]

    def _records_in(self, url: str, archive: SearchedArchive) -> Generator[bytes, None, None]:
        """Raises ProgramFailed if clp-s fails on an archive that is as it should be, as far as is known; Corrupt if
        it is not; and as _open does."""
        store = self._stores_by_url[url]
        with self._open(store, archive) as place:
            try:
                yield from self._run(place)
            except program.MatchesNothing:
                self._without_match += 1
            except program.ProgramFailed:
                if isinstance(store, FileStore):
                    _check(store, archive)
                raise

    def _run(self, place: str | int) -> Generator[bytes, None, None]:
        query = self._query
        return program.search(
            place,
            query.text,
            query.prefix,
            from_ms=query.from_ms,
            to_ms=query.to_ms,
            ignore_case=query.ignore_case,
            projection=query.projection,
        )

    @contextmanager
    def _open(self, store: Store, archive: SearchedArchive) -> Iterator[str | int]:
        """A file with the archive. Raises NotFound, Corrupt if it has another size than the catalog says, or was
        fetched and has another checksum; StoreFailed, AccessDenied."""
        size_bytes = store.stat(archive.object_key).size_bytes
        if size_bytes != archive.size_bytes:
            message = f"it has {size_bytes:,} bytes, the catalog says {archive.size_bytes:,}"
            raise Corrupt(message, chunk=store.locate(archive.object_key))
        if isinstance(store, FileStore):
            yield store.locate(archive.object_key)
            return
        with tempfile.TemporaryFile() as file:
            _fetch(store, archive, file)
            yield file.fileno()


def folder_of_logs(prefix: str) -> str:
    """Return a folder of log files without slashes at its end; "" is everything. A leading slash stays: archives of
    other programs have such names."""
    return "" if prefix in (".", "./") else prefix.rstrip("/")


def _first_of(records: Iterator[bytes]) -> list[bytes]:
    """All of them, if they are less than _HELD_BACK_BYTES."""
    first: list[bytes] = []
    size_bytes = 0
    for record in records:
        first.append(record)
        size_bytes += len(record)
        if size_bytes >= _HELD_BACK_BYTES:
            break
    return first


def _fetch(store: Store, archive: SearchedArchive, file: IO[bytes]) -> None:
    for block in _checked_blocks(store, archive):
        with temporary_file_of("an archive"):
            file.write(block)
    with temporary_file_of("an archive"):
        file.flush()


def _check(store: Store, archive: SearchedArchive) -> None:
    """Reads all of it, if the catalog has a checksum. Raises Corrupt."""
    if archive.crc64nvme is not None:
        for _ in _checked_blocks(store, archive):
            pass


def _checked_blocks(store: Store, archive: SearchedArchive) -> Iterator[bytes]:
    """All bytes. Raises Corrupt after the last ones, if they have another checksum than the catalog says."""
    checksum = 0
    for block in store.stream(archive.object_key, 0, archive.size_bytes):
        checksum = crc64nvme(block, checksum)
        yield block
    if archive.crc64nvme not in (None, to_base64(checksum)):
        message = f"it is damaged: CRC-64/NVME {to_base64(checksum)}, the catalog says {archive.crc64nvme}"
        raise Corrupt(message, chunk=store.locate(archive.object_key))
