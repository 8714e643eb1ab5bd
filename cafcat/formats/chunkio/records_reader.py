"""Finds the records of a ChunkIO file, with the same results as romkatv/ChunkIO, also in damaged files.

The results differ only in files that were forged to need much hashing: here fewer records are found.

Two rules hold. Content is never mistaken for a record, because bytes are never searched for headers: content may
contain whole ChunkIO files. And readable records are skipped only between a damaged header, or a record whose end
is uncertain, and the next record that a meter refers to. Therefore the reader continues at the end of a record only
if the next record certainly begins there (`_end_is_certain`). Otherwise it uses the meters to find the next one.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from cafcat.formats.base import RandomReader
from cafcat.formats.chunkio.metering import (
    INTERVAL_BYTES,
    METER_BYTES,
    end_position,
    is_position,
    read_meter,
    strip_meters,
)
from cafcat.formats.chunkio.records import HEADER_BYTES, Record, parse_header
from cafcat.formats.chunkio.siphash import hasher
from cafcat.support.read_ahead import ReadAhead

__all__ = ["RecordReader"]

_BLOCK_BYTES: Final = 1 << 20
"""Largest read, and size of the blocks of content, in bytes."""
_FIRST_BYTES: Final = 16 << 10
"""Size in bytes of a read after a jump. It is small, because meters are 64 KiB apart."""
_MAX_HASHED_FACTOR: Final = 4
"""Contents are hashed to make the ends of records certain, in total up to this many times the size of the file."""
_FREE_HASHED_BYTES: Final = 64 << 20
"""Contents of this many bytes in total may be hashed, however small the file is."""


class RecordReader:
    """Finds and reads the records of one ChunkIO file, which may grow while it is read.

    Damage in the file never raises an error: records with a damaged header are skipped. Records with damaged
    content are returned; `is_intact` detects them.

    Memory: a window of 1 MiB, and 4 bytes for each 64 KiB of a damaged file that is listed. If the last meter in a
    record is damaged, the content must be hashed to make the end of the record certain. One RecordReader hashes at
    most four times the size of the file (but at least 64 MiB) for this; then it uses only meters. Listing a file
    once exceeds this limit only if the file was forged.
    """

    def __init__(self, archive: RandomReader) -> None:
        """Prepare to read a file. No bytes are read yet."""
        self._window = ReadAhead(archive, first_bytes=_FIRST_BYTES, most_bytes=_BLOCK_BYTES)
        self._last: Record | None = None
        self._certain_end: tuple[Record, bool] | None = None
        self._hashed_bytes = 0

    def refresh(self) -> None:
        """Discard buffered bytes. Call this after the file may have grown."""
        self._window.clear()
        self._certain_end = None

    def records(self, first: Record | None = None) -> Iterator[Record]:
        """Yield all records in order, or the record `first` and those after it. Takes time linear in the file size.

        Contents are not checked. The last record may end beyond the end of the file. A torn record may end after
        the start of a later record.
        """
        meters: _UnusedMeters | None = None
        record = first or self._record_at(0)
        begin = 0
        while True:
            if record is None:
                meters = meters or _UnusedMeters(self)
                record = meters.first(begin)
            if record is None:
                return
            yield record
            begin, record = self._next_after(record)

    def _next_after(self, record: Record) -> tuple[int, Record | None]:
        """Return a position before which the next record cannot begin, and the record that begins there.

        The record is None if the caller must search for it from this position on.
        """
        if not self._end_is_certain(record):
            return record.begin + 1, None
        return record.end, self._record_at(record.end)

    def first(self, start: int = 0, end: int | None = None) -> Record | None:
        """Return the first record that begins in `[start, end)`, or None. `end=None` means the end of the file."""
        start, end = self._clamp(start, end)
        if start >= end:
            return None
        for use_cached in (True, False):
            record = self._last if use_cached else self.last(0, start)
            if record is not None and record.begin < start <= record.end and self._end_is_certain(record):
                start = record.end
                if start >= end:
                    return None
                if (found := self._record_at(start)) is not None:
                    self._last = found
                    return found
        found = self._first_by_meters(start, end)
        self._last = found or self._last
        return found

    def _first_by_meters(self, start: int, end: int) -> Record | None:
        for meter in range(_boundary_from(start), self._window.size_bytes, INTERVAL_BYTES):
            begin = self.meter(meter)
            if begin is None or begin < start:
                continue
            if begin >= end:
                return None
            if (record := self._record_at(begin)) is not None:
                return record
        return None

    def last(self, start: int = 0, end: int | None = None) -> Record | None:
        """Return the last record that begins in `[start, end)`, or None. `end=None` means the end of the file."""
        start, end = self._clamp(start, end)
        if start >= end:
            return None
        begin = self._first_meter(_boundary_from(end))
        if begin is not None and begin < end and (found := self._last_from(begin, start, end)) is not None:
            return found
        meter = _boundary_before(end - 1)
        while meter >= 0 and start < end:
            begin = self.meter(meter)
            if begin is not None:
                if (found := self._last_from(begin, start, end)) is not None:
                    return found
                meter = _boundary_before(begin)
                end = begin
            meter -= INTERVAL_BYTES
        return None

    def _first_meter(self, boundary: int) -> int | None:
        """Return the record start that the first valid meter from `boundary` on stores; None if there is none."""
        for meter in range(boundary, self._window.size_bytes, INTERVAL_BYTES):
            if (begin := self.meter(meter)) is not None:
                return begin
        return None

    def _last_from(self, begin: int, start: int, end: int) -> Record | None:
        """Follow the records from the one at `begin`, as long as their ends are certain.

        Return the last of them that begins in `[start, end)`, or None.
        """
        found = None
        while (record := self._record_at(begin)) is not None:
            if begin >= start:
                found = record
            if record.end >= end or not self._end_is_certain(record):
                break
            begin = record.end
        return found

    def middle(self, start: int, end: int) -> Record | None:
        """Return a record that begins in `[start, end)`, preferably near the middle; None if no record does."""
        start, end = self._clamp(start, end)
        if start // INTERVAL_BYTES < end // INTERVAL_BYTES:
            meter = min(_boundary_before(end), _boundary_from(start + (end - start) // 2))
            begin = self.meter(meter)
            if begin is not None and start <= begin < end and (record := self._record_at(begin)) is not None:
                return record
        return self.first(start, end)

    def is_intact(self, record: Record) -> bool:
        """Return True if the record's content is complete and has the SipHash in its header. Reads the content."""
        if record.end > self._window.size_bytes:
            return False
        checksum = hasher()
        for block in self._content(record):
            checksum.update(block)
        return bool(checksum.digest() == record.content_hash)

    def content(self, record: Record) -> bytes | None:
        """Return the record's whole content (up to 2 GiB); None if it is damaged or incomplete. Reads it twice."""
        if not self.is_intact(record):
            return None
        return b"".join(self._content(record))

    def _content(self, record: Record) -> Iterator[bytes]:
        position = end_position(record.begin, HEADER_BYTES)
        for start in range(position, record.end, _BLOCK_BYTES):
            end = min(start + _BLOCK_BYTES, record.end)
            yield strip_meters(start, self._window.read_at(start, end))

    def _end_is_certain(self, record: Record) -> bool:
        """Return True if the next record certainly begins at the end of this record.

        Then a reader that continues there skips no record, and mistakes no content for a record.
        """
        if self._certain_end is None or self._certain_end[0] != record:
            self._certain_end = record, self._check_end(record)
        return self._certain_end[1]

    def _check_end(self, record: Record) -> bool:
        meter = _boundary_before(record.end - 1)
        if meter <= record.begin - record.begin % INTERVAL_BYTES:
            return True
        begin = self.meter(meter)
        if begin is not None:
            return begin == record.begin
        size_bytes = self._window.size_bytes
        if record.end > size_bytes:
            return False
        self._hashed_bytes += record.content_bytes
        max_bytes = max(_FREE_HASHED_BYTES, _MAX_HASHED_FACTOR * size_bytes)
        return self._hashed_bytes <= max_bytes and self.is_intact(record)

    def meter(self, position: int) -> int | None:
        """Return the record start that the meter at `position` stores; None if this meter is missing or invalid.

        `position` is a multiple of 65,536.
        """
        if position and position + METER_BYTES > self._window.size_bytes:
            return None
        return read_meter(self._window.read_at(position, position + METER_BYTES) if position else b"", position)

    def _record_at(self, begin: int) -> Record | None:
        """Return the record that begins at `begin`, or None if no valid header is at this position."""
        end = end_position(begin, HEADER_BYTES)
        if not is_position(begin) or end > self._window.size_bytes:
            return None
        return parse_header(strip_meters(begin, self._window.read_at(begin, end)), begin)

    def _clamp(self, start: int, end: int | None) -> tuple[int, int]:
        size = self._window.size_bytes
        return max(start, 0), size if end is None else min(end, size)


class _UnusedMeters:
    """The meters of a file that may still refer to an unlisted record, while its records are listed in order.

    A meter that refers to no record, or to an earlier one, is read only once; later searches skip it.
    """

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        count = reader._window.size_bytes // INTERVAL_BYTES + 1
        self._skip = array("I", bytes(4 * count))

    def first(self, start: int) -> Record | None:
        """Return the first record that begins at `start` or later and to which a meter at `start` or later refers.

        None if there is no such record. `start` must not decrease from call to call.
        """
        number = self._next(-(-start // INTERVAL_BYTES))
        while number < len(self._skip):
            begin = self._reader.meter(number * INTERVAL_BYTES)
            if begin is not None and begin >= start and (record := self._reader._record_at(begin)) is not None:
                return record
            self._skip[number] = 1
            number = self._next(number + 1)
        return None

    def _next(self, number: int) -> int:
        """Return the number of the first meter from `number` on that is not skipped. Shortens later searches.

        The number of a meter is its position divided by 65,536. If all these meters are skipped, the result is
        greater than the number of the last meter.
        """
        end = number
        while end < len(self._skip) and self._skip[end]:
            end += self._skip[end]
        while number < end:
            skip = self._skip[number]
            self._skip[number] = end - number
            number += skip
        return end


def _boundary_before(position: int) -> int:
    return position - position % INTERVAL_BYTES


def _boundary_from(position: int) -> int:
    return -(-position // INTERVAL_BYTES) * INTERVAL_BYTES
