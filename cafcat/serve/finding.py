"""Finds files for many requests at once: requests that come while a query runs share the next one."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from cafcat.catalog.files.lookup import Lookup
from cafcat.errors import CafcatError
from cafcat.model import LOOKED_UP_PATHS, Location
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest

__all__ = ["Finder", "Found", "Receiver"]

_SMALL_BYTES: Final = 64 << 10
"""A file of a folder up to this size, in bytes, is read by the thread that found it: another thread would cost more
than the read."""
_WARM_SECONDS: Final = 0.005
"""How long the files of one query may be read by this thread. If the disk is slower, other threads read the rest,
at the same time."""


class Found(NamedTuple):
    """A file or folder of the catalog, or neither, that was found for a name.

    Attributes:
        location: Where the file is; None if there is no such file.
        is_folder: True if there is no such file, but a folder of this name.
        data: All bytes of the file, or the error of reading them. None if they were not read.
    """

    location: Location | None
    is_folder: bool = False
    data: bytes | CafcatError | None = None


class Receiver(Protocol):
    """Gets the result of a look-up in the event loop, as a future does."""

    def done(self) -> bool:
        """Return True if the result is not needed any more."""

    def set_result(self, found: Found, /) -> None:
        """Receive the result of the look-up."""

    def set_exception(self, error: BaseException, /) -> None:
        """Receive the error of the catalog."""


class _Waiting(NamedTuple):
    """A request that waits for the next query.

    Attributes:
        path: The name of the file.
        reads: True if the request needs the bytes of the whole file.
        receiver: Gets the result.
    """

    path: str
    reads: bool
    receiver: Receiver


class Finder:
    """Finds files by name, and reads small ones. One query is in flight at a time; it serves up to 1,000 requests.

    Under load, a query, two changes of threads and a wake-up of the event loop are shared by many requests. A
    single request waits for nothing.
    """

    def __init__(self, files: Lookup, reader: FileReader) -> None:
        """Create a finder for one event loop. Its thread is started by the first request.

        Args:
            files: Finds files and folders in the catalog.
            reader: Reads small files.
        """
        self._files = files
        self._reader = reader
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cafcat-find")
        self._waiting: list[_Waiting] = []
        self._is_busy = False

    def find(self, path: str, *, reads: bool = False) -> asyncio.Future[Found]:
        """Return a future for the file or folder with a name.

        Args:
            path: The name, which is compared as it is.
            reads: True to read the file, too, if that is cheap.

        Returns:
            The future. It raises CatalogUnavailable and the other errors of the catalog.
        """
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self.ask(path, future, reads=reads)
        return future

    def ask(self, path: str, receiver: Receiver, *, reads: bool) -> None:
        """Find a file for a receiver, as `find` does for a future."""
        self._waiting.append(_Waiting(path, reads, receiver))
        if not self._is_busy:
            self._is_busy = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        group, self._waiting = self._waiting[:LOOKED_UP_PATHS], self._waiting[LOOKED_UP_PATHS:]
        self._pool.submit(self._serve, loop, group)

    def _serve(self, loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting]) -> None:
        """Find the files of a group, in the thread of this finder."""
        results: Sequence[Found] | BaseException
        try:
            results = self._look_up(group)
        except BaseException as error:  # noqa: BLE001 - each request of the group raises it
            results = error
        loop.call_soon_threadsafe(self._settle, loop, group, results)

    def _settle(
        self, loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting], results: Sequence[Found] | BaseException
    ) -> None:
        if self._waiting:
            self._begin(loop)
        else:
            self._is_busy = False
        for n, waiting in enumerate(group):
            if waiting.receiver.done():  # the request was cancelled
                continue
            if isinstance(results, BaseException):
                waiting.receiver.set_exception(results)
            else:
                waiting.receiver.set_result(results[n])

    def _look_up(self, group: Sequence[_Waiting]) -> list[Found]:
        paths = {waiting.path for waiting in group}
        locations = self._files.locate_many(paths)
        missing = paths - locations.keys()
        folders = self._files.folders_among({path for path in missing if path}) if missing else set()
        until = time.monotonic() + _WARM_SECONDS
        found: list[Found] = []
        for path, reads, _ in group:
            location = locations.get(path)
            data = None
            if location is not None and reads and self._is_cheap(location) and time.monotonic() < until:
                data = self._read(path, location)
            found.append(Found(location, path in folders, data))
        return found

    def _is_cheap(self, location: Location) -> bool:
        """Return True if the file is small, need not be decoded, and is in a folder of this machine."""
        if location.end_byte - location.start_byte > _SMALL_BYTES or location.decoding is not None:
            return False
        try:
            return not self._reader.stores[location.store].is_remote
        except CafcatError:
            return False  # the store cannot be opened: reading the file raises the error

    def _read(self, path: str, location: Location) -> bytes | CafcatError:
        try:
            return self._reader.read(ReadRequest.of(path, location))
        except CafcatError as error:
            return error

    def close(self) -> None:
        """End the thread when its query is done. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
