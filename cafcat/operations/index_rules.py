"""Rules for the index of an object: which entries and facts about the object the catalog can store."""

from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import Format, RandomReader, UnitReader
from cafcat.model import MAX_PATH_BYTES, NO_UNITS, ArchiveUnits, Entry

__all__ = ["check_has_index", "data_bytes_of", "entry_problem", "own_prefix", "path_problem", "units_in"]

_ONLY_FILES: Final = "caf"
"""Name of the format that has only bytes of files before its index."""

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""Length in characters up to which a path is short enough, even if each character takes four bytes."""


def entry_problem(entry: Entry, position: int) -> str | None:
    """Return the reason why the catalog cannot store an entry; None if it can.

    Args:
        entry: The entry.
        position: The end_byte of the previous entry in the index; 0 for the first entry.
    """
    path, start, _, checksum, _, _, _ = entry
    if reason := path_problem(path):
        return reason
    if checksum is None:
        return "its index has no checksum of the file"
    if start < position:
        return "this file begins before the end of the previous file in the index"
    return None


def check_has_index(archive: RandomReader, index_start_byte: int, file_count: int) -> None:
    """Raise Corrupt for a truncated archive, which has neither an index at its end nor any entry."""
    if index_start_byte >= archive.size_bytes and not file_count:
        message = "the archive has neither an index at its end nor any file"
        raise Corrupt(message, chunk=archive.name, byte=archive.size_bytes)


def data_bytes_of(archive_format: Format, index_start_byte: int, content_bytes: int) -> int:
    """Return the value for `chunks.data_bytes`, which counts the bytes of an archive's files, live or not.

    In a CAF, bytes of files that the writer abandoned count as data. In other formats, bytes of no entry can be
    headers and hashes, so only the entries count.

    Args:
        archive_format: Format of the archive.
        index_start_byte: First byte of the index.
        content_bytes: Sum of the sizes of all entries.
    """
    return index_start_byte if archive_format.name == _ONLY_FILES else content_bytes


def path_problem(path: str) -> str | None:
    """Return the reason why the catalog cannot store a path; None if it can."""
    if not path or "\0" in path or (len(path) > _SHORT_PATH and len(path.encode()) > MAX_PATH_BYTES):
        return f"the catalog cannot store this name: it is empty, has a NUL, or more than {MAX_PATH_BYTES:,} bytes"
    return None


def own_prefix(archive_format: Format, object_key: str) -> str:
    """Return the text that the catalog's paths have before the names in a chunk that cafcat wrote.

    It is empty for formats whose entries are named files. Entries of other formats, such as the sections of an
    archive of logs, have the same names in every archive. For these formats, the text is the object's key.
    """
    return "" if archive_format.names_files else object_key


def units_in(archive_format: Format, archive: RandomReader) -> ArchiveUnits:
    """Return log files and time ranges of an archive of logs; empty for other archives.

    Raises:
        Corrupt: The archive is damaged.
        Unsupported: This version cannot read the archive.
    """
    reader = archive_format.reader(archive)
    return reader.units() if isinstance(reader, UnitReader) else NO_UNITS
