"""What all requests of one process share: repository, finder, threads and limits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from cafcat.packed_files import PackedFiles
from cafcat.progress import Progress
from cafcat.serve.finding import Finder
from cafcat.serve.options import ServeOptions

__all__ = ["Serving"]

_THREADS: Final = 64
"""Most reads at the same time: as many as requests that one process keeps in flight to a server of a store."""


class Serving:
    """Repository, finder, threads and limits of one process.

    Attributes:
        repository: Has catalog and stores.
        options: How files are served.
        reader: Reads files.
        finder: Finds files in the catalog.
        pool: Threads that read files and query the catalog.
        batch_pool: Threads of the batches, so that these cannot occupy the others.
        batches: Limits the number of batches that are read at the same time.
    """

    def __init__(self, repository: PackedFiles, options: ServeOptions, warnings: Progress) -> None:
        """Create the objects. Threads and connections are made by the first request.

        Args:
            repository: Has catalog and stores.
            options: How files are served.
            warnings: Receives warnings that copies are read.
        """
        session = repository.session
        self.repository = repository
        self.options = options
        self.reader = session.reader(warnings)
        self.finder = Finder(session.catalog.reading.files, self.reader)
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-serve")
        self.batch_pool = ThreadPoolExecutor(options.batches, thread_name_prefix="cafcat-batch")
        self.batches = asyncio.Semaphore(options.batches)
        self._cleanup = ExitStack()

    def call_at_end(self, function: Callable[[], object]) -> None:
        """Call a function when this object is closed."""
        self._cleanup.callback(function)

    def close(self) -> None:
        """End the threads when their work is done. Idempotent. The caller closes the repository."""
        self._cleanup.close()
        self.finder.close()
        for pool in (self.pool, self.batch_pool):
            pool.shutdown(wait=False, cancel_futures=True)
