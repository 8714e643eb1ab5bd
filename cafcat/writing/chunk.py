"""A chunk that is being written: its row, its object, and the rows of its files (`Mapping`).

docs/design.md has the order of the steps.
"""

import contextlib
from collections.abc import Sequence
from functools import cached_property
from time import monotonic
from typing import NamedTuple
from uuid import uuid4

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.commit import ChunkCommit
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import CafcatError, NotFound
from cafcat.formats.base import EntryWriter, FinishedArchive, Format
from cafcat.formats.caf.writer import CafWriter
from cafcat.model import NO_UNITS, ChunkSummary, NewFile, OnConflict
from cafcat.native.folder import ListedFiles
from cafcat.native.pack import FilePacker, Packed, PackingState, file_packer
from cafcat.progress import Progress
from cafcat.sources.local.files import SMALL_BYTES
from cafcat.stores.base import Store
from cafcat.support.tracing import begin
from cafcat.writing.journal import write_journal
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["BegunChunk", "ChunkTarget", "FinishedChunk", "OpenChunk"]


class ChunkTarget(NamedTuple):
    """Where new chunks go, in which format, and which process writes them.

    Attributes:
        catalog: The catalog.
        store: The store of the new objects.
        archive_format: Format of the new chunks.
        run: `ingest_runs.id`; None if the writer is not an ingest.
        owner: Owner of the leases of the new chunks, as `owner_name` returns it.
    """

    catalog: Catalog
    store: Store
    archive_format: Format
    run: int | None
    owner: str


class FinishedChunk(NamedTuple):
    """A chunk that this process has written and committed.

    Attributes:
        uuid: Uuid of the chunk.
        size_bytes: Size of the chunk's object.
        commit: Counts of files that the commit added, replaced and skipped.
        commit_seconds: How long the transaction of the commit took.
    """

    uuid: str
    size_bytes: int
    commit: ChunkCommit
    commit_seconds: float


class BegunChunk:
    """A chunk that is being written. Subclasses write the content. At the end, call `finish`, or else `abandon`.

    The row, in state `writing`, is in the catalog before the first byte is written. Whatever happens afterwards,
    recovery finds the remains by this row.

    Attributes:
        uuid: UUID of the chunk.
        all_new: True at first. The caller sets it to False when it adds a file that replaces one in the catalog.
    """

    def __init__(self, target: ChunkTarget, *, moves: bool = False) -> None:
        """Insert the row of the chunk, begin its object, and start to renew its lease.

        Args:
            target: Catalog, store, format, run and owner of the chunk.
            moves: True if live files of other chunks are going to be copied into the chunk.

        Raises:
            NotFound: The bucket of the store does not exist. A missing folder is created.
            Conflict: The catalog does not have the store any more, because it was moved.
            StoreFailed, AccessDenied: The store cannot begin an object.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        self._target = target
        self.uuid = uuid4()
        self._key = f"{self.uuid}{target.archive_format.suffix}"
        self._span = begin("write_chunk", chunk=str(self.uuid), store=target.store.url)
        self._packing = self._span.child("pack")
        self._id = target.catalog.chunks.begin_chunk(
            uuid=self.uuid,
            run_id=target.run,
            archive_format=target.archive_format.name,
            store_url=target.store.url,
            object_key=self._key,
            owner=target.owner,
            lease_seconds=LEASE_SECONDS,
            moves=moves,
        )
        self._is_ended = False
        self._moves_from: list[int] | None = [] if moves else None
        self.all_new = True
        self._mapping = Mapping(self._id)
        self._units = NO_UNITS
        upload = None
        try:
            upload = target.store.create(self._key, rewrites_head=target.archive_format.rewrites_head)
            if upload.upload_id is not None:
                target.catalog.chunks.record_upload(self._id, upload.upload_id)
            self._upload, self._sink = upload, BlockSink(upload)
        except BaseException as error:
            if upload is not None:
                upload.abort()
            self._mapping.close()
            self._fail_spans()
            self._remove_remains(
                f"the object could not be begun: {error}", was_begun=not isinstance(error, NotFound)
            )
            raise
        self._lease = Lease(target.catalog.chunks, self._id, target.owner)

    @property
    def file_count(self) -> int:
        """Number of files that were added to the chunk."""
        return self._mapping.file_count

    @property
    def size_bytes(self) -> int:
        """Number of bytes that were written so far."""
        return self._sink.size_bytes

    def check_lease(self) -> None:
        """Raise the error with which the renewal of the lease failed for good, if it did.

        Raises:
            Conflict: Another process has the lease of the chunk now, or the chunk is not being written any more.
        """
        self._lease.check()

    def finish(self, on_conflict: OnConflict, progress: Progress, catalog: Catalog | None = None) -> FinishedChunk:
        """Complete the object, make it durable, and commit the chunk.

        After an error the chunk is abandoned. If the outcome of the commit is unknown, a complete object and a row
        in state `writing` can stay. Recovery then commits the chunk.

        Args:
            on_conflict: What to do with a path that the catalog has already. If the chunk moves live files of other
                chunks, this is ignored: paths that were changed or removed meanwhile stay as they are.
            progress: Its checkpoint is called between these steps. If it raises, the chunk is abandoned.
            catalog: The catalog with which the chunk is committed; None for that of the target.

        Returns:
            The committed chunk, with the counts of its files.

        Raises:
            Conflict: The catalog has a path of the chunk, and `on_conflict` is FAIL; or the chunk is no longer
                being written, because recovery has abandoned it; or its store was moved; or another archive has one
                of its log files; or the store has another object with its key.
            StoreFailed, AccessDenied: The store failed.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        catalog = catalog or self._target.catalog
        self._packing.end()
        try:
            with self._span.child("finish_object"):
                summary = self._make_durable(progress)
            began = monotonic()
            with self._span.child("commit"):
                committed = self._commit(catalog, summary, on_conflict)
        except BaseException as error:
            self.abandon(str(error) or type(error).__name__)
            raise
        seconds = monotonic() - began
        self._is_ended = True
        self._mapping.close()
        # The chunk is committed even if this fails: `recover` writes the missing journal records.
        with contextlib.suppress(CafcatError), self._span.child("journal"):
            write_journal(catalog.journal, self._target.store)
        self._span.set(files=summary.file_count, size_bytes=summary.size_bytes)
        self._span.end()
        return FinishedChunk(str(self.uuid), summary.size_bytes, committed, seconds)

    def _commit(self, catalog: Catalog, summary: ChunkSummary, on_conflict: OnConflict) -> ChunkCommit:
        """Commit the durable chunk, and return the counts of its files."""
        if self._moves_from is not None:
            return catalog.commit.commit_moved(self._id, summary, self._mapping, self._moves_from)
        return catalog.commit.commit_chunk(
            self._id, summary, self._mapping, on_conflict, all_new=self.all_new, units=self._units
        )

    def _finalize(self) -> FinishedArchive:
        """Write the end of the archive, such as its index, and return the sizes of the archive."""
        raise NotImplementedError

    def _make_durable(self, progress: Progress) -> ChunkSummary:
        """Complete the object, make it durable, and stop renewing the lease. Then the chunk can be committed.

        Returns:
            Sizes and checksums of the object.
        """
        self._mapping.flush()
        archive = self._finalize()
        checksum = self._sink.finish()
        progress.checkpoint()
        self._upload.commit(checksum)
        summary = ChunkSummary(
            archive.size_bytes,
            archive.index_start_byte,
            archive.index_end_byte,
            archive.file_count,
            archive.data_bytes,
            checksum,
            self._upload.etag,
            archive.index_crc32c,
        )
        progress.checkpoint()
        self._lease.end()
        return summary

    def abandon(self, reason: str) -> None:
        """Remove the written bytes and mark the chunk's row as abandoned, as far as store and catalog answer.

        Does nothing if the chunk is finished or abandoned already. Errors of store and catalog are not raised.

        Args:
            reason: Why the chunk is given up. The catalog stores it.
        """
        if self._is_ended:
            return
        self._is_ended = True
        self._fail_spans()
        self._lease.end()
        self._sink.abort()
        self._mapping.close()
        with contextlib.suppress(CafcatError):
            self._upload.abort()
        self._remove_remains(reason, self._upload.upload_id)

    def _fail_spans(self) -> None:
        self._packing.end()
        self._span.fail()

    def _remove_remains(self, reason: str, upload_id: str | None = None, *, was_begun: bool = True) -> None:
        """Mark the row as abandoned, then remove the object, then record in the row that nothing is left.

        The row is changed first: if that fails, because the chunk was committed after all or the catalog does not
        answer, the object stays. Errors are not raised, because recovery does the steps that fail here.

        Args:
            reason: Why the chunk is given up.
            upload_id: Id of the upload of the object, if it is known.
            was_begun: False if the store does not exist, so that there is no object to remove.
        """
        with contextlib.suppress(CafcatError):
            self._target.catalog.chunks.abandon_chunk(self._id, reason)
            if was_begun:
                self._target.store.discard(self._key, upload_id)
                self._target.store.delete(self._key)
            self._target.catalog.chunks.record_removed(self._id)


class OpenChunk(BegunChunk):
    """A chunk that is being written, to which files are added one by one or in groups."""

    def __init__(self, target: ChunkTarget, *, moves: bool = False) -> None:
        """Insert the row of the chunk, begin its object, and start to renew its lease, as BegunChunk does.

        Args:
            target: Catalog, store, format, run and owner of the chunk.
            moves: True if live files of other chunks are going to be copied into the chunk. Then call `move_from`
                before the first file of each other chunk.

        Raises:
            Unsupported, NotInstalled: The format cannot be written here. The chunk is abandoned.
            NotFound, Conflict, StoreFailed, AccessDenied, CatalogUnavailable, CatalogOutdated: As for BegunChunk.
        """
        super().__init__(target, moves=moves)
        self._hashes: set[int] | None = None
        self._accepts_files = True
        try:
            self._writer = target.archive_format.writer(self._sink)
        except BaseException as error:
            self.abandon(str(error))
            raise

    def size_with(self, path: str, size_bytes: int) -> int:
        """Return an upper bound for the size in bytes of the object if it were finished after one more file.

        Raises:
            Refused: The format cannot store the path.
        """
        return self._writer.size_if_finalized(path, size_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if a file of this path and size in bytes could exceed a limit of the archive's format.

        Raises:
            Refused: The format cannot store the path.
        """
        return self._writer.can_add(path, size_bytes)

    def may_contain(self, path: str) -> bool:
        """Return False if the chunk certainly does not contain a file of this path.

        True can be wrong, if two paths have the same hash.

        As long as files are added in ascending order of paths, a path after the last one needs no look-up. The
        first other path makes the chunk remember a hash of each of its paths, unless another thread reads them.
        """
        if self._hashes is None:
            if not self.may_contain_from(path):
                return False
            if not self._accepts_files:
                return True
            self._hashes = {hash(added) for added in self._mapping.paths()}
        return hash(path) in self._hashes

    def may_contain_from(self, path: str) -> bool:
        """Return False if the chunk certainly contains neither a file of this path nor one of a larger path."""
        return bool(self.file_count) and not (self._mapping.ascending and path > self._mapping.last_path)

    def end_adding(self) -> None:
        """Add no file any more: from now on, another thread may finish the chunk."""
        self._accepts_files = False

    def set_source(self, source_id: int | None) -> None:
        """Set `sources.id` of the files that are added from now on; None if their source is unknown."""
        self._mapping.set_source(source_id)

    def add(self, path: str, content: bytes, modified_ns: int | None, etag: str | None = None) -> None:
        """Add a whole file to the chunk, which must not contain its path.

        Args:
            path: Path of the file in the catalog.
            content: All bytes of the file.
            modified_ns: Time of the last change, in nanoseconds since 1970; None if it is unknown.
            etag: Entity tag of the file at its source; None if the source has none.

        Raises:
            Refused: The format cannot contain the file.
            StoreFailed, AccessDenied: The store does not accept the bytes.
        """
        self._mapping.add(self._writer.add(path, content, modified_ns), etag)
        if self._hashes is not None:
            self._hashes.add(hash(path))

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> int:
        """Add whole files, from the first on, until the object would become too large.

        Args:
            files: Files of distinct paths that the chunk does not contain.
            max_bytes: Largest size that the object may have if it were finished after the last added file.

        Returns:
            The number of files that were added: 0 if not even the first file fits. The others are not in the chunk.

        Raises:
            Refused: The format cannot contain one of the files. No file was added.
            StoreFailed, AccessDenied: The store does not accept the bytes.
        """
        entries = self._writer.add_all(files, max_bytes)
        if entries:
            self._mapping.add_all(entries, [file.etag for file in files[: len(entries)]])
            if self._hashes is not None:
                self._hashes.update(hash(entry.path) for entry in entries)
        return len(entries)

    @cached_property
    def _packer(self) -> FilePacker | None:
        return file_packer()

    @property
    def accepts_columns(self) -> bool:
        """True if files in columns can be added: to a CAF, as long as their paths are in ascending order."""
        return self._packer is not None and isinstance(self._writer, CafWriter) and self._hashes is None

    def add_columns(self, files: ListedFiles, max_bytes: int) -> Packed:
        """Read small files and add them, until one does not fit, or is not usual (`Outcome`).

        Args:
            files: The files. The chunk does not contain their paths.
            max_bytes: Largest size that the object may have if it were finished after the last added file.

        Raises:
            StoreFailed, AccessDenied: The store does not accept the bytes.
        """
        assert self._packer is not None  # noqa: S101 - `accepts_columns` is true
        assert isinstance(self._writer, CafWriter)  # noqa: S101
        room = self._writer.room
        state = PackingState(
            self._id,
            self._mapping.source_id,
            room.position,
            room.has_entries,
            room.index_bytes,
            room.most_index_bytes,
            max_bytes - room.footer_bytes,
            SMALL_BYTES,
        )
        packed = self._packer.pack(files, data=self._sink.room(), state=state)
        self._sink.filled(packed.data_bytes)
        added = files.between(files.begin, packed.end)
        if added.file_count:
            self._writer.add_written(packed.text, added.file_count, packed.data_bytes)
            self._mapping.add_rows(packed.rows, added)
        return packed

    def prefetch(self, files: ListedFiles) -> tuple[int, int]:
        """Read small files into the page cache, several at the same time, before `add_columns` reads them.

        Returns:
            The position after the last file that was read, and how many times a thread waited, as it does for a
            file that is not in memory.
        """
        assert self._packer is not None  # noqa: S101 - `accepts_columns` is true
        return self._packer.prefetch(files, most_bytes=SMALL_BYTES)

    def open(self, path: str, modified_ns: int | None) -> EntryWriter:
        """Begin a file whose content is written in blocks into the returned writer.

        End it with `close_entry`, or with `abandon` of the writer to leave the file out.

        Args:
            path: Path of the file in the catalog. The chunk must not contain it.
            modified_ns: Time of the last change, in nanoseconds since 1970; None if it is unknown.

        Raises:
            Refused: The format cannot store the path, or the archive is full.
        """
        return self._writer.open(path, modified_ns)

    def close_entry(self, path: str, entry: EntryWriter, etag: str | None = None) -> None:
        """Add the file that was written in blocks to the chunk.

        Args:
            path: Path of the file, as given to `open`.
            entry: The writer that `open` returned.
            etag: Entity tag of the file at its source; None if the source has none.

        Raises:
            Refused: The format cannot store the file.
            StoreFailed, AccessDenied: The store does not accept the bytes.
        """
        self._mapping.add(entry.close(), etag)
        if self._hashes is not None:
            self._hashes.add(hash(path))

    def move_from(self, source: int) -> None:
        """Record in the catalog that live files of another chunk are copied into this one.

        Call this before the first file of each chunk. If this process dies, recovery needs to know from which
        chunks the files come.

        Args:
            source: `chunks.id` of the other chunk.

        Raises:
            ValueError: The chunk was not begun with `moves`.
            Conflict: The chunk is no longer being written.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        if self._moves_from is None:
            raise ValueError("move_from requires a chunk that was begun with moves=True")
        if source not in self._moves_from:
            self._target.catalog.chunks.record_move(self._id, source)
            self._moves_from.append(source)

    def _finalize(self) -> FinishedArchive:
        return self._writer.finalize()
