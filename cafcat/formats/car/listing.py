"""Removes entries with a repeated path from a stream of entries, in bounded memory and reading the stream once."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.formats.repeats import RepeatedNames
from cafcat.model import Entry
from cafcat.support.spool import Spool

__all__ = ["first_of_each_path"]

_RECORD: Final = struct.Struct("<QQqQBHI")
"""Start, end, time, content size, bits for the presence of time and content size, then the sizes in bytes of the
decoding and of the path."""
_MEMORY_BYTES: Final = 8 << 20
"""A longer list spills to a temporary file."""
_FLUSH_BYTES: Final = 256 << 10
_HAS_TIME, _HAS_CONTENT = 1, 2


def first_of_each_path(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries in order. If a path is repeated, only its first entry is yielded.

    All of `entries` is read before the first entry is yielded. Meanwhile the entries are stored in memory, or in a
    temporary file if they exceed 8 MiB. Their checksums are not stored: `crc32c` of each yielded entry is None.
    Memory: 8 MiB, and the memory of RepeatedNames.

    Raises:
        TemporaryFileFailed: the temporary file failed. Errors of `entries` pass through.
    """
    with Spool("a list of files", _MEMORY_BYTES) as spool:
        repeated = RepeatedNames(_store(entries, spool))
        for ordinal, entry in enumerate(_read_back(spool)):
            if ordinal not in repeated:
                yield entry


def _store(entries: Iterable[Entry], spool: Spool) -> Iterator[bytes]:
    """Write the entries to the spool, and yield the path of each as UTF-8."""
    pending = bytearray()
    for path, start, end, _, time, content_bytes, decoding in entries:
        name, text = path.encode(), (decoding or "").encode()
        present = _HAS_TIME * (time is not None) + _HAS_CONTENT * (content_bytes is not None)
        pending += _RECORD.pack(start, end, time or 0, content_bytes or 0, present, len(text), len(name))
        pending += text + name
        if len(pending) >= _FLUSH_BYTES:
            spool.write(pending)
            pending.clear()
        yield name
    spool.write(pending)


def _read_back(spool: Spool) -> Iterator[Entry]:
    """Yield the entries that `_store` wrote to the spool, in order."""
    rest = b""
    for block in spool.blocks_from(0):
        rest += block
        offset = 0
        while offset + _RECORD.size <= len(rest):
            start, end, time, content_bytes, present, decoding_bytes, name_bytes = _RECORD.unpack_from(rest, offset)
            decoding_start = offset + _RECORD.size
            name_start = decoding_start + decoding_bytes
            if name_start + name_bytes > len(rest):
                break
            offset = name_start + name_bytes
            modified_ns = time if present & _HAS_TIME else None
            size_bytes = content_bytes if present & _HAS_CONTENT else None
            decoding = rest[decoding_start:name_start].decode() or None
            yield Entry(rest[name_start:offset].decode(), start, end, None, modified_ns, size_bytes, decoding)
        rest = rest[offset:]
