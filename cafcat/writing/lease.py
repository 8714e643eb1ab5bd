"""The lease of an object that is being written. A thread renews it once a minute, also while the writer waits."""

from threading import Event, Thread
from typing import Final, Protocol

from cafcat.errors import CafcatError, CatalogUnavailable

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS: Final = 900
"""How long a lease lasts, in seconds. A writer that has not renewed its lease for so long counts as dead."""
RENEW_SECONDS: Final = 60
"""Time between two renewals, in seconds."""


class Leases(Protocol):
    """The part of the catalog that has the leases of one kind of object: of chunks, copies or backups."""

    def renew_lease(self, row_id: int, owner: str, seconds: int, /) -> None:
        """Extend a lease: it ends `seconds` seconds from now.

        Args:
            row_id: Id of the object's row.
            owner: Owner of the lease.
            seconds: New length of the lease.

        Raises:
            Conflict: Another process has the lease, or the object is not being written any more.
        """


class Lease:
    """Renews the lease of one object that is being written, once a minute, in a thread.

    So the lease is also renewed during long listings and slow requests. A catalog that does not answer at the
    moment is no reason to abandon the object, because the lease lasts 15 minutes.
    """

    def __init__(self, leases: Leases, row_id: int, owner: str) -> None:
        """Start the thread that renews the lease. The first renewal is a minute later.

        Args:
            leases: Renews the lease in the catalog.
            row_id: Id of the object's row: of `chunks`, `chunk_copies` or `backups`.
            owner: Owner of the lease.
        """
        self._leases = leases
        self._row_id = row_id
        self._owner = owner
        self._ended = Event()
        self._error: CafcatError | None = None
        self._thread = Thread(target=self._renew, name="cafcat-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the last renewal, if the renewal failed for good; else do nothing.

        The error is Conflict if another process has the lease, or the object is not being written any more. If the
        catalog does not answer, nothing is raised: the renewal is tried again.
        """
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop renewing the lease, and wait for the end of the thread. The lease itself stays. Idempotent."""
        self._ended.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self._leases.renew_lease(self._row_id, self._owner, LEASE_SECONDS)
            except CatalogUnavailable:
                continue
            except CafcatError as error:
                self._error = error
                return
