"""Small files of a server, read in ranges of several files while programs read them in order."""

import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.checksums import crc32c_of

__all__ = ["KnownEnds", "SmallFiles"]

_GAP_BYTES: Final = 64 << 10
"""Most bytes between two files that are read one after the other."""
_FIRST_WINDOW: Final = 256 << 10
"""Bytes of the first range."""
_MOST_WINDOW: Final = 4 << 20
"""Most bytes of a range."""
_OBJECTS: Final = 4
"""Number of objects whose last ranges are in memory: at most two ranges of each."""
_ALONE_SECONDS: Final = 300.0
"""How long the files of an object are read one by one after a range could not be read, in seconds."""
_MOST_OBJECTS: Final = 10_000
"""Largest number of objects about which something is remembered."""

_Key = tuple[str, str]
"""URL of a store, and key of an object."""


class KnownEnds:
    """How long objects are at least: the ends of the files that were listed. Threads may share this object."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ends: dict[_Key, int] = {}

    def add(self, locations: Iterable[Location]) -> None:
        """Remember the ends of these files."""
        with self._lock:
            if len(self._ends) > _MOST_OBJECTS:
                self._ends.clear()
            for location in locations:
                key = location.store, location.object_key
                if location.end_byte > self._ends.get(key, 0):
                    self._ends[key] = location.end_byte

    def of(self, location: Location) -> int:
        """Return the last known end of the object that has a file."""
        return max(location.end_byte, self._ends.get((location.store, location.object_key), 0))


@dataclass(slots=True, eq=False)
class _Window:
    """A range of an object, whose bytes arrive later. They are None if the range cannot be read."""

    start: int
    end: int
    data: Future[bytes | None] = field(default_factory=Future)

    def has(self, location: Location) -> bool:
        return self.start <= location.start_byte and location.end_byte <= self.end


@dataclass(slots=True)
class _Order:
    """How an object was read last: from where to where, the size of the last range, and the last ranges."""

    start: int
    end: int
    window_bytes: int = 0
    windows: deque[_Window] = field(default_factory=lambda: deque(maxlen=2))

    def continues(self, location: Location) -> bool:
        """Return True if a file is among those that were read, or the next one."""
        return self.start <= location.start_byte <= self.end + _GAP_BYTES

    def extend(self, location: Location, known_end: int) -> _Window:
        """Return a new range that begins with a file."""
        self.window_bytes = min(2 * self.window_bytes, _MOST_WINDOW) or _FIRST_WINDOW
        end = min(location.start_byte + self.window_bytes, known_end)
        window = _Window(location.start_byte, max(location.end_byte, end))
        self.windows.append(window)
        self.start, self.end = self.windows[0].start, window.end
        return window


class SmallFiles:
    """Reads files of at most 1 MiB as a whole. Threads may share this object.

    If files of an object of a server are read in the order in which they are packed, one request returns the bytes
    of the next files, too: up to 256 KiB, then twice as many as before, up to 4 MiB. Every file is compared with
    its checksum. A file that is damaged there, or whose range cannot be read, is read on its own.
    """

    def __init__(self, reader: FileReader, ends: KnownEnds) -> None:
        """Create the object. This reads nothing yet.

        Args:
            reader: Reads single files, and has the stores.
            ends: Ends of the listed files. Nothing behind the last one of an object is read.
        """
        self._reader = reader
        self._ends = ends
        self._lock = Lock()
        self._orders: OrderedDict[_Key, _Order] = OrderedDict()
        self._alone_until: dict[_Key, float] = {}

    def read(self, location: Location) -> bytes:
        """Return the bytes of a file.

        Raises:
            CafcatError: As FileReader.read raises it.
        """
        if location.decoding is None and self._reader.stores[location.store].is_remote:
            data = self._from_window(location)
            if data is not None and crc32c_of(data) == location.crc32c:
                return data
        return self._reader.read(ReadRequest.of(location.path, location))

    def _from_window(self, location: Location) -> bytes | None:
        """Return the unchecked bytes of a file from a range of several files; None if it is read on its own."""
        with self._lock:
            window, is_new = self._window(location)
        if window is None:
            return None
        if is_new:
            self._fill(window, location)
        data = window.data.result()
        start = location.start_byte - window.start
        return None if data is None else data[start : start + location.end_byte - location.start_byte]

    def _window(self, location: Location) -> tuple[_Window | None, bool]:
        """Return the range that has a file, and whether it has to be read; None if the file is read on its own."""
        key = location.store, location.object_key
        if time.monotonic() < self._alone_until.get(key, 0.0):
            return None, False
        order = self._orders.get(key)
        if order is None or not order.continues(location):
            self._orders[key] = _Order(location.start_byte, location.end_byte)
            self._orders.move_to_end(key)
            if len(self._orders) > _OBJECTS:
                self._orders.popitem(last=False)
            return None, False
        self._orders.move_to_end(key)
        for window in order.windows:
            if window.has(location):
                return window, False
        return order.extend(location, self._ends.of(location)), True

    def _fill(self, window: _Window, location: Location) -> None:
        """Read a range. Other threads wait for its bytes."""
        data = None
        try:
            data = self._reader.stores[location.store].read(location.object_key, window.start, window.end)
        except CafcatError:
            with self._lock:
                if len(self._alone_until) > _MOST_OBJECTS:
                    self._alone_until.clear()
                self._alone_until[location.store, location.object_key] = time.monotonic() + _ALONE_SECONDS
        finally:
            window.data.set_result(data)
