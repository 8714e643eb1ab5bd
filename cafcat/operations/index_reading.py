"""Reads the index that a chunk contains, and adds its entries to a Mapping: rows of file_locations.

No contents of files are read.
"""

from collections.abc import Iterator

from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import Format
from cafcat.model import ChunkSummary, Entry
from cafcat.operations.index_rules import check_has_index, data_bytes_of, entry_problem
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
    """Read the index of a chunk once, and put its entries into a mapping.

    Args:
        archive: The object.
        archive_format: Format of the object.
        mapping: Receives the entries.
        span: First byte of the index and the byte after it, as in the journal record; None if they are unknown.
        head: The first bytes of the object, if the format needs them to find the index.
        prefix: Put before the names in an archive without an index at its end; not used for other archives.

    Returns:
        The summary of the chunk. Its crc64nvme is 0, because a checksum needs all bytes.

    Raises:
        Corrupt: The index is damaged, or is not at `span`; or an entry has no checksum, has a name that the catalog
            cannot store, or begins before the end of the previous entry.
        NotFound, StoreFailed, AccessDenied: The object cannot be read.
        Conflict: The object was replaced while it was read.
        Unsupported, NotInstalled: The index cannot be read here.
        TemporaryFileFailed: A temporary file cannot be written.
    """
    start, end = archive_format.reader(archive).index_span
    if span not in (None, (start, end)):
        message = f"its index is in bytes [{start}, {end}), not [{span[0]}, {span[1]}) as in its journal record"
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
    """Read the index of an archive that has no index at its end. The archive's format finds the index elsewhere."""
    for entry in _checked(archive_format.reader(archive).entries(), archive.name):
        mapping.add(entry._replace(path=prefix + entry.path))
    mapping.flush()
    size, files = archive.size_bytes, mapping.file_count
    check_has_index(archive, size, files)
    return ChunkSummary(size, size, size, files, data_bytes_of(archive_format, size, mapping.size_bytes), 0)


def _checked(entries: Iterator[Entry], name: str) -> Iterator[Entry]:
    position = 0
    for entry in entries:
        if reason := entry_problem(entry, position):
            raise Corrupt(reason, path=shown_path(entry.path), chunk=name, byte=entry.start_byte)
        position = entry.end_byte
        yield entry
