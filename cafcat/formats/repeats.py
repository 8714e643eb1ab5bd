"""Which entries of an index have the name of a later one, or of an earlier one, in bounded memory."""

import zlib
from array import array
from collections.abc import Iterable, Iterator
from struct import Struct
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Final, Self

from cafcat.support.spool import temporary_file_of

__all__ = ["Repeated", "Superseded"]

# How it works. Of each name only a record is kept: a hash of 64 bits, a checksum of 32, and the ordinal of the
# entry. Equal names have equal hashes, so they are looked for in one bucket (the low bits of the hash) at a time.
# When half a million records are in memory, they move to a temporary file. The answer is a bit per entry.
#
# Two different names count as equal if hash and checksum both agree: one pair in 2^96, that is a probability of
# 10^-13 for an index of 100 million names. Python keys its hash anew in each process (unless PYTHONHASHSEED says
# otherwise), so nobody can fill a single bucket on purpose.
_RECORD: Final = Struct("=qII")
_BUCKETS: Final = 1024
_MEMORY_RECORDS: Final = (8 << 20) // _RECORD.size
_BLOCK_BYTES: Final = 4096 * _RECORD.size


class Superseded:
    """Ordinals (from 0) of the names that come again later. False if there are none.

    Memory: 8 MiB of records, the hashes of one bucket, and a bit per name if any comes again. With the 130 million
    names that an index of 4 GiB could have, that is less than 64 MiB.
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        """Takes all names, in order. Raises StoreFailed if the temporary file fails."""
        self._bits = bytearray()
        with _Records() as records:
            records.take(names)
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


class Repeated(Superseded):
    """The same the other way round: ordinals of the names that came before."""

    def _mark(self, records: "_Records", bucket: int) -> None:
        bits = self._bits = self._bits or bytearray(records.count // 8 + 1)
        seen: set[tuple[int, int]] = set()
        for block in records.blocks(bucket):
            for name_hash, checksum, ordinal in _RECORD.iter_unpack(block):
                if (name_hash, checksum) in seen:
                    bits[ordinal >> 3] |= 1 << (ordinal & 7)
                seen.add((name_hash, checksum))


class _Records:
    """Records of names by bucket, in memory and then in a temporary file. Methods raise StoreFailed."""

    def __init__(self) -> None:
        self.count = 0
        self._memory = [bytearray() for _ in range(_BUCKETS)]
        self._spilled: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]
        self._file: IO[bytes] | None = None

    def take(self, names: Iterable[bytes]) -> None:
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
        """The bucket's records in order, in blocks of at most 64 KiB."""
        for begin, end in self._spilled[bucket]:
            for position in range(begin, end, _BLOCK_BYTES):
                yield self._read(position, min(position + _BLOCK_BYTES, end))
        records = self._memory[bucket]
        for position in range(0, len(records), _BLOCK_BYTES):
            yield bytes(records[position : position + _BLOCK_BYTES])

    def _read(self, begin: int, end: int) -> bytes:
        assert self._file is not None  # noqa: S101 - something was spilled
        with temporary_file_of("an index"):
            self._file.seek(begin)
            return self._file.read(end - begin)

    def has_repeats(self, bucket: int) -> bool:
        """Whether a hash comes twice: seldom, so most buckets need no more than this."""
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
