"""The lease of an object that is being written: renewed by a thread, whatever its writer is waiting for."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from cafcat.errors import CafcatError, CatalogUnavailable

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS: Final = 900
"""A writer that has not been heard of for so long is taken for dead."""
RENEW_SECONDS: Final = 60


class Lease:
    """Tells the catalog once a minute that the writer lives: through long listings, slow servers and large
    completions. A catalog that does not answer right now is no reason to give up what was packed: the lease is
    long."""

    def __init__(self, renew: Callable[[], object]) -> None:
        """`renew` makes the lease end LEASE_SECONDS from now; it raises Conflict if somebody else has it."""
        self._renew_once = renew
        self._ended = Event()
        self._lost: CafcatError | None = None
        self._thread = Thread(target=self._renew, name="cafcat-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises Conflict if the object was taken from us."""
        if self._lost is not None:
            raise self._lost

    def end(self) -> None:
        """Nothing more is said. Idempotent."""
        self._ended.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self._renew_once()
            except CatalogUnavailable:
                continue
            except CafcatError as error:
                self._lost = error
                return
