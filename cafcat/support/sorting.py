"""Sorting more records than memory should hold: in pieces, which wait in a temporary file and are merged."""

import heapq
from collections.abc import Iterator
from typing import Final

from cafcat.support.spool import Spool, packed

__all__ = ["ExternalSort"]

_MEMORY_BYTES: Final = 24 << 20
_OVERHEAD_BYTES: Final = 64
"""What Python takes for a record beside its bytes, about."""
_BATCH_BYTES: Final = 64 << 10


class ExternalSort:
    """Takes records (bytes) in any order and gives them in ascending order, as often as asked, equal ones all.

    Memory: 24 MiB, and 64 KiB for each of the runs that are merged: one for every 24 MiB, so 100 million records of
    40 bytes take less than 64 MiB. The temporary file is as large as all records.
    """

    def __init__(self, what: str, memory_bytes: int = _MEMORY_BYTES) -> None:
        """Args: what: is sorted, for messages; memory_bytes: more than these are on disk."""
        self._memory_bytes = memory_bytes
        self._records: list[bytes] = []
        self._held = 0
        self._spool = Spool(what, 0)
        self._runs: list[tuple[int, int]] = []
        self._end = 0
        self._sorted = True
        self.count = 0
        self.size_bytes = 0
        """Of all records."""

    def add(self, record: bytes) -> None:
        """Raises TemporaryFileFailed."""
        self._records.append(record)
        self._sorted = False
        self.count += 1
        self.size_bytes += len(record)
        self._held += len(record) + _OVERHEAD_BYTES
        if self._held >= self._memory_bytes:
            self._spill()

    def _spill(self) -> None:
        self._records.sort()
        start = self._end
        self._spool.seek_end()
        batch = bytearray()
        for record in self._records:
            batch += packed(record)
            if len(batch) >= _BATCH_BYTES:
                self._end += len(batch)
                self._spool.write(batch)
                batch.clear()
        self._spool.write(batch)
        self._spool.flush()
        self._end += len(batch)
        self._runs.append((start, self._end))
        self._records.clear()
        self._held = 0

    def __iter__(self) -> Iterator[bytes]:
        """All records in order. Nothing may be added meanwhile. Raises TemporaryFileFailed."""
        if not self._sorted:
            self._records.sort()
            self._sorted = True
        if not self._runs:
            return iter(self._records)
        return heapq.merge(*(self._spool.records(start, end) for start, end in self._runs), self._records)

    def close(self) -> None:
        """Frees the temporary file. Idempotent."""
        self._records.clear()
        self._spool.close()
