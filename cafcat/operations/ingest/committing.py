"""Completes and commits a full chunk in a thread, while the packer fills the next chunk."""

from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.scanning.positions import PassedFiles
from cafcat.writing.chunk import FinishedChunk, OpenChunk

__all__ = ["ChunkInCommit"]

_CHECKPOINT_SECONDS: Final = 0.2


class _Aborted(Exception):
    """The ingest failed or was interrupted, so the chunk is not committed."""


class _Abort(Progress):
    """A Progress whose checkpoint raises once the ingest is aborted. It shows nothing."""

    def __init__(self) -> None:
        self.event = Event()

    def checkpoint(self) -> None:
        """Raise _Aborted if the ingest was aborted."""
        if self.event.is_set():
            raise _Aborted("the ingest was aborted")


class ChunkInCommit:
    """A full chunk that a thread completes and commits, with a connection of its own to the database if possible.

    Attributes:
        chunk: The chunk.
        passed: The positions of the listings to save when the chunk is committed.
    """

    def __init__(self, chunk: OpenChunk, catalog: Catalog, on_conflict: OnConflict, passed: PassedFiles) -> None:
        """Start the thread.

        Args:
            chunk: The chunk. No file is added to it any more.
            catalog: The catalog. The thread opens another connection to its database.
            on_conflict: Action of the commit for a path that another process entered into the catalog meanwhile.
            passed: The positions of the listings to save when the chunk is committed.
        """
        chunk.end_adding()
        self.chunk = chunk
        self.passed = passed
        self._catalog = catalog
        self._on_conflict = on_conflict
        self._abort = _Abort()
        executor = ThreadPoolExecutor(1, "cafcat-commit")
        self._finished = executor.submit(self._finish)
        executor.shutdown(wait=False)  # the thread ends after this chunk

    def _finish(self) -> FinishedChunk:
        with self._catalog.second_connection() as catalog:
            return self.chunk.finish(self._on_conflict, self._abort, catalog)

    @property
    def is_done(self) -> bool:
        """True if `result` returns or raises at once."""
        return self._finished.done()

    def wait(self, progress: Progress) -> None:
        """Wait until `is_done`. Call the checkpoint of `progress` meanwhile, and raise its errors."""
        while not self.is_done:
            wait([self._finished], _CHECKPOINT_SECONDS)
            progress.checkpoint()

    def result(self) -> FinishedChunk:
        """Return the committed chunk, once `is_done`. Raises the errors of `BegunChunk.finish`."""
        return self._finished.result()

    def abort(self) -> None:
        """Abandon the chunk if its commit has not begun, and wait for the end of the thread."""
        self._abort.event.set()
        self._finished.exception()
