"""The lease of an object that is being written. A thread renews it while the writer waits for something else."""

from threading import Event, Thread
from typing import Final, Protocol

from cafcat.errors import CafcatError, CatalogUnavailable

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS: Final = 900
"""A writer that has not renewed its lease for so long counts as dead."""
RENEW_SECONDS: Final = 60
"""Time between two renewals, in seconds."""


class Leases(Protocol):
    """The part of the catalog that has the leases of one kind of object."""

    def renew_lease(self, row_id: int, owner: str, seconds: int, /) -> None:
        """Extend a lease. Raises Conflict if another process has it."""


class Lease:
    """Renews a lease once a minute, also during long listings, slow requests and large completions.

    A catalog that does not answer at the moment is no reason to abandon the object: the lease lasts 15 minutes.
    """

    def __init__(self, leases: Leases, row_id: int, owner: str) -> None:
        """Start the thread.

        Args:
            leases: Where the lease is renewed.
            row_id: Row of the object.
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
        """Raise Conflict if another process has the lease now."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop renewing the lease, and wait for the thread. Idempotent."""
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
