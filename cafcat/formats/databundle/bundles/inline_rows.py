"""Rows in the head of a shard. Such a shard needs no index."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from cafcat.formats.databundle.layout import FILE_METADATA, record_key

__all__ = ["InlineRows"]


class InlineRows:
    """The rows in the head of a shard. Implements `RowSource`.

    All rows are in memory; the size of a head is limited. If a key is repeated, its last row counts.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        """Index the rows.

        Args:
            rows: BundleMetadataRow messages.
        """
        self._rows = dict(sorted((bytes(row.key), bytes(row.value)) for row in rows))
        self._keys = list(self._rows)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._rows.get(key)

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Return all rows of FILE_METADATA, by folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the record rows of a shard, beginning with the record that contains this offset.

        There are none if no record begins at or before the offset.
        """
        position = bisect_right(self._keys, record_key(shard, offset)) - 1
        first = record_key(shard, 0)
        if position < 0 or self._keys[position] < first:
            return iter(())
        return self._range(self._keys[position], record_key(shard + 1, 0))

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]:
            yield key, self._rows[key]
