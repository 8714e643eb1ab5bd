"""Reads files of one object in the order of their bytes, and compares their checksums with those in the catalog."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow
from cafcat.errors import CafcatError, Corrupt
from cafcat.formats.base import Format
from cafcat.model import Entry
from cafcat.reading.coalescing import RangeRead, coalesce, coalescing_of
from cafcat.reading.fetch import Answer, concerns_single_files, fetch
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.quantities import to_nanoseconds

__all__ = ["Unreadable", "check", "check_all", "contents", "decoded", "entry_of", "guarded"]

_BLOCK_BYTES: Final = 1 << 20


class Unreadable(Exception):
    """The right bytes of one file cannot be read from one object.

    Attributes:
        reason: The error: of the store, of the decoding, or a wrong checksum.
    """

    def __init__(self, reason: CafcatError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def entry_of(row: ChunkRow) -> Entry:
    """Return the row of a file in the catalog as an Entry, which is also the form of entries of an index."""
    path, start, end, checksum, modified_us, _, content_bytes, decoding = row
    return Entry(path, start, end, checksum, to_nanoseconds(modified_us), content_bytes, decoding)


def contents(
    store: Store, key: str, files: Iterable[Entry]
) -> Generator[tuple[Entry, Iterator[bytes]], None, None]:
    """Yield each file with the bytes of its span, in blocks of at most 1 MiB.

    Near files share a request, and from a remote store several requests are in flight. Memory does not depend on
    the number of files. Iterate over the blocks of a file before the next file, or not at all. Close the generator
    if not all files are needed.

    Args:
        store: Where the object is.
        key: Key of the object.
        files: Files in the order of their bytes.

    Raises:
        Corrupt, NotFound, AccessDenied, Conflict, StoreFailed: Raised by the iterator of a file whose bytes cannot
            be read. The next file can be requested nevertheless.
    """
    reads = coalesce(store.url, key, files, coalescing_of(store))
    with closing(fetch(store, reads)) as answers:
        for read, answer in answers:
            yield from _contents_of(store, read, answer)


def _contents_of(store: Store, read: RangeRead[Entry], answer: Answer) -> Iterator[tuple[Entry, Iterator[bytes]]]:
    """Yield the files of one range read, each with the bytes of its span.

    This is a function of its own, so that its bytes are released before the next answer arrives.
    """
    spans = _Spans(store, read, answer)
    for file in read.files:
        yield file, spans.blocks(file)


class _Spans:
    """The bytes of one range read that several files share, given out file by file.

    If the read fails for damage, or for an I/O error of a local disk, each file is read on its own, because the
    failure may concern only another file. Other errors are raised for each file.
    """

    def __init__(self, store: Store, read: RangeRead[Entry], answer: Answer) -> None:
        self._store = store
        self._read = read
        self._answer = answer
        self._data: bytes | None = None
        self._is_single = read.in_blocks

    def blocks(self, file: Entry) -> Iterator[bytes]:
        """Yield the bytes of a file's span, in blocks of at most 1 MiB."""
        start, end = file.start_byte, file.end_byte
        if start == end:
            return
        data = None if self._is_single else self._bytes()
        if data is None:
            yield from self._store.stream(self._read.object_key, start, end)
            return
        shift = self._read.start_byte
        for at in range(start, end, _BLOCK_BYTES):
            yield data[at - shift : min(at + _BLOCK_BYTES, end) - shift]

    def _bytes(self) -> bytes | None:
        """Return the bytes of the whole range read; None if each file has to be read on its own."""
        if self._data is None:
            try:
                self._data = self._answer.data()
            except CafcatError as error:
                if not concerns_single_files(self._store, error):
                    raise
                self._is_single = True
        return self._data


def decoded(archive_format: Format, file: Entry, span: Iterator[bytes]) -> Iterator[bytes]:
    """Return the content of a file in blocks: the bytes of its span, decoded if the file has a decoding.

    Args:
        archive_format: Format of the chunk.
        file: The file.
        span: Bytes of the span of the file.
    """
    return span if file.decoding is None else archive_format.decode(span, file)


def guarded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the given blocks. If reading the next block raises CafcatError, raise Unreadable with that error.

    Thereby a caller that also writes can distinguish errors of reading and of writing.

    Args:
        blocks: Content of a file. Its iterator raises CafcatError if the file cannot be read.
    """
    try:
        yield from blocks
    except CafcatError as error:
        raise Unreadable(error) from error


def check(file: Entry, found: int) -> None:
    """Compare the CRC-32C of a file's content (`found`) with the catalog's. Raises Unreadable if they differ."""
    if found != file.crc32c:
        message = f"its bytes are damaged: CRC-32C {found:08x}, the catalog has {file.crc32c:08x}"
        raise Unreadable(Corrupt(message))


def check_all(file: Entry, blocks: Iterable[bytes]) -> None:
    """Read a file to its end. Raises Unreadable if that fails, or if its checksum differs from the catalog's."""
    checksum = 0
    for block in guarded(blocks):
        checksum = crc32c(block, checksum)
    check(file, checksum)
