"""Packs files into chunks: each file is read and added to the open chunk, and full chunks are committed.

Small files are added in groups, because each call costs as much time as the packing of a small file itself.
"""

from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from typing import Final, NamedTuple

from cafcat.errors import Refused, SourceFailed
from cafcat.events import ChunkCommitted
from cafcat.formats.base import NullSink, Writer
from cafcat.model import FileProblem, NewFile, OnConflict, ProblemKind, SourceFile
from cafcat.native.folder import ListedFiles
from cafcat.operations.ingest.committing import ChunkInCommit
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke, blocks_of, read_each
from cafcat.scanning.positions import PassedFiles, Positions
from cafcat.scanning.problems import Problems
from cafcat.session import Session
from cafcat.sources.base import Opener, OpenFile
from cafcat.sources.local.columns import FileColumns, source_files
from cafcat.sources.local.files import AHEAD_FILES, PROBED_FILES
from cafcat.writing.chunk import ChunkTarget, FinishedChunk, OpenChunk
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Packer", "PendingFile"]

_GROUP_FILES: Final = 256
_GROUP_BYTES: Final = 1 << 20
"""Most files, and bytes, that are added to a chunk with one call. For files in columns, this is so at first."""
_FAST_FILES: Final = 4 * _GROUP_FILES
"""Most files in columns that one call packs if they are in memory."""
_PREFETCHED_FILES: Final = 4 * _GROUP_FILES
"""Most files that are read into the page cache before the first of them is packed."""
_CACHED_WAITS: Final = 1 / 2
"""Waits for a file, on average, up to which files are in memory. A file on a disk or a server has at least one."""
_LARGE_FILES: Final = 10_000
_LARGE_BYTES: Final = 64 << 20
"""A full chunk with so many files or bytes is committed in a thread: the commit takes longer than its start."""


class PendingFile(NamedTuple):
    """A file of a source that is going to be packed.

    Attributes:
        file: The file, as the source found it.
        replaces: True if the catalog has a file with this path, which this file replaces.
        source_id: `sources.id` of the file's source.
    """

    file: SourceFile
    replaces: bool
    source_id: int


class _Pace:
    """Decides how the next files are read, by how often the files before them made the program wait.

    Without waits, files are in memory. If they are on a disk, the native part reads the next ones into the page
    cache, several at the same time, before it packs them. If that does not end the waits, because of a server,
    `Packer.pack` gets the next ones.

    Attributes:
        ahead: Number of the next files that `pack` gets.
        most_files: Largest number of files that the library then packs with one call.
        prefetches: True if the library reads files into the page cache before it packs them.
    """

    def __init__(self) -> None:
        self.ahead = 0
        self.most_files = _GROUP_FILES
        self.prefetches = False
        self._can_prefetch = True
        self._unusual = 1
        self._files = self._waits = 0

    def note(self, files: int, waits: int) -> None:
        """Note how many files the library packed with a call, and how many times it waited for them.

        If `files` is 0, the library refused the next file. Then `pack` gets one file; after the next refusal two,
        then four, up to AHEAD_FILES.
        """
        if not files:
            self.ahead, self._unusual = self._unusual, min(2 * self._unusual, AHEAD_FILES)
            return
        self._unusual = 1
        self._files += files
        self._waits += waits
        if self._files >= PROBED_FILES:
            is_slow = self._waits > _CACHED_WAITS * self._files
            self._files = self._waits = 0
            self._can_prefetch = self._can_prefetch and not (is_slow and self.prefetches)
            self.prefetches = self._can_prefetch and (is_slow or self.prefetches)
            reads_in_python = is_slow and not self.prefetches
            self.ahead, self.most_files = (AHEAD_FILES, PROBED_FILES) if reads_in_python else (0, _FAST_FILES)

    def next_ahead(self, most: int) -> int:
        """Return how many of the next files `pack` gets now, at most so many, and count them as handled."""
        count = min(self.ahead, most)
        self.ahead -= count
        return count

    def note_prefetched(self, files: int, waits: int) -> None:
        """Note how many files were read into the page cache, and how many times a thread waited for them.

        Without waits, the page cache had these files before: then the next ones are not read in advance.
        """
        self.prefetches = waits > _CACHED_WAITS * files


class Packer:
    """Reads files and packs them into chunks.

    Files are added to one chunk, while a thread may commit the one before it. Both are called uncommitted.

    Attributes:
        chunk: The chunk to which files are added; None without one.
        report: Counts of committed chunks and files, and of files that could not be packed.
        problems: Reports, counts and stores the files that could not be packed.
    """

    def __init__(
        self, session: Session, target: ChunkTarget, limits: Limits, on_conflict: OnConflict, positions: Positions
    ) -> None:
        """Prepare to pack files. The first file will open a chunk.

        Args:
            session: The session.
            target: Catalog, store, format, run and owner of the new chunks.
            limits: When a chunk is full.
            on_conflict: Action of a commit for a path that another process entered into the catalog meanwhile.
            positions: Notes each file that was packed or failed, and saves the position of the listing at each
                commit.
        """
        self._session = session
        self._progress = session.progress
        self._target = target
        self._limits = limits
        self._on_conflict = on_conflict
        self._positions = positions
        self._pace = _Pace()
        self._empty: Writer = target.archive_format.writer(NullSink())
        self.chunk: OpenChunk | None = None
        self._in_commit: ChunkInCommit | None = None
        self.report = IngestReport(run=target.run)
        self.problems = Problems(target.catalog, self.report, session.progress)

    def may_contain(self, path: str) -> bool:
        """Return False if the uncommitted chunks certainly contain no file of this path. True can be wrong."""
        return any(chunk.may_contain(path) for chunk in self._uncommitted_chunks())

    def may_contain_from(self, path: str) -> bool:
        """Return False if the open chunks certainly contain no file of this path or a larger one."""
        return any(chunk.may_contain_from(path) for chunk in self._uncommitted_chunks())

    @property
    def has_uncommitted_chunks(self) -> bool:
        """True if files were packed that may not be committed yet."""
        return bool(self._uncommitted_chunks())

    def _uncommitted_chunks(self) -> Sequence[OpenChunk]:
        """Return the chunk to which files are added, and the one that a thread commits, as far as there are any."""
        chunks = [] if self._in_commit is None else [self._in_commit.chunk]
        return chunks if self.chunk is None else [*chunks, self.chunk]

    def pack(self, opener: Opener, pending: Sequence[PendingFile]) -> None:
        """Read files and add them to chunks, until all are packed or the user ends the operation.

        A file that cannot be read, or that does not fit into any chunk, is reported as a problem. Full chunks are
        committed; the last one stays open.

        Args:
            opener: Opens the files.
            pending: The files. Their paths are distinct, and not in an uncommitted chunk.

        Raises:
            SourceBroke: No further file of the source can be read.
            Conflict: A commit failed, because another process changed a path or the chunk.
            StoreFailed, AccessDenied: The store failed, or refused the request.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        group: list[NewFile] = []
        group_bytes = handled = 0
        with closing(read_each(opener, [item.file for item in pending])) as opened:
            for n, result in enumerate(opened):
                if isinstance(result, NewFile):
                    group.append(result)
                    group_bytes += len(result.content)
                    if len(group) < _GROUP_FILES and group_bytes < _GROUP_BYTES:
                        continue
                with nullcontext() if isinstance(result, NewFile | SourceFailed) else result:
                    self._add_group(group, pending[handled : handled + len(group)])
                    handled, group, group_bytes = handled + len(group), [], 0
                    if not isinstance(result, NewFile) and not self.is_stopping():
                        self._add_opened_or_report(result, pending[n])
                        handled = n + 1
                if self.is_stopping():
                    return
            self._add_group(group, pending[handled:])

    def pack_columns(self, opener: Opener, files: FileColumns, source_id: int) -> None:
        """Read files in columns and add them to chunks, as `pack` does, until the user ends the operation.

        Small files that have not changed are read and added by the native part, in groups. `pack` gets the others,
        and files that take long because of a server: `pack` reads several of them at the same time.

        Args:
            opener: Opens the files.
            files: The files. The catalog has none of their paths, and the open chunk has none either.
            source_id: `sources.id` of the files.

        Raises the errors of `pack`.
        """
        rest: list[PendingFile] = []
        for part in files.parts:
            begin = in_memory = part.begin
            while begin < part.end and not self.is_stopping():
                if self._pace.ahead:
                    end = begin + self._pace.next_ahead(part.end - begin)
                    rest += [PendingFile(file, False, source_id) for file in source_files(part.between(begin, end))]
                    begin = end
                elif rest:
                    self.pack(opener, rest)
                    rest = []
                else:
                    if self._pace.prefetches and begin >= in_memory:
                        in_memory = self._prefetch(part.between(begin, part.end))
                    end = in_memory if begin < in_memory else part.end
                    begin = self._add_columns(part.between(begin, end), source_id)
        if rest and not self.is_stopping():
            self.pack(opener, rest)

    def _prefetch(self, files: ListedFiles) -> int:
        """Read the first of the files into the page cache. Return the position after them."""
        end = min(files.end, files.begin + _PREFETCHED_FILES)
        if self.chunk is not None and self.chunk.accepts_columns:
            end, waits = self.chunk.prefetch(files.between(files.begin, end))
            self._pace.note_prefetched(end - files.begin, waits)
        return end

    def _add_columns(self, files: ListedFiles, source_id: int) -> int:
        """Add the first of the files to the open chunk, or to a new one. Return the position after them."""
        chunk = None
        with suppress(Refused):  # `pack` reports the reason
            chunk = self._chunk_for(files.first_path, files.sizes()[0])
        if chunk is None or not chunk.accepts_columns:
            self._pace.note(0, 0)
            return files.begin
        chunk.set_source(source_id)
        most = min(self._pace.most_files, self._limits.max_files - chunk.file_count)
        end = min(files.end, files.begin + most)
        packed = chunk.add_columns(files.between(files.begin, end), self._limits.target_bytes)
        count = packed.end - files.begin
        if count:
            self._positions.passed(source_files(files.between(packed.end - 1, packed.end))[0])
            self._progress.advance(count, packed.data_bytes)
            self._check(chunk)
        self._pace.note(count, packed.waits)
        return packed.end

    def is_stopping(self) -> bool:
        """Return True if the user ends the ingest, and note that in the report.

        Raises what `Session.checkpoint` raises.
        """
        self.report.interrupted = self._session.should_end() or self.report.interrupted
        return self.report.interrupted

    def _add_group(self, files: Sequence[NewFile], pending: Sequence[PendingFile]) -> None:
        """Add small files, which have been read, to the open chunk until it is full, and then to new chunks."""
        while files:
            try:
                chunk = self._chunk_for(files[0].path, len(files[0].content))
                chunk.set_source(pending[0].source_id)
                count = self._add_files(chunk, files[: _of_one_source(pending)])
            except Refused as error:
                count = self._add_one_by_one(files, pending, error)
            else:
                self._count_added(chunk, files[:count], pending[:count])
            files, pending = files[count:], pending[count:]

    def _add_one_by_one(self, files: Sequence[NewFile], pending: Sequence[PendingFile], error: Refused) -> int:
        """Add each file of a group by itself, because the format refused one of them.

        A group of one file is the refused file, which is reported as a problem. Returns the number of files in the
        group, the refused ones included.
        """
        if len(files) == 1:
            self._report_problem(pending[0].file, ProblemKind.TOO_LARGE, error.message)
            self._positions.passed(pending[0].file)
        else:
            for file, item in zip(files, pending, strict=True):
                self._add_group([file], [item])
        return len(files)

    def _add_files(self, chunk: OpenChunk, files: Sequence[NewFile]) -> int:
        """Add files up to the target size, and return how many were added.

        If not even the first one fits, it is added alone. The chunk may then be larger than the target size.
        """
        most_files = self._limits.max_files - chunk.file_count
        count = chunk.add_all(files[:most_files], self._limits.target_bytes)
        return count or chunk.add_all(files[:1], self._limits.hard_bytes)

    def _count_added(self, chunk: OpenChunk, files: Sequence[NewFile], pending: Sequence[PendingFile]) -> None:
        if any(item.replaces for item in pending):
            chunk.all_new = False
        self._positions.passed(pending[-1].file)
        self._progress.advance(len(files), sum(len(file.content) for file in files))
        self._check(chunk)

    def _add_opened_or_report(self, result: OpenFile | SourceFailed, item: PendingFile) -> None:
        """Add one opened file that is not read yet, or report why it could not be opened, read or added."""
        file = item.file
        try:
            if isinstance(result, SourceFailed):
                raise result
            self._add_opened(result, item)
        except SourceFailed as error:
            kind = ProblemKind(error.problem)
            if kind is ProblemKind.UNREADABLE:
                self._positions.hold()
            self._report_problem(file, kind, error.message)
        except Refused as error:
            self._report_problem(file, ProblemKind.TOO_LARGE, error.message)
        if not self.report.interrupted:  # an interruption can be in the middle of this file
            self._positions.passed(file)

    def _add_opened(self, opened: OpenFile, item: PendingFile) -> None:
        path = item.file.path
        if opened.size_bytes <= WHOLE_FILE_BYTES:
            content = opened.read()
            chunk = self._chunk_for(path, len(content))
            chunk.set_source(item.source_id)
            chunk.add(path, content, opened.modified_ns, opened.etag)
            self._progress.advance(1, len(content))
        else:
            chunk = self._chunk_for(path, opened.size_bytes)
            chunk.set_source(item.source_id)
            self._stream(chunk, path, opened)
        chunk.all_new = chunk.all_new and not item.replaces
        self._check(chunk)

    def _stream(self, chunk: OpenChunk, path: str, opened: OpenFile) -> None:
        """Add a large file block by block. If the user ends the ingest meanwhile, the file is not added."""
        entry = chunk.open(path, opened.modified_ns)
        try:
            for block in blocks_of(opened):
                entry.write(block)
                self._check(chunk)
                self._progress.advance(0, len(block))
                if self.is_stopping():
                    entry.abandon()
                    return
        except (SourceFailed, SourceBroke):
            entry.abandon()
            raise
        chunk.close_entry(path, entry, opened.etag)
        self._progress.advance(1, 0)

    def _check(self, chunk: OpenChunk) -> None:
        """Raise the errors of the lease of a chunk, and of the commit in the thread, if it has ended."""
        chunk.check_lease()
        if self._in_commit is not None and self._in_commit.is_done:
            self._end_commit()

    def _chunk_for(self, path: str, size_bytes: int) -> OpenChunk:
        """Return a chunk that a file of this size fits into: the open chunk, or else a new one.

        A chunk without files takes any file that a chunk can have. Before a new chunk is begun, the open chunk is
        committed, or a thread begins to commit it. Raises Refused if no chunk can have the file.
        """
        if (
            self.chunk is not None
            and self.chunk.file_count
            and self._limits.have_room(self.chunk, path, size_bytes)
        ):
            return self.chunk
        self._check_size(path, size_bytes)
        if self.chunk is None or self.chunk.file_count:
            self._finish_full_chunk()
            self.chunk = OpenChunk(self._target)
        return self.chunk

    def _check_size(self, path: str, size_bytes: int) -> None:
        if self._empty.size_if_finalized(path, size_bytes) > self._limits.hard_bytes:
            limit = self._limits.hard_bytes
            raise Refused(f"a file of {size_bytes} bytes does not fit into a chunk of {limit} bytes", path=path)

    def _finish_full_chunk(self) -> None:
        """Commit the open chunk, if there is one: a large chunk in a thread, so that packing goes on meanwhile.

        Raises the errors of `finish_chunk`. Those of the thread are raised later, by `_check` and `finish_chunk`.
        """
        chunk = self.chunk
        if chunk is None or (chunk.file_count < _LARGE_FILES and chunk.size_bytes < _LARGE_BYTES):
            self.finish_chunk()
            return
        self._end_commit()
        self.chunk = None
        self._in_commit = ChunkInCommit(
            chunk, self._target.catalog, self._on_conflict, self._positions.pop_passed()
        )

    def finish_chunk(self) -> None:
        """Commit the open chunk, if there is one, and wait for the commit of the one before it.

        A chunk without files is abandoned.

        Raises:
            Conflict: The catalog has a path of the chunk, and `on_conflict` is FAIL; or another process has the
                lease of the chunk now.
            StoreFailed, AccessDenied: The store failed, or refused the request.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        self._end_commit()
        chunk = self.chunk
        if chunk is None:
            return
        if chunk.file_count == 0:
            chunk.abandon("no file was added to it")
            self.chunk = None
            self._positions.save()
            return
        finished = chunk.finish(self._on_conflict, self._progress)
        self.chunk = None
        self._count_committed(chunk, finished, self._positions.pop_passed())

    def _end_commit(self) -> None:
        """Wait until the thread has committed its chunk, if there is one, and count it. Raises its errors."""
        ended = self._in_commit
        if ended is None:
            return
        ended.wait(self._progress)
        self._in_commit = None
        self._count_committed(ended.chunk, ended.result(), ended.passed)

    def _count_committed(self, chunk: OpenChunk, finished: FinishedChunk, passed: PassedFiles) -> None:
        self.report.interrupted = self._progress.stopping or self.report.interrupted
        self.report.files_added += finished.commit.added
        self.report.files_replaced += finished.commit.replaced
        self.report.files_skipped += finished.commit.skipped
        self.report.bytes_added += finished.commit.live_bytes
        self.report.chunks_committed += 1
        self._positions.save(passed)
        self._session.emit(
            ChunkCommitted(finished.uuid, chunk.file_count, finished.size_bytes, finished.commit_seconds)
        )

    def abandon(self, reason: str) -> None:
        """Abandon the open chunks, if there are any: their objects are removed. `reason` is stored in their rows.

        A chunk whose commit a thread has begun may be committed.
        """
        if self._in_commit is not None:
            self._in_commit.abort()
            with suppress(Exception):
                self._end_commit()
        if self.chunk is not None:
            self.chunk.abandon(reason)
            self.chunk = None

    def _report_problem(self, file: SourceFile, kind: ProblemKind, message: str) -> None:
        self.problems.add(FileProblem(file.path, kind, message))


def _of_one_source(pending: Sequence[PendingFile]) -> int:
    """Return how many files at the beginning of the list have the same `source_id` as the first one."""
    first = pending[0].source_id
    return next((n for n, item in enumerate(pending) if item.source_id != first), len(pending))
