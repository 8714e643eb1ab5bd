"""The packed files and folders that programs have open below a mount."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from threading import Lock
from typing import Final

from cafcat.errors import Corrupt
from cafcat.model import Location
from cafcat.mount.folders import Folders, Item
from cafcat.mount.pages import Page
from cafcat.mount.reading_ahead import KnownEnds, SmallFiles
from cafcat.reading.packed_file import CHECKED_BYTES, PackedFile
from cafcat.reading.reader import FileReader

__all__ = ["WITHOUT_ATTRIBUTES_FROM", "OpenFile", "OpenFiles", "OpenFolder"]

_MOST_DAMAGED: Final = 10_000
"""Largest number of damaged files that are remembered."""
_INDEX_BITS: Final = 20
"""The offset of an entry in an open folder is the number of its page, shifted by this, plus its number in the page.
A page has fewer than 2**20 entries."""
WITHOUT_ATTRIBUTES_FROM: Final = 10 << _INDEX_BITS
"""From this offset of an open folder on, entries are listed without attributes: that is after ten pages. The
operating system would need memory for each of them, and would have forgotten the first attributes before a program
uses them."""


class OpenFile:
    """A packed file that a program has open. Threads may read it at the same time; they wait for each other.

    A file of at most 1 MiB is read at the first use, compared with its checksum, and in memory until it is closed.

    Attributes:
        location: Where the file is packed.
    """

    __slots__ = ("_data", "_file", "_lock", "_reader", "_small", "location")

    def __init__(self, reader: FileReader, small: SmallFiles, location: Location) -> None:
        self.location = location
        self._reader = reader
        self._small = small
        self._data: bytes | None = None
        self._file: PackedFile | None = None
        self._lock = Lock()

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file from an offset on; fewer at its end. Raises the errors of PackedFile."""
        with self._lock:
            if self.location.size_bytes > CHECKED_BYTES:
                return self._read_large(offset, size)
            if self._data is None:
                self._data = self._small.read(self.location)
            data = self._data
            return data if offset == 0 and size >= len(data) else data[offset : offset + size]

    def _read_large(self, offset: int, size: int) -> bytes:
        if self._file is None:
            self._file = PackedFile(self._reader, self.location.path, self.location)
        self._file.seek(offset)
        data = self._file.read(size) or b""
        if len(data) == size or not data:
            return data
        blocks = [data]
        while size > (got := sum(map(len, blocks))) and (block := self._file.read(size - got)):
            blocks.append(block)
        return b"".join(blocks)

    def close(self) -> None:
        """Close the file, and free its memory."""
        with self._lock:
            self._data = None
            if self._file is not None:
                self._file.close()


class OpenFiles:
    """All open files of a mount, by their handles.

    While a path is open, every further program that opens it gets the same version of the file, although an ingest
    may have replaced it. The operating system has one cache for all who have a file open: with two versions, it
    could mix their bytes.

    A file that proved to be damaged once cannot be read any more. The operating system repeats a failed read, and
    has bytes of the file in its cache: without this rule, the damage of a large file would be noticed only once.
    """

    def __init__(self, reader: FileReader, ends: KnownEnds) -> None:
        """Create the object, without open files.

        Args:
            reader: Reads the files.
            ends: Ends of the listed files, for reading ahead.
        """
        self._reader = reader
        self._small = SmallFiles(reader, ends)
        self._lock = Lock()
        self._handles = itertools.count(1)
        self._files: dict[int, OpenFile] = {}
        self._versions: dict[str, tuple[Location, int]] = {}
        self._damaged: dict[Location, Corrupt] = {}

    def open(self, location: Location) -> int:
        """Open a file, and return its handle.

        Args:
            location: Where the file is now. Ignored if the path is open: then the version that is open is opened.
        """
        with self._lock:
            version, count = self._versions.get(location.path, (location, 0))
            self._versions[location.path] = (version, count + 1)
            handle = next(self._handles)
            self._files[handle] = OpenFile(self._reader, self._small, version)
            return handle

    def version(self, path: str) -> Location | None:
        """Return the location of the version of a path that is open; None if the path is not open."""
        version = self._versions.get(path)
        return None if version is None else version[0]

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return `size` bytes of an open file from an offset on; fewer at its end.

        Raises:
            Corrupt: The file is damaged, or proved to be damaged before.
            CafcatError: The file cannot be read, as `PackedFiles.read` raises it.
        """
        file = self._files[handle]
        if self._damaged and (error := self._damaged.get(file.location)) is not None:
            raise error
        try:
            return file.read(offset, size)
        except Corrupt as error:
            with self._lock:
                if len(self._damaged) >= _MOST_DAMAGED:
                    self._damaged.clear()
                self._damaged[file.location] = error
            raise

    def close(self, handle: int) -> None:
        """Close a file. An unknown handle is ignored."""
        with self._lock:
            file = self._files.pop(handle, None)
            if file is None:
                return
            version, count = self._versions[file.location.path]
            if count > 1:
                self._versions[file.location.path] = (version, count - 1)
            else:
                del self._versions[file.location.path]
        file.close()


class OpenFolder:
    """A folder that a program lists. Each entry has an offset, from which the listing can continue."""

    def __init__(self, folders: Folders, folder: str) -> None:
        """Begin a listing. No query is sent yet.

        Args:
            folders: Lists the folder.
            folder: A folder that ends in "/"; "" for the top.
        """
        self._folders = folders
        self._folder = folder
        self._starts: list[Item | None] = [None]
        """Entry after which each page begins, as far as the listing came."""
        self._page: Page | None = None
        self._entries: list[tuple[str, Item]] = []
        """The page that was read last, and its entries."""

    def entries(self, offset: int) -> Iterator[tuple[str, Item, int]]:
        """Yield the name of each entry, the entry, and the offset of the next entry.

        If the catalog changes meanwhile, an entry that exists all the time is yielded once.

        Args:
            offset: 0, or an offset that this method yielded.
        """
        number, first = offset >> _INDEX_BITS, offset & ((1 << _INDEX_BITS) - 1)
        passed = self._entries[first - 1][1].path if 0 < first <= len(self._entries) else ""
        while number < len(self._starts):
            if self._is_new_page(number) and passed:
                first = bisect_right(self._entries, passed, key=lambda entry: entry[1].path)
            for index in range(first, len(self._entries)):
                name, item = self._entries[index]
                passed = item.path
                yield name, item, number << _INDEX_BITS | index + 1
            number, first = number + 1, 0

    def _is_new_page(self, number: int) -> bool:
        """Read a page, and return False if it is the one that was read last."""
        page = self._folders.page(self._folder, self._starts[number])
        if page is self._page:
            return False
        while (items := page.items) is None:  # another thread has freed them meanwhile
            page = self._folders.page(self._folder, self._starts[number])
        self._page, self._entries = page, list(items.items())
        if page.last is None:
            del self._starts[number + 1 :]
        else:
            self._starts[number + 1 : number + 2] = [page.last]
        return True
