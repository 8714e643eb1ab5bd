"""A chunk's own index: whether it is the one that was written, and says what the catalog says."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, zip_longest
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow
from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import Format
from cafcat.model import Entry, FindingKind
from cafcat.operations.index_section import IndexSection
from cafcat.operations.verify.findings import Findings
from cafcat.support.quantities import to_microseconds
from cafcat.support.sorting import ExternalSort

__all__ = ["compare", "index_error"]

_PENDING: Final = 50_000
"""So many entries may wait for their rows, and rows for their entries, in memory."""
_TOLD_FILES: Final = 4096


def index_error(section: IndexSection, archive_format: Format, index_end_byte: int) -> str | None:
    """Why an index cannot be the right one, as far as it says so itself: it cannot be read, or lies elsewhere."""
    try:
        span = archive_format.reader(section).index_span
        for _ in archive_format.reader(section).entries():
            pass
    except (Corrupt, Unsupported) as error:
        return error.message if error.byte is None else f"{error.message} (byte {error.byte:,})"
    if span != (section.start_byte, index_end_byte):
        return f"its footer says that the index is [{span[0]}, {span[1]})"
    return None


def compare(
    entries: Iterable[Entry],
    rows: Iterable[ChunkRow],
    findings: Findings,
    advance: Callable[[int], object],
    *,
    lacks_checksums: bool = False,
    may_lack_rows: bool = False,
) -> None:
    """The entries of an index against all rows of its chunk: path, span, checksum, time. What differs is a finding
    (mapping). `advance` is told of files, some thousand at a time. lacks_checksums: of no checksum or time in the
    index nothing follows. may_lack_rows: nor of an entry that the catalog does not have. Raises Corrupt or
    Unsupported if the index cannot be read; TemporaryFileFailed."""
    with closing(_Difference()) as difference:
        _take_all(difference, entries, rows, advance, lacks_checksums=lacks_checksums)
        for row, entry in difference.left():
            if row is not None:
                _tell_row(row, entry, findings)
            elif entry is not None and not may_lack_rows:
                findings.add(FindingKind.MAPPING, "its index has this file, the catalog does not", *entry[:3])


def _take_all(
    difference: "_Difference",
    entries: Iterable[Entry],
    rows: Iterable[ChunkRow],
    advance: Callable[[int], object],
    *,
    lacks_checksums: bool,
) -> None:
    told = count = 0
    if lacks_checksums:
        rows, entries = _without_checksums(rows), map(_without_checksum, entries)
    for count, (row, entry) in enumerate(zip_longest(rows, entries), 1):
        if (
            row is None
            or entry is None
            or row[:4] != entry[:4]
            or not _same_time(row[4], entry[4])
            or row[7] != entry[6]
        ):
            difference.take(row, entry)
        if count - told == _TOLD_FILES:
            advance(count - told)
            told = count
    advance(count - told)


def _without_checksums(rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    return (row._replace(crc32c=0, modified_us=None) for row in rows)


def _without_checksum(entry: Entry) -> Entry:
    return entry._replace(crc32c=0, modified_ns=None)


def _same_time(modified_us: int | None, modified_ns: int | None) -> bool:
    """False also for some that are the same in the end, out of the years that a catalog can hold."""
    return modified_ns is not None and modified_ns // 1000 == modified_us


_Key = tuple[str, int, int, int | None, int | None, int | None, str | None]


class _Difference:
    """What only one of two streams has, whatever their orders: what has come from one side waits for the other. If
    too much waits, because the orders have nothing to do with each other, both are sorted, on disk."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, int] = {}
        self._sort: ExternalSort | None = None

    def take(self, row: ChunkRow | None, entry: Entry | None) -> None:
        if row is not None:
            self._add((*row[:5], *row[6:]), +1)
        if entry is not None:
            time = None if entry[4] is None else to_microseconds(entry[4])
            self._add((*entry[:4], time, *entry[5:]), -1)

    def _add(self, key: _Key, side: int) -> None:
        if self._sort is not None:
            self._sort.add(json.dumps((*key, side)).encode())
            return
        count = self._waiting.pop(key, 0) + side
        if count:
            self._waiting[key] = count
        if len(self._waiting) > _PENDING:
            self._sort = ExternalSort("a list of files")
            for waiting, times in self._waiting.items():
                for _ in range(abs(times)):
                    self._add(waiting, 1 if times > 0 else -1)
            self._waiting.clear()

    def left(self) -> Iterator[tuple[_Key | None, _Key | None]]:
        """What one side has and the other lacks, those of a path together: row and entry, or one of them. Raises
        TemporaryFileFailed."""
        if self._sort is None:
            yield from _pairs(self._waiting)
            return
        records = ((tuple(fields), side) for *fields, side in map(json.loads, self._sort))
        for _, of_path in groupby(records, key=lambda record: record[0][0]):
            counts: Counter[_Key] = Counter()
            for key, side in of_path:
                counts[key] += side
            yield from _pairs(counts)

    def close(self) -> None:
        if self._sort is not None:
            self._sort.close()


def _pairs(counts: Mapping[_Key, int]) -> Iterator[tuple[_Key | None, _Key | None]]:
    """Those of one path together. counts: how often a row has come more often than an entry."""
    entries = {key[0]: key for key, count in counts.items() if count < 0}
    for key, count in counts.items():
        if count > 0:
            yield key, entries.pop(key[0], None)
    for key in entries.values():
        yield None, key


def _tell_row(key: _Key, entry: _Key | None, findings: Findings) -> None:
    if entry is None:
        message = "the catalog has a row for this file that no entry of its index stands for"
    else:
        message = f"the catalog has {_shown(key)}, its index has {_shown(entry)}"
    findings.add(FindingKind.MAPPING, message, *key[:3])


def _shown(key: _Key) -> str:
    _, start, end, checksum, time, content_bytes, decoding = key
    shown = "no checksum" if checksum is None else f"CRC-32C {checksum:08x}"
    encoded = "" if decoding is None else f", {content_bytes} bytes by {decoding}"
    return f"[{start}, {end}), {shown}, {'no time' if time is None else f'time {time} µs'}{encoded}"
