"""Searches for records in archives of logs.

The catalog finds the archives that can have matching records, and the program clp-s finds the records.
"""

import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
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
from cafcat.logs.timestamp_keys import PACK_WITH_TIMES
from cafcat.progress import Progress
from cafcat.stores.base import FileStore, Store
from cafcat.support.checksums import crc64nvme, to_base64
from cafcat.support.paths import check_text
from cafcat.support.quantities import plural
from cafcat.support.spool import temporary_file_of

__all__ = ["FoundRecord", "LogSearch", "SearchQuery", "SearchReport", "folder_of_logs"]

_FATAL: Final = (CatalogUnavailable, CatalogOutdated, TemporaryFileFailed)
"""Errors that would make every other archive fail, too."""
_BUFFERED_BYTES: Final = 1 << 20
"""Size in bytes of an archive's first found records, which are buffered. If the search fails within them, another
copy of the archive can be searched instead."""
_NO_MATCH: Final = (
    "the query cannot match any record: < and > compare only numbers, and times written as "
    'timestamp("2026-11-22T00:00:00")'
)


class SearchQuery(NamedTuple):
    """A search for records in archives of logs.

    Attributes:
        text: The query, in the language of clp-s.
        prefix: Search only log files below this folder, or the log file of this name; "" for all.
        from_ms: Earliest time of a record, in milliseconds since 1970 UTC, inclusive; None for no limit.
        to_ms: Latest time of a record, in milliseconds since 1970 UTC, inclusive; None for no limit.
        ignore_case: True to ignore the case of letters.
        projection: Columns (JSON keys) of the found records to return; empty for all.
    """

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
        """Check the arguments and return the query. The syntax of `text` is not checked.

        The arguments are the attributes. Slashes at the end of `prefix` are removed, and "." becomes "".

        Raises:
            InvalidInput: The query is empty or contains a NUL, `from_ms` is after `to_ms`, or `projection` is a
                single string, or has a name that is empty or contains a NUL.
        """
        if not text.strip() or "\0" in text:
            message = "the query is empty or contains a NUL character"
            raise InvalidInput(message, hint="write a query such as level: ERROR")
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise InvalidInput("the search begins after it ends: its first time is later than its last time")
        if isinstance(projection, str) or any(not name or "\0" in name for name in projection):
            raise InvalidInput("the columns to return must be a list of names, each not empty and without NULs")
        return cls(text, folder_of_logs(prefix), from_ms, to_ms, ignore_case, tuple(projection))


class FoundRecord(NamedTuple):
    """A log record that a search found.

    Attributes:
        record: The record in JSON, as clp-s prints it, without a newline.
        chunk: UUID of the archive (chunk) that has the record.
    """

    record: bytes
    chunk: UUID


@dataclass(slots=True)
class SearchReport:
    """Totals of a search for log records.

    Attributes:
        archives: Number of archives of logs in the catalog.
        searched: Number of archives that can have matching records and were searched to their end.
        records: Number of records that were found.
        failed: A message for each archive that could not be searched to its end.
    """

    archives: int = 0
    searched: int = 0
    records: int = 0
    failed: list[str] = field(default_factory=list)


class LogSearch:
    """One search for log records, in one archive after the other.

    An archive in a bucket is first copied into a temporary file without a name, which is removed after its search.

    Attributes:
        report: The totals so far.
    """

    def __init__(
        self,
        catalog: Catalog,
        stores: Mapping[str, Store],
        query: SearchQuery,
        progress: Progress,
    ) -> None:
        """Check the syntax of the query. This does not search archives.

        Args:
            catalog: The catalog that lists the archives.
            stores: The stores of the catalog by their URL.
            query: The search.
            progress: Receives a warning if another copy of an archive is searched, if `cafcat verify` found an
                archive damaged, if no record can match the query, or if archives have no times.

        Raises:
            InvalidInput: clp-s cannot parse the query.
            NotInstalled: The program clp-s is missing.
        """
        program.check_query(query.text)
        self._catalog = catalog
        self._stores_by_url = stores
        self._query = query
        self._progress = progress
        self._without_match = self._without_times = 0
        self.report = SearchReport()

    def records(self) -> Generator[FoundRecord, None, None]:
        """Yield records as they are found. An archive that fails is noted in `report`, and the search goes on.

        Closing the generator ends the search, and the program clp-s that is running for it.

        Raises:
            CatalogUnavailable: The database does not answer.
            CatalogOutdated: The database has another schema.
            TemporaryFileFailed: A temporary file cannot be written.
        """
        query, logs = self._query, self._catalog.logs
        self.report.archives = logs.count(CLP.name)
        is_by_time = query.from_ms is not None or query.to_ms is not None
        for archive in logs.archives(CLP.name, query.prefix, query.from_ms, query.to_ms):
            self._without_times += is_by_time and not archive.has_times
            with closing(self._records_of(archive)) as found:
                for record in found:
                    self.report.records += 1
                    yield FoundRecord(record, archive.uuid)
        if self._without_match and self._without_match == self.report.searched:
            self._progress.warn(_NO_MATCH)
        if self._without_times:
            self._progress.warn(
                f"{plural(self._without_times, 'archive')} without times: all records were searched, whatever "
                f"their time; {PACK_WITH_TIMES}"
            )

    def _records_of(self, archive: SearchedArchive) -> Generator[bytes, None, None]:
        count = 0
        try:
            with closing(self._records_with_fallback(archive)) as found:
                for record in found:
                    count += 1
                    yield record
            self.report.searched += 1
        except _FATAL:
            raise
        except CafcatError as error:
            so_far = f"; {count:,} records of it were found before the failure" if count else ""
            self.report.failed.append(f"archive {archive.uuid}: {error}{so_far}")

    def _records_with_fallback(self, archive: SearchedArchive) -> Generator[bytes, None, None]:
        """Yield the matching records of an archive from the first of its stores in which it can be searched.

        Records cannot be withdrawn once the caller has them. Therefore 1 MiB of records is buffered while another
        store is left to try. If the search fails within these records, the archive is searched in the next store,
        unless clp-s failed although the archive is not damaged.
        """
        stores = self._stores(archive)
        for url, following in pairwise(stores):
            with closing(self._records_in(url, archive)) as records:
                try:
                    first = _first_of(records)
                except (*_FATAL, program.ProgramFailed):
                    raise
                except CafcatError as error:
                    self._progress.warn(f"archive {archive.uuid}: {error}; searching it in {following} instead")
                    continue
                yield from first
                yield from records
                return
        yield from self._records_in(stores[-1], archive)

    def _stores(self, archive: SearchedArchive) -> list[str]:
        """Return the URLs of the stores that have an archive, or a copy, in the order in which they are tried.

        If `cafcat verify` found the archive damaged, its copies come first, because clp-s does not notice all
        damage. A warning is then emitted.
        """
        damaged = self._catalog.verification.damaged([archive.uuid])
        if not damaged:
            return [archive.store, *archive.copies]
        then = f"searching it in {archive.copies[0]}" if archive.copies else "its records may be wrong"
        self._progress.warn(f"archive {archive.uuid}: verify found it {damaged[0].verdict}; {then}")
        return [*archive.copies, archive.store]

    def _records_in(self, url: str, archive: SearchedArchive) -> Generator[bytes, None, None]:
        """Yield the matching records of an archive, read from one store.

        Raises:
            ProgramFailed: clp-s fails, and the checksum in the catalog, if any, shows no damage.
            Corrupt: The archive is damaged.
            NotFound: The archive is missing from the store.
            StoreFailed: The store cannot be read.
            AccessDenied: The store rejected the credentials.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        store = self._stores_by_url[url]
        with self._open(store, archive) as file:
            try:
                yield from self._run(file, archive)
            except program.MatchesNothing:
                self._without_match += 1
            except program.ProgramFailed:
                if isinstance(store, FileStore):
                    _check(store, archive)
                raise

    def _run(self, file: str | int, archive: SearchedArchive) -> Generator[bytes, None, None]:
        query = self._query if archive.has_times else self._query._replace(from_ms=None, to_ms=None)
        return program.search(
            file,
            query.text,
            query.prefix,
            from_ms=query.from_ms,
            to_ms=query.to_ms,
            ignore_case=query.ignore_case,
            projection=query.projection,
        )

    @contextmanager
    def _open(self, store: Store, archive: SearchedArchive) -> Iterator[str | int]:
        """Provide a local file with the archive: its path, or the descriptor of a temporary file with a copy.

        Raises:
            Corrupt: The archive has another size than in the catalog, or the copy has another checksum.
            NotFound: The archive is missing from the store.
            StoreFailed: The store cannot be read.
            AccessDenied: The store rejected the credentials.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        size_bytes = store.stat(archive.object_key).size_bytes
        if size_bytes != archive.size_bytes:
            message = f"the archive has {size_bytes:,} bytes instead of {archive.size_bytes:,}"
            raise Corrupt(message, chunk=store.locate(archive.object_key))
        if isinstance(store, FileStore):
            yield store.locate(archive.object_key)
            return
        with tempfile.TemporaryFile() as file:
            _fetch(store, archive, file)
            yield file.fileno()


def folder_of_logs(prefix: str) -> str:
    """Return the name of a folder of log files, or of one log file, without slashes at its end.

    The result is "" (all log files) for "", ".", "./" and "/". Other names keep a leading slash, because archives
    of other programs can have such names.
    """
    check_text(prefix)
    return "" if prefix in (".", "./") else prefix.rstrip("/")


def _first_of(records: Iterator[bytes]) -> list[bytes]:
    """Take records from the iterator until their total size is at least 1 MiB, or it ends. Return these records."""
    first: list[bytes] = []
    size_bytes = 0
    for record in records:
        first.append(record)
        size_bytes += len(record)
        if size_bytes >= _BUFFERED_BYTES:
            break
    return first


def _fetch(store: Store, archive: SearchedArchive, file: IO[bytes]) -> None:
    for block in _checked_blocks(store, archive):
        with temporary_file_of("an archive"):
            file.write(block)
    with temporary_file_of("an archive"):
        file.flush()


def _check(store: Store, archive: SearchedArchive) -> None:
    """Read the whole archive and check its CRC-64/NVME. Does nothing if the catalog has none for the archive.

    Raises:
        Corrupt: the catalog has another CRC-64/NVME. Errors of the store pass through.
    """
    if archive.crc64nvme is not None:
        for _ in _checked_blocks(store, archive):
            pass


def _checked_blocks(store: Store, archive: SearchedArchive) -> Iterator[bytes]:
    """Yield all bytes of an archive. Raises Corrupt after the last block if the catalog has another CRC-64/NVME."""
    checksum = 0
    for block in store.stream(archive.object_key, 0, archive.size_bytes):
        checksum = crc64nvme(block, checksum)
        yield block
    if archive.crc64nvme not in (None, to_base64(checksum)):
        message = f"the archive is damaged: its CRC-64/NVME is {to_base64(checksum)}, expected {archive.crc64nvme}"
        raise Corrupt(message, chunk=store.locate(archive.object_key))
