"""Sorts the entries of an archive by their byte offset, on disk if there are many."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.model import Entry
from cafcat.support.sorting import ExternalSort

__all__ = ["EntriesByOffset"]

_RECORD: Final = struct.Struct(">QQQBIqQI")
"""Start, end and position in the index are the sort key. Then follow bits for the fields that are present
(checksum, time, content size), these three fields, and the size of the decoding in bytes. Decoding and path come
last."""
_HAS_CHECKSUM, _HAS_TIME, _HAS_CONTENT = 1, 2, 4


class EntriesByOffset:
    """The entries of an archive, sorted by start byte, end byte and position in the index.

    They can be iterated several times, until `close`. Entries with the same path are all kept.

    Memory: that of ExternalSort.

    Attributes:
        count: number of entries.
        size_bytes: total size of the content of all entries in bytes.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Read all entries.

        Args:
            entries: the entries in the order of the archive's index.

        Raises:
            TemporaryFileFailed: the temporary file cannot be written. Errors of `entries` pass through.
        """
        self._sort = ExternalSort("a list of files")
        self.count = self.size_bytes = 0
        for entry in entries:
            self._sort.add(_packed(entry, self.count))
            self.count += 1
            self.size_bytes += entry.size_bytes

    def __iter__(self) -> Iterator[Entry]:
        """Return an iterator over the sorted entries.

        Raises:
            TemporaryFileFailed: the temporary file cannot be read.
        """
        return map(_unpacked, self._sort)

    def close(self) -> None:
        """Remove the temporary file of the sorted entries. Further calls of `close` do nothing."""
        self._sort.close()


def _packed(entry: Entry, number: int) -> bytes:
    path, start, end, checksum, time, content_bytes, decoding = entry
    present = _HAS_CHECKSUM * (checksum is not None) + _HAS_TIME * (time is not None)
    present += _HAS_CONTENT * (content_bytes is not None)
    text = (decoding or "").encode()
    head = _RECORD.pack(start, end, number, present, checksum or 0, time or 0, content_bytes or 0, len(text))
    return head + text + path.encode(errors="surrogatepass")


def _unpacked(record: bytes) -> Entry:
    start, end, _, present, checksum, time, content_bytes, decoding_bytes = _RECORD.unpack_from(record)
    path_start = _RECORD.size + decoding_bytes
    return Entry(
        record[path_start:].decode(errors="surrogatepass"),
        start,
        end,
        checksum if present & _HAS_CHECKSUM else None,
        time if present & _HAS_TIME else None,
        content_bytes if present & _HAS_CONTENT else None,
        record[_RECORD.size : path_start].decode() or None,
    )
