"""The lease of a chunk that is being written: renewed by a thread, whatever its writer is waiting for."""

from threading import Event, Thread
from typing import Final

from cafcat.catalog.chunks import Chunks
from cafcat.errors import CafcatError, CatalogUnavailable

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS: Final = 900
"""A writer that has not been heard of for so long is taken for dead."""
RENEW_SECONDS: Final = 60


class Lease:
    """Tells the catalog once a minute that the writer lives: through long listings, slow servers and large
    completions. A catalog that does not answer right now is no reason to give up what was packed: the lease is
    long."""

    def __init__(self, chunks: Chunks, chunk_id: int) -> None:
        self._chunks = chunks
        self._chunk_id = chunk_id
        self._ended = Event()
        self._lost: CafcatError | None = None
        self._thread = Thread(target=self._renew, name="cafcat-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises Conflict if the chunk was taken from us."""
        if self._lost is not None:
            raise self._lost

    def end(self) -> None:
        """Nothing more is said. Idempotent."""
        self._ended.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self._chunks.renew_lease(self._chunk_id, LEASE_SECONDS)
            except CatalogUnavailable:
                continue
            except CafcatError as error:
                self._lost = error
                return
