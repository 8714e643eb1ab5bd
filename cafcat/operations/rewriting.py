"""Copies live files into new chunks, for `repack` and `repair`."""

from collections.abc import Iterator
from typing import Final, Self

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.owners import owner_name
from cafcat.events import ChunkCommitted
from cafcat.formats import registry as formats
from cafcat.model import Entry, OnConflict
from cafcat.operations.chunk_contents import Unreadable, check, entry_of, guarded
from cafcat.session import Session
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Rewriter", "chunk_limits", "chunk_target", "format_after", "live_files"]


_FORMAT: Final = "caf"
"""Format of new chunks that replace chunks whose format cannot be written."""


def chunk_target(catalog: Catalog, store: Store, role: str, archive_format: str = _FORMAT) -> ChunkTarget:
    """Return the ChunkTarget with which an operation writes its new chunks.

    Args:
        catalog: The catalog.
        store: The store of the new chunks.
        role: Name of the operation, for the owner of the leases.
        archive_format: Name of the format of the new chunks.

    Raises:
        Unsupported, NotInstalled: The format cannot be written.
    """
    return ChunkTarget(catalog, store, formats.for_writing(archive_format), None, owner_name(role))


def chunk_limits(session: Session, target_size: int | None) -> Limits:
    """Return the limits of size and number of files at which a new chunk is full.

    Args:
        session: The session.
        target_size: Target size in bytes; None for that of the settings.

    Raises:
        InvalidInput: No chunk can have this size.
    """
    limits = Limits(session.settings.target_size if target_size is None else target_size)
    limits.check()
    return limits


def format_after(name: str) -> str:
    """Return the format of new chunks that replace chunks of a format: that format, or CAF if it is read-only."""
    return _FORMAT if formats.is_read_only(name) else name


def live_files(catalog: Catalog, chunk_id: int) -> Iterator[Entry]:
    """Yield the live files of a chunk, in order of their bytes.

    All rows are read from the catalog at the first step, so later changes are not seen. Memory does not depend on
    the number of rows.

    Args:
        catalog: The catalog.
        chunk_id: `chunks.id`.
    """
    with catalog.verification.rows(chunk_id) as rows:
        yield from (entry_of(row) for row in rows if row.is_live)


class Rewriter:
    """Copies live files into new chunks, and commits each chunk when it is full.

    The commit makes the paths of its files point to the new chunk. Call `finish` to commit the last chunk. Use the
    rewriter in a `with` statement: after an error the open chunk is abandoned.

    Attributes:
        files: Number of files that were moved, as of the last commit.
        bytes: Bytes of these files.
        changed: Number of files that were copied, but replaced or removed before the commit of their chunk.
        chunks: Number of committed chunks.
        bytes_written: Total size of the objects of these chunks in bytes.
        interrupted: True if the user ended the operation.
    """

    def __init__(self, session: Session, target: ChunkTarget, limits: Limits) -> None:
        self._session = session
        self._target = target
        self._limits = limits
        self._chunk: OpenChunk | None = None
        self.files = self.bytes = self.changed = self.chunks = self.bytes_written = 0
        self.interrupted = False

    def write_as(self, archive_format: str) -> None:
        """Commit the open chunk, and write later chunks in another format.

        Args:
            archive_format: Name of the format.

        Raises:
            Unsupported, NotInstalled: The format cannot be written. Errors of `finish` are raised unchanged.
        """
        self.finish()
        self._target = self._target._replace(archive_format=formats.for_writing(archive_format))

    def move(self, source: int, file: Entry, blocks: Iterator[bytes]) -> bool:
        """Copy a live file of another chunk into the open chunk.

        If the open chunk has no room for the file, or may contain its path already, commit it and begin another one
        first.

        Args:
            source: `chunks.id` of the chunk that has the file.
            file: The file as in the catalog.
            blocks: Content of the file. It must have the file's checksum.

        Returns:
            True if the file was copied; False if the user ended the operation in the middle of the file.

        Raises:
            Unreadable: The content cannot be read or is wrong. The file was not copied, and its path stays. Errors
                of writing and committing the chunk are raised unchanged.
        """
        if file.size_bytes <= WHOLE_FILE_BYTES:
            content = b"".join(guarded(blocks))
            check(file, crc32c(content))
            chunk = self._chunk_for(source, file)
            chunk.add(file.path, content, file.modified_ns)
            self._session.progress.advance(0, len(content))
        elif not self._stream(source, file, blocks):
            return False
        self._session.progress.advance(1, 0)
        if self._chunk is not None:
            self._chunk.check_lease()
        return True

    def _stream(self, source: int, file: Entry, blocks: Iterator[bytes]) -> bool:
        chunk = self._chunk_for(source, file)
        entry = chunk.open(file.path, file.modified_ns)
        checksum = 0
        try:
            for block in guarded(blocks):
                entry.write(block)
                checksum = crc32c(block, checksum)
                chunk.check_lease()
                self._session.progress.advance(0, len(block))
                if self.is_stopping():
                    entry.abandon()
                    return False
            check(file, checksum)
        except Unreadable:
            entry.abandon()
            raise
        chunk.close_entry(file.path, entry)
        return True

    def is_stopping(self) -> bool:
        """Return True if the user wants the operation to finish its open chunk and end.

        Raises what `Session.checkpoint` raises if the user wants it to end at once.
        """
        self.interrupted = self._session.should_end() or self.interrupted
        return self.interrupted

    def finish(self) -> None:
        """Commit the open chunk, if there is one; abandon it if no file was added to it.

        Raises:
            StoreFailed, AccessDenied: The store cannot write the chunk.
            Conflict: Recovery has abandoned the chunk, or its store was moved.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        if chunk.file_count == 0:
            chunk.abandon("no file was added to it")
            return
        finished = chunk.finish(OnConflict.SKIP, self._session.progress)
        self.interrupted = self._session.progress.stopping or self.interrupted
        self.files += finished.commit.replaced
        self.bytes += finished.commit.live_bytes
        self.changed += finished.commit.skipped
        self.chunks += 1
        self.bytes_written += finished.size_bytes
        self._session.emit(
            ChunkCommitted(finished.uuid, chunk.file_count, finished.size_bytes, finished.commit_seconds)
        )

    def _chunk_for(self, source: int, file: Entry) -> OpenChunk:
        """Return an open chunk with room for a file, and record in its row that files of `source` are copied.

        A path is live in one chunk only. But the path can have moved to another source chunk after the first was
        read, so the open chunk can contain it already.
        """
        chunk, limits = self._chunk, self._limits
        has_room = chunk is not None and limits.have_room(chunk, file.path, file.size_bytes)
        if chunk is None or chunk.may_contain(file.path) or not has_room:
            self.finish()
            chunk = self._chunk = OpenChunk(self._target, moves=True)
        chunk.move_from(source)
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and self._chunk is not None:
            self._chunk.abandon(f"the operation failed: {error}")
