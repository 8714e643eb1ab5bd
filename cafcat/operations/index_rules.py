"""What the entries of an object's own index have to be like, for the catalog to take them."""

from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import Format, RandomReader, UnitReader
from cafcat.model import MAX_PATH_BYTES, NO_UNITS, ArchiveUnits, Entry

__all__ = ["check_has_index", "data_bytes_of", "own_prefix", "refusal", "units_in", "unnameable"]

_ONLY_FILES: Final = "caf"
"""The format that has nothing but bytes of files before its index."""

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""


def refusal(entry: Entry, position: int) -> str | None:
    """Why it cannot be taken; None if it can. position: the end_byte of the entry before it in the index, 0 for the
    first."""
    path, start, _, checksum, _, _, _ = entry
    if reason := unnameable(path):
        return reason
    if checksum is None:
        return "its index has no checksum of the file"
    if start < position:
        return "two files share bytes, or are not in order"
    return None


def check_has_index(archive: RandomReader, index_start_byte: int, file_count: int) -> None:
    """Raises Corrupt for what is left of an archive, that has neither an index at its end nor any entry."""
    if index_start_byte >= archive.size_bytes and not file_count:
        raise Corrupt("it has no index of its files", chunk=archive.name, byte=archive.size_bytes)


def data_bytes_of(archive_format: Format, index_start_byte: int, content_bytes: int) -> int:
    """What a writer notes as `data_bytes` of its archive; content_bytes: of all its entries. In CAF, what a writer
    gave up half-way is seen as bytes of no entry; in the others these may be headers and hashes as well."""
    return index_start_byte if archive_format.name == _ONLY_FILES else content_bytes


def unnameable(path: str) -> str | None:
    """Why the catalog cannot have a file of that name; None if it can."""
    if not path or "\0" in path or (len(path) > _SHORT_PATH and len(path.encode()) > MAX_PATH_BYTES):
        return "the catalog cannot hold this name"
    return None


def own_prefix(archive_format: Format, object_key: str) -> str:
    """What paths of a chunk of cafcat's own begin with before the names in it."""
    return "" if archive_format.names_files else object_key


def units_in(archive_format: Format, archive: RandomReader) -> ArchiveUnits:
    """Log files and times of an archive, if it is one of logs. Raises Corrupt, Unsupported."""
    reader = archive_format.reader(archive)
    return reader.units() if isinstance(reader, UnitReader) else NO_UNITS
