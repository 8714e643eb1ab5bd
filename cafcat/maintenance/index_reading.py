"""A chunk's own index, read by ranges and nothing else of the chunk, on its way into a catalog."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Final

from cafcat.catalog.mapping import Mapping
from cafcat.checksums import crc32c
from cafcat.errors import Corrupt, OutputFailed, StoreFailed
from cafcat.formats.base import Format
from cafcat.model import MAX_PATH_BYTES, ChunkSummary, Entry
from cafcat.stores.base import Store

__all__ = ["KnownObject", "read_index"]

_MEMORY_BYTES: Final = 4 << 20
_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""


class KnownObject:
    """An object of known size as a RandomReader for formats: nobody has to be asked for that."""

    def __init__(self, store: Store, key: str, size_bytes: int) -> None:
        self._store, self._key = store, key
        self.name = store.locate(key)
        self.size_bytes = size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        return self._store.read(self._key, start_byte, end_byte)

    def blocks(self, start_byte: int) -> Iterator[bytes]:
        """From there to the end, by one request."""
        return self._store.stream(self._key, start_byte, self.size_bytes)


class _Tail:
    """The same, of which everything from `start_byte` on was fetched."""

    def __init__(self, archive: KnownObject, start_byte: int, file: "SpooledTemporaryFile[bytes]") -> None:
        self._archive, self._start_byte, self._file = archive, start_byte, file
        self.name, self.size_bytes = archive.name, archive.size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        if start_byte < self._start_byte:
            return self._archive.read_at(start_byte, end_byte)
        self._file.seek(start_byte - self._start_byte)
        return self._file.read(end_byte - start_byte)


def read_index(
    archive: KnownObject, archive_format: Format, mapping: Mapping, span: tuple[int, int] | None
) -> ChunkSummary:
    """Fetches the index of a chunk once and puts its entries into a mapping. span: where the index has to be, if
    that is known. crc64nvme of the summary is 0: that would take all bytes.

    Raises Corrupt if the index is elsewhere, cannot be read to its end, or has an entry without checksum, with a
    name that the catalog cannot hold, or before the end of the one before; NotFound, Unsupported, StoreFailed;
    OutputFailed where there is no room for temporary files.
    """
    start, end = archive_format.reader(archive).index_span
    if span not in (None, (start, end)):
        message = f"its index is in bytes [{start}, {end}), its line of the journal says [{span[0]}, {span[1]})"
        raise Corrupt(message, chunk=archive.name)
    with _temporary_file() as file:
        checksum = 0
        for block in archive.blocks(start):
            checksum = crc32c(block, checksum)
            file.write(block)
        reader = archive_format.reader(_Tail(archive, start, file))
        try:
            for entry in _checked(reader.entries(), archive.name):
                mapping.add(entry)
            mapping.flush()
        except StoreFailed as error:  # nothing is read from the store any more: it is our own disk
            raise OutputFailed(error.message, hint=error.hint) from error
    return ChunkSummary(archive.size_bytes, start, end, mapping.file_count, start, 0, index_crc32c=checksum)


def _checked(entries: Iterator[Entry], name: str) -> Iterator[Entry]:
    position = 0
    for entry in entries:
        path, start, end, checksum, _ = entry
        if not path or "\0" in path or (len(path) > _SHORT_PATH and len(path.encode()) > MAX_PATH_BYTES):
            raise Corrupt("the catalog cannot hold this name", path=path[:200], chunk=name, byte=start)
        if checksum is None:
            raise Corrupt("its index has no checksum of a file", path=path, chunk=name, byte=start)
        if start < position:
            raise Corrupt("two files share bytes, or are not in order", path=path, chunk=name, byte=start)
        position = end
        yield entry


@contextmanager
def _temporary_file() -> Iterator["SpooledTemporaryFile[bytes]"]:
    try:
        with SpooledTemporaryFile(max_size=_MEMORY_BYTES) as file:
            yield file
    except OSError as error:
        hint = "free space in the folder for temporary files, or set TMPDIR"
        raise OutputFailed(f"a temporary file failed: {error.strerror or error}", hint=hint) from error
