"""Sorts more records than fit into memory: sorted runs are stored in a temporary file and merged."""

import heapq
from collections.abc import Iterator
from typing import Final

from cafcat.support.spool import Spool, packed

__all__ = ["ExternalSort"]

_MEMORY_BYTES: Final = 24 << 20
"""Memory for records before they are written to the file, in bytes."""
_OVERHEAD_BYTES: Final = 64
"""Approximate memory of a record beside its bytes, in bytes."""
_BATCH_BYTES: Final = 64 << 10
"""How many bytes are written at once."""


class ExternalSort:
    """Sorts records (bytes) in ascending order. Equal records are all kept. It can be iterated several times.

    It takes 24 MiB of memory, and 64 KiB for each of the merged runs, which have 24 MiB each. So 100 million
    records of 40 bytes take less than 64 MiB. The temporary file is as large as all records.

    Attributes:
        count: Number of records.
        size_bytes: Total size of all records in bytes.
    """

    def __init__(self, label: str, memory_bytes: int = _MEMORY_BYTES) -> None:
        """Prepare to collect records.

        Args:
            label: Name of the records, for messages.
            memory_bytes: When the records in memory take this many bytes, all of them move to the temporary file.
        """
        self._memory_bytes = memory_bytes
        self._records: list[bytes] = []
        self._buffered = 0
        self._spool = Spool(label, 0)
        self._runs: list[tuple[int, int]] = []
        self._end = 0
        self._sorted = True
        self.count = 0
        self.size_bytes = 0

    def add(self, record: bytes) -> None:
        """Add a record. Raises TemporaryFileFailed if the temporary file cannot be written."""
        self._records.append(record)
        self._sorted = False
        self.count += 1
        self.size_bytes += len(record)
        self._buffered += len(record) + _OVERHEAD_BYTES
        if self._buffered >= self._memory_bytes:
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
        self._buffered = 0

    def __iter__(self) -> Iterator[bytes]:
        """Return an iterator over all records in ascending order. No record may be added meanwhile.

        The iterator raises TemporaryFileFailed if the temporary file cannot be read.
        """
        if not self._sorted:
            self._records.sort()
            self._sorted = True
        if not self._runs:
            return iter(self._records)
        return heapq.merge(*(self._spool.records(start, end) for start, end in self._runs), self._records)

    def close(self) -> None:
        """Remove all records and the temporary file. Further calls of `close` do nothing."""
        self._records.clear()
        self._spool.close()
