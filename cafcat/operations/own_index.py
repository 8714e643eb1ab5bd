"""Reads an object from its first byte to its last, and compares its files with its own index."""

from collections.abc import Iterator
from contextlib import closing

from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import Format
from cafcat.model import ChunkSummary, Entry
from cafcat.operations.chunk_contents import decoded
from cafcat.operations.index_rules import check_has_index, data_bytes_of, entry_problem, own_prefix
from cafcat.progress import Progress
from cafcat.reading.fetch import object_blocks
from cafcat.stores.base import Store, StoredObject
from cafcat.support.checksums import crc32c, crc64nvme

__all__ = ["WholeObject"]


class WholeObject:
    """Reads all bytes of an object in order, and compares each file with the object's own index.

    The index is also read separately, entry by entry. Memory does not depend on the size of the object or of its
    index.
    """

    def __init__(self, store: Store, key: str, archive_format: Format, progress: Progress) -> None:
        """Prepare to read an object. This reads nothing yet.

        Args:
            store: Where the object is.
            key: Key of the object.
            archive_format: Its format.
            progress: Advances by each block. Its checkpoint is called after each block is read, and may raise.
        """
        self._store = store
        self._key = key
        self._format = archive_format
        self._progress = progress
        self._summary: ChunkSummary | None = None

    @property
    def summary(self) -> ChunkSummary:
        """Sizes and checksums of the object, for the catalog. Read it only after the last item of `entries`."""
        assert self._summary is not None  # noqa: S101 - the caller has read all entries
        return self._summary

    def entries(self) -> Iterator[Entry]:
        """Yield each entry, in order of the bytes, after its bytes proved to have the checksum that the index has.

        The path of an entry is that in the catalog (`own_prefix`).

        Raises:
            NotFound: There is no such object.
            Corrupt: The index is damaged or missing; or an entry has no checksum, another checksum than its bytes,
                a name that the catalog cannot store, or begins before the end of the previous entry.
            Conflict: The object was replaced while it was read.
            Unsupported, NotInstalled: The format, or a version of it, cannot be read here.
            StoreFailed, AccessDenied: The store does not give the bytes.
        """
        archive = StoredObject(self._store, self._key)
        reader = self._format.reader(archive)
        index_start, index_end = reader.index_span
        entries = reader.entries()
        prefix = own_prefix(self._format, self._key)
        file_count = content_bytes = 0
        with closing(object_blocks(self._store, self._key, archive.size_bytes)) as blocks:
            content = _Content(blocks, self._progress)
            for entry in entries:
                if reason := entry_problem(entry, content.position):
                    raise _damaged(reason, entry, archive.name)
                content.skip_to(entry.start_byte)
                found = content.crc32c_of(entry, self._format)
                if found != entry.crc32c:
                    raise _damaged(f"CRC-32C {found:08x}, its index has {entry.crc32c:08x}", entry, archive.name)
                yield entry._replace(path=prefix + entry.path) if prefix else entry
                file_count += 1
                content_bytes += entry.size_bytes
            check_has_index(archive, index_start, file_count)
            content.skip_to(archive.size_bytes)
        data_bytes = data_bytes_of(self._format, index_start, content_bytes)
        self._summary = ChunkSummary(
            archive.size_bytes, index_start, index_end, file_count, data_bytes, content.crc64nvme
        )


def _damaged(message: str, entry: Entry, name: str) -> Corrupt:
    path = shown_path(entry.path)
    return Corrupt(f"the object is damaged: {message}", path=path, chunk=name, byte=entry.start_byte)


class _Content:
    """The bytes of an object in order, each read once.

    Attributes:
        position: Offset of the next byte that is used. The blocks that were read may reach beyond it.
        crc64nvme: CRC-64/NVME of the blocks that were read.
    """

    def __init__(self, blocks: Iterator[bytes], progress: Progress) -> None:
        self._blocks = blocks
        self._progress = progress
        self._block = b""
        self._at = 0
        self.position = 0
        self.crc64nvme = 0

    def skip_to(self, end_byte: int) -> None:
        """Read up to an offset of the object. Raises the errors of the store and of the Progress."""
        for _ in self._parts_until(end_byte):
            pass

    def crc32c_of(self, entry: Entry, archive_format: Format) -> int:
        """Return the CRC-32C of the content of an entry whose span begins here, and read to the end of the span.

        Raises:
            Corrupt: The span cannot be decoded. Errors of the store are raised unchanged.
        """
        checksum = 0
        for block in decoded(archive_format, entry, self._parts_until(entry.end_byte)):
            checksum = crc32c(block, checksum)
        self.skip_to(entry.end_byte)
        return checksum

    def _parts_until(self, end_byte: int) -> Iterator[bytes]:
        while self.position < end_byte:
            if self._at == len(self._block):
                self._next_block()
            part = self._block[self._at : self._at + end_byte - self.position]
            self._at += len(part)
            self.position += len(part)
            yield part

    def _next_block(self) -> None:
        self._block, self._at = next(self._blocks), 0
        self._progress.checkpoint()
        self._progress.advance(0, len(self._block))
        self.crc64nvme = crc64nvme(self._block, self.crc64nvme)
