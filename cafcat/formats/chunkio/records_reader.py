"""Finding records, with the answers of the original program on damaged files.

Nothing that is written into a record can be taken for a record, and no record that is there is passed over but
for those behind a damaged header, up to the next one that a meter names. From one record only the next may be read
that is certain to be the next (`_is_skippable`); otherwise the meters tell where one begins. Bytes are never
searched for headers: contents may hold whole ChunkIO files.
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
    unmetered,
)
from cafcat.formats.chunkio.records import HEADER_BYTES, Record, parse_header
from cafcat.formats.chunkio.siphash import hasher
from cafcat.formats.chunkio.windows import Window

__all__ = ["RecordReader"]

_BLOCK_BYTES: Final = 1 << 20
_MOST_HASHED_TIMES: Final = 4
_MOST_HASHED_BYTES: Final = 64 << 20


class RecordReader:
    """Reads one file, which may grow meanwhile. No bytes, whatever they are, make its methods raise.

    Memory: a window of 1 MiB, and 4 bytes for each 64 KiB of a damaged file that is listed. Where the last meter in
    a record is damaged, its content has to be hashed before the next one is believed: of each file at most four
    times its size (but 64 MiB of any), which only a file made for it exceeds; then the meters go on alone.
    """

    def __init__(self, archive: RandomReader) -> None:
        self._window = Window(archive)
        self._last: Record | None = None
        self._skippable: tuple[Record, bool] | None = None
        self._hashed_bytes = 0

    def refresh(self) -> None:
        """Bytes at the end may have changed: forgets what was read."""
        self._window.forget()
        self._skippable = None

    def records(self, first: Record | None = None) -> Iterator[Record]:
        """All records in order, or those from one on, in time linear to the size of the file. The last may end
        beyond the end of the file, and one that was torn beyond where a later one begins."""
        meters: _LiveMeters | None = None
        record = first or self._record_at(0)
        begin = 0
        while True:
            if record is None:
                meters = meters or _LiveMeters(self)
                record = meters.first(begin)
            if record is None:
                return
            yield record
            begin, record = self._after(record)

    def _after(self, record: Record) -> tuple[int, Record | None]:
        """Where the next record may begin, and the record that does if it is certain."""
        if not self._is_skippable(record):
            return record.begin + 1, None
        return record.end, self._record_at(record.end)

    def first(self, start: int = 0, end: int | None = None) -> Record | None:
        """The first record that begins in `[start, end)`."""
        start, end = self._clamp(start, end)
        if start >= end:
            return None
        for known in (True, False):
            record = self._last if known else self.last(0, start)
            if record is not None and record.begin < start <= record.end and self._is_skippable(record):
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
        """The last record that begins in `[start, end)`."""
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
        """What the first meter from there on says that is one."""
        for meter in range(boundary, self._window.size_bytes, INTERVAL_BYTES):
            if (begin := self.meter(meter)) is not None:
                return begin
        return None

    def _last_from(self, begin: int, start: int, end: int) -> Record | None:
        """The last record in `[start, end)`, from one on that begins before `end`, as far as each is certain."""
        found = None
        while (record := self._record_at(begin)) is not None:
            if begin >= start:
                found = record
            if record.end >= end or not self._is_skippable(record):
                break
            begin = record.end
        return found

    def middle(self, start: int, end: int) -> Record | None:
        """A record that begins in `[start, end)`, if there is one: about the middle, if it can be had."""
        start, end = self._clamp(start, end)
        if start // INTERVAL_BYTES < end // INTERVAL_BYTES:
            meter = min(_boundary_before(end), _boundary_from(start + (end - start) // 2))
            begin = self.meter(meter)
            if begin is not None and start <= begin < end and (record := self._record_at(begin)) is not None:
                return record
        return self.first(start, end)

    def is_whole(self, record: Record) -> bool:
        """Whether all of its content is there and has the hash that the header says. Reads blocks of 1 MiB."""
        if record.end > self._window.size_bytes:
            return False
        checksum = hasher()
        for block in self._content(record):
            checksum.update(block)
        return bool(checksum.digest() == record.content_hash)

    def content(self, record: Record) -> bytes | None:
        """Its whole content in memory, up to 2 GiB; None if it is not what the header says."""
        if not self.is_whole(record):
            return None
        return b"".join(self._content(record))

    def _content(self, record: Record) -> Iterator[bytes]:
        position = end_position(record.begin, HEADER_BYTES)
        for start in range(position, record.end, _BLOCK_BYTES):
            end = min(start + _BLOCK_BYTES, record.end)
            yield unmetered(start, self._window.read(start, end))

    def _is_skippable(self, record: Record) -> bool:
        """Whether what begins where it ends is certain to be the next record: none that is there is passed over by
        it, and none is made of what another one holds."""
        if self._skippable is None or self._skippable[0] != record:
            self._skippable = record, self._must_end_there(record)
        return self._skippable[1]

    def _must_end_there(self, record: Record) -> bool:
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
        max_bytes = max(_MOST_HASHED_BYTES, _MOST_HASHED_TIMES * size_bytes)
        return self._hashed_bytes <= max_bytes and self.is_whole(record)

    def meter(self, position: int) -> int | None:
        """Where the record begins that the meter at this multiple of 65,536 names; None if there is no meter."""
        if position and position + METER_BYTES > self._window.size_bytes:
            return None
        return read_meter(self._window.read(position, position + METER_BYTES) if position else b"", position)

    def _record_at(self, begin: int) -> Record | None:
        """The record that begins there, if its header is whole."""
        end = end_position(begin, HEADER_BYTES)
        if not is_position(begin) or end > self._window.size_bytes:
            return None
        return parse_header(unmetered(begin, self._window.read(begin, end)), begin)

    def _clamp(self, start: int, end: int | None) -> tuple[int, int]:
        size = self._window.size_bytes
        return max(start, 0), size if end is None else min(end, size)


class _LiveMeters:
    """The meters of a file that may yet name a record, while it is listed from its begin to its end: each other one
    is passed over once, and from then on leapt over."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        count = reader._window.size_bytes // INTERVAL_BYTES + 1
        self._leap = array("I", bytes(4 * count))

    def first(self, start: int) -> Record | None:
        """The first record from `start` on that a meter from there on names. Later calls ask for later ones."""
        number = self._next(-(-start // INTERVAL_BYTES))
        while number < len(self._leap):
            begin = self._reader.meter(number * INTERVAL_BYTES)
            if begin is not None and begin >= start and (record := self._reader._record_at(begin)) is not None:
                return record
            self._leap[number] = 1
            number = self._next(number + 1)
        return None

    def _next(self, number: int) -> int:
        """The first meter from this one on that was not passed over; paths are made shorter on the way."""
        end = number
        while end < len(self._leap) and self._leap[end]:
            end += self._leap[end]
        while number < end:
            leap = self._leap[number]
            self._leap[number] = end - number
            number += leap
        return end


def _boundary_before(position: int) -> int:
    return position - position % INTERVAL_BYTES


def _boundary_from(position: int) -> int:
    return -(-position // INTERVAL_BYTES) * INTERVAL_BYTES
