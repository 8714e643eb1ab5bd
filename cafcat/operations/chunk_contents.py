"""Files of one object, in the order of their bytes: those that are near each other come by one request."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow
from cafcat.errors import CafcatError, Corrupt, StoreFailed
from cafcat.formats.base import Format
from cafcat.model import Entry
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.quantities import to_nanoseconds

__all__ = ["Unreadable", "check", "check_all", "contents", "decoded", "entry_of", "guarded"]

_RUN_FILES: Final = 5000
_GAP_BYTES: Final = 64 << 10
_FAR_GAP_BYTES: Final = 1 << 20
"""What lies between two files is read over up to here; more where each request is answered after a while, as in
reading files (cafcat/reading/plan.py)."""


class Unreadable(Exception):
    """The right bytes of one file cannot be had from where they were sought; `reason` says why."""

    def __init__(self, reason: CafcatError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def entry_of(row: ChunkRow) -> Entry:
    """What an archive's index says of the file, as the catalog has it."""
    path, start, end, checksum, modified_us, _, content_bytes, decoding = row
    return Entry(path, start, end, checksum, to_nanoseconds(modified_us), content_bytes, decoding)


def contents(store: Store, key: str, files: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
    """Each file with the bytes of its span in blocks of at most 1 MiB, to be taken before the next is asked for, or
    not at all. Blocks raise Corrupt, NotFound, StoreFailed if the bytes of this file cannot be had, whatever is
    around them. Memory does not depend on the number of files."""
    gap_bytes = _FAR_GAP_BYTES if store.reads_in_flight > 1 else _GAP_BYTES
    for run in _runs(files, gap_bytes):
        stream = _Run(store, key, run)
        for file in run:
            yield file, stream.blocks(file)


def decoded(archive_format: Format, file: Entry, span: Iterator[bytes]) -> Iterator[bytes]:
    """The content of a file, of the bytes of its span."""
    return span if file.decoding is None else archive_format.decode(span, file)


def guarded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same blocks. Raises Unreadable for what went wrong with reading, so that it is not taken for what goes
    wrong with writing."""
    try:
        yield from blocks
    except CafcatError as error:
        raise Unreadable(error) from error


def check(file: Entry, found: int) -> None:
    """Raises Unreadable unless `found` is the CRC-32C that the catalog has of the file."""
    if found != file.crc32c:
        message = f"its bytes are damaged: CRC-32C {found:08x} where the catalog has {file.crc32c:08x}"
        raise Unreadable(Corrupt(message))


def check_all(file: Entry, blocks: Iterable[bytes]) -> None:
    """Reads a file to its end. Raises Unreadable unless it is what the catalog has."""
    checksum = 0
    for block in guarded(blocks):
        checksum = crc32c(block, checksum)
    check(file, checksum)


def _runs(files: Iterable[Entry], gap_bytes: int) -> Iterator[list[Entry]]:
    run: list[Entry] = []
    end = 0
    for file in files:
        if run and (not 0 <= file.start_byte - end <= gap_bytes or len(run) == _RUN_FILES):
            yield run
            run = []
        run.append(file)
        end = file.end_byte
    if run:
        yield run


class _Run:
    """One request for files that follow each other. What a failure of it costs is found out file by file."""

    def __init__(self, store: Store, key: str, files: Sequence[Entry]) -> None:
        self._store = store
        self._key = key
        self._position = files[0].start_byte
        self._end = files[-1].end_byte
        self._stream: Iterator[bytes] | None = None
        self._block = b""
        self._at = 0
        self._is_broken = False

    def blocks(self, file: Entry) -> Iterator[bytes]:
        position = file.start_byte
        try:
            while position < file.end_byte and not self._is_broken:
                block = self._next(position, file.end_byte)
                position += len(block)
                yield block
        except (Corrupt, StoreFailed):
            # Perhaps of bytes behind those of this file.
            self._is_broken = True
            self._stream = None
        if position < file.end_byte:
            yield from self._store.stream(self._key, position, file.end_byte)

    def _next(self, position: int, end_byte: int) -> bytes:
        """What the request has of `[position, end_byte)` in one block, from its beginning."""
        if self._stream is None:
            self._position = position
            self._stream = self._store.stream(self._key, position, self._end)
        while self._position + len(self._block) - self._at <= position:
            self._position += len(self._block) - self._at
            self._block, self._at = next(self._stream), 0
        self._at += position - self._position
        part = self._block[self._at : self._at + end_byte - position]
        self._at += len(part)
        self._position = position + len(part)
        return part
