"""Entries that are found while an archive is gone through: each path once, in bounded memory, in one go."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.formats.repeats import RepeatedNames
from cafcat.model import Entry
from cafcat.support.spool import Spool

__all__ = ["first_of_each"]

_RECORD: Final = struct.Struct("<QQqQBHI")
"""Start, end, time, content; whether the latter two, and a decoding, are there; bytes of decoding and path."""
_MEMORY_BYTES: Final = 8 << 20
_FLUSH_BYTES: Final = 256 << 10
_HAS_TIME, _HAS_CONTENT = 1, 2


def first_of_each(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries in order, of a path that comes twice the first. They are gone through at the first one that is
    asked for; until the last one they wait in a temporary file if they take more than 8 MiB. Memory: that, and what
    RepeatedNames needs. Raises what going through them raises, and TemporaryFileFailed."""
    with Spool("a list of files", _MEMORY_BYTES) as spool:
        repeated = RepeatedNames(_kept(entries, spool))
        for ordinal, entry in enumerate(_given(spool)):
            if ordinal not in repeated:
                yield entry


def _kept(entries: Iterable[Entry], spool: Spool) -> Iterator[bytes]:
    """Writes them down; gives their paths."""
    pending = bytearray()
    for path, start, end, _, time, content_bytes, decoding in entries:
        name, word = path.encode(), (decoding or "").encode()
        marks = _HAS_TIME * (time is not None) + _HAS_CONTENT * (content_bytes is not None)
        pending += _RECORD.pack(start, end, time or 0, content_bytes or 0, marks, len(word), len(name))
        pending += word + name
        if len(pending) >= _FLUSH_BYTES:
            spool.write(pending)
            pending.clear()
        yield name
    spool.write(pending)


def _given(spool: Spool) -> Iterator[Entry]:
    rest = b""
    for block in spool.blocks_from(0):
        rest += block
        at = 0
        while at + _RECORD.size <= len(rest):
            start, end, time, content_bytes, marks, word_bytes, name_bytes = _RECORD.unpack_from(rest, at)
            word_at = at + _RECORD.size
            name_at = word_at + word_bytes
            if name_at + name_bytes > len(rest):
                break
            at = name_at + name_bytes
            modified_ns = time if marks & _HAS_TIME else None
            size_bytes = content_bytes if marks & _HAS_CONTENT else None
            decoding = rest[word_at:name_at].decode() or None
            yield Entry(rest[name_at:at].decode(), start, end, None, modified_ns, size_bytes, decoding)
        rest = rest[at:]
