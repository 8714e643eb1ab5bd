"""Finds entries of an index whose name occurs again later or occurred before, in little memory."""

import zlib
from array import array
from collections.abc import Iterable, Iterator
from struct import Struct
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Final, Self

from cafcat.support.spool import temporary_file_of

__all__ = ["RepeatedNames", "SupersededNames"]

# How it works: for each name a record is stored with a 64-bit hash, a 32-bit checksum and the ordinal of the entry.
# The low bits of the hash select a bucket. Equal names have equal hashes, so each bucket is searched on its own.
# When half a million records are in memory, they move to a temporary file. The result is one bit per entry.
#
# Two different names count as equal if both hash and checksum agree. That happens for one pair in 2^96, a
# probability of 10^-13 for an index of 100 million names. Python chooses a new key for its hash in each process
# (unless PYTHONHASHSEED is set), so an attacker cannot choose names that all fall into one bucket.
_RECORD: Final = Struct("=qII")
_BUCKETS: Final = 1024
_MEMORY_RECORDS: Final = (8 << 20) // _RECORD.size
_BLOCK_BYTES: Final = 4096 * _RECORD.size


class SupersededNames:
    """The entries of an index whose name comes again later: a set of their ordinals, 0 for the first entry.

    `bool()` is False if no name is repeated. `ordinal in names` tests one entry.

    Memory: 8 MiB of records, the hashes of one bucket, and one bit per name if any name is repeated. An index of 4
    GiB has at most 130 million names; for these it needs less than 64 MiB.
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        """Read the names of all entries, and find the repeated ones.

        Args:
            names: the names in the order of the index.

        Raises:
            StoreFailed: the temporary file cannot be read or written.
        """
        self._bits = bytearray()
        with _Records() as records:
            records.add(names)
            for bucket in range(_BUCKETS):
                if records.has_repeats(bucket):
                    self._mark(records, bucket)

    def _mark(self, records: "_Records", bucket: int) -> None:
        bits = self._bits = self._bits or bytearray(records.count // 8 + 1)
        last: dict[tuple[int, int], int] = {}
        for block in records.blocks(bucket):
            for name_hash, checksum, ordinal in _RECORD.iter_unpack(block):
                earlier = last.get((name_hash, checksum))
                if earlier is not None:
                    bits[earlier >> 3] |= 1 << (earlier & 7)
                last[name_hash, checksum] = ordinal

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __contains__(self, ordinal: int) -> bool:
        return bool(self._bits) and bool(self._bits[ordinal >> 3] >> (ordinal & 7) & 1)


class RepeatedNames(SupersededNames):
    """The entries of an index whose name came before: a set of their ordinals, 0 for the first entry.

    `bool()` is False if no name is repeated.
    """

    def _mark(self, records: "_Records", bucket: int) -> None:
        bits = self._bits = self._bits or bytearray(records.count // 8 + 1)
        seen: set[tuple[int, int]] = set()
        for block in records.blocks(bucket):
            for name_hash, checksum, ordinal in _RECORD.iter_unpack(block):
                if (name_hash, checksum) in seen:
                    bits[ordinal >> 3] |= 1 << (ordinal & 7)
                seen.add((name_hash, checksum))


class _Records:
    """Collects a record (hash, checksum, ordinal) for each name, by bucket: in memory, then in a temporary file.

    Methods raise StoreFailed if the temporary file fails.

    Attributes:
        count: number of names.
    """

    def __init__(self) -> None:
        self.count = 0
        self._memory = [bytearray() for _ in range(_BUCKETS)]
        self._spilled: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]
        self._file: IO[bytes] | None = None

    def add(self, names: Iterable[bytes]) -> None:
        memory, pack, crc32 = self._memory, _RECORD.pack, zlib.crc32
        ordinal = 0
        for ordinal, name in enumerate(names, 1):
            name_hash = hash(name)
            memory[name_hash & (_BUCKETS - 1)] += pack(name_hash, crc32(name), ordinal - 1)
            if not ordinal % _MEMORY_RECORDS:
                self._spill()
        self.count = ordinal

    def _spill(self) -> None:
        with temporary_file_of("an index"):
            if self._file is None:
                self._file = TemporaryFile()  # noqa: SIM115 - closed by __exit__
            begin = self._file.seek(0, 2)
            for records, spans in zip(self._memory, self._spilled, strict=True):
                self._file.write(records)
                spans.append((begin, begin + len(records)))
                begin += len(records)
                records.clear()
            self._file.flush()

    def blocks(self, bucket: int) -> Iterator[bytes]:
        """Return the packed records of a bucket, in the order of the names, in blocks of at most 64 KiB."""
        for begin, end in self._spilled[bucket]:
            for position in range(begin, end, _BLOCK_BYTES):
                yield self._read(position, min(position + _BLOCK_BYTES, end))
        records = self._memory[bucket]
        for position in range(0, len(records), _BLOCK_BYTES):
            yield bytes(records[position : position + _BLOCK_BYTES])

    def _read(self, begin: int, end: int) -> bytes:
        assert self._file is not None  # noqa: S101 - _spill opened the file
        with temporary_file_of("an index"):
            self._file.seek(begin)
            return self._file.read(end - begin)

    def has_repeats(self, bucket: int) -> bool:
        """Return True if a hash occurs twice in the bucket.

        Most buckets have no repeats and need no further check.
        """
        distinct: set[int] = set()
        count = 0
        for block in self.blocks(bucket):
            hashes = array("q", block)[::2]
            distinct.update(hashes)
            count += len(hashes)
        return len(distinct) < count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
