"""What the entries of an object's own index have to be like, for the catalog to take them."""

from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import Format, RandomReader
from cafcat.model import MAX_PATH_BYTES, Entry

__all__ = ["check_has_index", "data_bytes_of", "refusal"]

_ONLY_FILES: Final = "caf"
"""The format that has nothing but bytes of files before its index."""

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""


def refusal(entry: Entry, position: int) -> str | None:
    """Why it cannot be taken; None if it can. position: the end_byte of the entry before it in the index, 0 for the
    first."""
    path, start, _, checksum, _, _, _ = entry
    if not path or "\0" in path or (len(path) > _SHORT_PATH and len(path.encode()) > MAX_PATH_BYTES):
        return "the catalog cannot hold this name"
    if checksum is None:
        return "its index has no checksum of the file"
    if start < position:
        return "two files share bytes, or are not in order"
    return None


def check_has_index(archive: RandomReader, index_start_byte: int) -> None:
    """Raises Corrupt for an archive of another program, or what is left of one, that has no index at its end."""
    if index_start_byte >= archive.size_bytes:
        raise Corrupt("it has no index of its files", chunk=archive.name, byte=archive.size_bytes)


def data_bytes_of(archive_format: Format, index_start_byte: int, content_bytes: int) -> int:
    """What a writer notes as `data_bytes` of its archive; content_bytes: of all its entries. In CAF, what a writer
    gave up half-way is seen as bytes of no entry; in the others these may be headers and hashes as well."""
    return index_start_byte if archive_format.name == _ONLY_FILES else content_bytes
