"""Archives of any format that are there already: their files come into the catalog, their bytes stay untouched.

Every entry is read once, to know that it can be read, and its checksum: what a catalog says is proven when it is
said. Then the archive and all its files are entered in one transaction.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid4

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.adopting import AdoptedArchive
from cafcat.catalog.files.mapping import Mapping
from cafcat.checksums import crc32c
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Conflict,
    Corrupt,
    InvalidInput,
    Unsupported,
)
from cafcat.formats.base import UNCHECKED_HASH, Format, Reader, Remarks, Spread, UnitReader
from cafcat.formats.read_as import DETECTED, ReadAs
from cafcat.model import NO_UNITS, ArchiveUnits, Entry, FileProblem, OnConflict, ProblemKind
from cafcat.operations.index_rules import unnameable
from cafcat.progress import Progress
from cafcat.stores.base import OpensFiles, Store, StoredObject
from cafcat.support.read_ahead import ReadAhead

__all__ = ["Adopt", "AdoptReport", "AdoptedFile", "Found"]


class Found(NamedTuple):
    """An archive as somebody named it: an object of a store; or one of several that are an archive together, as
    spread says."""

    store: Store
    object_key: str
    spread: Spread | None = None


class AdoptedFile(NamedTuple):
    """An archive that was adopted, or would be, with its size in bytes. files: entered under their paths; skipped:
    paths that another file kept; failed: entries that cannot be read; unchecked_blocks: blocks of a CAR with a hash
    function that is not checked."""

    archive: str
    uuid: UUID
    format: str
    size_bytes: int
    files: int
    bytes: int
    skipped: int
    failed: int
    unchecked_blocks: int = 0


@dataclass(slots=True)
class AdoptReport:
    """What was done, or would be. files, bytes: of the files in the catalog now; skipped: paths that other files
    kept; files_failed: entries that cannot be read; unchecked_blocks: blocks of CARs with a hash function that is
    not checked; failed: archives that were not adopted, and why."""

    archives: int = 0
    files: int = 0
    bytes: int = 0
    skipped: int = 0
    files_failed: int = 0
    unchecked_blocks: int = 0
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False
    dry_run: bool = False


class _Stopped(Exception):
    """It is to end, with nothing done for the archive at hand."""


class Adopt:
    """One adopt of several archives."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        prefix: str,
        on_conflict: OnConflict,
        dry_run: bool,
        progress: Progress,
        on_adopted: Callable[[AdoptedFile], object],
        should_stop: Callable[[], bool],
        read_as: ReadAs = DETECTED,
    ) -> None:
        """Args: prefix: a folder of the catalog, without a slash at either end; on_adopted is told of each archive;
        should_stop is asked before each archive and block, where it ends the work: nothing is then left of the
        archive at hand. It may raise, to the same effect. read_as: how the archives are read."""
        self._catalog = catalog
        self._prefix = prefix
        self._on_conflict = on_conflict
        self._progress = progress
        self._on_adopted = on_adopted
        self._should_stop = should_stop
        self._read_as = read_as
        self.report = AdoptReport(dry_run=dry_run)

    def take(self, archive: Found) -> None:
        """What is wrong with one archive costs only itself. Raises CatalogUnavailable, CatalogOutdated."""
        try:
            self._go_on()
            self._adopt(archive)
        except _Stopped:
            self.report.interrupted = True
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            self.fail(archive.store.locate(archive.object_key), error)

    def fail(self, name: str, error: CafcatError) -> None:
        """Notes that an archive cannot be adopted."""
        if error.chunk == name:
            error.chunk = None
        self.report.failed.append(f"{name}: {error}")

    def _go_on(self) -> None:
        if self.report.interrupted or self._should_stop():
            raise _Stopped

    def _adopt(self, found: Found) -> None:
        adopting = self._catalog.adopting
        store, key, spread = found
        adopting.check_new(store.url, key)
        version = _Version(store, key)
        archive = StoredObject(store, key, size_bytes=version.info.size_bytes)
        archive_format = self._read_as.of(archive)
        prefix = _path_prefix(self._prefix, archive_format, key)
        chunk_id = 0 if self.report.dry_run else adopting.next_id()
        row = AdoptedArchive(
            chunk_id, uuid4(), archive_format.name, store.url, key, archive.size_bytes, prefix, version.info.etag
        )
        with Mapping(chunk_id) as mapping:
            ahead = ReadAhead(archive, archive.size_bytes)
            reader = archive_format.reader(ahead) if spread is None else spread.reader(ahead, key)
            units = reader.units() if isinstance(reader, UnitReader) else NO_UNITS
            failed = self._read_all(reader, archive, prefix, mapping)
            if failed and not mapping.file_count:
                raise Corrupt(f"none of its {failed:,} entries can be read")
            read = _Read(archive.name, failed, self._take_remarks(reader, archive.name))
            version.check()
            self._commit(row, mapping, units, read)

    def _take_remarks(self, reader: Reader, name: str) -> int:
        """Warn of what the reader found beside its entries. Return the number of unchecked blocks."""
        remarks = reader.remarks() if isinstance(reader, Remarks) else ()
        for remark in remarks:
            self._progress.warn(f"{name}: {remark.message}")
        return sum(remark.blocks for remark in remarks if remark.kind == UNCHECKED_HASH)

    def _read_all(self, reader: Reader, archive: StoredObject, prefix: str, mapping: Mapping) -> int:
        """Puts every entry that can be read into the mapping. Returns how many cannot."""
        self._progress.begin("adopt", size_bytes=archive.size_bytes)
        failed = 0
        for entry in reader.entries():
            self._go_on()
            try:
                mapping.add(self._checked(reader, entry, prefix))
            except (Corrupt, Unsupported, InvalidInput) as error:
                failed += 1
                kind = ProblemKind.NAME if isinstance(error, InvalidInput) else ProblemKind.CORRUPT
                self._progress.problem(FileProblem(prefix + entry.path, kind, error.message))
            self._progress.advance(1, 0)
        return failed

    def _checked(self, reader: Reader, entry: Entry, prefix: str) -> Entry:
        """As the catalog is to have it. Raises Corrupt, Unsupported, InvalidInput if it cannot."""
        path = prefix + entry.path
        if reason := unnameable(path):
            raise InvalidInput(reason)
        checksum = 0
        for block in reader.open(entry):
            checksum = crc32c(block, checksum)
            self._progress.advance(0, len(block))
            self._go_on()
        if entry.crc32c not in (None, checksum):
            raise Corrupt(f"CRC-32C {checksum:08x} where the archive says {entry.crc32c:08x}")
        return entry._replace(path=path, crc32c=checksum)

    def _commit(self, row: AdoptedArchive, mapping: Mapping, units: ArchiveUnits, read: "_Read") -> None:
        adopting, report = self._catalog.adopting, self.report
        if report.dry_run:
            commit = adopting.preview(mapping, self._on_conflict)
        else:
            commit = adopting.adopt(row, mapping, self._on_conflict, units)
        files, size_bytes = commit.added + commit.replaced, commit.live_bytes
        report.archives += 1
        report.files += files
        report.bytes += size_bytes
        report.skipped += commit.skipped
        report.files_failed += read.failed
        report.unchecked_blocks += read.unchecked_blocks
        counts = files, size_bytes, commit.skipped, read.failed, read.unchecked_blocks
        self._on_adopted(AdoptedFile(read.name, row.uuid, row.format, row.size_bytes, *counts))


class _Read(NamedTuple):
    """An archive whose entries were all read. failed: entries that cannot be read."""

    name: str
    failed: int
    unchecked_blocks: int


class _Version:
    """What an object was like when it was first looked at."""

    def __init__(self, store: Store, key: str) -> None:
        """Raises NotFound, StoreFailed."""
        self._store = store
        self._key = key
        self._file = store.open(key) if isinstance(store, OpensFiles) else None
        self.info = store.stat(key)

    def check(self) -> None:
        """Raises Conflict if it is another now."""
        is_current = self._file is None or self._file.is_current()
        if not is_current or self._store.stat(self._key) != self.info:
            raise Conflict("it was changed while it was read")


def _path_prefix(folder: str, archive_format: Format, key: str) -> str:
    """What stands before the names in an archive. The archive's own name does where they alone would be the same
    in every other one."""
    prefix = f"{folder}/" if folder else ""
    return prefix if archive_format.names_files else prefix + os.path.basename(key)
