"""Damaged chunks: their live files are taken from wherever their right bytes still are, and go into new chunks.

From the chunk itself, as far as it can be read; else from its copies; else from the sources, read again. Nothing is
taken whose checksum is not the one in the catalog. A file that nobody can give stays where it is, and so does its
chunk; one whose files have all moved is retired, whatever else in it is damaged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.errors import (
    AccessDenied,
    CafcatError,
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
from cafcat.model import Entry, FileProblem, Location, ProblemKind
from cafcat.operations.chosen_stores import default_store, join_store, store_to_write
from cafcat.operations.chunk_contents import Unreadable, check_all, contents, decoded
from cafcat.operations.opened_sources import source_opener
from cafcat.operations.recover.before import recover_before
from cafcat.operations.repair.options import RepairOptions
from cafcat.operations.repair.report import RepairReport
from cafcat.operations.rewriting import Rewriter, chunk_limits, chunk_target, format_after, live_files
from cafcat.operations.source_files import opened_again
from cafcat.scanning.batches import OpenResult, SourceBroke, blocks_of
from cafcat.scanning.opening import SourceOptions
from cafcat.session import Session
from cafcat.sources.base import OpenFile, Source
from cafcat.stores.base import Store
from cafcat.writing.limits import MAX_FILES, WHOLE_FILE_BYTES

__all__ = ["Repair", "run"]

_WINDOW_FILES: Final = 5000
_KEPT_REASONS: Final = 1000


@dataclass(slots=True)
class _Origin:
    """An object that should have the bytes of a chunk; size_bytes: how many it has. is_gone: it answers no more."""

    store: Store
    object_key: str
    size_bytes: int
    archive_format: Format
    is_copy: bool
    is_gone: bool = False

    def has_failed(self, reason: CafcatError) -> None:
        """After one file of a bucket could not be had, after all retries, the others need not be waited for."""
        far = isinstance(reason, StoreFailed) and self.store.is_remote
        self.is_gone = far or isinstance(reason, (NotFound, AccessDenied))


def run(session: Session, options: RepairOptions) -> RepairReport:
    """Pack the live files of damaged chunks into new chunks of the store of the settings.

    Raises:
        NotFound: The catalog has no such chunk, or there is no such source.
        InvalidInput: A chunk has no live files, or an option is out of range.
        StoreFailed: New chunks cannot be written; chunks that were committed before stay.
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
    join_store(session, store, asked=options.join_store, dry_run=options.dry_run)
    rewriter = Rewriter(session, chunk_target(session.catalog, store, "repair"), limits)
    repair = Repair(session, options, rewriter, sources)
    try:
        repair.take(repair.damaged(options.chunks))
    finally:
        session.progress.end()
    return repair.report


class Repair:
    """One repair. Several repairs and writers may work at the same time."""

    def __init__(
        self, session: Session, options: RepairOptions, rewriter: Rewriter, sources: Sequence[Source]
    ) -> None:
        self._session = session
        self._catalog = session.catalog
        self._rewriter = rewriter
        self._from_copies = options.from_copies
        self._sources = sources
        self._can_repeat_sources = "-" not in options.sources
        self._dry_run = options.dry_run
        self._lost: set[int] = set()  # hashes of paths: a chunk may have a million
        self._lost_of: Counter[int] = Counter()
        self._reasons: dict[str, str] = {}
        self.report = RepairReport(dry_run=options.dry_run)

    def damaged(self, names: Sequence[str]) -> list[RewritableChunk]:
        """Chunks by uuid, or the beginning of one; otherwise those that verify found to be damaged, of which
        something is live. Archives of logs are left out: their sections, in another chunk, could not be searched.
        Raises NotFound, InvalidInput for one that has no live files."""
        rewriting = self._catalog.rewriting
        if names:
            chunks = rewriting.by_uuid([self._catalog.chunks.chunk(name).uuid for name in names])
        else:
            chunks = rewriting.by_id([chunk.id for chunk in self._catalog.verification.damaged()])
        logs = [chunk for chunk in chunks if chunk.format == formats.LOGS]
        for chunk in logs:
            self._session.warn(_left(chunk))
        self.report.logs_damaged = len(self._catalog.verification.damaged([chunk.uuid for chunk in logs]))
        return [chunk for chunk in chunks if chunk.format != formats.LOGS]

    def take(self, chunks: Sequence[RewritableChunk]) -> None:
        """Mends these chunks, as far as can be. Sources are gone through once for each million of files. Raises
        CatalogUnavailable; StoreFailed if new chunks cannot be written; what ends a source before its end, when
        what was packed is committed."""
        self.report.chunks = len(chunks)
        files, size_bytes = sum(chunk.live_files for chunk in chunks), sum(chunk.live_bytes for chunk in chunks)
        self._session.progress.begin("repair", files=files, size_bytes=size_bytes)
        groups = list(_groups(chunks))
        if len(groups) > 1 and not self._can_repeat_sources:
            hint = "name fewer of the damaged chunks with --chunk"
            message = "standard input can be read only once, for a million files of one format"
            raise InvalidInput(message, hint=hint)
        try:
            with self._rewriter:
                for group in groups:
                    if not self._rewriter.stopped():
                        self._take_group(group)
        finally:
            self._count()
        if not self._dry_run:
            self.report.chunks_mended = self._catalog.rewriting.retired([chunk.id for chunk in chunks])

    def _take_group(self, group: Sequence[RewritableChunk]) -> None:
        try:
            self._rewriter.write_as(format_after(group[0].format))
        except (NotInstalled, Unsupported) as error:
            self.report.chunks_left += len(group)
            self._session.warn(f"chunks of the format {group[0].format} are left as they are: {error}")
            return
        self._lost.clear()
        self._lost_of.clear()
        for chunk in group:
            if not self._rewriter.interrupted:
                self._take_chunk(chunk)
        try:
            self._take_from_sources({chunk.uuid: chunk.id for chunk in group})
        except SourceBroke as broke:
            self._rewriter.finish()
            raise broke.reason from broke
        self._rewriter.finish()
        if not self._rewriter.interrupted:
            self._tell_lost(group)

    def _take_chunk(self, chunk: RewritableChunk) -> None:
        origins = list(self._origins(chunk))
        for window in _windows(live_files(self._catalog, chunk.id)):
            rest = window
            for origin in origins:
                rest = self._take_from(origin, chunk.id, rest)
                if self._rewriter.interrupted:
                    return
            self.report.files += len(window)
            self.report.bytes += sum(file.size_bytes for file in window)
            self._lost.update(hash(file.path) for file in rest)
            self._lost_of[chunk.id] += len(rest)

    def _origins(self, chunk: RewritableChunk) -> Iterator[_Origin]:
        """The chunk itself, then its copies, as far as they are there."""
        archive_format = formats.by_name(chunk.format)
        places = [(chunk.store, chunk.object_key)]
        if self._from_copies:
            places += self._catalog.copies.of_chunk(chunk.uuid)
        for n, (url, key) in enumerate(places):
            try:
                store = self._session.stores[url]
                yield _Origin(store, key, store.stat(key).size_bytes, archive_format, is_copy=n > 0)
            except CafcatError as error:
                what = "a copy of chunk" if n else "chunk"
                self._session.warn(f"{what} {chunk.uuid} cannot be read: {error}")

    def _take_from(self, origin: _Origin, chunk_id: int, files: Sequence[Entry]) -> list[Entry]:
        """Takes those whose bytes are right there. Returns the others, in order of their bytes."""
        left = [file for file in files if file.end_byte > origin.size_bytes]
        there = (file for file in files if file.end_byte <= origin.size_bytes)
        for file, span in contents(origin.store, origin.object_key, there):
            try:
                taken = not origin.is_gone and self._take_stored(origin, chunk_id, file, span)
            except Unreadable as error:
                taken = False
                origin.has_failed(error.reason)
                self._note(file.path, str(error))
            if self._rewriter.stopped():
                return []
            if not taken:
                left.append(file)
            elif origin.is_copy:
                self.report.files_from_copy += 1
            else:
                self.report.files_kept += 1
        return sorted(left, key=lambda file: file.start_byte)

    def _take_stored(self, origin: _Origin, chunk_id: int, file: Entry, span: Iterator[bytes]) -> bool:
        """A large file is read twice: what turns out to be damaged at its end would be dead bytes in the new
        chunk."""
        blocks = decoded(origin.archive_format, file, span)
        if self._dry_run or file.size_bytes > WHOLE_FILE_BYTES:
            check_all(file, self._watched(blocks))
            span = origin.store.stream(origin.object_key, file.start_byte, file.end_byte)
            blocks = decoded(origin.archive_format, file, span)
        return self._take_checked(file) if self._dry_run else self._rewriter.take(chunk_id, file, blocks)

    def _take_checked(self, file: Entry) -> bool:
        self._session.progress.advance(1, file.size_bytes)
        return True

    def _watched(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The same blocks; a second Ctrl-C ends them."""
        for block in blocks:
            self._rewriter.stopped()
            yield block

    def _take_from_sources(self, ids: dict[UUID, int]) -> None:
        """Args: ids: chunks.id of the chunks by their uuids."""
        for source in self._sources:
            if self._lost and not self._rewriter.interrupted:
                self._take_from_source(source, ids)

    def _take_from_source(self, source: Source, ids: dict[UUID, int]) -> None:
        for location, opened in opened_again(self._catalog, source, self._is_lost, self._heard):
            try:
                taken = self._take_opened(location, opened, ids.get(location.chunk))
            except Unreadable as error:
                self._note(location.path, f"its source is no help: {error}")
                taken = False
            if taken:
                self.report.files_from_source += 1
                self._lost.discard(hash(location.path))
                self._lost_of[ids[location.chunk]] -= 1
            if self._rewriter.stopped():
                return

    def _is_lost(self, path: str) -> bool:
        return hash(path) in self._lost

    def _heard(self, problem: FileProblem) -> None:
        """Of what is in a source and is no file: only what may be why something is not found there."""
        if self._is_lost(problem.path):
            self._note(problem.path, f"its source is no help: {problem.message}")
        elif problem.kind is ProblemKind.CORRUPT:
            self._session.warn(f"{problem.path}: {problem.message}")

    def _take_opened(self, location: Location, opened: OpenResult, chunk_id: int | None) -> bool:
        """False for a file that came to another chunk meanwhile, or that an earlier source gave."""
        if isinstance(opened, SourceFailed):
            raise Unreadable(opened)
        try:
            with opened:
                if chunk_id is None or not self._is_lost(location.path):
                    return False
                return self._take_right(location, opened, chunk_id)
        except SourceFailed as error:
            raise Unreadable(error) from error

    def _take_right(self, location: Location, opened: OpenFile, chunk_id: int) -> bool:
        if opened.size_bytes != location.size_bytes:
            message = f"it has {opened.size_bytes} bytes there, {location.size_bytes} in the catalog"
            raise Unreadable(Corrupt(message))
        path, start, end, checksum, modified_ns, *_ = location
        file = Entry(path, start, end, checksum, modified_ns, location.content_bytes)
        if not self._dry_run:
            return self._rewriter.take(chunk_id, file, blocks_of(opened))
        check_all(file, self._watched(blocks_of(opened)))
        return self._take_checked(file)

    def _note(self, path: str, reason: str) -> None:
        if len(self._reasons) < _KEPT_REASONS:
            self._reasons[path] = reason

    def _tell_lost(self, group: Sequence[RewritableChunk]) -> None:
        """By name; not what was replaced or removed meanwhile."""
        for chunk in group:
            if not self._lost_of[chunk.id]:
                self.report.chunks_mended += self._dry_run
                continue
            for file in live_files(self._catalog, chunk.id):
                if self._is_lost(file.path):
                    self.report.files_lost += 1
                    reason = self._reasons.pop(file.path, "its bytes are not there")
                    message = f"{reason}; nothing that was asked has the right ones"
                    self._session.emit(FileProblem(file.path, ProblemKind.CORRUPT, message))

    def _count(self) -> None:
        report, rewriter = self.report, self._rewriter
        report.chunks_written, report.bytes_written = rewriter.chunks, rewriter.bytes_written
        report.files_changed, report.interrupted = rewriter.changed, rewriter.interrupted


def _left(chunk: RewritableChunk) -> str:
    what = f"chunk {chunk.uuid} is an archive of logs, which is not repaired"
    if chunk.is_adopted:
        then = "and ingest its log files, if you have them"
        return f"{what}: put the right archive in its place, or take it out by cafcat rm -r, {then}"
    then = "and ingest its log files again"
    return f"{what}: if it has a copy, put that in its place; else take it out by cafcat rm -r, {then}"


def _groups(chunks: Sequence[RewritableChunk]) -> Iterator[list[RewritableChunk]]:
    """Of one format, and with a million files at most, or of one chunk."""
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
