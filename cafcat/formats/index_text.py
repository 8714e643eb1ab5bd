"""Makes the JSON text of the index that ends a CAF. CAR and ChunkIO archives of cafcat use the same text."""

from collections.abc import Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final

from cafcat.errors import Refused
from cafcat.formats.index_checksum import CHECKSUM_BYTES, CHECKSUM_TEXT
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.support.checksums import crc32c
from cafcat.support.spool import Spool

__all__ = ["MAX_INDEX_BYTES", "IndexText", "entry_text", "longest_text_bytes"]

MAX_INDEX_BYTES: Final = 0xFFFF_FFFF
"""Largest index in bytes: the footer of CAF stores the size of the index as a u32."""

_HEAD: Final = b'{"format_version":"1.0","files":{'
_TAIL: Final = b"}"
"""Ends the member `files`. The checksum member follows and ends the index."""

_INDEX_MEMORY_BYTES: Final = 4 << 20
"""A larger index spills to a temporary file."""
_FLUSH_BYTES: Final = 256 << 10
_BLOCK_BYTES: Final = 1 << 20

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of at most this many characters cannot exceed MAX_PATH_BYTES: UTF-8 uses at most 4 bytes per character."""
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# `start_byte` and `end_byte` are the members of the original programs; cafcat adds `crc32c` and `modified_ns`.
_ENTRY: Final = b'%b%b:{"start_byte":%d,"end_byte":%d,"crc32c":%d,"modified_ns":%d}'
_ENTRY_NO_TIME: Final = b'%b%b:{"start_byte":%d,"end_byte":%d,"crc32c":%d}'
_LONGEST_MEMBERS: Final = len(_ENTRY % (b",", b"", _INT64_MAX, _INT64_MAX, 0xFFFF_FFFF, _INT64_MIN))


def _quoted(path: str) -> bytes:
    """Return the path as a JSON string. Raises Refused for a path that cannot be stored."""
    if not path or "\0" in path or len(path) > _SHORT_PATH:
        _check_path(path)
    try:
        # This function of the json module escapes only the characters that JSON requires to be escaped.
        return encode_basestring(path).encode()
    except UnicodeEncodeError as error:
        raise Refused("the name is not valid UTF-8", path=path) from error


def entry_text(comma: bytes, entry: Entry) -> bytes:
    """Return the JSON text of one entry in the index.

    A modification time that does not fit a signed 64-bit number of nanoseconds (before 1677 or after 2262) is left
    out.

    Args:
        comma: b"," or b"", written before the entry.
        entry: the entry, which must have a `crc32c`. Its `content_bytes` and `decoding` are not written.

    Raises:
        Refused: the name is empty, has a NUL byte, is too long, or is not valid UTF-8.
    """
    path, start, end, checksum, modified_ns, _, _ = entry
    quoted = _quoted(path)
    if modified_ns is None or not _INT64_MIN <= modified_ns <= _INT64_MAX:
        return _ENTRY_NO_TIME % (comma, quoted, start, end, checksum)
    return _ENTRY % (comma, quoted, start, end, checksum, modified_ns)


def _check_path(path: str) -> None:
    if not path:
        raise Refused("the name is empty", path=path)
    if "\0" in path:
        raise Refused("the name contains a NUL byte", path=path)
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes > MAX_PATH_BYTES:
        raise Refused(f"the name is longer than {MAX_PATH_BYTES:,} bytes ({size_bytes:,})", path=path)


class IndexText:
    """Collects the JSON text of an index while its archive is written. Beyond 8 MiB it uses a temporary file.

    Attributes:
        size_bytes: size in bytes of the whole index if it ended now.
    """

    def __init__(self) -> None:
        self.size_bytes = len(_HEAD) + len(_TAIL) + CHECKSUM_BYTES
        self._checksum = 0
        self._pending = bytearray(_HEAD)
        self._spool = Spool("an index", _INDEX_MEMORY_BYTES)

    def append(self, text: bytes) -> None:
        """Append the text of one or more entries (see `entry_text`) to the index.

        Raises:
            StoreFailed: the temporary file cannot be written.
        """
        self._pending += text
        self.size_bytes += len(text)
        if len(self._pending) >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._checksum = crc32c(bytes(self._pending), self._checksum)
        self._spool.write(self._pending)
        self._pending.clear()

    def blocks(self) -> Iterator[bytes]:
        """End the index, yield its text in blocks of at most 1 MiB, and remove the temporary file. Call this once.

        Raises:
            StoreFailed: the temporary file cannot be read or written.
        """
        self._pending += _TAIL
        self._flush()
        self._spool.write(CHECKSUM_TEXT % self._checksum)
        yield from self._spool.blocks_from(0, _BLOCK_BYTES)
        self._spool.close()


@lru_cache(maxsize=2)  # writers compute this size twice for a path before they add the file
def longest_text_bytes(path: str) -> int:
    """Return the largest size in bytes that an entry with this path can have in the index.

    Raises Refused for a path that cannot be stored.
    """
    return len(_quoted(path)) + _LONGEST_MEMBERS
