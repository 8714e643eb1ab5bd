"""The entries of an archive in the order of their bytes, in bounded memory."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.model import Entry
from cafcat.support.sorting import ExternalSort

__all__ = ["EntriesByOffset"]

_RECORD: Final = struct.Struct(">QQQBIqQI")
"""Start, end, number in the index: what they are sorted by. Then which of checksum, time and content are there,
these three, and bytes of the decoding; decoding and path follow."""
_HAS_CHECKSUM, _HAS_TIME, _HAS_CONTENT = 1, 2, 4


class EntriesByOffset:
    """Entries by start and end; those of one place in the order in which they came. They are given as often as
    asked.

    count, size_bytes: of all files. Memory: that of ExternalSort.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Takes all of them. Raises what going through them raises, and TemporaryFileFailed."""
        self._sort = ExternalSort("a list of files")
        self.count = self.size_bytes = 0
        for entry in entries:
            self._sort.add(_packed(entry, self.count))
            self.count += 1
            self.size_bytes += entry.size_bytes

    def __iter__(self) -> Iterator[Entry]:
        """Raises TemporaryFileFailed."""
        return map(_unpacked, self._sort)

    def close(self) -> None:
        """Frees the temporary file. Idempotent."""
        self._sort.close()


def _packed(entry: Entry, number: int) -> bytes:
    path, start, end, checksum, time, content_bytes, decoding = entry
    marks = _HAS_CHECKSUM * (checksum is not None) + _HAS_TIME * (time is not None)
    marks += _HAS_CONTENT * (content_bytes is not None)
    word = (decoding or "").encode()
    head = _RECORD.pack(start, end, number, marks, checksum or 0, time or 0, content_bytes or 0, len(word))
    return head + word + path.encode(errors="surrogatepass")


def _unpacked(record: bytes) -> Entry:
    start, end, _, marks, checksum, time, content_bytes, word_bytes = _RECORD.unpack_from(record)
    path_at = _RECORD.size + word_bytes
    return Entry(
        record[path_at:].decode(errors="surrogatepass"),
        start,
        end,
        checksum if marks & _HAS_CHECKSUM else None,
        time if marks & _HAS_TIME else None,
        content_bytes if marks & _HAS_CONTENT else None,
        record[_RECORD.size : path_at].decode() or None,
    )
