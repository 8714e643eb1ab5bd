"""Enters existing archives of any format into the catalog. Their bytes stay where they are, unchanged.

Each entry is read once, to prove that it can be read and to compute its checksum. Then the archive and its readable
files are entered in one transaction.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import uuid4

from cafcat import __version__
from cafcat.archives.naming import FolderArchive, archive_address, find_archive
from cafcat.catalog.chunks.adopting import AdoptedArchive
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unsupported,
)
from cafcat.events import ArchiveAdopted
from cafcat.formats.base import UNCHECKED_HASH, Format, HasRemarks, MultiFileArchive, Reader, UnitReader
from cafcat.formats.format_choice import FormatChoice
from cafcat.formats.registry import validate_name
from cafcat.model import NO_UNITS, ArchiveUnits, Entry, FileProblem, OnConflict, ProblemKind, RunState
from cafcat.operations.adopt.options import AdoptOptions
from cafcat.operations.adopt.report import AdoptReport
from cafcat.operations.audit import recorded
from cafcat.operations.index_rules import path_problem
from cafcat.reports import IngestReport
from cafcat.session import Session
from cafcat.sources.names import prefixed, printable
from cafcat.stores.base import FileStore, Store, StoredObject
from cafcat.stores.kind import ObjectAddress
from cafcat.support.arguments import member_of
from cafcat.support.checksums import crc32c
from cafcat.support.read_ahead import LocatedReadAhead

__all__ = ["Found", "run"]


@recorded
def run(session: Session, options: AdoptOptions) -> AdoptReport:
    """Enter existing archives into the catalog. An archive that cannot be adopted is noted in the report.

    Raises:
        InvalidInput: There is no such format, `archives` is a single name, or `on_conflict` is not the name of an
            action.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    if options.format is not None:
        validate_name(options.format)
    if isinstance(options.archives, str | bytes | os.PathLike):
        raise InvalidInput("archives must be a list, not one name", hint=f"write [{os.fspath(options.archives)!r}]")
    try:
        adopt = _Adopt(session, options, member_of(OnConflict, options.on_conflict, "on_conflict"))
        return adopt.adopt_all([os.fspath(archive) for archive in options.archives])
    finally:
        session.progress.end()


class Found(NamedTuple):
    """One object of an archive that the user named.

    Attributes:
        store: The store of the object: its folder or prefix.
        object_key: Key of the object.
        multi_file: The whole archive, if it consists of several objects; else None.
    """

    store: Store
    object_key: str
    multi_file: MultiFileArchive | None = None


_BATCH_FILES: Final = 1000
_KINDS: Final = {
    "conflict": ProblemKind.CONFLICT,
    "corrupt": ProblemKind.CORRUPT,
    "not_found": ProblemKind.MISSING,
}
"""Why a run could not adopt an archive, by the kind of the error."""


class _Stopping(Exception):
    """The user ends the operation, so the archive at hand is not adopted."""


class _Adopt:
    """State and steps of one `cafcat adopt`."""

    def __init__(self, session: Session, options: AdoptOptions, on_conflict: OnConflict) -> None:
        self._session = session
        self._catalog = session.catalog
        self._prefix = prefixed(options.prefix, "")
        self._on_conflict = on_conflict
        self._format_choice = FormatChoice(options.format, options.zero_padding)
        self._sources: Sequence[str] = ()
        self._failed: list[FileProblem] = []
        """Archives and entries that failed, and are not recorded yet."""
        self.report = AdoptReport(dry_run=options.dry_run)

    def adopt_all(self, archives: Sequence[str]) -> AdoptReport:
        """Adopt archives, one after the other, until the user ends the operation.

        The first archive that is read begins a run, whose row in `ingest_runs` gets the counts at the end.
        """
        self._sources = [printable(archive) for archive in archives]
        try:
            for archive in archives:
                # Finding a bundle copies its index, so the check comes first.
                if self.report.interrupted or self._session.should_end():
                    self.report.interrupted = True
                    break
                self._adopt_named(archive)
        except BaseException as error:
            with suppress(CafcatError):
                self._finish_run(RunState.FAILED, str(error) or type(error).__name__)
            raise
        self._finish_run(RunState.INTERRUPTED if self.report.interrupted else RunState.FINISHED)
        return self.report

    def _run_id(self) -> int:
        """Return ingest_runs.id of the run of this operation, which begins with the first call."""
        if self.report.run is None:
            options = {"command": "adopt", "prefix": printable(self._prefix), "on_conflict": str(self._on_conflict)}
            self.report.run = self._catalog.runs.begin_run(
                sources=self._sources, options=options, version=__version__
            )
        return self.report.run

    def _finish_run(self, state: RunState, error: str | None = None) -> None:
        report = self.report
        if report.run is None:
            return
        counts = IngestReport(
            files_added=report.files - report.files_replaced,
            files_replaced=report.files_replaced,
            files_skipped=report.skipped,
            files_failed=report.files_failed + len(report.failed),
            bytes_added=report.bytes,
            chunks_committed=report.archives,
        )
        self._record_failed()
        self._catalog.runs.finish_run(report.run, state, counts.as_counts(), error)

    def _record_failed(self) -> None:
        if self.report.run is not None:
            self._catalog.runs.record_failed_files(self.report.run, self._failed)
        self._failed.clear()

    def _adopt_named(self, archive: str) -> None:
        """Adopt the object that the user named, or all objects of a named archive in several files."""
        try:
            found = self._find(archive)
        except CafcatError as error:
            self.fail(archive, error)
            return
        for part in found:
            self.adopt(part)
            if self.report.interrupted:
                break

    def _find(self, archive: str) -> "Sequence[Found]":
        """Return the objects of an archive: one, or several that form one archive.

        The store of each object is the folder or prefix that contains the object.
        """
        found = find_archive(archive_address(archive), self)
        if not isinstance(found, FolderArchive):
            return [found]
        return [Found(found.store, name, found.archive) for name in found.archive.names]

    def open_store(self, url: str) -> Store:
        """Return the store at a URL, whose folder may be an archive in several files (ObjectOpener)."""
        return self._session.stores[url]

    def open_object(self, address: ObjectAddress) -> Found:
        """Return the object at the path or URL that the user named (ObjectOpener).

        Raises:
            NotFound: There is no such object. Then the name may be that of a folder.
            InvalidInput: No object of a store can have this name.
        """
        store = self._session.stores[address.store_url]
        if store.locate(address.key) != address.name:
            raise InvalidInput("a store cannot have an object of this name", path=address.name)
        store.stat(address.key)  # raises NotFound if the name is that of a folder
        return Found(store, address.key)

    def adopt(self, archive: Found) -> None:
        """Enter one object of an archive that the user named into the catalog. A failure is noted in the report.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        try:
            self._check_stopping()
            self._adopt(archive)
        except _Stopping:
            self.report.interrupted = True
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            self.fail(archive.store.locate(archive.object_key), error)

    def fail(self, name: str, error: CafcatError) -> None:
        """Note in the report, and for the run, that an archive cannot be adopted."""
        kind = _KINDS.get(error.kind, ProblemKind.UNREADABLE)
        self._failed.append(FileProblem(printable(name), kind, error.message))
        if isinstance(error, NotFound) and error.chunk is not None:
            why = "this is not a regular file" if os.path.exists(name) else "there is no such file or object"
            self.report.failed.append(f"{name}: {why}")
            return
        if error.chunk == name:
            error.chunk = None
        self.report.failed.append(f"{name}: {error}")

    def _check_stopping(self) -> None:
        if self.report.interrupted or self._session.should_end():
            raise _Stopping

    def _adopt(self, found: Found) -> None:
        adopting = self._catalog.adopting
        store, key, multi_file = found
        adopting.check_new(store.url, key)
        version = _Version(store, key)
        archive = StoredObject(store, key, size_bytes=version.info.size_bytes)
        archive_format = self._format_choice.format_of(archive)
        prefix = _path_prefix(self._prefix, archive_format, key)
        chunk_id = 0 if self.report.dry_run else adopting.next_id()
        row = AdoptedArchive(
            chunk_id,
            uuid4(),
            archive_format.name,
            store.url,
            key,
            archive.size_bytes,
            prefix,
            version.info.etag,
            None if self.report.dry_run else self._run_id(),
        )
        with Mapping(chunk_id) as mapping:
            ahead = LocatedReadAhead(archive)
            reader = archive_format.reader(ahead) if multi_file is None else multi_file.reader(ahead, key)
            units = reader.units() if isinstance(reader, UnitReader) else NO_UNITS
            failed = self._read_all(reader, archive, prefix, mapping)
            if failed and not mapping.file_count:
                raise Corrupt(f"none of its {failed:,} entries can be adopted")
            read = _Read(archive.name, failed, self._warn_of_remarks(reader, archive.name))
            version.check()
            self._commit(row, mapping, units, read)

    def _warn_of_remarks(self, reader: Reader, name: str) -> int:
        """Warn of the remarks of the reader. Returns the number of blocks whose hash function cafcat lacks."""
        remarks = reader.remarks() if isinstance(reader, HasRemarks) else ()
        for remark in remarks:
            self._session.warn(f"{name}: {remark.message}")
        return sum(remark.blocks for remark in remarks if remark.kind == UNCHECKED_HASH)

    def _read_all(self, reader: Reader, archive: StoredObject, prefix: str, mapping: Mapping) -> int:
        """Read every entry of an archive, and add the undamaged ones to the chunk's future rows of file_locations.

        Returns:
            The number of entries that cannot be read, are damaged, or have a name that the catalog cannot store.
        """
        self._session.progress.begin("adopt", size_bytes=archive.size_bytes)
        failed = 0
        for entry in reader.entries():
            self._check_stopping()
            try:
                mapping.add(self._checked(reader, entry, prefix))
            except (Corrupt, Unsupported, InvalidInput) as error:
                failed += 1
                kind = ProblemKind.NAME if isinstance(error, InvalidInput) else ProblemKind.CORRUPT
                problem = FileProblem(prefix + entry.path, kind, f"{error.message}; archive {archive.name}")
                self._session.emit(problem)
                self._failed.append(problem._replace(path=printable(problem.path)))
                if len(self._failed) >= _BATCH_FILES:
                    self._record_failed()
            self._session.progress.advance(1, 0)
        return failed

    def _checked(self, reader: Reader, entry: Entry, prefix: str) -> Entry:
        """Read an entry, and return it with its path in the catalog and its checksum.

        Raises:
            Corrupt, Unsupported: The entry cannot be read, or has another checksum than in the archive.
            InvalidInput: The catalog cannot store the path.
        """
        path = prefix + entry.path
        if reason := path_problem(path):
            raise InvalidInput(reason)
        checksum = 0
        for block in reader.open(entry):
            checksum = crc32c(block, checksum)
            self._session.progress.advance(0, len(block))
            self._check_stopping()
        if entry.crc32c not in (None, checksum):
            problem = f"CRC-32C {checksum:08x}, but the archive records {entry.crc32c:08x}"
            raise Corrupt(f"the content of the file has {problem}")
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
        report.files_replaced += commit.replaced
        report.bytes += size_bytes
        report.skipped += commit.skipped
        report.files_failed += read.failed
        report.unchecked_blocks += read.unchecked_blocks
        counts = files, size_bytes, commit.skipped, read.failed, read.unchecked_blocks
        self._session.emit(ArchiveAdopted(read.name, row.uuid, row.format, row.size_bytes, *counts))


class _Read(NamedTuple):
    """An archive whose entries were all read.

    Attributes:
        name: Path or URL of the archive.
        failed: Number of entries that cannot be read, are damaged, or have a name that the catalog cannot store.
        unchecked_blocks: Number of blocks with a hash function that cafcat does not check.
    """

    name: str
    failed: int
    unchecked_blocks: int


class _Version:
    """The state of an archive when it was first read, to find out later whether it was changed."""

    def __init__(self, store: Store, key: str) -> None:
        """Record the present state of an archive. Raises NotFound, StoreFailed or AccessDenied if that fails."""
        self._store = store
        self._key = key
        self._file = store.open(key) if isinstance(store, FileStore) else None
        self.info = store.stat(key)

    def check(self) -> None:
        """Raise Conflict if the archive was changed or replaced after this state was recorded."""
        is_current = self._file is None or self._file.is_current()
        if not is_current or self._store.stat(self._key) != self.info:
            raise Conflict("the archive was changed while it was read")


def _path_prefix(folder: str, archive_format: Format, key: str) -> str:
    """Return the text that the catalog's paths get before the names in an adopted archive.

    It contains the archive's own name if its entries are sections, whose names are the same in every archive.
    """
    prefix = f"{folder}/" if folder else ""
    return prefix if archive_format.names_files else prefix + os.path.basename(key)
