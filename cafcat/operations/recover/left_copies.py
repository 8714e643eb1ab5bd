"""Recovers copies whose writer died: complete copies are adopted, and all others are removed.

The row in the catalog is changed first, as with chunks. A copy is complete if it has the checksum of its chunk.
"""

import contextlib
from collections import Counter

from cafcat.catalog.chunks.objects import LeftoverObject
from cafcat.errors import CafcatError, Conflict, NotFound
from cafcat.events import CopyRecovered, RecoverOutcome
from cafcat.operations.object_bytes import object_crc64nvme
from cafcat.operations.other_replicas import OtherReplicas
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.support.checksums import to_base64
from cafcat.writing.journal import remove_journal
from cafcat.writing.lease import LEASE_SECONDS, Lease

__all__ = ["LeftCopies"]


class LeftCopies:
    """Adopts or removes the copies whose writers died, for `recover`."""

    def __init__(
        self, session: Session, stores: ReachableStores, owner: str, counts: Counter[str], *, dry_run: bool
    ) -> None:
        """Prepare the recovery of copies.

        Args:
            session: The session.
            stores: The stores of the recover.
            owner: Name of this process as the owner of leases.
            counts: Receives the numbers of adopted and removed copies.
            dry_run: Report the actions, and change nothing.
        """
        self._session = session
        self._catalog = session.catalog
        self._copies = session.catalog.copies
        self._replicas = OtherReplicas(session.catalog, stores)
        self._owner = owner
        self._counts = counts
        self._dry_run = dry_run

    def clean(self, store: Store, copy: LeftoverObject) -> None:
        """Remove upload, object and journal record of an abandoned or deleted copy, and report that.

        With `dry_run`, only report the action.

        Raises:
            InvalidInput, Conflict: The object is the chunk's own object, or a copy that is needed.
            Unavailable, AccessDenied: A store failed, or it cannot be found out whether two stores are one place.
        """
        self._remove(store, copy)
        self._report(copy, RecoverOutcome.CLEANED)

    def recover(self, store: Store, copy: LeftoverObject) -> None:
        """Commit the row of a copy whose object is complete; abandon and remove any other copy of a dead writer.

        With `dry_run`, only report the action. If another process has acquired the lease, do nothing.
        """
        if self._dry_run:
            why_not = self._why_incomplete(store, copy)
            outcome = RecoverOutcome.ABANDONED if why_not else RecoverOutcome.ADOPTED
            return self._report(copy, outcome, why_not)
        if not self._copies.acquire(copy, self._owner, LEASE_SECONDS):
            return None
        try:
            why_not = self._check_under_lease(store, copy)
        except BaseException:
            # The next recover need not wait for the end of the lease.
            with contextlib.suppress(CafcatError):
                self._copies.renew_lease(copy.id, self._owner, 0)
            raise
        return self._adopt_or_abandon(store, copy, why_not)

    def _check_under_lease(self, store: Store, copy: LeftoverObject) -> str | None:
        lease = Lease(self._copies, copy.id, self._owner)
        try:
            return self._why_incomplete(store, copy)
        finally:
            lease.end()

    def _adopt_or_abandon(self, store: Store, copy: LeftoverObject, why_not: str | None) -> None:
        """Commit the row of a copy, or set it to `abandoned` and remove the object.

        Do nothing if another recover, or the writer itself, has changed the row meanwhile.

        Args:
            store: The store of the copy.
            copy: The copy.
            why_not: Why the copy cannot be adopted; None for a complete copy.
        """
        if why_not is None:
            try:
                self._copies.commit(copy.id, None)
                return self._report(copy, RecoverOutcome.ADOPTED)
            except Conflict as error:
                why_not = error.message
        try:
            self._copies.abandon(copy.id)
        except Conflict:
            return None
        self._report(copy, RecoverOutcome.ABANDONED, why_not)
        return self._remove(store, copy)

    def _why_incomplete(self, store: Store, copy: LeftoverObject) -> str | None:
        """Read a copy at most once. Return the reason why it cannot be adopted; None for a complete copy."""
        chunk = self._copies.chunk(copy.id)
        if chunk.crc64nvme is None:
            return "the catalog has no checksum of the chunk"
        try:
            size_bytes = store.stat(copy.object_key).size_bytes
        except NotFound as error:
            return error.message
        if size_bytes != chunk.size_bytes:
            return f"the copy has {size_bytes:,} bytes, but the chunk has {chunk.size_bytes:,}"
        checksum = object_crc64nvme(store, copy.object_key, size_bytes, self._session.progress)
        return (
            None if to_base64(checksum) == chunk.crc64nvme else "the checksum of the copy is not that of the chunk"
        )

    def _remove(self, store: Store, copy: LeftoverObject) -> None:
        """Remove upload, object and journal record of an abandoned or deleted copy, except with `dry_run`.

        The upload is aborted first: until then, a late request can complete it to an object. The object is removed
        only if it is not the chunk's own object under another name.
        """
        if self._dry_run:
            return
        chunk = self._copies.chunk(copy.id)
        store.discard(copy.object_key, copy.upload_id)
        if has(store, copy.object_key):
            self._replicas.prove(store, chunk.uuid, copy.object_key)
            store.delete(copy.object_key)
        remove_journal(self._catalog.journal, store, chunk.id)
        self._copies.record_removed(copy.id)

    def _report(self, copy: LeftoverObject, outcome: RecoverOutcome, reason: str | None = None) -> None:
        self._counts["copies_adopted" if outcome is RecoverOutcome.ADOPTED else "copies_removed"] += 1
        uuid = str(self._copies.chunk(copy.id).uuid)
        self._session.emit(CopyRecovered(uuid, copy.store, outcome, reason))
