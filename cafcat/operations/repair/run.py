"""Copies the live files of damaged chunks into new chunks, from any place that still has their right bytes.

A file is read from the chunk itself, else from its copies, else from a chunk that had the file before repack or
repair moved it, else from the sources. Its checksum must be that of the catalog. A file whose bytes are found
nowhere stays where it is, and so does its chunk. A chunk whose files have all moved is retired, whatever else in it
is damaged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.errors import (
    AccessDenied,
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Corrupt,
    InvalidInput,
    NotFound,
    NotInstalled,
    SourceFailed,
    StoreFailed,
    Unsupported,
)
from cafcat.formats import registry as formats
from cafcat.formats.base import Format
from cafcat.model import Entry, FileProblem, Location, ProblemKind, SourceFile
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import default_store, store_to_write
from cafcat.operations.chunk_contents import Unreadable, check_all, contents, decoded
from cafcat.operations.joining import join_store
from cafcat.operations.new_store import list_new_store
from cafcat.operations.opened_sources import source_opener
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.recover.before import recover_before
from cafcat.operations.repair.options import RepairOptions
from cafcat.operations.repair.report import RepairReport
from cafcat.operations.rewriting import Rewriter, chunk_limits, chunk_target, format_after, live_files
from cafcat.operations.source_files import open_existing_files
from cafcat.scanning.batches import OpenResult, SourceBroke, batches_of, blocks_of
from cafcat.scanning.opening import SourceOptions
from cafcat.session import Session
from cafcat.sources.base import OpenFile, Source
from cafcat.stores.base import Store
from cafcat.writing.limits import MAX_FILES, WHOLE_FILE_BYTES

__all__ = ["Repair", "run"]

_WINDOW_FILES: Final = 5000
_MOST_REASONS: Final = 1000
"""Largest number of files whose errors are remembered for the report."""


@dataclass(slots=True)
class _Origin:
    """An object that should have the bytes of a chunk.

    Attributes:
        store: Store of the object.
        object_key: Key of the object.
        size_bytes: Actual size of the object.
        archive_format: Format of the chunk.
        counted_as: The number of the report that counts files read from this object: files_kept, files_from_copy
            or files_from_former.
        is_gone: True if no further file is to be read from the object (`has_failed`).
    """

    store: Store
    object_key: str
    size_bytes: int
    archive_format: Format
    counted_as: str
    is_gone: bool = False

    def has_failed(self, reason: CafcatError) -> None:
        """Note that a file could not be read from this object.

        No further file is requested from this object if it is missing, if access to it is denied, or if a remote
        store failed after all retries.

        Args:
            reason: The error of reading the file.
        """
        far = isinstance(reason, StoreFailed) and self.store.is_remote
        self.is_gone = far or isinstance(reason, (NotFound, AccessDenied))


@recorded
def run(session: Session, options: RepairOptions) -> RepairReport:
    """Pack the live files of damaged chunks into new chunks of the store of the settings.

    Raises:
        NotFound: The catalog has no such chunk, or there is no such source.
        InvalidInput: A chunk has no live files, or options of sources are given without a source.
        Conflict: The store has chunks of another catalog, and `join_store` is false.
        Locked: Another catalog began to write into the store at the same moment, and `join_store` is false.
        Unavailable: The store is not where its URL points.
        StoreFailed, AccessDenied: New chunks cannot be written, or a source failed. Chunks committed before stay.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    options.check()
    store = default_store(session)
    limits = chunk_limits(session, options.target_size)
    source_options = SourceOptions(
        prefix=options.prefix,
        follow_symlinks=options.follow_symlinks,
        unpack_tars=options.unpack_tars,
        restart_listing=True,
    )
    sources = source_opener(session, source_options).open(options.sources)
    if not options.dry_run:
        store_to_write(session)
        recover_before(session, store.url)
    join_store(session, store, allow_shared=options.join_store, dry_run=options.dry_run)
    rewriter = Rewriter(session, chunk_target(session.catalog, store, "repair"), limits)
    repair = Repair(session, options, rewriter, sources)
    if not options.chunks:  # verify records no damage in a store that is out of reach
        errors = _out_of_reach(session, session.catalog.recovery.stores())
        repair.report.stores_out_of_reach = len(errors)
        for error in errors.values():
            session.warn(f"{error}")
    try:
        repair.run(repair.damaged(options.chunks))
    finally:
        session.progress.end()
    if repair.report.chunks_written:
        list_new_store(session, store.url)
    if repair.lost_of_chunks:
        repair.report.lacking_changes = session.catalog.backups.lacking_changes(repair.lost_of_chunks)
    return repair.report


class Repair:
    """State and steps of one `cafcat repair`. Several repairs and writers may work at the same time.

    Attributes:
        lost_of_chunks: UUIDs of the chunks of which files are lost.
        report: Totals of what was done so far.
    """

    def __init__(
        self, session: Session, options: RepairOptions, rewriter: Rewriter, sources: Sequence[Source]
    ) -> None:
        self._session = session
        self._catalog = session.catalog
        self._rewriter = rewriter
        self._from_copies = options.from_copies or not options.sources
        self._sources = sources
        self._can_repeat_sources = "-" not in options.sources
        self._dry_run = options.dry_run
        self._lost: set[int] = set()  # hashes of paths: a chunk may have a million
        self._lost_of: Counter[int] = Counter()
        self._reasons: dict[str, str] = {}
        self._former: dict[int, list[_Origin]] = {}
        self.lost_of_chunks: list[UUID] = []
        self.report = RepairReport(dry_run=options.dry_run)

    def damaged(self, names: Sequence[str | UUID]) -> list[RewritableChunk]:
        """Return the chunks to repair: those that the user named, or those that `verify` found damaged.

        Archives of logs are left out with a warning: their sections could not be searched in another chunk.

        Args:
            names: Uuids of chunks, or their beginnings; empty for all chunks with live files that `verify` found
                damaged.

        Raises:
            NotFound: The catalog has no such chunk.
            InvalidInput: A named chunk has no live files.
        """
        rewriting = self._catalog.rewriting
        if names:
            chunks = rewriting.by_uuid([self._catalog.chunks.chunk(name).uuid for name in names])
        else:
            chunks = rewriting.by_id([chunk.id for chunk in self._catalog.verification.damaged()])
        logs = [chunk for chunk in chunks if chunk.format == formats.LOGS]
        for chunk in logs:
            self._session.warn(_left(chunk))
        self.report.logs_damaged = len(self._catalog.verification.damaged([chunk.uuid for chunk in logs]))
        wrong = self._catalog.verification.with_wrong_rows([chunk.id for chunk in chunks])
        self.report.rows_wrong = len(wrong)
        return [chunk for chunk in chunks if chunk.format != formats.LOGS and chunk.id not in wrong]

    def run(self, chunks: Sequence[RewritableChunk]) -> None:
        """Repair chunks as far as possible.

        The sources are read once for each group of chunks: those of one format, up to a million files together. If
        a source fails as a whole, the packed files are committed, and then its error is raised.

        Raises:
            InvalidInput: Standard input would have to be read twice.
            StoreFailed, AccessDenied: New chunks cannot be written, or a source failed.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        self.report.chunks = len(chunks)
        self.report.removed_files_damaged = self._catalog.verification.damaged_removed_files(
            [chunk.id for chunk in chunks]
        )
        files, size_bytes = sum(chunk.live_files for chunk in chunks), sum(chunk.live_bytes for chunk in chunks)
        self._session.progress.begin("repair", files=files, size_bytes=size_bytes)
        groups = list(_groups(chunks))
        if len(groups) > 1 and not self._can_repeat_sources:
            hint = "choose fewer of the damaged chunks with --chunk"
            message = "standard input can be read only once, which is enough for a million files of one format"
            raise InvalidInput(message, hint=hint)
        try:
            with self._rewriter:
                for group in groups:
                    if not self._rewriter.is_stopping():
                        self._repair_group(group)
        finally:
            self._count()
        if not self._dry_run:
            ids = [chunk.id for chunk in chunks]
            self.report.chunks_mended = self._catalog.rewriting.retired(ids)
            if self.report.chunks_written:
                copies_in = self._catalog.copies.stores_of([*ids, *self._former])
                errors = _out_of_reach(self._session, copies_in)
                self.report.copies_in = [url for url in copies_in if url not in errors]

    def _repair_group(self, group: Sequence[RewritableChunk]) -> None:
        try:
            self._rewriter.write_as(format_after(group[0].format))
        except (NotInstalled, Unsupported) as error:
            self.report.chunks_left += len(group)
            self._session.warn(f"chunks of format {group[0].format} cannot be repaired: {error}")
            return
        self._lost.clear()
        self._lost_of.clear()
        for chunk in group:
            if not self._rewriter.interrupted:
                self._repair_chunk(chunk)
        try:
            self._move_from_sources({chunk.uuid: chunk.id for chunk in group})
        except SourceBroke as broke:
            self._rewriter.finish()
            raise broke.reason from broke
        self._rewriter.finish()
        if not self._rewriter.interrupted:
            self._report_lost(group)

    def _repair_chunk(self, chunk: RewritableChunk) -> None:
        origins = list(self._origins(chunk))
        for window in _windows(live_files(self._catalog, chunk.id)):
            rest = self._move_empty(chunk.id, window)
            for origin in [origin for origin in origins if not origin.is_gone]:
                rest = self._move_from(origin, chunk.id, rest)
                if self._rewriter.interrupted:
                    return
            rest = self._move_from_former(chunk.id, rest)
            if self._rewriter.interrupted:
                return
            self.report.files += len(window)
            self.report.bytes += sum(file.size_bytes for file in window)
            self._lost.update(hash(file.path) for file in rest)
            self._lost_of[chunk.id] += len(rest)

    def _move_empty(self, chunk_id: int, files: Sequence[Entry]) -> list[Entry]:
        """Move files without bytes, which are right even if the chunk is lost. Return the other files."""
        for file in files:
            if file.start_byte == file.end_byte and not self._rewriter.is_stopping():
                self.report.files_kept += self._move_nothing(chunk_id, file)
        return [file for file in files if file.start_byte < file.end_byte]

    def _move_nothing(self, chunk_id: int, file: Entry) -> bool:
        return self._count_checked(file) if self._dry_run else self._rewriter.move(chunk_id, file, iter(()))

    def _origins(self, chunk: RewritableChunk) -> Iterator[_Origin]:
        """Yield the chunk's own object, then its copies if they may be read.

        An object that cannot be read is left out with a warning.
        """
        archive_format = formats.by_name(chunk.format)
        places = [(chunk.store, chunk.object_key)]
        if self._from_copies:
            places += self._catalog.copies.of_chunk(chunk.uuid)
        for n, (url, key) in enumerate(places):
            try:
                store = self._session.stores[url]
                counted_as = "files_from_copy" if n else "files_kept"
                yield _Origin(store, key, store.stat(key).size_bytes, archive_format, counted_as)
            except CafcatError as error:
                what = "a copy of chunk" if n else "chunk"
                self._session.warn(f"{what} {chunk.uuid} cannot be read: {error}")

    def _move_from_former(self, chunk_id: int, files: Sequence[Entry]) -> list[Entry]:
        """Move files whose bytes are right in former chunks, out of which repack or repair had moved the files.

        Returns:
            The files whose bytes are not right there, in the given order.
        """
        rest = {file.path: file for file in files}
        former = self._catalog.rewriting.former(rest) if files and self._from_copies else []
        for chunk, entries in former:
            for origin in self._origins_of_former(chunk):
                there = [entry for entry in entries if entry.path in rest]
                left = {entry.path for entry in self._move_from(origin, chunk_id, there)}
                if self._rewriter.interrupted:
                    return []
                for path in {entry.path for entry in there} - left:
                    del rest[path]
        return list(rest.values())

    def _origins_of_former(self, chunk: RewritableChunk) -> list[_Origin]:
        """Return the objects of a former chunk that can still be read."""
        if chunk.id not in self._former:
            self._former[chunk.id] = list(self._origins(chunk))
            for origin in self._former[chunk.id]:
                origin.counted_as = "files_from_former"
        return [origin for origin in self._former[chunk.id] if not origin.is_gone]

    def _move_from(self, origin: _Origin, chunk_id: int, files: Sequence[Entry]) -> list[Entry]:
        """Move the files whose bytes are right in an object into new chunks.

        Returns:
            The files whose bytes are not right there, in order of their bytes.
        """
        left = [file for file in files if file.end_byte > origin.size_bytes]
        there = [file for file in files if file.end_byte <= origin.size_bytes]
        with closing(contents(origin.store, origin.object_key, there)) as spans:
            for number, (file, span) in enumerate(spans, start=1):
                try:
                    is_moved = self._move_stored(origin, chunk_id, file, span)
                except Unreadable as error:
                    is_moved = False
                    origin.has_failed(error.reason)
                    self._note_reason(file.path, str(error))
                if self._rewriter.is_stopping():
                    return []
                if not is_moved:
                    left.append(file)
                else:
                    setattr(self.report, origin.counted_as, getattr(self.report, origin.counted_as) + 1)
                if origin.is_gone:  # the other files are not waited for
                    left += there[number:]
                    break
        return sorted(left, key=lambda file: file.start_byte)

    def _move_stored(self, origin: _Origin, chunk_id: int, file: Entry, span: Iterator[bytes]) -> bool:
        """Move a file from an object into a new chunk. Returns False if the user ended the operation meanwhile.

        A large file is read twice. Otherwise damage at its end would leave dead bytes in the new chunk.
        """
        blocks = decoded(origin.archive_format, file, span)
        if self._dry_run or file.size_bytes > WHOLE_FILE_BYTES:
            check_all(file, self._with_checkpoints(blocks))
            span = origin.store.stream(origin.object_key, file.start_byte, file.end_byte)
            blocks = decoded(origin.archive_format, file, span)
        return self._count_checked(file) if self._dry_run else self._rewriter.move(chunk_id, file, blocks)

    def _count_checked(self, file: Entry) -> bool:
        self._session.progress.advance(1, file.size_bytes)
        return True

    def _with_checkpoints(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the given blocks, with a checkpoint before each, so that a second Ctrl-C ends the reading."""
        for block in blocks:
            self._rewriter.is_stopping()
            yield block

    def _move_from_sources(self, ids: dict[UUID, int]) -> None:
        """Move the files of which no object has the right bytes, by reading them from the sources.

        Args:
            ids: `chunks.id` of the chunks by their uuids.
        """
        for source in self._sources:
            if self._lost and not self._rewriter.interrupted:
                self._move_from_source(source, ids)

    def _move_from_source(self, source: Source, ids: dict[UUID, int]) -> None:
        for location, opened in self._open_lost(source, ids.values()):
            try:
                is_moved = self._move_opened(location, opened, ids.get(location.chunk))
            except Unreadable as error:
                self._note_reason(location.path, f"its source does not have the right bytes: {error}")
                is_moved = False
            if is_moved:
                self.report.files_from_source += 1
                self._lost.discard(hash(location.path))
                self._lost_of[ids[location.chunk]] -= 1
            if self._rewriter.is_stopping():
                return

    def _open_lost(self, source: Source, chunk_ids: Iterable[int]) -> Iterator[tuple[Location, OpenResult]]:
        """Yield those files of the source of which no object and no earlier source has the right bytes.

        Each is a pair of its location, and the opened file of the source or its error, a SourceFailed. Problems of
        the source with such files are noted as reasons for the report. If the source has no such file, the user is
        warned.
        """
        first, has_lost = None, False
        for batch in batches_of(source):
            for item in batch:
                first = first or item.path
                has_lost = has_lost or self._is_lost(item.path)
                if isinstance(item, FileProblem):
                    self._note_problem(item)
            lost = [item for item in batch if isinstance(item, SourceFile) and self._is_lost(item.path)]
            yield from open_existing_files(self._catalog, source, lost)
        if not has_lost:
            files = (file.path for chunk_id in chunk_ids for file in live_files(self._catalog, chunk_id))
            example = next(filter(self._is_lost, files), "")
            there = f"its first file is {first}" if first else "it has no files"
            self._session.warn(f"{source.name} has none of the lost files, for example {example}; {there}")

    def _is_lost(self, path: str) -> bool:
        return hash(path) in self._lost

    def _note_problem(self, problem: FileProblem) -> None:
        """Remember a problem of a source if it can be the reason why a lost file is not found there."""
        if self._is_lost(problem.path):
            self._note_reason(problem.path, f"its source does not have the right bytes: {problem.message}")
        elif problem.kind is ProblemKind.CORRUPT:
            self._session.warn(f"{problem.path}: {problem.message}")

    def _move_opened(self, location: Location, opened: OpenResult, chunk_id: int | None) -> bool:
        """Move a file from a source into a new chunk.

        Args:
            location: Location of the file in the catalog.
            opened: The opened file of the source, or its error.
            chunk_id: chunks.id of the damaged chunk that has the file; None if the file is in another chunk.

        Returns:
            False if the file is in another chunk now, or was moved from an earlier source.

        Raises:
            Unreadable: The source does not have the right bytes of the file.
        """
        if isinstance(opened, SourceFailed):
            raise Unreadable(opened)
        try:
            with opened:
                if chunk_id is None or not self._is_lost(location.path):
                    return False
                return self._move_if_equal(location, opened, chunk_id)
        except SourceFailed as error:
            raise Unreadable(error) from error

    def _move_if_equal(self, location: Location, opened: OpenFile, chunk_id: int) -> bool:
        if opened.size_bytes != location.size_bytes:
            message = f"the file there has {opened.size_bytes} bytes instead of {location.size_bytes}"
            raise Unreadable(Corrupt(message))
        path, start, end, checksum, modified_ns, *_ = location
        file = Entry(path, start, end, checksum, modified_ns, location.content_bytes)
        if not self._dry_run:
            return self._rewriter.move(chunk_id, file, blocks_of(opened))
        check_all(file, self._with_checkpoints(blocks_of(opened)))
        return self._count_checked(file)

    def _note_reason(self, path: str, reason: str) -> None:
        if len(self._reasons) < _MOST_REASONS:
            self._reasons[path] = reason

    def _report_lost(self, group: Sequence[RewritableChunk]) -> None:
        """Report each file that was not found anywhere, without files that were replaced or removed meanwhile."""
        for chunk in group:
            if not self._lost_of[chunk.id]:
                self.report.chunks_mended += self._dry_run
                continue
            self.lost_of_chunks.append(chunk.uuid)
            for file in live_files(self._catalog, chunk.id):
                if self._is_lost(file.path):
                    self.report.files_lost += 1
                    reason = self._reasons.pop(file.path, "its bytes are missing")
                    message = f"{reason}; no copy or source that was read has the right bytes"
                    self._session.emit(FileProblem(file.path, ProblemKind.CORRUPT, message))

    def _count(self) -> None:
        report, rewriter = self.report, self._rewriter
        report.chunks_written, report.bytes_written = rewriter.chunks, rewriter.bytes_written
        report.files_changed, report.interrupted = rewriter.changed, rewriter.interrupted


def _out_of_reach(session: Session, urls: Iterable[str]) -> dict[str, CafcatError]:
    """Return those stores that are out of reach, with the reason."""
    stores, errors = ReachableStores(session), {}
    for url in urls:
        try:
            stores.check_place(url)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            errors[url] = error
    return errors


def _left(chunk: RewritableChunk) -> str:
    what = f"chunk {chunk.uuid} is an archive of logs, which cannot be repaired"
    if chunk.is_adopted:
        then = "and ingest its log files, if you have them"
        return f"{what}: replace its file by an undamaged one, or run cafcat rm -r {then}"
    then = "and ingest its log files again"
    return f"{what}: replace its file by a copy of the chunk, or run cafcat rm -r {then}"


def _groups(chunks: Sequence[RewritableChunk]) -> Iterator[list[RewritableChunk]]:
    """Yield the chunks in groups: a single chunk, or chunks of one format with at most a million files."""
    group: list[RewritableChunk] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.format):
        files = sum(chosen.live_files for chosen in group) + chunk.live_files
        if group and (files > MAX_FILES or chunk.format != group[0].format):
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


def _windows(files: Iterator[Entry]) -> Iterator[list[Entry]]:
    while window := list(islice(files, _WINDOW_FILES)):
        yield window
