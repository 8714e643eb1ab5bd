"""Which formats there are, and which of them an archive is."""

from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import Format, RandomReader
from cafcat.formats.caf import CAF

__all__ = ["by_name", "detect"]

_FORMATS: Final[tuple[Format, ...]] = (CAF,)
"""In the order in which they are tried. CAF has no magic number and stays last."""

_SNIFF_BYTES: Final = 64
_SMALLEST_BYTES: Final = 4
"""No format has archives that are smaller."""


def by_name(name: str) -> Format:
    """The format of that name, as in `chunks.format`. Raises Unsupported."""
    for archive_format in _FORMATS:
        if archive_format.name == name:
            return archive_format
    raise Unsupported(f"there is no format {name!r}", hint=f"this version has {_names()}")


def detect(archive: RandomReader) -> Format:
    """The format of an archive, by its first and last bytes; whether it is whole is for its reader to say.

    Raises Corrupt if it is too small for any format, Unsupported if it looks like none.
    """
    size = archive.size_bytes
    if size < _SMALLEST_BYTES:
        message = f"{size} bytes are too few for an archive of any format, the smallest has {_SMALLEST_BYTES}"
        raise Corrupt(message, chunk=archive.name)
    head = archive.read_at(0, min(size, _SNIFF_BYTES))
    tail = archive.read_at(max(0, size - _SNIFF_BYTES), size)
    for archive_format in _FORMATS:
        if archive_format.sniff(head, tail):
            return archive_format
    message = "not an archive, or one whose end is missing"
    raise Unsupported(message, chunk=archive.name, hint=f"this version knows {_names()}")


def _names() -> str:
    return ", ".join(archive_format.name for archive_format in _FORMATS)
