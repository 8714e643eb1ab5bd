"""Detects tar archives, and opens them as a file or as a stream.

This module is loaded for every file that is named. The modules that read archives are loaded only for an archive.
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.errors import SourceFailed
from cafcat.progress import Progress
from cafcat.sources.filter import PathFilter
from cafcat.sources.local.files import OPEN_FLAGS

if TYPE_CHECKING:
    from cafcat.sources.tar.file import TarFileSource
    from cafcat.sources.tar.stream import TarStreamSource

__all__ = ["is_tar", "looks_like_tar", "open_tar"]

_HEAD_BYTES: Final = 1024
"""Bytes at the start of a file that are examined."""
_CHECKSUM: Final = re.compile(rb" *[0-7]+(?:[ \0].*)?", re.DOTALL)
"""Checksum field of a header: octal digits in bytes 148 to 155, which ordinary files hardly ever have."""
_MAGICS: Final = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
_COMPRESSED_BYTES: Final = 1 << 20
"""Most compressed bytes that are examined. bzip2 data is only decompressed in whole blocks of up to 900 kB."""
_NAMES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst")
"""Suffixes of archive names."""


def open_tar(
    typed: str, *, prefix: str = "", filter: PathFilter | None = None, progress: Progress | None = None
) -> "TarFileSource | TarStreamSource | None":
    """Return the source for a tar archive, or None if the file is not a tar archive (`is_tar`).

    Args:
        typed: The path as the user typed it; "-" for an archive on standard input.
        prefix: Folder of the catalog that the names are put into.
        filter: Which members to ingest, by their names in the archive. None: all.
        progress: Receives a warning if the beginning of a member's name is removed.

    Raises:
        InvalidInput: Standard input is closed or a terminal.
        NotFound, SourceFailed: The archive was removed, or cannot be opened any more, after its start was examined.
    """
    kind = "stream" if typed == "-" else is_tar(typed)
    if kind == "tar":
        from cafcat.sources.tar.file import TarFileSource

        return TarFileSource(typed, prefix=prefix, filter=filter, progress=progress)
    if kind == "stream":
        from cafcat.sources.tar.stream import TarStreamSource

        return TarStreamSource(typed, prefix=prefix, filter=filter, progress=progress)
    return None


def is_tar(path: str) -> str | None:
    """Detect a tar archive by its contents.

    A tar archive begins with a header whose checksum is right. An empty archive consists of zeros, as other files
    may: then the name decides.

    Returns:
        "tar" for an uncompressed archive, "stream" for a compressed one. None if the file is missing, not an
        archive, not a regular file, or cannot be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError):
        return None
    try:
        return _kind(descriptor, path)
    except (OSError, SourceFailed):
        return None
    finally:
        os.close(descriptor)


def looks_like_tar(path: str) -> bool:
    """Return True if there is a file at a path, and its name ends like that of a tar archive, as "a.tgz" does."""
    return path.lower().endswith(_NAMES) and os.path.isfile(path)


def _kind(descriptor: int, path: str) -> str | None:
    head = os.read(descriptor, _HEAD_BYTES)
    if _is_archive(head, path):
        return "tar"
    if head.startswith(_MAGICS) and _is_archive(_decompressed(descriptor, head), path):
        return "stream"
    return None


def _is_archive(head: bytes, path: str) -> bool:
    if head.count(0) == _HEAD_BYTES:
        return path.lower().endswith(_NAMES)
    if not _CHECKSUM.fullmatch(head[148:156]):
        return False
    from cafcat.sources.tar.headers import BLOCK_BYTES, is_header

    return is_header(head[:BLOCK_BYTES])


def _decompressed(descriptor: int, head: bytes) -> bytes:
    """Return the beginning of a compressed file's contents. Raises SourceFailed if it cannot be decompressed."""
    from cafcat.sources.tar.input import StreamInput, decompressed

    def beginning() -> Iterator[bytes]:
        piece, seen = head, 0
        while piece and seen < _COMPRESSED_BYTES:
            yield piece
            seen += len(piece)
            piece = os.read(descriptor, 64 << 10)

    return StreamInput(decompressed(beginning())).read(_HEAD_BYTES)
