"""Which records hold a file of a bundle: its span, and how it is decoded, without reading any of them."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import UNSUPPORTED_PREFIX
from cafcat.formats.databundle.bundles.compression import METHOD_NAMES, NONE, most_stored_bytes
from cafcat.formats.databundle.bundles.record_decoding import DAMAGED, LONGEST_RUNS, RecordDecoding
from cafcat.formats.databundle.bundles.rows import BundleFile, BundleRows, Record
from cafcat.formats.databundle.layout import MOST_OFFSET
from cafcat.model import Entry

__all__ = ["RecordSpans"]

_MOST_RUNS: Final = LONGEST_RUNS // 4
"""Of zero records: a run takes three characters and a comma, or more."""
_NO_RECORD: Final = Record(0, 0, None, 0)


class _Place(NamedTuple):
    """A span, from the first data byte of the shard on."""

    start: int
    end: int
    decoding: str | None = None


class RecordSpans:
    """Takes files in the order of their shards and offsets: most are in the same record as the one before."""

    def __init__(self, rows: BundleRows) -> None:
        self._rows = rows
        self._shards, self._record_bytes, self._method = rows.config
        self._shard = -1
        self._kept = _NO_RECORD
        self._kept_end = 0
        """Where that is stored to."""
        self._position = 0
        """Where the last file ended: one without bytes is there."""

    def entry(self, file: BundleFile) -> Entry:
        """As an archive lists it, but for where data begin. Of one that cannot be read, `decoding` says why."""
        if file.shard != self._shard:
            self._shard, self._kept, self._position = file.shard, _NO_RECORD, 0
        try:
            place = self._place(file)
        except Corrupt as error:
            place = _Place(self._position, self._position, DAMAGED + error.message)
        except Unsupported as error:
            place = _Place(self._position, self._position, UNSUPPORTED_PREFIX + error.message)
        self._position = place.end
        content_bytes = None if place.decoding is None else file.size_bytes
        return Entry(file.path, place.start, place.end, file.crc32c, None, content_bytes, place.decoding)

    def _place(self, file: BundleFile) -> _Place:
        end = file.offset + file.size_bytes
        if end > MOST_OFFSET:
            raise Corrupt("it is beyond all data")
        if self._method == NONE:
            return _Place(file.offset, end)
        return self._of_records(file.offset, end) if file.size_bytes else _Place(self._position, self._position)

    def _of_records(self, start: int, end: int) -> _Place:
        """Of the file `[start, end)` in the data before compression."""
        stored: list[Record] = []
        runs: list[tuple[int, int]] = []
        offset, position = -1, start
        for number, record in enumerate(self._records(start, end)):
            offset = start - record.offset if offset < 0 else offset
            position = self._checked_end(record, position, end)
            if record.position is None:
                _add_to(runs, number)
            else:
                stored = _followed(stored, record, most_stored_bytes(self._record_bytes))
            if position >= end:
                self._keep(record)
                return self._spanned(
                    stored, RecordDecoding(METHOD_NAMES[self._method], self._record_bytes, offset, runs)
                )
        raise _missing(position)

    def _records(self, start: int, end: int) -> Iterable[Record]:
        kept = self._kept
        kept_end = kept.offset + self._record_bytes if kept.end is None else kept.end
        if kept.offset <= start and end <= kept_end:
            return (kept,)
        return self._rows.records(self._shard, start)

    def _checked_end(self, record: Record, position: int, end: int) -> int:
        """Where a record ends that has to have this position. All but the last of a file are whole."""
        whole_end = record.offset + self._record_bytes
        record_end = whole_end if record.end is None else record.end
        if not record.offset <= position < record_end:
            raise _missing(position)
        if record_end < end and record.end is None:
            raise _missing(record_end)
        if record_end < end and record_end != whole_end:
            raise Unsupported(f"a record in the middle of it is not of {self._record_bytes:,} bytes")
        return record_end

    def _keep(self, record: Record) -> None:
        """For the next file."""
        if record != self._kept:
            self._kept = record
            self._kept_end = (
                record.stored_end if record.position is None else self._rows.stored_end(self._shard, record)
            )

    def _spanned(self, stored: Sequence[Record], decoding: RecordDecoding) -> _Place:
        """From the first stored record to the end of the last."""
        text = str(decoding)
        if len(text) > LONGEST_RUNS:
            raise Unsupported("it has too many runs of zeros to say where they are")
        if not stored:
            return _Place(self._position, self._position, text)
        first, last = stored[0], stored[-1]
        end = self._kept_end if last == self._kept else self._rows.stored_end(self._shard, last)
        assert first.position is not None and last.position is not None  # noqa: S101, PT018 - they are stored
        if not last.position < end <= MOST_OFFSET:
            raise Corrupt("a record of it has no bytes, or is beyond all data")
        return _Place(first.position, end, text)


def _add_to(runs: list[tuple[int, int]], number: int) -> None:
    if runs and sum(runs[-1]) == number:
        runs[-1] = runs[-1][0], runs[-1][1] + 1
    elif len(runs) == _MOST_RUNS:
        raise Unsupported("it has too many runs of zeros to say where they are")
    else:
        runs.append((number, 1))


def _followed(stored: list[Record], record: Record, max_bytes: int) -> list[Record]:
    """The first and the last of the records that are stored, with this one. Nothing else may be between two."""
    if stored:
        last, position = stored[-1].position, record.position
        assert last is not None and position is not None  # noqa: S101, PT018 - they are stored
        if not last < position <= last + max_bytes:
            raise Unsupported("its records are not stored one behind the other")
    return [*stored[:1], record]


def _missing(position: int) -> Corrupt:
    return Corrupt(f"no record has byte {position:,} of the data")
