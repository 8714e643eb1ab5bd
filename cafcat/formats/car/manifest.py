"""What cafcat's own CARs say of their files, beyond what UnixFS can: the index of CAF, before the CAR's own.

A CARv2 may have padding between payload and index, which readers pass over. There stand the index of CAF 1.0 with
its footer, so that everything up to there is a CAF archive, too, and a trailer of 32 bytes by which it is known.
"""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.caf.reader import CafReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import CID_BYTES
from cafcat.formats.car.header import Layout
from cafcat.model import Entry

__all__ = ["FOOTER", "LEAF_BYTES", "SECTIONS", "TRAILER_BYTES", "Manifest", "find", "large_file_bytes", "trailer"]

LEAF_BYTES: Final = 1 << 20
"""A file of at most so many bytes is one block; larger ones are cut into such."""
SECTIONS: Final = "sections"
"""The decoding of what is made of the blocks of all sections of its span."""

FOOTER: Final = struct.Struct("<I")
TRAILER_BYTES: Final = 32
_TRAILER: Final = struct.Struct("<16sQQ")
_MAGIC: Final = b"\0cafcat manifest"
_FULL_SECTION_BYTES: Final = varint.size(CID_BYTES + LEAF_BYTES) + CID_BYTES + LEAF_BYTES


def trailer(manifest_start: int, archive_bytes: int) -> bytes:
    """It stands between the CAF footer and the CAR's index; archive_bytes: size of the whole file."""
    return _TRAILER.pack(_MAGIC, manifest_start, archive_bytes)


def find(archive: RandomReader, layout: Layout) -> "Manifest | None":
    """Return the manifest; None in archives of other programs. Raises Corrupt if its place cannot be right."""
    end = layout.index_start or 0
    start = end - TRAILER_BYTES
    if start < layout.data_end:
        return None
    magic, manifest_start, archive_bytes = _TRAILER.unpack(archive.read_at(start, end))
    if magic != _MAGIC:
        return None
    damage = None
    if archive_bytes != archive.size_bytes:
        message = f"not a whole CAR: it should have {archive_bytes:,} bytes, there are {archive.size_bytes:,}"
        damage = Corrupt(message, chunk=archive.name, byte=archive.size_bytes)
    manifest = Manifest(archive, start, damage)
    if manifest_start != layout.data_end or manifest.start != manifest_start:
        raise Corrupt("the manifest of the files is not where it should be", chunk=archive.name, byte=start)
    return manifest


def large_file_bytes(span_bytes: int) -> int:
    """How many bytes a file has whose leaves, all of 1 MiB but the last, take so many in their sections. Raises
    ValueError if there is no such file."""
    full, last = divmod(span_bytes - 1, _FULL_SECTION_BYTES)
    for size_bytes in range(1, 4):
        content = last + 1 - size_bytes - CID_BYTES
        if content > 0 and varint.size(CID_BYTES + content) == size_bytes:
            return full * LEAF_BYTES + content
    raise ValueError(f"no sections have {span_bytes} bytes together")


class Manifest:
    """The files as their writer has listed them."""

    def __init__(self, archive: RandomReader, end: int, damage: Corrupt | None = None) -> None:
        """Args: damage: of the archive beyond the manifest. Raises Corrupt if its footer cannot be right."""
        self._archive = archive
        self._damage = damage
        self._caf = CafReader(_Beginning(archive, end))
        self.start = self._caf.index_span[0]

    def entries(self) -> Iterator[Entry]:
        """Return the files in the order of writing. Raises Corrupt, also in place of the end if the archive is
        damaged elsewhere; bounds as CafReader."""
        for entry in self._caf.entries():
            yield entry if entry.end_byte - entry.start_byte <= LEAF_BYTES else self._large(entry)
        if self._damage is not None:
            raise self._damage

    def _large(self, entry: Entry) -> Entry:
        try:
            size_bytes = large_file_bytes(entry.end_byte - entry.start_byte)
        except ValueError as error:
            raise Corrupt(
                f"no large file can be [{entry.start_byte}, {entry.end_byte}): {error}",
                path=entry.path,
                chunk=self._archive.name,
                byte=entry.start_byte,
            ) from error
        return entry._replace(content_bytes=size_bytes, decoding=SECTIONS)


class _Beginning:
    """The first bytes of an archive, as an archive."""

    def __init__(self, archive: RandomReader, size_bytes: int) -> None:
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        return self._archive.read_at(start_byte, end_byte)
