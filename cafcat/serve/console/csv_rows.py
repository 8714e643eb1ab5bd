"""The rows of a view as CSV, sent while they are read."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["csv_blocks"]

_BLOCK_BYTES: Final = 64 << 10


def csv_blocks(rows: Iterator[Sequence[Any]]) -> Iterator[bytes]:
    """Yield rows as CSV (RFC 4180) in UTF-8. A missing value is empty, an empty text is in quotes.

    Args:
        rows: The names of the columns, and the rows. The iterator is closed at the end.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_MINIMAL)
    try:
        for row in rows:
            writer.writerow(row)
            if text.tell() >= _BLOCK_BYTES:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
        yield text.getvalue().encode()
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()
