"""The text of an index, for writers: JSON with the members of each file, as CAF has it."""

from collections.abc import Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final

from cafcat.errors import Refused
from cafcat.formats.index_checksum import CHECKSUM_BYTES, checksum_text
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.support.checksums import crc32c
from cafcat.support.spool import Spool

__all__ = ["MAX_INDEX_BYTES", "IndexText", "entry_text", "longest_text_bytes"]

MAX_INDEX_BYTES: Final = 0xFFFF_FFFF
"""The footer of CAF, which holds the size of the index, is a u32."""

_HEAD: Final = b'{"format_version":"1.0","files":{'
_TAIL: Final = b"}"
"""Ends `files`. The checksum of the index, which ends the index, follows."""

_INDEX_MEMORY_BYTES: Final = 8 << 20
_FLUSH_BYTES: Final = 256 << 10
_BLOCK_BYTES: Final = 1 << 20

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# The members of an entry that the original programs write, and the two that cafcat adds.
_ENTRY: Final = b'%b%b:{"start_byte":%d,"end_byte":%d,"crc32c":%d,"modified_ns":%d}'
_ENTRY_NO_TIME: Final = b'%b%b:{"start_byte":%d,"end_byte":%d,"crc32c":%d}'
_LONGEST_MEMBERS: Final = len(_ENTRY % (b",", b"", _INT64_MAX, _INT64_MAX, 0xFFFF_FFFF, _INT64_MIN))


def _quoted(path: str) -> bytes:
    """The path as a JSON string. Raises Refused."""
    if not path or "\0" in path or len(path) > _SHORT_PATH:
        _check_unusual(path)
    try:
        # json's own function: it escapes what JSON asks for and nothing else.
        return encode_basestring(path).encode()
    except UnicodeEncodeError as error:
        raise Refused("the name is not valid UTF-8", path=path) from error


def entry_text(comma: bytes, entry: Entry) -> bytes:
    """The entry as the index has it. Raises Refused if its name cannot be stored.

    A time that is no signed 64-bit number of nanoseconds (before 1677, after 2262) is left out.
    """
    path, start, end, checksum, modified_ns, _, _ = entry
    quoted = _quoted(path)
    if modified_ns is None or not _INT64_MIN <= modified_ns <= _INT64_MAX:
        return _ENTRY_NO_TIME % (comma, quoted, start, end, checksum)
    return _ENTRY % (comma, quoted, start, end, checksum, modified_ns)


def _check_unusual(path: str) -> None:
    if not path:
        raise Refused("the name is empty", path=path)
    if "\0" in path:
        raise Refused("the name contains a NUL byte", path=path)
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes > MAX_PATH_BYTES:
        raise Refused(f"the name is longer than {MAX_PATH_BYTES:,} bytes ({size_bytes:,})", path=path)


class IndexText:
    """Text of the entries so far; beyond 8 MiB it is in a temporary file."""

    def __init__(self) -> None:
        self.size_bytes = len(_HEAD) + len(_TAIL) + CHECKSUM_BYTES
        """Of the whole index if it ended now."""
        self._checksum = 0
        self._pending = bytearray(_HEAD)
        self._spool = Spool("an index", _INDEX_MEMORY_BYTES)

    def append(self, text: bytes) -> None:
        """Takes text as it is. Raises StoreFailed."""
        self._pending += text
        self.size_bytes += len(text)
        if len(self._pending) >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._checksum = crc32c(bytes(self._pending), self._checksum)
        self._spool.write(self._pending)
        self._pending.clear()

    def blocks(self) -> Iterator[bytes]:
        """The whole index in blocks of 1 MiB (the last is shorter); then the temporary file is gone. Raises
        StoreFailed."""
        self._pending += _TAIL
        self._flush()
        self._spool.write(checksum_text(self._checksum))
        with self._spool:
            yield from self._spool.blocks_from(0, _BLOCK_BYTES)


@lru_cache(maxsize=2)  # a path is asked about twice before it is added
def longest_text_bytes(path: str) -> int:
    """Size in bytes that no entry of this path exceeds in the index. Raises Refused."""
    return len(_quoted(path)) + _LONGEST_MEMBERS
