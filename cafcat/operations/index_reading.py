"""A chunk's own index, read by ranges and nothing else of the chunk, on its way into a catalog."""

from collections.abc import Iterator

from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import Format
from cafcat.model import ChunkSummary, Entry
from cafcat.operations.index_rules import check_has_index, data_bytes_of, refusal
from cafcat.operations.index_section import IndexSection
from cafcat.stores.base import StoredObject

__all__ = ["read_index"]


def read_index(
    archive: StoredObject,
    archive_format: Format,
    mapping: Mapping,
    span: tuple[int, int] | None,
    *,
    head: bytes = b"",
    prefix: str = "",
) -> ChunkSummary:
    """Fetches the index of a chunk once and puts its entries into a mapping. span: where the index has to be, if
    that is known; head: as in IndexSection; prefix: what paths begin with before the names in it. crc64nvme of the
    summary is 0: that would take all bytes.

    Raises Corrupt if the index is elsewhere, cannot be read to its end, or has an entry without checksum, with a
    name that the catalog cannot hold, or before the end of the one before; NotFound, Unsupported, StoreFailed;
    TemporaryFileFailed.
    """
    start, end = archive_format.reader(archive).index_span
    if span not in (None, (start, end)):
        message = f"its index is in bytes [{start}, {end}), its journal record says [{span[0]}, {span[1]})"
        raise Corrupt(message, chunk=archive.name)
    if start == archive.size_bytes:
        return _read_elsewhere(archive, archive_format, mapping, prefix)
    with IndexSection(archive.name, start, archive.blocks_from(start), head) as section:
        for entry in _checked(archive_format.reader(section).entries(), archive.name):
            mapping.add(entry)
        mapping.flush()
        checksum = section.crc32c
    files = mapping.file_count
    data_bytes = data_bytes_of(archive_format, start, mapping.size_bytes)
    return ChunkSummary(archive.size_bytes, start, end, files, data_bytes, 0, index_crc32c=checksum)


def _read_elsewhere(archive: StoredObject, archive_format: Format, mapping: Mapping, prefix: str) -> ChunkSummary:
    """Of an archive that has no index at its end: its format knows where to read."""
    for entry in _checked(archive_format.reader(archive).entries(), archive.name):
        mapping.add(entry._replace(path=prefix + entry.path))
    mapping.flush()
    size, files = archive.size_bytes, mapping.file_count
    check_has_index(archive, size, files)
    return ChunkSummary(size, size, size, files, data_bytes_of(archive_format, size, mapping.size_bytes), 0)


def _checked(entries: Iterator[Entry], name: str) -> Iterator[Entry]:
    position = 0
    for entry in entries:
        if reason := refusal(entry, position):
            raise Corrupt(reason, path=shown_path(entry.path), chunk=name, byte=entry.start_byte)
        position = entry.end_byte
        yield entry
