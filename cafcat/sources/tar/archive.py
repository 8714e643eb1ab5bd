"""Tar archives as sources: what is one, and which of the two ways of reading it is.

This much is asked of every source. What reads archives is loaded only for one.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cafcat.errors import SourceFailed
from cafcat.sources.filter import PathFilter
from cafcat.sources.local.files import OPEN_FLAGS

if TYPE_CHECKING:
    from cafcat.sources.tar.file import TarFileSource
    from cafcat.sources.tar.stream import TarStreamSource

__all__ = ["is_tar", "looks_like_tar", "open_tar"]

_HEAD_BYTES: Final = 1024
_CHECKSUM: Final = re.compile(rb" *[0-7]+(?:[ \0].*)?", re.DOTALL)
"""The field of a header that an ordinary file hardly ever has: octal digits at bytes 148 to 156."""
_MAGICS: Final = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
_COMPRESSED_BYTES: Final = 1 << 20
"""How much compressed data is looked at: bzip2 gives nothing before the first 900 kB of contents are there."""
_NAMES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst")


def open_tar(
    typed: str, *, prefix: str = "", filter: PathFilter | None = None, warn: Callable[[str], None] = lambda _: None
) -> "TarFileSource | TarStreamSource | None":
    """The source that this archive is: "-" is one on standard input. None if it is no archive.

    Args: prefix: folder of the catalog that the names are put into; filter: which members are taken, by their names
    in the archive; warn: is told when the beginning of a name is removed.

    Raises InvalidInput if standard input is none or a terminal.
    """
    kind = "stream" if typed == "-" else is_tar(typed)
    if kind == "tar":
        from cafcat.sources.tar.file import TarFileSource

        return TarFileSource(typed, prefix=prefix, filter=filter, warn=warn)
    if kind == "stream":
        from cafcat.sources.tar.stream import TarStreamSource

        return TarStreamSource(typed, prefix=prefix, filter=filter, warn=warn)
    return None


def is_tar(path: str) -> str | None:
    """What a file is, by its contents: "tar", "stream" (a compressed tar), or None (no archive, no regular file, or
    one that cannot be read).

    A tar begins with a header whose checksum is right. An empty one is nothing but zeros, as other files are: there
    the name decides.
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
    """Whether a file that is there has the name of an archive."""
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
    """The beginning of the contents. Raises SourceFailed if that much cannot be had."""
    from cafcat.sources.tar.input import StreamInput, decompressed

    def beginning() -> Iterator[bytes]:
        piece, seen = head, 0
        while piece and seen < _COMPRESSED_BYTES:
            yield piece
            seen += len(piece)
            piece = os.read(descriptor, 64 << 10)

    return StreamInput(decompressed(beginning())).read(_HEAD_BYTES)
