"""Files into chunks: each is read, put into the open chunk, and chunks are committed one by one.

Small files are taken in groups: what has to be asked for each of them costs as much as all the rest.
"""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import Final, NamedTuple

from cafcat.errors import Refused, SourceFailed
from cafcat.events import ChunkCommitted
from cafcat.formats.base import NullSink, Writer
from cafcat.model import FileProblem, IngestReport, NewFile, OnConflict, ProblemKind, SourceFile
from cafcat.scanning.batches import SourceBroke, blocks_of, read_each
from cafcat.scanning.positions import Positions
from cafcat.scanning.problems import Problems
from cafcat.session import Session
from cafcat.sources.base import Opener, OpenFile
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Packer", "PendingFile"]

_GROUP_FILES: Final = 256
_GROUP_BYTES: Final = 1 << 20


class PendingFile(NamedTuple):
    """A file to pack. replaces: the catalog has its path; source_id: sources.id of its source."""

    file: SourceFile
    replaces: bool
    source_id: int


class Packer:
    """Fills one chunk after the other. `report` counts what was committed, and what could not be taken."""

    def __init__(
        self, session: Session, target: ChunkTarget, limits: Limits, on_conflict: OnConflict, positions: Positions
    ) -> None:
        """Args:
        session: The session.
        target: Where new chunks go.
        limits: When a chunk is full.
        on_conflict: What to do with a path that the catalog has.
        positions: Gets each file that is in the open chunk or needs nothing more, and each commit.
        """
        self._session = session
        self._progress = session.progress
        self._target = target
        self._limits = limits
        self._on_conflict = on_conflict
        self._positions = positions
        self._empty: Writer = target.archive_format.writer(NullSink())
        self._chunk: OpenChunk | None = None
        self.report = IngestReport(run=target.run)
        self.problems = Problems(target.catalog, self.report, session.progress)

    def may_contain(self, path: str) -> bool:
        """False if the open chunk has no such path. True may be a coincidence."""
        return self._chunk is not None and self._chunk.may_contain(path)

    @property
    def has_open_chunk(self) -> bool:
        return self._chunk is not None

    def take(self, opener: Opener, wanted: Sequence[PendingFile]) -> None:
        """Reads and packs these files, of distinct paths that the open chunk does not contain; all of them, or
        until the user ends the operation. A file that fails costs only itself. Raises SourceBroke, and what ends
        the run: errors of store and catalog."""
        if self.stopped():
            return
        group: list[NewFile] = []
        group_bytes = taken = 0
        with closing(read_each(opener, [want.file for want in wanted])) as opened:
            for n, result in enumerate(opened):
                if isinstance(result, NewFile):
                    group.append(result)
                    group_bytes += len(result.content)
                    if len(group) < _GROUP_FILES and group_bytes < _GROUP_BYTES:
                        continue
                with nullcontext() if isinstance(result, NewFile | SourceFailed) else result:
                    self._take_group(group, wanted[taken : taken + len(group)])
                    taken, group, group_bytes = taken + len(group), [], 0
                    if not isinstance(result, NewFile) and not self.stopped():
                        self._take_result(result, wanted[n])
                        taken = n + 1
                if self.stopped():
                    return
            self._take_group(group, wanted[taken:])

    def stopped(self) -> bool:
        """Return True if the run is to end. May raise, as `Session.checkpoint` does."""
        self.report.interrupted = self._session.should_end() or self.report.interrupted
        return self.report.interrupted

    def _take_group(self, files: Sequence[NewFile], wanted: Sequence[PendingFile]) -> None:
        """Into the open chunk, as many as fit; the rest into the next."""
        while files:
            try:
                chunk = self._room_for(files[0].path, len(files[0].content))
                chunk.set_source(wanted[0].source_id)
                count = self._add(chunk, files[: _of_one_source(wanted)])
            except Refused as error:
                count = self._take_refused(files, wanted, error)
            else:
                self._note(chunk, files[:count], wanted[:count])
            files, wanted = files[count:], wanted[count:]

    def _take_refused(self, files: Sequence[NewFile], wanted: Sequence[PendingFile], error: Refused) -> int:
        """One of the group cannot be taken: which it is turns out when each is taken for itself."""
        if len(files) == 1:
            self._problem(wanted[0].file, ProblemKind.TOO_LARGE, error.message)
            self._positions.passed(wanted[0].file)
        else:
            for file, want in zip(files, wanted, strict=True):
                self._take_group([file], [want])
        return len(files)

    def _add(self, chunk: OpenChunk, files: Sequence[NewFile]) -> int:
        """A chunk exceeds its target only if it holds a single file."""
        most_files = self._limits.max_files - chunk.file_count
        count = chunk.add_all(files[:most_files], self._limits.target_bytes)
        return count or chunk.add_all(files[:1], self._limits.hard_bytes)

    def _note(self, chunk: OpenChunk, files: Sequence[NewFile], wanted: Sequence[PendingFile]) -> None:
        if any(want.replaces for want in wanted):
            chunk.all_new = False
        self._positions.passed(wanted[-1].file)
        self._progress.advance(len(files), sum(len(file.content) for file in files))
        chunk.check_lease()

    def _take_result(self, result: OpenFile | SourceFailed, want: PendingFile) -> None:
        """A file of which more than its content is known, or less."""
        file = want.file
        try:
            if isinstance(result, SourceFailed):
                raise result
            self._take_opened(result, want)
        except SourceFailed as error:
            kind = ProblemKind(error.problem)
            if kind is ProblemKind.UNREADABLE:
                self._positions.hold()
            self._problem(file, kind, error.message)
        except Refused as error:
            self._problem(file, ProblemKind.TOO_LARGE, error.message)
        if not self.report.interrupted:  # perhaps in the middle of this file
            self._positions.passed(file)

    def _take_opened(self, opened: OpenFile, want: PendingFile) -> None:
        path = want.file.path
        if opened.size_bytes <= WHOLE_FILE_BYTES:
            content = opened.read()
            chunk = self._room_for(path, len(content))
            chunk.set_source(want.source_id)
            chunk.add(path, content, opened.modified_ns, opened.etag)
            self._progress.advance(1, len(content))
        else:
            chunk = self._room_for(path, opened.size_bytes)
            chunk.set_source(want.source_id)
            self._stream(chunk, path, opened)
        chunk.all_new = chunk.all_new and not want.replaces
        chunk.check_lease()

    def _stream(self, chunk: OpenChunk, path: str, opened: OpenFile) -> None:
        """Copies a large file block by block; if the user stops that half-way, the file is not taken."""
        entry = chunk.open(path, opened.modified_ns)
        try:
            for block in blocks_of(opened):
                entry.write(block)
                chunk.check_lease()
                self._progress.advance(0, len(block))
                if self.stopped():
                    entry.abandon()
                    return
        except (SourceFailed, SourceBroke):
            entry.abandon()
            raise
        chunk.close_entry(path, entry, opened.etag)
        self._progress.advance(1, 0)

    def _room_for(self, path: str, size_bytes: int) -> OpenChunk:
        """The open chunk if the file fits into it, else a new one. Raises Refused if it fits into none."""
        if self._chunk is not None and self._limits.have_room(self._chunk, path, size_bytes):
            return self._chunk
        self._check_size(path, size_bytes)
        self.finish_chunk()
        self._chunk = OpenChunk(self._target)
        return self._chunk

    def _check_size(self, path: str, size_bytes: int) -> None:
        if self._empty.size_if_finalized(path, size_bytes) > self._limits.hard_bytes:
            limit = self._limits.hard_bytes
            raise Refused(f"a file of {size_bytes} bytes does not fit into a chunk of {limit}", path=path)

    def finish_chunk(self) -> None:
        """Commits the open chunk, if there is one. Errors as of take."""
        chunk = self._chunk
        if chunk is None:
            return
        if chunk.file_count == 0:
            chunk.abandon("no file was taken into it")
            self._chunk = None
            self._positions.save()
            return
        finished = chunk.finish(self._on_conflict, checkpoint=self.stopped)
        self._chunk = None
        self.report.files_added += finished.commit.added
        self.report.files_replaced += finished.commit.replaced
        self.report.files_skipped += finished.commit.skipped
        self.report.bytes_added += finished.commit.live_bytes
        self.report.chunks_committed += 1
        self._positions.save()
        self._session.emit(ChunkCommitted(finished.uuid, chunk.file_count, finished.size_bytes))

    def abandon(self, reason: str) -> None:
        """Nothing is left of the open chunk."""
        if self._chunk is not None:
            self._chunk.abandon(reason)
            self._chunk = None

    def _problem(self, file: SourceFile, kind: ProblemKind, message: str) -> None:
        self.problems.add(FileProblem(file.path, kind, message))


def _of_one_source(wanted: Sequence[PendingFile]) -> int:
    """Number of files from the first on that have the same source."""
    first = wanted[0].source_id
    return next((n for n, want in enumerate(wanted) if want.source_id != first), len(wanted))
