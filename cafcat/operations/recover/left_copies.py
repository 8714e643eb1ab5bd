"""What dead writers left of copies: those that are whole are adopted, of all others nothing stays.

As of chunks (recover.py): the row decides, and is changed first. A copy is whole if it has its chunk's checksum.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.objects import WrittenObject
from cafcat.checksums import to_base64
from cafcat.errors import CafcatError, Conflict, NotFound
from cafcat.operations.object_bytes import object_crc64nvme
from cafcat.operations.other_places import OtherReplicas
from cafcat.stores.base import Store, has
from cafcat.writing.journal import remove_journal
from cafcat.writing.lease import LEASE_SECONDS, Lease

__all__ = ["LeftCopies", "RecoveredCopy"]


class RecoveredCopy(NamedTuple):
    """copy_of: uuid of the chunk. outcome: "adopted", "abandoned" or "cleaned", as of chunks. reason: why it was
    abandoned."""

    copy_of: str
    store: str
    outcome: str
    reason: str | None = None


class LeftCopies:
    """The part of recover that is about copies."""

    def __init__(
        self,
        catalog: Catalog,
        places: OtherReplicas,
        *,
        owner: str,
        dry_run: bool,
        advance: Callable[[int], object],
        on_settled: Callable[[RecoveredCopy], object],
    ) -> None:
        """`owner` is who has the leases that are taken. `advance` is called with the size of each block before it
        is looked at; it may raise, then the copy stays as it is."""
        self._catalog = catalog
        self._copies = catalog.copies
        self._places = places
        self._owner = owner
        self._dry_run = dry_run
        self._advance = advance
        self._on_settled = on_settled

    def are_in(self, url: str) -> bool:
        """Whether the catalog knows of something to settle in a store."""
        return bool(self._copies.remains(url) or self._copies.overdue(url))

    def works(self, store: Store, url: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """What there is to do, each with what it is about. Remains first: what fails here to be removed is then not
        tried twice."""
        for found in self._copies.remains(url):
            yield f"copy {store.locate(found.object_key)}", partial(self._clean, store, found)
        for found in self._copies.overdue(url):
            yield f"copy {store.locate(found.object_key)}", partial(self._settle, store, found)

    def _clean(self, store: Store, found: WrittenObject) -> None:
        self._remove(store, found)
        self._tell(found, "cleaned")

    def _settle(self, store: Store, found: WrittenObject) -> None:
        if self._dry_run:
            why_not = self._why_not(store, found)
            return self._tell(found, "abandoned" if why_not else "adopted", why_not)
        if not self._copies.take(found, self._owner, LEASE_SECONDS):
            return None
        try:
            why_not = self._looked_at(store, found)
        except BaseException:
            # So that the next recover need not wait for it.
            with contextlib.suppress(CafcatError):
                self._copies.renew_lease(found.id, self._owner, 0)
            raise
        return self._adopt_or_abandon(store, found, why_not)

    def _looked_at(self, store: Store, found: WrittenObject) -> str | None:
        lease = Lease(partial(self._copies.renew_lease, found.id, self._owner, LEASE_SECONDS))
        try:
            return self._why_not(store, found)
        finally:
            lease.end()

    def _adopt_or_abandon(self, store: Store, found: WrittenObject, why_not: str | None) -> None:
        """A row that is not `writing` any more was settled by its writer, which lives after all, or another
        recover."""
        if why_not is None:
            try:
                self._copies.commit(found.id, None)
                return self._tell(found, "adopted")
            except Conflict as error:
                why_not = error.message
        try:
            self._copies.abandon(found.id)
        except Conflict:
            return None
        self._tell(found, "abandoned", why_not)
        return self._remove(store, found)

    def _why_not(self, store: Store, found: WrittenObject) -> str | None:
        """Why a copy cannot be adopted; None if it can. Reads all of it, once."""
        chunk = self._copies.chunk(found.id)
        if chunk.crc64nvme is None:
            return "the catalog has no checksum of its chunk"
        try:
            size_bytes = store.stat(found.object_key).size_bytes
        except NotFound as error:
            return error.message
        if size_bytes != chunk.size_bytes:
            return f"it has {size_bytes:,} bytes, its chunk has {chunk.size_bytes:,}"
        checksum = object_crc64nvme(store, found.object_key, size_bytes, self._advance)
        return None if to_base64(checksum) == chunk.crc64nvme else "its checksum is not that of its chunk"

    def _remove(self, store: Store, found: WrittenObject) -> None:
        """The upload first: while it is there, it can still become an object. Then nothing in that store is of the
        chunk: its journal record goes, too. An object is removed only if it is not the chunk by another name."""
        if self._dry_run:
            return
        chunk = self._copies.chunk(found.id)
        store.discard(found.object_key, found.upload_id)
        if has(store, found.object_key):
            self._places.prove(store, chunk.uuid, found.object_key)
            store.delete(found.object_key)
        with self._catalog.journal.exclusively(store.url):
            remove_journal(self._catalog.journal, store, chunk.id)
        self._copies.record_removed(found.id)

    def _tell(self, found: WrittenObject, outcome: str, reason: str | None = None) -> None:
        self._on_settled(RecoveredCopy(str(self._copies.chunk(found.id).uuid), found.store, outcome, reason))
