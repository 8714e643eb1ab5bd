"""Reads the manifest of cafcat's own CARs: paths, times and CRC-32Cs of files, which UnixFS cannot store exactly.

A CARv2 may have padding between payload and index, which readers skip. cafcat stores the index of CAF 1.0 with its
footer there. The bytes from the start of the archive to the end of this footer are therefore also a CAF archive,
from which CAF readers get the files of at most 1 MiB. A trailer of 32 bytes follows, which identifies the manifest.
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

__all__ = [
    "FOOTER",
    "LEAF_BYTES",
    "SECTIONS",
    "TRAILER_BYTES",
    "Manifest",
    "find_manifest",
    "large_file_size",
    "trailer",
]

LEAF_BYTES: Final = 1 << 20
"""Files up to this size in bytes are one block; larger files are split into blocks of this size."""
SECTIONS: Final = "sections"
"""Decoding of a file that is the content of the blocks of all sections in its span, one after the other."""

FOOTER: Final = struct.Struct("<I")
TRAILER_BYTES: Final = 32
_TRAILER: Final = struct.Struct("<16sQQ")
_MAGIC: Final = b"\0cafcat manifest"
_FULL_SECTION_BYTES: Final = varint.size(CID_BYTES + LEAF_BYTES) + CID_BYTES + LEAF_BYTES


def trailer(manifest_start: int, archive_bytes: int) -> bytes:
    """Return the trailer of the manifest: the 32 bytes between the CAF footer and the index of the CAR.

    Args:
        manifest_start: start of the manifest in bytes.
        archive_bytes: size of the whole archive in bytes.
    """
    return _TRAILER.pack(_MAGIC, manifest_start, archive_bytes)


def find_manifest(archive: RandomReader, layout: Layout) -> "Manifest | None":
    """Return the manifest of a CAR that cafcat wrote.

    Return None for an archive of another program, and for an archive that was cut before its CARv2 index begins.

    Raises:
        Corrupt: the manifest is not at the position in its trailer, or its CAF footer is invalid.
    """
    end = layout.index_start or 0
    start = end - TRAILER_BYTES
    if start < layout.data_end:
        return None
    magic, manifest_start, archive_bytes = _TRAILER.unpack(archive.read_at(start, end))
    if magic != _MAGIC:
        return None
    damage = None
    if archive_bytes != archive.size_bytes:
        message = f"not a complete CAR: it should have {archive_bytes:,} bytes, but has {archive.size_bytes:,}"
        damage = Corrupt(message, chunk=archive.name, byte=archive.size_bytes)
    manifest = Manifest(archive, start, damage)
    if manifest_start != layout.data_end or manifest.start != manifest_start:
        raise Corrupt(
            "the manifest of the files is not at the position in its trailer", chunk=archive.name, byte=start
        )
    return manifest


def large_file_size(span_bytes: int) -> int:
    """Return the size in bytes of a file of more than 1 MiB, given the total size of the sections of its leaves.

    All leaves except the last have 1 MiB.

    Raises:
        ValueError: the leaves of no file have this total size.
    """
    full, last = divmod(span_bytes - 1, _FULL_SECTION_BYTES)
    for size_bytes in range(1, 4):
        content = last + 1 - size_bytes - CID_BYTES
        if content > 0 and varint.size(CID_BYTES + content) == size_bytes:
            return full * LEAF_BYTES + content
    raise ValueError(f"the sections of a file's leaves cannot have {span_bytes} bytes together")


class Manifest:
    """The list of files that cafcat stored in its own CAR.

    Attributes:
        start: start of the manifest in the archive, in bytes.
    """

    def __init__(self, archive: RandomReader, end: int, damage: Corrupt | None = None) -> None:
        """Read the footer of the manifest.

        Args:
            archive: the archive.
            end: end of the CAF footer in bytes.
            damage: error that `entries` raises after the last entry, because the archive does not have the size in
                its trailer; or None.

        Raises:
            Corrupt: the CAF footer is invalid.
        """
        self._archive = archive
        self._damage = damage
        self._caf = CafReader(_ArchivePrefix(archive, end))
        self.start = self._caf.index_span[0]

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the files in the order of writing. Memory is that of CafReader.

        Raises:
            Corrupt: the manifest is damaged. Or the archive does not have the size in its trailer; then raised
                after the last entry.
            Unsupported: the manifest has another version, or a string or number of more than 1 MiB.
            StoreFailed: the temporary file for the names of a large manifest failed.
        """
        for entry in self._caf.entries():
            yield entry if entry.end_byte - entry.start_byte <= LEAF_BYTES else self._large(entry)
        if self._damage is not None:
            raise self._damage

    def _large(self, entry: Entry) -> Entry:
        try:
            size_bytes = large_file_size(entry.end_byte - entry.start_byte)
        except ValueError as error:
            raise Corrupt(
                f"no large file can have the span [{entry.start_byte}, {entry.end_byte}): {error}",
                path=entry.path,
                chunk=self._archive.name,
                byte=entry.start_byte,
            ) from error
        return entry._replace(content_bytes=size_bytes, decoding=SECTIONS)


class _ArchivePrefix:
    """Shows the first `size_bytes` bytes of an archive as if they were a whole archive. A RandomReader.

    `read_at` does not refuse a range beyond these bytes: CafReader reads no such range.
    """

    def __init__(self, archive: RandomReader, size_bytes: int) -> None:
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        return self._archive.read_at(start_byte, end_byte)
