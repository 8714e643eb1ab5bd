"""Reads packed files for asyncio programs. The read engine runs in threads."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Final, NamedTuple

from cafcat.errors import CafcatError, Conflict, InvalidInput
from cafcat.reading.batch import Batch
from cafcat.reading.plan import PLANNED_FILES, in_read_order, range_reads
from cafcat.reading.reader import FILE_ERRORS, FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.forking import keep_open, renew_after_fork

__all__ = ["AsyncReader"]

_THREADS: Final = 8
"""Most batches that are read at the same time. Each reads a server with many requests in flight of its own."""
_STEP_FILES: Final = 64
_STEP_BYTES: Final = 4 << 20
"""Most files, and about the most bytes, that `read_many` reads in a thread before it yields them."""

Outcome = tuple[str, bytes | CafcatError]
"""A path as the caller gave it, and the bytes of its file or the error of reading the file."""


class _Waiting(NamedTuple):
    """A call of `AsyncReader.read` that waits for its result."""

    path: str
    start: int
    end: int | None
    future: asyncio.Future[bytes]


class AsyncReader:
    """Reads files without blocking the event loop. Several event loops may use it.

    All calls of `read` that are made before the event loop runs on form one batch: the files are found with one
    query, and near files share a request. So `asyncio.gather` over many calls is as fast as `read_many`.
    """

    def __init__(self, reader: FileReader) -> None:
        """Create a reader. Threads are started by the first call.

        Args:
            reader: Finds and reads the files.
        """
        self._reader = reader
        self._start()
        renew_after_fork(self)

    def _start(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-async")

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them, as `PackedFiles.read` does. Raises its errors."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._begin, loop)
        waiting.append(_Waiting(path, start, end, future))
        return await future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read the files for which calls are waiting, in a thread."""
        waiting = self._waiting.pop(loop)
        for n in range(0, len(waiting), PLANNED_FILES):
            self._pool.submit(self._read_batch, loop, waiting[n : n + PLANNED_FILES])

    def _read_batch(self, loop: asyncio.AbstractEventLoop, waiting: Sequence[_Waiting]) -> None:
        """Read the files of a batch, and give each waiting call its bytes or its error as soon as there is one."""
        left = set(range(len(waiting)))

        def settle(number: int, result: bytes | BaseException) -> None:
            left.discard(number)
            loop.call_soon_threadsafe(_set, waiting[number].future, result)

        try:
            for number, result in _outcomes(self._reader, waiting):
                settle(number, result)
        except BaseException as error:  # noqa: BLE001 - each call that is left raises it
            for number in sorted(left):
                settle(number, error)

    async def read_many(self, paths: Iterable[str], start: int, end: int | None) -> AsyncGenerator[Outcome, None]:
        """Yield what `Batch.read` yields. The files are read in a thread while the caller waits."""
        loop = asyncio.get_running_loop()
        files = Batch(self._reader, start, end).read(paths)
        try:
            while outcomes := await loop.run_in_executor(self._pool, _step, files):
                for outcome in outcomes:
                    yield outcome
        finally:
            await loop.run_in_executor(self._pool, files.close)

    def close(self) -> None:
        """End the threads when their work is done. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def after_fork(self) -> None:
        """Forget the threads in a forked process: only the parent process has them."""
        keep_open(self._pool)
        self._start()


def _outcomes(
    reader: FileReader, waiting: Sequence[_Waiting]
) -> Generator[tuple[int, bytes | CafcatError], None, None]:
    """Yield the number of each waiting call with its bytes or its error: failed look-ups first, then as read.

    Raises:
        AccessDenied, Unavailable, CatalogUnavailable, CatalogOutdated: The error concerns all calls that are left.
    """
    locations = reader.locate_many([call.path for call in waiting])
    requests: list[ReadRequest] = []
    numbers: dict[int, int] = {}
    for number, call in enumerate(waiting):
        location = locations[call.path]
        if isinstance(location, CafcatError):
            yield number, location
            continue
        try:
            requests.append(ReadRequest.of(call.path, location, call.start, call.end))
            numbers[id(requests[-1])] = number
        except InvalidInput as error:
            yield number, error
    with closing(reader.files(range_reads(in_read_order(requests), reader.stores))) as files:
        for request, blocks in files:
            try:
                yield numbers[id(request)], reader.save(request, blocks, b"".join)
            except (Conflict, *FILE_ERRORS) as error:
                yield numbers[id(request)], error


def _set(future: asyncio.Future[bytes], result: bytes | BaseException) -> None:
    if future.done():  # the caller has cancelled the call
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _step(files: Generator[Outcome, None, None]) -> list[Outcome]:
    """Return the next outcomes of a batch: at most 64, and about 4 MiB; an empty list at its end."""
    found: list[Outcome] = []
    size_bytes = 0
    for outcome in islice(files, _STEP_FILES):
        found.append(outcome)
        size_bytes += len(outcome[1]) if isinstance(outcome[1], bytes) else 0
        if size_bytes >= _STEP_BYTES:
            break
    return found
