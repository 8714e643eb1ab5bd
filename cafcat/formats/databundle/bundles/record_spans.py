"""Finds the records that hold a file of a bundle, and from them its span and its decoding.

Reads only the rows about the records, not the records.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import UNSUPPORTED_PREFIX
from cafcat.formats.databundle.bundles.compression import METHOD_NAMES, NONE, max_stored_bytes
from cafcat.formats.databundle.bundles.record_decoding import DAMAGED, MAX_RUNS_CHARACTERS, RecordDecoding
from cafcat.formats.databundle.bundles.rows import BundleFile, BundleRows, Record
from cafcat.formats.databundle.layout import MAX_OFFSET
from cafcat.model import Entry

__all__ = ["RecordSpans"]

_MAX_RUNS: Final = MAX_RUNS_CHARACTERS // 4
"""Largest number of runs of zero records: each run takes at least three characters and a comma."""
_NO_RECORD: Final = Record(0, 0, None, 0)


class _Span(NamedTuple):
    """The span of a file, relative to the first data byte of the shard, and its `Entry.decoding`."""

    start: int
    end: int
    decoding: str | None = None


class RecordSpans:
    """Finds the spans of files of a bundle by its rows.

    Files should be requested in the order of shards and offsets: neighbors often share a record.
    """

    def __init__(self, rows: BundleRows) -> None:
        self._rows = rows
        self._shards, self._record_bytes, self._method = rows.config
        self._shard = -1
        self._cached = _NO_RECORD
        self._cached_end = 0
        """End of the cached record's stored bytes."""
        self._position = 0
        """End of the previous file's span. A file without stored bytes gets an empty span at this position."""

    def entry(self, file: BundleFile) -> Entry:
        """Return the entry of a file, with a span relative to the first data byte of its shard.

        If the records of the file are invalid or unsupported, the span is empty and `decoding` has the reason.
        """
        if file.shard != self._shard:
            self._shard, self._cached, self._position = file.shard, _NO_RECORD, 0
        try:
            span = self._find_span(file)
        except Corrupt as error:
            span = _Span(self._position, self._position, DAMAGED + error.message)
        except Unsupported as error:
            span = _Span(self._position, self._position, UNSUPPORTED_PREFIX + error.message)
        self._position = span.end
        content_bytes = None if span.decoding is None else file.size_bytes
        return Entry(file.path, span.start, span.end, file.crc32c, None, content_bytes, span.decoding)

    def _find_span(self, file: BundleFile) -> _Span:
        end = file.offset + file.size_bytes
        if end > MAX_OFFSET:
            raise Corrupt(f"the file ends beyond the largest offset for data, {MAX_OFFSET:,} bytes")
        if self._method == NONE:
            return _Span(file.offset, end)
        return self._span_in_records(file.offset, end) if file.size_bytes else _Span(self._position, self._position)

    def _span_in_records(self, start: int, end: int) -> _Span:
        """Return the span of the file that is `[start, end)` of the shard's data before compression.

        Raises:
            Corrupt: a record of the file is missing, or its position is impossible.
            Unsupported: the records of the file have a layout that `decode_records` cannot read.
        """
        stored: list[Record] = []
        runs: list[tuple[int, int]] = []
        offset, position = -1, start
        for number, record in enumerate(self._records(start, end)):
            offset = start - record.offset if offset < 0 else offset
            position = self._check_record(record, position, end)
            if record.position is None:
                _add_zero_record(runs, number)
            else:
                stored = _append_stored(stored, record, max_stored_bytes(self._record_bytes))
            if position >= end:
                self._cache(record)
                return self._build_span(
                    stored, RecordDecoding(METHOD_NAMES[self._method], self._record_bytes, offset, runs)
                )
        raise _missing_record(position)

    def _records(self, start: int, end: int) -> Iterable[Record]:
        cached = self._cached
        cached_end = cached.offset + self._record_bytes if cached.end is None else cached.end
        if cached.offset <= start and end <= cached_end:
            return (cached,)
        return self._rows.records(self._shard, start)

    def _check_record(self, record: Record, position: int, end: int) -> int:
        """Check that a record contains the offset `position` of the data, and return the end of the record.

        All records of a file except its last one must be complete. `end` is the end of the file.

        Raises:
            Corrupt: a record is missing.
            Unsupported: a record in the middle of the file is incomplete.
        """
        whole_end = record.offset + self._record_bytes
        record_end = whole_end if record.end is None else record.end
        if not record.offset <= position < record_end:
            raise _missing_record(position)
        if record_end < end and record.end is None:
            raise _missing_record(record_end)
        if record_end < end and record_end != whole_end:
            raise Unsupported(f"a record in the middle of the file does not have {self._record_bytes:,} bytes")
        return record_end

    def _cache(self, record: Record) -> None:
        """Keep the last record of a file, because the next file may begin in it."""
        if record != self._cached:
            self._cached = record
            self._cached_end = (
                record.stored_end if record.position is None else self._rows.stored_end(self._shard, record)
            )

    def _build_span(self, stored: Sequence[Record], decoding: RecordDecoding) -> _Span:
        """Return the span from the first record with stored bytes to the end of the last such record.

        The span is empty if no record of the file has stored bytes.

        Raises:
            Corrupt: the last record has no bytes, or ends beyond the largest offset for data.
            Unsupported: the decoding has too many runs of zero records.
        """
        text = str(decoding)
        if len(text) > MAX_RUNS_CHARACTERS:
            raise Unsupported("the file has too many runs of zero records")
        if not stored:
            return _Span(self._position, self._position, text)
        first, last = stored[0], stored[-1]
        end = self._cached_end if last == self._cached else self._rows.stored_end(self._shard, last)
        assert first.position is not None and last.position is not None  # noqa: S101, PT018 - stored records have positions
        if not last.position < end <= MAX_OFFSET:
            raise Corrupt("a record of the file has no bytes, or an offset beyond the limit for data")
        return _Span(first.position, end, text)


def _add_zero_record(runs: list[tuple[int, int]], number: int) -> None:
    if runs and sum(runs[-1]) == number:
        runs[-1] = runs[-1][0], runs[-1][1] + 1
    elif len(runs) == _MAX_RUNS:
        raise Unsupported("the file has too many runs of zero records")
    else:
        runs.append((number, 1))


def _append_stored(stored: list[Record], record: Record, max_bytes: int) -> list[Record]:
    """Return the first record of `stored` and the new last one, `record`.

    Raises:
        Unsupported: the stored bytes of `record` are not right after those of the last record.
    """
    if stored:
        last, position = stored[-1].position, record.position
        assert last is not None and position is not None  # noqa: S101, PT018 - stored records have positions
        if not last < position <= last + max_bytes:
            raise Unsupported("the records of the file are not stored one after the other")
    return [*stored[:1], record]


def _missing_record(position: int) -> Corrupt:
    return Corrupt(f"no record contains byte {position:,} of the data")
