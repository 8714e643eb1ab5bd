"""A chunk's own index: whether it is the one that was written, and says what the catalog says."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

from cafcat.catalog.chunk_rows import ChunkRow
from cafcat.catalog.mapping import to_microseconds
from cafcat.checksums import crc32c
from cafcat.errors import Corrupt, StoreFailed, Unsupported
from cafcat.formats.base import Format
from cafcat.maintenance.check_findings import Findings
from cafcat.model import Entry, FindingKind

__all__ = ["IndexSection", "compare", "index_error"]

_MEMORY_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 20
_PENDING: Final = 50_000
"""So many entries may wait for their rows, and rows for their entries."""
_HASHES: Final = 1 << 64
_TOLD_FILES: Final = 4096


class IndexSection:
    """The bytes of an object from its index to its end, read once and kept: in a temporary file, if they are many.
    A RandomReader for formats, with nothing before them. A context manager."""

    def __init__(self, name: str, start_byte: int, blocks: Iterable[bytes]) -> None:
        """Args: name: of the object; blocks: what it has from `start_byte` to its end. Raises what they raise, and
        StoreFailed for a temporary file that fails."""
        self.name = name
        self.start_byte = self.size_bytes = start_byte
        self.crc32c = 0
        self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__
        try:
            for block in blocks:
                self._keep(block)
        except BaseException:
            self._file.close()
            raise

    def _keep(self, block: bytes) -> None:
        self.crc32c = crc32c(block, self.crc32c)
        self.size_bytes += len(block)
        with _room_for_it():
            self._file.write(block)

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes. Raises Corrupt for what is not there, or is data."""
        if start_byte < self.start_byte:
            message = f"its footer says that the index begins at byte {start_byte:,}, the catalog says"
            raise Corrupt(f"{message} {self.start_byte:,}", chunk=self.name, byte=start_byte)
        if end_byte > self.size_bytes:
            raise Corrupt(f"the object ends at byte {self.size_bytes:,}", chunk=self.name, byte=self.size_bytes)
        with _room_for_it():
            self._file.seek(start_byte - self.start_byte)
            return self._file.read(end_byte - start_byte)

    def blocks(self) -> Iterator[bytes]:
        """All of them again, in blocks of at most 1 MiB."""
        for start in range(self.start_byte, self.size_bytes, _BLOCK_BYTES):
            yield self.read_at(start, min(start + _BLOCK_BYTES, self.size_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


@contextmanager
def _room_for_it() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free space in the folder for temporary files, or set TMPDIR"
        message = f"the temporary file for an index failed: {error.strerror or error}"
        raise StoreFailed(message, hint=hint) from error


def index_error(section: IndexSection, archive_format: Format, index_end_byte: int) -> str | None:
    """Why an index cannot be the right one, as far as it says so itself: it cannot be read, or lies elsewhere."""
    try:
        span = archive_format.reader(section).index_span
        for _ in archive_format.reader(section).entries():
            pass
    except (Corrupt, Unsupported) as error:
        return error.message if error.byte is None else f"{error.message} (byte {error.byte:,})"
    if span != (section.start_byte, index_end_byte):
        return f"its footer says that the index is [{span[0]}, {span[1]})"
    return None


def compare(
    section: IndexSection,
    archive_format: Format,
    rows: Iterable[ChunkRow],
    findings: Findings,
    advance: Callable[[int], object],
) -> None:
    """The entries of an index against all rows of its chunk: path, span, checksum, time. What differs is a finding
    (mapping). `advance` is told of files, some thousand at a time. Raises Corrupt or Unsupported if the index
    cannot be read."""
    difference = _Difference()
    told = count = 0
    entries = archive_format.reader(section).entries()
    for count, (row, entry) in enumerate(zip_longest(rows, entries), 1):
        if row is None or entry is None or row[:4] != entry[:4] or not _same_time(row[4], entry[4]):
            difference.take(row, entry)
        if count - told == _TOLD_FILES:
            advance(count - told)
            told = count
    advance(count - told)
    difference.tell(findings)


def _same_time(modified_us: int | None, modified_ns: int | None) -> bool:
    """False also for some that are the same in the end, out of the years that a catalog can hold."""
    return modified_ns is not None and modified_ns // 1000 == modified_us


_Key = tuple[str, int, int, int | None, int | None]


class _Difference:
    """What only one of two streams has, whatever their orders: what has come from one side waits for the other. If
    too much waits, because the orders have nothing to do with each other, only sums of hashes are kept: they tell
    whether both sides are the same, and no more."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, int] = {}
        self._hashes: int | None = None

    def take(self, row: ChunkRow | None, entry: Entry | None) -> None:
        if row is not None:
            self._add(row[:5], +1)
        if entry is not None:
            time = None if entry[4] is None else to_microseconds(entry[4])
            self._add((*entry[:4], time), -1)

    def _add(self, key: _Key, side: int) -> None:
        if self._hashes is not None:
            self._hashes = (self._hashes + side * hash(key)) % _HASHES
            return
        count = self._waiting.pop(key, 0) + side
        if count:
            self._waiting[key] = count
        if len(self._waiting) > _PENDING:
            self._hashes = sum(times * hash(waiting) for waiting, times in self._waiting.items()) % _HASHES
            self._waiting.clear()

    def tell(self, findings: Findings) -> None:
        if self._hashes:
            message = "the index of the object and the rows of the catalog differ, in too many places to name them"
            findings.add(FindingKind.MAPPING, message)
        entries = {key[0]: key for key, count in self._waiting.items() if count < 0}
        for key, count in self._waiting.items():
            if count > 0:
                _tell_row(key, entries.pop(key[0], None), findings)
        for key in entries.values():
            findings.add(FindingKind.MAPPING, "its index has this file, the catalog does not", *key[:3])


def _tell_row(key: _Key, entry: _Key | None, findings: Findings) -> None:
    if entry is None:
        message = "the catalog has a row for this file that no entry of its index stands for"
    else:
        message = f"the catalog has {_shown(key)}, its index has {_shown(entry)}"
    findings.add(FindingKind.MAPPING, message, *key[:3])


def _shown(key: _Key) -> str:
    _, start, end, checksum, time = key
    shown = "no checksum" if checksum is None else f"CRC-32C {checksum:08x}"
    return f"[{start}, {end}), {shown}, {'no time' if time is None else f'time {time} µs'}"
