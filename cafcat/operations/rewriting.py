"""Live files of chunks into new chunks: what repack and repair share."""

from collections.abc import Iterator
from typing import Final, Self

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.owners import owner_name
from cafcat.events import ChunkCommitted
from cafcat.formats import registry as formats
from cafcat.model import Entry
from cafcat.operations.chunk_contents import Unreadable, check, entry_of, guarded
from cafcat.session import Session
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Rewriter", "chunk_limits", "chunk_target", "format_after", "live_files"]


_FORMAT: Final = "caf"


def chunk_target(catalog: Catalog, store: Store, role: str, archive_format: str = _FORMAT) -> ChunkTarget:
    """Where new chunks of a verb go. Raises Unsupported if no archives of this format can be written."""
    return ChunkTarget(catalog, store, formats.for_writing(archive_format), None, owner_name(role))


def chunk_limits(session: Session, target_size: int | None) -> Limits:
    """Return the limits of new chunks: of the target size in bytes, or without one of the settings. Raises
    InvalidInput for a size that no chunk can have."""
    limits = Limits(session.settings.target_size if target_size is None else target_size)
    limits.check()
    return limits


def format_after(name: str) -> str:
    """Of chunks that take the files of chunks of a format: the same, unless none are ever written."""
    return _FORMAT if formats.is_read_only(name) else name


def live_files(catalog: Catalog, chunk_id: int) -> Iterator[Entry]:
    """What the catalog points to in a chunk (chunks.id) when this begins, in order of its bytes. Memory does not
    depend on their number."""
    with catalog.verification.rows(chunk_id) as rows:
        yield from (entry_of(row) for row in rows if row.is_live)


class Rewriter:
    """Packs files into new chunks and commits each when it is full: then nothing points any more to where they were
    copied from. To be used by `with`: after an error the open chunk is given up.

    files, bytes: moved, as of the last commit; changed: files that were copied, but had been replaced or removed
    when their chunk was committed. chunks: committed, of bytes_written in all. interrupted: the user ended the
    operation.
    """

    def __init__(self, session: Session, target: ChunkTarget, limits: Limits) -> None:
        self._session = session
        self._place = target
        self._limits = limits
        self._chunk: OpenChunk | None = None
        self.files = self.bytes = self.changed = self.chunks = self.bytes_written = 0
        self.interrupted = False

    def write_as(self, archive_format: str) -> None:
        """Commits what was packed; chunks that are begun from now on are of this format. Raises Unsupported."""
        self.finish()
        self._place = self._place._replace(archive_format=formats.for_writing(archive_format))

    def take(self, source: int, file: Entry, blocks: Iterator[bytes]) -> bool:
        """Takes a live file of a chunk (source: chunks.id), whose bytes have to have its checksum. False if it was
        stopped half-way. Raises Unreadable, with nothing taken: a file that stays where it is."""
        if file.size_bytes <= WHOLE_FILE_BYTES:
            content = b"".join(guarded(blocks))
            check(file, crc32c(content))
            chunk = self._room_for(source, file)
            chunk.add(file.path, content, file.modified_ns)
            self._session.progress.advance(0, len(content))
        elif not self._stream(source, file, blocks):
            return False
        self._session.progress.advance(1, 0)
        if self._chunk is not None:
            self._chunk.check_lease()
        return True

    def _stream(self, source: int, file: Entry, blocks: Iterator[bytes]) -> bool:
        chunk = self._room_for(source, file)
        entry = chunk.open(file.path, file.modified_ns)
        checksum = 0
        try:
            for block in guarded(blocks):
                entry.write(block)
                checksum = crc32c(block, checksum)
                chunk.check_lease()
                self._session.progress.advance(0, len(block))
                if self.stopped():
                    entry.abandon()
                    return False
            check(file, checksum)
        except Unreadable:
            entry.abandon()
            raise
        chunk.close_entry(file.path, entry)
        return True

    def stopped(self) -> bool:
        """Return True if the user wants the operation to end. May raise, as `Session.checkpoint` does."""
        self.interrupted = self._session.should_end() or self.interrupted
        return self.interrupted

    def finish(self) -> None:
        """Commits what was packed."""
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        if chunk.file_count == 0:
            chunk.abandon("no file was taken into it")
            return
        finished = chunk.finish_moved(checkpoint=self.stopped)
        self.files += finished.commit.replaced
        self.bytes += finished.commit.live_bytes
        self.changed += finished.commit.skipped
        self.chunks += 1
        self.bytes_written += finished.size_bytes
        self._session.emit(ChunkCommitted(finished.uuid, chunk.file_count, finished.size_bytes))

    def _room_for(self, source: int, file: Entry) -> OpenChunk:
        """A path is live in one chunk; but it may have come to another one while we were at the first."""
        chunk = self._chunk
        if chunk is None or chunk.may_contain(file.path) or not self._fits(chunk, file):
            self.finish()
            chunk = self._chunk = OpenChunk(self._place, moves=True)
        chunk.move_from(source)
        return chunk

    def _fits(self, chunk: OpenChunk, file: Entry) -> bool:
        return self._limits.have_room(chunk, file.path, file.size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and self._chunk is not None:
            self._chunk.abandon(f"the run ended: {error}")
