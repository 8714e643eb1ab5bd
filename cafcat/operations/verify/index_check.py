"""Checks whether the index in a chunk's object is readable, and whether it agrees with the rows of the catalog."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, zip_longest
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow, ChunkRows, RowReader
from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import Format, Reader
from cafcat.formats.caf.reader import CafReader, entries_of
from cafcat.model import Entry, FindingKind
from cafcat.native.index import Matched, ParsedEntries
from cafcat.operations.index_section import IndexSection
from cafcat.operations.verify.findings import Findings
from cafcat.progress import Progress
from cafcat.support.quantities import to_microseconds
from cafcat.support.sorting import ExternalSort

__all__ = ["compare", "compare_index", "index_error"]

_Pair = tuple[ChunkRow | None, Entry | None]
_PENDING: Final = 50_000
"""Largest number of rows and entries without an equal counterpart so far that wait in memory."""
_ADVANCE_FILES: Final = 4096
"""Number of files after which progress is reported."""
_LARGEST_TIME: Final = (1 << 63) // 1000
"""Times at least so many microseconds before or after 1970 may not fit into 64 bits as nanoseconds."""
_NO_TIME: Final = "no time from 1678 to 2261"


def index_error(section: IndexSection, archive_format: Format, index_end_byte: int) -> str | None:
    """Return why an index is wrong by itself: it cannot be read, or its footer names another span. Else None.

    Args:
        section: The bytes of the object from its index to its end.
        archive_format: Format of the object.
        index_end_byte: One past the last byte of the index, as the catalog has it.
    """
    try:
        span = archive_format.reader(section).index_span
        for _ in archive_format.reader(section).entries():
            pass
    except (Corrupt, Unsupported) as error:
        return error.message if error.byte is None else f"{error.message} (byte {error.byte:,})"
    if span != (section.start_byte, index_end_byte):
        return f"the footer of the object names bytes [{span[0]}, {span[1]}) as the index"
    return None


def compare_index(reader: Reader, rows: Iterable[ChunkRow], findings: Findings, progress: Progress) -> None:
    """Compare the index of a chunk with all rows of the chunk, as `compare`.

    The native part passes over the entries of a CAF that are equal to their rows.

    Raises the errors of `compare`.
    """
    if isinstance(reader, CafReader) and isinstance(rows, ChunkRows):
        _compare(_doubtful(reader, rows.reader(), progress), findings, progress)
    else:
        compare(reader.entries(), rows, findings, progress)


def compare(
    entries: Iterable[Entry],
    rows: Iterable[ChunkRow],
    findings: Findings,
    progress: Progress,
    *,
    lacks_checksums: bool = False,
    may_lack_rows: bool = False,
) -> None:
    """Compare the entries of an index with all rows of its chunk: path, span, checksum, time, decoding.

    Each difference is a finding of kind MAPPING.

    Args:
        entries: Entries of the index.
        rows: All rows of the chunk.
        findings: Each difference is added to them.
        progress: Advances by some thousand files at a time. May raise to stop the comparison.
        lacks_checksums: True if the index need not have checksums and times: then these are not compared.
        may_lack_rows: True if an entry without a row is no finding.

    Raises:
        Corrupt, Unsupported: The index cannot be read. Then no finding was added.
        TemporaryFileFailed: A temporary file cannot be written.
    """
    if lacks_checksums:
        rows, entries = _without_checksums(rows), map(_without_checksum, entries)
    _compare(zip_longest(rows, entries), findings, progress, may_lack_rows=may_lack_rows)


def _compare(
    pairs: Iterable[_Pair], findings: Findings, progress: Progress, *, may_lack_rows: bool = False
) -> None:
    """Add a finding for each row and entry without an equal one. Those of a pair need not belong together."""
    lacking, first = 0, None
    with closing(_Difference()) as difference:
        _collect(difference, pairs, progress)
        for row, entry in difference.left():
            if row is not None:
                _add_finding(row, entry, findings)
            elif entry is not None and not may_lack_rows:
                lacking, first = lacking + 1, first or entry
    if first is not None:
        _add_lacking(first, lacking, findings)


def _doubtful(reader: CafReader, rows: RowReader, progress: Progress) -> Iterator[_Pair]:
    """Yield rows and entries like `zip_longest`, without pairs that are equal for certain."""
    for group in reader.entry_groups():
        if not isinstance(group, ParsedEntries):
            for entry in group:
                yield rows.row(), entry
            continue
        entries: list[Entry] = []
        position = Matched(0, 0, rows.at)
        while position.entry < len(group):
            matched = group.match(position, rows.text)
            rows.at = matched.at
            progress.checkpoint()
            progress.advance(matched.entry - position.entry, 0)
            if matched.entry < len(group) and not (rows.is_cut and rows.fill()):
                entries = entries or list(entries_of(group))
                yield rows.row(), entries[matched.entry]
                name = group.names.index(b"\n", matched.name) + 1
                matched = Matched(matched.entry + 1, name, rows.at)
            position = matched._replace(at=rows.at)
    while (row := rows.row()) is not None:
        yield row, None


def _collect(difference: "_Difference", pairs: Iterable[_Pair], progress: Progress) -> None:
    reported = count = 0
    for count, (row, entry) in enumerate(pairs, 1):
        if (
            row is None
            or entry is None
            or row[:4] != entry[:4]
            or not _same_time(row[4], entry[4])
            or row[7] != entry[6]
        ):
            difference.add(row, entry)
        if count - reported == _ADVANCE_FILES:
            progress.checkpoint()
            progress.advance(count - reported, 0)
            reported = count
    progress.advance(count - reported, 0)


def _without_checksums(rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    return (row._replace(crc32c=0, modified_us=None) for row in rows)


def _without_checksum(entry: Entry) -> Entry:
    return entry._replace(crc32c=0, modified_ns=None)


def _same_time(modified_us: int | None, modified_ns: int | None) -> bool:
    """Return True if a row and an entry have the same modification time in microseconds.

    False does not prove a difference: the entry may have no time, or one that a catalog cannot store.
    """
    return modified_ns is not None and modified_ns // 1000 == modified_us


def _compared_time(modified_us: int | None) -> int | None:
    """Return a time, in microseconds since 1970, in the form in which rows and entries are compared.

    None for a time before 1678 or after 2261, also for two different ones: nanoseconds of such times may not fit
    into 64 bits, and then the writers of archives leave the time out.
    """
    return None if modified_us is None or abs(modified_us) >= _LARGEST_TIME else modified_us


_Key = tuple[str, int, int, int | None, int | None, int | None, str | None]


class _Difference:
    """Finds rows without an equal entry, and entries without an equal row. They can be added in any order.

    A row waits in memory for its entry, and an entry for its row. If too many wait, because the orders are
    unrelated, both are sorted in a temporary file.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Key, int] = {}
        self._sort: ExternalSort | None = None

    def add(self, row: ChunkRow | None, entry: Entry | None) -> None:
        """Add a row, an entry, or both. The two need not belong together."""
        if row is not None:
            self._add_one_side((*row[:4], _compared_time(row[4]), *row[6:]), +1)
        if entry is not None:
            time = None if entry[4] is None else to_microseconds(entry[4])
            self._add_one_side((*entry[:4], _compared_time(time), *entry[5:]), -1)

    def _add_one_side(self, key: _Key, side: int) -> None:
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
                    self._add_one_side(waiting, 1 if times > 0 else -1)
            self._waiting.clear()

    def left(self) -> Iterator[tuple[_Key | None, _Key | None]]:
        """Yield pairs of a row and an entry of the same path that differ. None stands for a missing row or entry.

        Raises:
            TemporaryFileFailed: A temporary file cannot be written.
        """
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
        """Remove the temporary file in which rows and entries were sorted, if there is one."""
        if self._sort is not None:
            self._sort.close()


def _pairs(counts: Mapping[_Key, int]) -> Iterator[tuple[_Key | None, _Key | None]]:
    """Yield pairs of a row and an entry with the same path. None stands for a missing row or entry.

    Args:
        counts: For each key, how many more rows than entries were added.
    """
    entries = {key[0]: key for key, count in counts.items() if count < 0}
    for key, count in counts.items():
        if count > 0:
            yield key, entries.pop(key[0], None)
    for key in entries.values():
        yield None, key


def _add_finding(key: _Key, entry: _Key | None, findings: Findings) -> None:
    if entry is None:
        message = "the catalog has a row for this file, but the index of the object has no entry"
    else:
        message = f"the catalog has {_shown(key)} for this file, the index of the object has {_shown(entry)}"
    findings.add(FindingKind.MAPPING, message, *key[:3])


def _add_lacking(first: _Key, count: int, findings: Findings) -> None:
    """Add one finding for all files of the index without a row: rows are mostly lost for whole chunks."""
    if count == 1:
        findings.add(
            FindingKind.MAPPING, "the index of the object has this file, but the catalog does not", *first[:3]
        )
        return
    detail = (
        f"the index of the object has {count:,} files that the catalog does not have, the first of them {first[0]}"
    )
    findings.add(FindingKind.MAPPING, detail, file_count=count)


def _shown(key: _Key) -> str:
    _, start, end, checksum, time, content_bytes, decoding = key
    shown = "no checksum" if checksum is None else f"CRC-32C {checksum:08x}"
    encoded = "" if decoding is None else f", {content_bytes} bytes by {decoding}"
    return f"[{start}, {end}), {shown}, {_NO_TIME if time is None else f'time {time} µs'}{encoded}"
