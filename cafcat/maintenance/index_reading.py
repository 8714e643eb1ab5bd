"""A chunk's own index, read by ranges and nothing else of the chunk, on its way into a catalog."""

from collections.abc import Iterator
from typing import Final

from cafcat.catalog.mapping import Mapping
from cafcat.errors import Corrupt
from cafcat.formats.base import Format
from cafcat.maintenance.index_section import IndexSection
from cafcat.model import MAX_PATH_BYTES, ChunkSummary, Entry
from cafcat.stores.base import StoredObject

__all__ = ["read_index"]

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""


def read_index(
    archive: StoredObject, archive_format: Format, mapping: Mapping, span: tuple[int, int] | None
) -> ChunkSummary:
    """Fetches the index of a chunk once and puts its entries into a mapping. span: where the index has to be, if
    that is known. crc64nvme of the summary is 0: that would take all bytes.

    Raises Corrupt if the index is elsewhere, cannot be read to its end, or has an entry without checksum, with a
    name that the catalog cannot hold, or before the end of the one before; NotFound, Unsupported, StoreFailed;
    TemporaryFileFailed.
    """
    start, end = archive_format.reader(archive).index_span
    if span not in (None, (start, end)):
        message = f"its index is in bytes [{start}, {end}), its line of the journal says [{span[0]}, {span[1]})"
        raise Corrupt(message, chunk=archive.name)
    with IndexSection(archive.name, start, archive.blocks_from(start)) as section:
        for entry in _checked(archive_format.reader(section).entries(), archive.name):
            mapping.add(entry)
        mapping.flush()
        checksum = section.crc32c
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
