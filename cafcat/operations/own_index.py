"""An object read from its first byte to its last, against its own index: whether it is whole."""

from collections.abc import Callable, Iterator

from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import Format
from cafcat.model import ChunkSummary, Entry
from cafcat.operations.chunk_contents import decoded
from cafcat.operations.index_rules import check_has_index, data_bytes_of, own_prefix, refusal
from cafcat.stores.base import Store, StoredObject
from cafcat.support.checksums import crc32c, crc64nvme

__all__ = ["read_whole"]


def read_whole(
    store: Store,
    key: str,
    archive_format: Format,
    take: Callable[[Entry], object],
    advance: Callable[[int], object],
) -> ChunkSummary:
    """Reads all of an object, once and in order, and its index beforehand. Calls `take` with each entry whose bytes
    have the checksum that the index says, in order of its bytes; `advance` with the size of each block (at most
    1 MiB) before it is looked at. Memory does not depend on the size of the object or of its index.

    Raises NotFound if there is no such object; Corrupt if it is not exactly what cafcat writes: its index can be
    read to the end, every entry has a checksum and a name that the catalog can hold, no two entries share a byte,
    and every checksum is right; Unsupported; StoreFailed.
    """
    archive = StoredObject(store, key)
    reader = archive_format.reader(archive)
    index_start, index_end = reader.index_span
    entries = reader.entries()
    prefix = own_prefix(archive_format, key)
    content = _Content(store.stream(key, 0, archive.size_bytes), advance)
    file_count = content_bytes = 0
    for entry in entries:
        if reason := refusal(entry, content.position):
            raise _damaged(reason, entry, archive.name)
        content.pass_until(entry.start_byte)
        found = content.crc32c_of(entry, archive_format)
        if found != entry.crc32c:
            raise _damaged(f"CRC-32C {found:08x} where its index has {entry.crc32c:08x}", entry, archive.name)
        take(entry._replace(path=prefix + entry.path) if prefix else entry)
        file_count += 1
        content_bytes += entry.size_bytes
    check_has_index(archive, index_start, file_count)
    content.pass_until(archive.size_bytes)
    data_bytes = data_bytes_of(archive_format, index_start, content_bytes)
    return ChunkSummary(archive.size_bytes, index_start, index_end, file_count, data_bytes, content.crc64nvme)


def _damaged(message: str, entry: Entry, name: str) -> Corrupt:
    path = shown_path(entry.path)
    return Corrupt(f"the object is damaged: {message}", path=path, chunk=name, byte=entry.start_byte)


class _Content:
    """The bytes of an object in order, each of them looked at once. position: how many were."""

    def __init__(self, blocks: Iterator[bytes], advance: Callable[[int], object]) -> None:
        self._blocks = blocks
        self._advance = advance
        self._block = b""
        self._at = 0
        self.position = 0
        self.crc64nvme = 0

    def pass_until(self, end_byte: int) -> None:
        """Raises what the stream of blocks raises."""
        for _ in self._parts_until(end_byte):
            pass

    def crc32c_of(self, entry: Entry, archive_format: Format) -> int:
        """Of the content of an entry whose span begins here, up to its end. Raises Corrupt, too."""
        checksum = 0
        for block in decoded(archive_format, entry, self._parts_until(entry.end_byte)):
            checksum = crc32c(block, checksum)
        self.pass_until(entry.end_byte)
        return checksum

    def _parts_until(self, end_byte: int) -> Iterator[bytes]:
        """The bytes from here to there."""
        while self.position < end_byte:
            if self._at == len(self._block):
                self._next_block()
            part = self._block[self._at : self._at + end_byte - self.position]
            self._at += len(part)
            self.position += len(part)
            yield part

    def _next_block(self) -> None:
        self._block, self._at = next(self._blocks), 0
        self._advance(len(self._block))
        self.crc64nvme = crc64nvme(self._block, self.crc64nvme)
