"""Compares the rows of two catalogs: chunks, files, earlier locations of paths, and archives of logs.

The rows of both catalogs are streamed in the same order and merged, so memory does not depend on their number.
Equal rows are equal lines of bytes, and are not parsed.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from cafcat.catalog.database_url import DatabaseUrl
from cafcat.catalog.transfer.comparing import ComparedTable, Comparing
from cafcat.errors import InvalidInput
from cafcat.events import CatalogsDiffer
from cafcat.operations.compare.options import CompareOptions
from cafcat.operations.compare.report import CompareReport
from cafcat.progress import Progress
from cafcat.session import Session

__all__ = ["run"]

_ADVANCE_ROWS: Final = 5000
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_UNKNOWN: Final = ("crc64nvme", "index_crc32c")
"""Columns that can be NULL in one catalog. A NULL alone is no difference."""

_Row = tuple[bytes | None, ...]


def run(session: Session, options: CompareOptions) -> CompareReport:
    """Compare this catalog with another one. Each row that differs is reported as a CatalogsDiffer event.

    Raises:
        CatalogUnavailable, CatalogOutdated: A database does not answer, or has another schema.
        InvalidInput: The URL is not one of a database.
        AccessDenied: A database rejects the user or password.
    """
    progress = session.progress
    other: object = options.other  # type checkers do not see all callers
    if not isinstance(other, str):
        raise InvalidInput(f"the URL of the other catalog must be a text, not {type(other).__name__}")
    theirs = Comparing(DatabaseUrl(options.other))
    rows, differences = Counter[str](), Counter[str]()
    try:
        with session.catalog.comparing.reading() as left, theirs.reading() as right:
            for table in ComparedTable:
                progress.begin(f"compare {table}")
                rows[table], differences[table] = 0, 0
                for difference in _merged(table, left.rows(table), right.rows(table), progress, rows):
                    differences[table] += 1
                    session.emit(difference)
    finally:
        progress.end()
    return CompareReport(*({str(table): found[table] for table in ComparedTable} for found in (rows, differences)))


def _merged(
    table: ComparedTable, ours: Iterator[bytes], theirs: Iterator[bytes], progress: Progress, rows: Counter[str]
) -> Iterator[CatalogsDiffer]:
    """Yield the differences between the rows of a table in both catalogs, and count the equal rows in `rows`."""
    equal = 0
    left, right = next(ours, None), next(theirs, None)
    while left is not None or right is not None:
        if left == right:
            equal += 1
            if equal % _ADVANCE_ROWS == 0:
                progress.advance(_ADVANCE_ROWS, 0)
            left, right = next(ours, None), next(theirs, None)
            continue
        our_row, their_row = _values(left), _values(right)
        side = _order(table, our_row, their_row)
        difference = _difference(table, our_row if side <= 0 else None, their_row if side >= 0 else None)
        if difference is None:
            equal += 1
        else:
            yield difference
        left = next(ours, None) if side <= 0 else left
        right = next(theirs, None) if side >= 0 else right
    rows[table] += equal
    progress.advance(equal % _ADVANCE_ROWS, 0)


def _order(table: ComparedTable, ours: _Row | None, theirs: _Row | None) -> int:
    """Return the order of the next rows of this catalog (`ours`) and the other one (`theirs`) by their keys.

    Returns:
        -1 if our row comes first or is the only one, 1 if theirs does, 0 if both have the same key.
    """
    if ours is None or theirs is None:
        return 1 if ours is None else -1
    count = Comparing.key_columns(table)
    left, right = (tuple(value or b"" for value in row[:count]) for row in (ours, theirs))
    return (left > right) - (left < right)


def _difference(table: ComparedTable, ours: _Row | None, theirs: _Row | None) -> CatalogsDiffer | None:
    """Return the event for two rows that are not equal, or for a row that only one catalog has.

    Args:
        table: Name of the table.
        ours: Row of this catalog; None if it has none.
        theirs: Row of the other catalog; None if it has none.

    Returns:
        None if the rows differ only in checksums of chunks that one catalog does not know.
    """
    columns = Comparing.columns(table)
    left, right = (
        None if row is None else dict(zip(columns, map(_text, row), strict=True)) for row in (ours, theirs)
    )
    if (
        left is not None
        and right is not None
        and all(
            left[name] == right[name] or (name in _UNKNOWN and None in (left[name], right[name]))
            for name in columns
        )
    ):
        return None
    row = left if left is not None else right
    return CatalogsDiffer(table, (row or {}).get(columns[0]) or "", left, right)


def _values(line: bytes | None) -> _Row | None:
    """Return the values of a row in the text format of COPY, with None for NULL. No line gives no row (None)."""
    if line is None:
        return None
    return tuple(None if raw == rb"\N" else _ESCAPE.sub(_unescaped, raw) for raw in line[:-1].split(b"\t"))


def _unescaped(found: re.Match[bytes]) -> bytes:
    return _ESCAPED.get(found[1], found[1])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
