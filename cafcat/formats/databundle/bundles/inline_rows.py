"""Reads the rows of files and records from the head of a shard that contains them. Such a shard needs no index."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from cafcat.formats.databundle.layout import FILE_METADATA, record_key

__all__ = ["InlineRows"]


class InlineRows:
    """The rows of files and records in the head of a shard. Implements `RowSource`.

    All rows are in memory; the size of a head is limited. If a key is repeated, the largest value counts.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        """Sort the rows by their keys.

        Args:
            rows: BundleMetadataRow messages.
        """
        self._rows = dict(sorted((bytes(row.key), bytes(row.value)) for row in rows))
        self._keys = list(self._rows)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the row with this key, or None if the head has no such row."""
        return self._rows.get(key)

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each row of a file or directory, in the order of folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each record row of a shard, from the record that contains `offset` on.

        No rows are returned if no record of the shard begins at or before the offset. `offset` is in bytes of data
        before compression.
        """
        position = bisect_right(self._keys, record_key(shard, offset)) - 1
        first = record_key(shard, 0)
        if position < 0 or self._keys[position] < first:
            return iter(())
        return self._range(self._keys[position], record_key(shard + 1, 0))

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]:
            yield key, self._rows[key]
