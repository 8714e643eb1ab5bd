"""Rows in the head of a shard: then it needs no index."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from cafcat.formats.databundle.layout import FILE_METADATA, record_key

__all__ = ["InlineRows"]


class InlineRows:
    """A RowSource. Memory: all rows, which are no more than a head may have. Of a key that comes twice, the last
    counts."""

    def __init__(self, rows: Iterable[Any]) -> None:
        """Args: rows: messages BundleMetadataRow."""
        self._rows = dict(sorted((bytes(row.key), bytes(row.value)) for row in rows))
        self._keys = list(self._rows)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows of FILE_METADATA, by folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a shard from the record on that has this offset; none if there is none before or at it."""
        at = bisect_right(self._keys, record_key(shard, offset)) - 1
        first = record_key(shard, 0)
        if at < 0 or self._keys[at] < first:
            return iter(())
        return self._range(self._keys[at], record_key(shard + 1, 0))

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]:
            yield key, self._rows[key]
