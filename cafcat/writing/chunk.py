"""One chunk being written: its row, its object, its mapping. The write path of docs/design.md."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.commit import ChunkCommit
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import CafcatError, NotFound
from cafcat.formats.base import EntryWriter, FinishedArchive, Format
from cafcat.model import NO_UNITS, ChunkSummary, NewFile, OnConflict
from cafcat.stores.base import Store
from cafcat.writing.journal import write_journal
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["BegunChunk", "ChunkTarget", "FinishedChunk", "OpenChunk"]


class ChunkTarget(NamedTuple):
    """Where chunks go, and who writes them: owner is who has their leases; run: of the ingest, if it is one."""

    catalog: Catalog
    store: Store
    archive_format: Format
    run: int | None
    owner: str


class FinishedChunk(NamedTuple):
    """A committed chunk; sizes in bytes."""

    uuid: str
    size_bytes: int
    commit: ChunkCommit


class BegunChunk:
    """A row, an object, a mapping; what goes into the object is up to those who know. Exactly one of finish and
    abandon ends it.

    Its row `writing` is in the catalog before the first byte is written, so whatever happens from here on
    leaves a trace that recovery can follow.
    """

    def __init__(self, place: ChunkTarget, *, moves: bool = False) -> None:
        """moves: for live files of other chunks."""
        self._place = place
        self.uuid = uuid4()
        self._key = f"{self.uuid}{place.archive_format.suffix}"
        self._id = place.catalog.chunks.begin_chunk(
            uuid=self.uuid,
            run_id=place.run,
            archive_format=place.archive_format.name,
            store_url=place.store.url,
            object_key=self._key,
            owner=place.owner,
            lease_seconds=LEASE_SECONDS,
            moves=moves,
        )
        self._settled = False
        self.all_new = True
        self._mapping = Mapping(self._id)
        self._units = NO_UNITS
        upload = None
        try:
            upload = place.store.create(self._key, rewrites_head=place.archive_format.rewrites_head)
            if upload.upload_id is not None:
                place.catalog.chunks.record_upload(self._id, upload.upload_id)
            self._upload, self._sink = upload, BlockSink(upload)
        except BaseException as error:
            if upload is not None:
                upload.abort()
            self._mapping.close()
            self._forget(f"the object could not be begun: {error}", was_begun=not isinstance(error, NotFound))
            raise
        renew = place.catalog.chunks.renew_lease
        self._lease = Lease(partial(renew, self._id, place.owner, LEASE_SECONDS))

    @property
    def file_count(self) -> int:
        return self._mapping.file_count

    def check_lease(self) -> None:
        """Raises Conflict if the chunk was taken from us."""
        self._lease.check()

    def finish(self, on_conflict: OnConflict, checkpoint: Callable[[], object]) -> FinishedChunk:
        """Finalizes, makes durable, commits; calls `checkpoint` between these steps, which may raise to give the
        chunk up. After an error nothing is left behind; except that a commit whose outcome nobody can tell leaves
        a whole object and a row `writing`, for recovery to adopt."""
        commit = self._place.catalog.commit
        return self._finish(
            lambda summary: commit.commit_chunk(
                self._id, summary, self._mapping, on_conflict, all_new=self.all_new, units=self._units
            ),
            checkpoint,
        )

    def _finish(
        self, commit: Callable[[ChunkSummary], ChunkCommit], checkpoint: Callable[[], object]
    ) -> FinishedChunk:
        try:
            summary = self._make_durable(checkpoint)
            checkpoint()
            self._lease.end()
            committed = commit(summary)
        except BaseException as error:
            self.abandon(str(error) or type(error).__name__)
            raise
        self._settled = True
        self._mapping.close()
        # The chunk is committed, whatever becomes of this: what is not written now recover writes.
        with contextlib.suppress(CafcatError):
            write_journal(self._place.catalog.journal, self._place.store)
        return FinishedChunk(str(self.uuid), summary.size_bytes, committed)

    def _finalize(self) -> FinishedArchive:
        """Writes what is still missing of the object."""
        raise NotImplementedError

    def _make_durable(self, checkpoint: Callable[[], object]) -> ChunkSummary:
        self._mapping.flush()
        archive = self._finalize()
        checksum = self._sink.finish()
        checkpoint()
        self._upload.commit(checksum)
        return ChunkSummary(
            archive.size_bytes,
            archive.index_start_byte,
            archive.index_end_byte,
            archive.file_count,
            archive.data_bytes,
            checksum,
            self._upload.etag,
            archive.index_crc32c,
        )

    def abandon(self, reason: str) -> None:
        """Removes what was written and says so in the catalog, as far as store and catalog still answer.
        Does nothing to a chunk that is finished or abandoned already."""
        if self._settled:
            return
        self._settled = True
        self._lease.end()
        self._sink.abort()
        self._mapping.close()
        with contextlib.suppress(CafcatError):
            self._upload.abort()
        self._forget(reason, self._upload.upload_id)

    def _forget(self, reason: str, upload_id: str | None = None, *, was_begun: bool = True) -> None:
        """The row first, then the object: where the row says that the chunk was committed after all (or nobody
        can tell), the object stays. Last, that nothing is left: what fails on the way is for recovery to do. A
        store that is not there has nothing."""
        with contextlib.suppress(CafcatError):
            self._place.catalog.chunks.abandon_chunk(self._id, reason)
            if was_begun:
                self._place.store.discard(self._key, upload_id)
                self._place.store.delete(self._key)
            self._place.catalog.chunks.record_removed(self._id)


class OpenChunk(BegunChunk):
    """Takes files, as long as there is room."""

    def __init__(self, place: ChunkTarget, *, moves: bool = False) -> None:
        """moves: for live files of other chunks; move_from is told of each of these, and finish_moved ends it."""
        super().__init__(place, moves=moves)
        self._moves_from: list[int] = []
        self._highest_path = ""
        self._hashes: set[int] | None = None
        try:
            self._writer = place.archive_format.writer(self._sink)
        except BaseException as error:
            self.abandon(str(error))
            raise

    def size_with(self, path: str, size_bytes: int) -> int:
        """Size of the object in bytes if it were finished after that file."""
        return self._writer.size_if_finalized(path, size_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """False if the format cannot take that file into this archive."""
        return self._writer.can_add(path, size_bytes)

    def may_contain(self, path: str) -> bool:
        """False if the chunk has no such path. True may be a coincidence of hashes.

        A path above all others needs nothing to be remembered; after the first that is asked for and is not,
        hashes of all are kept.
        """
        if self._hashes is None:
            if path > self._highest_path:
                return False
            self._hashes = {hash(taken) for taken in self._mapping.paths()}
        return hash(path) in self._hashes

    def set_source(self, source_id: int | None) -> None:
        """Set sources.id of the files that are added from now on."""
        self._mapping.set_source(source_id)

    def add(self, path: str, content: bytes, modified_ns: int | None, etag: str | None = None) -> None:
        """Takes a whole file, of a path that it does not contain."""
        self._mapping.add(self._writer.add(path, content, modified_ns), etag)
        self._note([path])

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> int:
        """Takes whole files, of paths that it does not contain, from the first on, as long as the object would have
        at most so many bytes if it were finished; returns how many. Raises Refused for one of them, and has then
        taken none."""
        entries = self._writer.add_all(files, max_bytes)
        if entries:
            self._mapping.add_all(entries, [file.etag for file in files[: len(entries)]])
            self._note([entry.path for entry in entries])
        return len(entries)

    def open(self, path: str, modified_ns: int | None) -> EntryWriter:
        """Begins a file in blocks; close_entry ends it."""
        return self._writer.open(path, modified_ns)

    def close_entry(self, path: str, entry: EntryWriter, etag: str | None = None) -> None:
        """Takes the file that was written in blocks."""
        self._mapping.add(entry.close(), etag)
        self._note([path])

    def move_from(self, source: int) -> None:
        """To be told before the first file of another chunk (chunks.id) is taken: if we die, recover has to know
        whose files these are."""
        if source not in self._moves_from:
            self._place.catalog.chunks.record_move(self._id, source)
            self._moves_from.append(source)

    def _note(self, paths: Sequence[str]) -> None:
        self._highest_path = max(self._highest_path, *paths)
        if self._hashes is not None:
            self._hashes.update(map(hash, paths))

    def finish_moved(self, checkpoint: Callable[[], object]) -> FinishedChunk:
        """The same for a chunk that took live files of other chunks: their paths point here from now on, unless
        they changed meanwhile."""
        commit = self._place.catalog.commit
        return self._finish(
            lambda summary: commit.commit_moved(self._id, summary, self._mapping, self._moves_from), checkpoint
        )

    def _finalize(self) -> FinishedArchive:
        return self._writer.finalize()
