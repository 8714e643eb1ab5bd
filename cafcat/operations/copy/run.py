"""Copies of chunks in a further store: the same bytes, under the same key, beside the same journal records.

As with a chunk: the row first, then the bytes under a temporary name or as an upload, then the object, then the row
`committed`. What a kill leaves is found by the row, and recover settles it. Everything is checked against the
checksum that the catalog has of the chunk, before the copy gets its name.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.copies import ChunkToCopy, Selection
from cafcat.checksums import from_base64
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Conflict,
    Corrupt,
    InvalidInput,
    Locked,
    NotFound,
)
from cafcat.formats import registry as formats
from cafcat.model import ChunkState
from cafcat.operations.object_bytes import object_blocks, object_crc64nvme
from cafcat.operations.other_places import OtherReplicas
from cafcat.operations.own_index import read_whole
from cafcat.progress import Progress
from cafcat.stores.base import Store, Upload
from cafcat.stores.distinct import Unproven
from cafcat.support.paths import from_root
from cafcat.writing.journal import write_journal
from cafcat.writing.journal_copies import JournalCopies
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["CopiedChunk", "CopyChunks", "CopyOutcome", "CopyReport", "selection_of"]


class CopyOutcome(StrEnum):
    """What became of a chunk."""

    COPIED = "copied"
    """Its bytes were written into the store."""
    FOUND = "found"
    """The store had an object of that key with the very bytes: it counts as a copy from now on."""
    THERE = "there"
    """The store had a copy: nothing was done."""
    OWN = "own"
    """The chunk itself is in that store: nothing was done, and it has no copy there."""


class CopiedChunk(NamedTuple):
    """A chunk and what was done; size of the object in bytes."""

    uuid: UUID
    store: str
    outcome: CopyOutcome
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was done, in numbers of chunks: copied, found (objects that were there, and are taken for copies), there
    (before), own (the chunks themselves are there: no copies). bytes_copied: of those copied. damaged: chunks whose
    bytes are not what they should be, or not there; failed: what could not be copied (these too), and why. store:
    URL of where the copies are."""

    store: str
    copied: int
    found: int
    there: int
    own: int
    damaged: int
    bytes_copied: int
    failed: tuple[str, ...]
    interrupted: bool


class _Unreadable(Exception):
    """The chunk is at fault, not the store that is written to: the others go on."""

    def __init__(self, error: CafcatError) -> None:
        super().__init__(error)
        self.error = error


def selection_of(catalog: Catalog, names: Iterable[str], prefix: str | None, target: Store) -> Selection:
    """Chunks by uuid or the beginning of one, which have to be committed, and elsewhere; or by a prefix as typed;
    or all. Raises NotFound, InvalidInput."""
    uuids = []
    for chunk in map(catalog.chunks.chunk, names):
        if chunk.state is not ChunkState.COMMITTED:
            raise InvalidInput(
                f"only committed chunks are copied, this one is {chunk.state}", chunk=str(chunk.uuid)
            )
        if chunk.adopted_prefix is not None:
            hint = "cafcat repack --chunk brings its files into chunks of cafcat's own"
            raise InvalidInput("an adopted archive is not copied", chunk=str(chunk.uuid), hint=hint)
        if chunk.store == target.url:
            hint = "name another store"
            raise InvalidInput(f"the chunk is in {target.url} itself", chunk=str(chunk.uuid), hint=hint)
        uuids.append(chunk.uuid)
    if uuids and prefix is not None:
        raise InvalidInput("give chunks or a prefix, not both")
    return Selection(uuids=uuids) if uuids else Selection(prefix=_folder_name(prefix or ""))


def _folder_name(typed: str) -> str | None:
    """ "./a/", "/a", "a" -> "a"; "", ".", "/" -> None: everything."""
    return from_root(typed).rstrip("/") or None


class CopyChunks:
    """One call: chunks into one store. Any number of them may be at work at once; each chunk is copied by one."""

    def __init__(
        self,
        catalog: Catalog,
        store_of: Callable[[str], Store],
        target: Store,
        *,
        owner: str,
        progress: Progress,
        on_taken: Callable[[CopiedChunk], object],
        should_stop: Callable[[], bool],
    ) -> None:
        """`store_of` gives the store of a URL in `chunks.store`; `owner` is who has the leases. `should_stop` is
        asked between chunks, where it ends the work; it may raise in the middle of one, of which nothing is then
        left."""
        self._catalog = catalog
        self._store_of = store_of
        self._target = target
        self._owner = owner
        self._progress = progress
        self._on_taken = on_taken
        self._should_stop = should_stop
        self._journal = JournalCopies(catalog.journal, target, progress.warn)
        self._places = OtherReplicas(catalog, store_of)
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []
        self._interrupted = False

    @property
    def report(self) -> CopyReport:
        """What was done so far."""
        counts = self._counts
        return CopyReport(
            store=self._target.url,
            copied=counts[CopyOutcome.COPIED],
            found=counts[CopyOutcome.FOUND],
            there=counts[CopyOutcome.THERE],
            own=counts[CopyOutcome.OWN],
            damaged=counts["damaged"],
            bytes_copied=counts["bytes_copied"],
            failed=tuple(self._failed),
            interrupted=self._interrupted,
        )

    def take(self, selection: Selection) -> None:
        """Copies the chunks of a selection. What is wrong with one chunk, or its store, costs only that. Raises
        what the target raises, CatalogUnavailable, CatalogOutdated; NotFound if no chunk has that prefix."""
        files, size_bytes = self._catalog.copies.totals(selection, self._target.url)
        self._progress.begin("copy", files=files, size_bytes=size_bytes)
        after = 0
        while page := self._catalog.copies.page(selection, self._target.url, after=after):
            for chunk in page:
                self._interrupted = self._should_stop()
                if self._interrupted:
                    return
                self._take(chunk)
            after = page[-1].id
        if not after and selection.prefix:
            raise NotFound("the catalog has no such file or folder", path=selection.prefix)

    def _take(self, chunk: ChunkToCopy) -> None:
        if chunk.store == self._target.url:
            return self._tell(chunk, CopyOutcome.OWN)
        if chunk.copy_state == "committed" and not chunk.is_left:
            return self._tell(chunk, CopyOutcome.THERE)
        try:
            self._tell(chunk, self._keep(chunk) if chunk.copy_state == "committed" else self._copy(chunk))
        except _Unreadable as unreadable:
            self._fail(chunk, unreadable.error)
        except (Conflict, Locked) as error:
            self._fail(chunk, error)
        return None

    def _tell(self, chunk: ChunkToCopy, outcome: CopyOutcome) -> None:
        self._counts[outcome] += 1
        if outcome is CopyOutcome.COPIED:
            self._counts["bytes_copied"] += chunk.size_bytes
        if outcome in (CopyOutcome.COPIED, CopyOutcome.FOUND):
            self._progress.advance(chunk.file_count, 0)
        self._on_taken(CopiedChunk(chunk.uuid, self._target.url, outcome, chunk.size_bytes))

    def _fail(self, chunk: ChunkToCopy, error: CafcatError) -> None:
        is_damage = isinstance(error, Corrupt | NotFound)
        self._counts["damaged"] += is_damage
        error.hint = "run cafcat repair" if is_damage else error.hint
        self._failed.append(f"chunk {chunk.uuid}: {error}")

    def _keep(self, chunk: ChunkToCopy) -> CopyOutcome:
        """A migration left a copy there: a look at its bytes, and it stays."""
        with _of_source():
            source = self._store_of(chunk.store)
        self._check_place(chunk)
        if not self._is_there(chunk, self._checksum(source, chunk)):
            raise Conflict(
                "the copy that a migration left is gone", hint="cafcat prune forgets it; then copy again"
            )
        self._catalog.copies.keep(chunk.uuid, self._target.url)
        return CopyOutcome.FOUND

    def _copy(self, chunk: ChunkToCopy) -> CopyOutcome:
        """Its row is there before anything else, so that whatever is removed from now on is told to that store."""
        if chunk.copy_state is not None:
            hint = "if nobody is at it any more, cafcat recover settles it"
            raise Locked(f"a copy of it in {self._target.url} is {chunk.copy_state}", hint=hint)
        with _of_source():
            source = self._store_of(chunk.store)
        self._check_place(chunk)
        expected = self._checksum(source, chunk)
        is_there = self._is_there(chunk, expected)
        key = chunk.object_key
        copies = self._catalog.copies
        copy_id = copies.begin(chunk.id, self._target.url, key, self._owner, LEASE_SECONDS)
        copy = _OpenCopy(self._catalog, self._target, key, copy_id, self._owner)
        try:
            self._journal.bring(source, chunk.sequence)
            if not is_there:
                with contextlib.closing(self._blocks(source, chunk)) as blocks:
                    copy.write(blocks, expected)
            copy.commit()
        except BaseException:
            self._journal.forget()
            copy.abandon()
            raise
        # The copy is committed, whatever becomes of this: what is not written now recover writes.
        with contextlib.suppress(CafcatError):
            write_journal(self._catalog.journal, self._target)
        return CopyOutcome.FOUND if is_there else CopyOutcome.COPIED

    def _check_place(self, chunk: ChunkToCopy) -> None:
        """One store may have two names: an object is no copy of itself."""
        try:
            self._places.check(self._target, chunk.uuid, chunk.object_key)
        except (InvalidInput, Unproven) as error:
            raise _Unreadable(error) from error

    def _checksum(self, source: Store, chunk: ChunkToCopy) -> int:
        """That of the catalog. A chunk that has none is read against its own index first."""
        if chunk.crc64nvme is not None:
            return from_base64(chunk.crc64nvme)
        archive_format = formats.by_name(chunk.format)
        with _of_source():
            summary = read_whole(source, chunk.object_key, archive_format, _ignore, lambda _: self._should_stop())
        return summary.crc64nvme

    def _is_there(self, chunk: ChunkToCopy, expected: int) -> bool:
        """Whether the target has the very object, which no row of this catalog names. Raises Conflict if it has
        another one under that key."""
        key = chunk.object_key
        try:
            size_bytes = self._target.stat(key).size_bytes
        except NotFound:
            return False
        is_same = size_bytes == chunk.size_bytes
        if not is_same or object_crc64nvme(self._target, key, size_bytes, self._advance) != expected:
            hint = "it is not this catalog's: move it away, or copy to another store"
            raise Conflict(f"another object has its key: {self._target.locate(key)}", hint=hint)
        return True

    def _blocks(self, source: Store, chunk: ChunkToCopy) -> Generator[bytes, None, None]:
        with _of_source():
            for block in object_blocks(source, chunk.object_key, chunk.size_bytes):
                self._advance(len(block))
                yield block

    def _advance(self, size_bytes: int) -> None:
        self._should_stop()
        self._progress.advance(0, size_bytes)


class _OpenCopy:
    """A copy of which there is a row `writing`. Exactly one of commit and abandon ends it."""

    def __init__(self, catalog: Catalog, target: Store, key: str, copy_id: int, owner: str) -> None:
        self._catalog = catalog
        self._target = target
        self._key = key
        self._id = copy_id
        self._lease = Lease(partial(catalog.copies.renew_lease, copy_id, owner, LEASE_SECONDS))
        self._upload: Upload | None = None
        self._is_ours = False

    def write(self, blocks: Iterator[bytes], expected: int) -> None:
        """Raises _Unreadable if the blocks do not have the expected CRC-64/NVME, and what the store raises."""
        upload = self._upload = self._target.create(self._key)
        if upload.upload_id is not None:
            self._catalog.copies.record_upload(self._id, upload.upload_id)
        sink = BlockSink(upload)
        try:
            for block in blocks:
                sink.write(block)
                self._lease.check()
        except BaseException:
            sink.abort()
            raise
        checksum = sink.finish()
        if checksum != expected:
            message = f"its bytes are damaged: CRC-64/NVME {checksum:016x} where the catalog has {expected:016x}"
            raise _Unreadable(Corrupt(message))
        self._is_ours = True
        try:
            upload.commit(checksum)
        except Conflict:
            self._is_ours = False  # somebody else's took the key
            raise

    def commit(self) -> None:
        """Its object is there. Raises Conflict if the copy, or the chunk, was taken from us."""
        self._lease.end()
        self._catalog.copies.commit(self._id, None if self._upload is None else self._upload.etag)

    def abandon(self) -> None:
        """The row first, then the object: where the row says that the copy was committed after all (or nobody can
        tell), it stays. Last, that nothing is left: what fails on the way is for recover to do."""
        self._lease.end()
        with contextlib.suppress(CafcatError):
            if self._upload is not None:
                self._upload.abort()
        with contextlib.suppress(CafcatError):
            self._catalog.copies.abandon(self._id)
            if self._upload is not None:
                self._target.discard(self._key, self._upload.upload_id)
            if self._is_ours:
                self._target.delete(self._key)
            self._catalog.copies.record_removed(self._id)


@contextlib.contextmanager
def _of_source() -> Iterator[None]:
    """What goes wrong here is the chunk's fault, or that of its store."""
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        raise _Unreadable(error) from error


def _ignore(_: object) -> None:
    """Nobody wants to know."""
