"""The ingest: scan the sources, decide by sets what is new, pack it into chunks, commit each chunk."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Final

from cafcat.catalog.chunks import Known
from cafcat.errors import CafcatError, Conflict, Refused, SourceFailed
from cafcat.formats.base import Writer
from cafcat.model import FileProblem, IngestReport, OnConflict, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.scanning.batches import Opened, SourceBroke, batches_of, blocks_of, open_each
from cafcat.scanning.positions import Positions
from cafcat.sources.base import OpenFile, Source
from cafcat.writing.chunk import ChunkPlace, OpenChunk
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Ingest"]

_EVENTS: Final = 5_000


class _Discard:
    def write(self, data: bytes) -> None:
        """Nothing is kept: a writer on this answers questions about sizes."""


class Ingest:
    """One run. `report` is what it has done so far, `positions` those of its listings that can be gone on with."""

    def __init__(
        self,
        place: ChunkPlace,
        limits: Limits,
        *,
        on_conflict: OnConflict,
        dry_run: bool,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> None:
        self._place = place
        self._limits = limits
        self._on_conflict = on_conflict
        self._dry_run = dry_run
        self._progress = progress
        self._should_stop = should_stop
        self._empty: Writer = place.archive_format.writer(_Discard())
        self._chunk: OpenChunk | None = None
        self.positions = Positions()
        self._failures: list[FileProblem] = []
        self.report = IngestReport(run=None if dry_run else place.run, dry_run=dry_run)

    def take(self, sources: Iterable[Source]) -> None:
        """Ingests all of the sources, or all until `should_stop` says so; what was packed is committed, unless
        `should_stop` raises: that drops the open chunk.

        Raises Conflict under OnConflict.FAIL, and errors of store and catalog. Then the open chunk is
        abandoned; those committed before stay. What ends a source (its server is gone, say) is raised when the
        open chunk is committed.
        """
        try:
            try:
                for source in sources:
                    self._take_source(source)
            except SourceBroke as broke:
                self._finish_chunk()
                raise broke.reason from broke
            self._finish_chunk()
            self.positions.settle()  # also of sources that had nothing for a chunk
        except BaseException as error:
            if self._chunk is not None:
                self._chunk.abandon(f"the run ended: {error}")
            raise
        finally:
            self._record_failures()

    def _take_source(self, source: Source) -> None:
        for found in batches_of(source):
            if self._stopped():
                return
            batch = []
            for item in found:
                if isinstance(item, FileProblem):
                    self._problem(item)
                else:
                    batch.append(item)
            self._take_batch(source, batch)
            if self._stopped():
                return
            if self._chunk is None:
                self.positions.settle()
        self.positions.ended(source)

    def _stopped(self) -> bool:
        self.report.interrupted = self._should_stop() or self.report.interrupted
        return self.report.interrupted

    def _take_batch(self, source: Source, batch: Sequence[SourceFile]) -> None:
        """Decides for the whole batch at once. A path that may be in the open chunk already has to wait until
        that is committed; then the rest of the batch is decided anew."""
        self.report.files_seen += len(batch)
        while batch:
            batch = batch[self._take_decided(source, batch) :]
            if batch and not self._stopped():
                self._finish_chunk()
            elif self._stopped():
                return
        self._record_failures()

    def _take_decided(self, source: Source, batch: Sequence[SourceFile]) -> int:
        """Takes files up to one that may be in the open chunk; returns how many."""
        known = self._place.catalog.chunks.known(batch)
        wanted = (file for n, file in enumerate(batch) if self._is_wanted(n, known))
        taken: set[str] = set()
        with closing(open_each(source, wanted)) as opened:
            for n, file in enumerate(batch):
                if self._stopped():
                    return n
                if n in known.unchanged:
                    self.report.files_unchanged += 1
                    self._progress.advance(1, 0)
                elif n in known.changed and self._on_conflict is not OnConflict.REPLACE:
                    self._conflict(file)
                elif self._dry_run:
                    self._count_dry(file, replaces=n in known.changed)
                elif file.path in taken or (self._chunk is not None and self._chunk.may_contain(file.path)):
                    return n
                else:
                    taken.add(file.path)
                    problem = self._take_file(next(opened), file, replaces=n in known.changed)
                    if self.report.interrupted:
                        return n  # perhaps in the middle of this file
                    if problem is ProblemKind.UNREADABLE:
                        self.positions.hold(source)
                self.positions.passed(source, file)
        return len(batch)

    def _is_wanted(self, n: int, known: Known) -> bool:
        """Whether a file of the batch is opened when its turn comes."""
        is_kept = n in known.changed and self._on_conflict is not OnConflict.REPLACE
        return n not in known.unchanged and not is_kept and not self._dry_run

    def _conflict(self, file: SourceFile) -> None:
        if self._on_conflict is OnConflict.FAIL:
            hint = "use --on-conflict replace or skip"
            raise Conflict("the catalog has this file with another size or time", path=file.path, hint=hint)
        message = "the catalog has this file with another size or time"
        self._problem(FileProblem(file.path, ProblemKind.CONFLICT, message))

    def _count_dry(self, file: SourceFile, *, replaces: bool) -> None:
        if replaces:
            self.report.files_replaced += 1
        else:
            self.report.files_added += 1
        self.report.bytes_added += file.size_bytes
        self._progress.advance(1, file.size_bytes)

    def _take_file(self, result: Opened, file: SourceFile, *, replaces: bool) -> ProblemKind | None:
        """A file that fails costs only itself, and its problem is returned; what fails elsewhere ends the run."""
        try:
            if isinstance(result, SourceFailed):
                raise result
            with result as opened:
                if opened.size_bytes <= WHOLE_FILE_BYTES:
                    content = opened.read()
                    chunk = self._room_for(file.path, len(content))
                    chunk.add(file.path, content, opened.modified_ns, opened.etag)
                    self._progress.advance(1, len(content))
                else:
                    chunk = self._room_for(file.path, opened.size_bytes)
                    self._stream(chunk, file.path, opened)
        except SourceFailed as error:
            return self._problem(FileProblem(file.path, ProblemKind(error.problem), error.message))
        except Refused as error:
            return self._problem(FileProblem(file.path, ProblemKind.TOO_LARGE, error.message))
        chunk.all_new = chunk.all_new and not replaces
        chunk.check_lease()
        return None

    def _stream(self, chunk: OpenChunk, path: str, opened: OpenFile) -> None:
        """Copies a large file block by block; if the user stops that half-way, the file is not taken."""
        entry = chunk.open(path, opened.modified_ns)
        try:
            for block in blocks_of(opened):
                entry.write(block)
                chunk.check_lease()
                self._progress.advance(0, len(block))
                if self._stopped():
                    entry.abandon()
                    return
        except (SourceFailed, SourceBroke):
            entry.abandon()
            raise
        chunk.close_entry(path, entry, opened.etag)
        self._progress.advance(1, 0)

    def _check_size(self, path: str, size_bytes: int) -> None:
        if self._empty.size_if_finalized(path, size_bytes) > self._limits.hard_bytes:
            limit = self._limits.hard_bytes
            raise Refused(f"a file of {size_bytes} bytes does not fit into a chunk of {limit}", path=path)

    def _room_for(self, path: str, size_bytes: int) -> OpenChunk:
        """The open chunk if the file fits into it, else a new one. Raises Refused if it fits into none."""
        if self._chunk is not None and self._limits.have_room(self._chunk, path, size_bytes):
            return self._chunk
        self._check_size(path, size_bytes)
        self._finish_chunk()
        self._chunk = OpenChunk(self._place)
        return self._chunk

    def _finish_chunk(self) -> None:
        chunk = self._chunk
        if chunk is None:
            return
        if chunk.file_count == 0:
            chunk.abandon("no file was taken into it")
            self._chunk = None
            self.positions.settle()
            return
        finished = chunk.finish(self._on_conflict, checkpoint=self._stopped)
        self._chunk = None
        self.report.files_added += finished.commit.added
        self.report.files_replaced += finished.commit.replaced
        self.report.files_skipped += finished.commit.skipped
        self.report.bytes_added += finished.commit.live_bytes
        self.report.chunks_committed += 1
        self.positions.settle()
        self._progress.chunk_committed(finished.uuid, chunk.file_count, finished.size_bytes)

    def _problem(self, problem: FileProblem) -> ProblemKind:
        self._progress.problem(problem)
        if problem.kind.is_failure:
            self.report.files_failed += 1
            self._failures.append(problem)
            if len(self._failures) >= _EVENTS:
                self._record_failures()
        else:
            self.report.files_skipped += 1
        return problem.kind

    def _record_failures(self) -> None:
        """Failures become events; losing them with a catalog that is gone must not hide why it is gone."""
        failures, self._failures = self._failures, []
        if failures and self.report.run is not None:
            try:
                self._place.catalog.runs.record_failures(self.report.run, failures)
            except CafcatError:
                self._failures = failures[-_EVENTS:]
