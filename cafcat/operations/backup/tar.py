"""Backups of the catalog as tar files: docs/formats/backup.md. Written and read in one direction.

A member is complete in memory before its header is written, and is small enough for that; so nothing has to be kept
on a disk, whatever the size of the catalog.
"""

import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.support.checksums import crc32c

__all__ = ["HEAD_NAME", "MANIFEST_NAME", "VERSION", "Member", "TarReader", "TarWriter", "unpacked"]

VERSION: Final = 1
HEAD_NAME: Final = "backup.json"
MANIFEST_NAME: Final = "manifest.json"

PART_BYTES: Final = 32 << 20
"""Of rows, before compression: rows are not cut, so a part may have one more."""
_LEVEL: Final = 1
"""Of zlib: higher ones cost more time than the database needs to give the rows, for a tenth less."""
_GZIP: Final = 31
_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE_BYTES: Final = 1 << 20
_MAX_DOCUMENT_BYTES: Final = 64 << 20


class Member(NamedTuple):
    """A part as the manifest has it: size in bytes and CRC-32C as it is in the tar."""

    name: str
    size_bytes: int
    crc32c: int
    rows: int


class TarWriter:
    """Writes members one after the other."""

    def __init__(self, write: Callable[[bytes], object], modified_at: int) -> None:
        """modified_at: of all members, seconds since 1970."""
        self._write = write
        self._modified_at = modified_at
        self.size_bytes = 0
        self.members: list[Member] = []

    def add_rows(self, table: str, rows: Iterable[bytes], advance: Callable[[int, int], object]) -> None:
        """Writes rows as parts `TABLE/000001.copy.gz`, ...; `advance` is told of rows and bytes."""
        part = _Part()
        for row in rows:
            part.add(row)
            if part.size_bytes >= PART_BYTES:
                self._add_part(table, part, advance)
                part = _Part()
        if part.rows:
            self._add_part(table, part, advance)

    def _add_part(self, table: str, part: "_Part", advance: Callable[[int, int], object]) -> None:
        number = sum(member.name.startswith(f"{table}/") for member in self.members) + 1
        data = part.finish()
        member = Member(f"{table}/{number:06d}.copy.gz", len(data), crc32c(data), part.rows)
        self._add(member.name, data)
        self.members.append(member)
        advance(part.rows, len(data))

    def add_document(self, name: str, document: dict[str, Any]) -> None:
        """Writes JSON."""
        self._add(name, json.dumps(document, indent=1).encode() + b"\n")

    def finish(self) -> None:
        """Writes the end of the tar."""
        self._put(bytes(2 * _BLOCK))

    def _add(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(data), self._modified_at
        self._put(info.tobuf(tarfile.USTAR_FORMAT))
        self._put(data)
        self._put(bytes(-len(data) % _BLOCK))

    def _put(self, data: bytes) -> None:
        self._write(data)
        self.size_bytes += len(data)


class _Part:
    """Rows on their way into gzip."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
        self._compressed = bytearray()
        self._rows: list[bytes] = []
        self._pending_bytes = 0
        self.size_bytes = self.rows = 0

    def add(self, row: bytes) -> None:
        self._rows.append(row)
        self._pending_bytes += len(row)
        self.rows += 1
        self.size_bytes += len(row)
        if self._pending_bytes >= _PIECE_BYTES:
            self._compress()

    def _compress(self) -> None:
        self._compressed += self._compressor.compress(b"".join(self._rows))
        self._rows.clear()
        self._pending_bytes = 0

    def finish(self) -> bytes:
        self._compress()
        self._compressed += self._compressor.flush()
        return bytes(self._compressed)


class TarReader:
    """Reads members in their order. Raises Corrupt for what TarWriter does not write."""

    def __init__(self, blocks: Iterator[bytes], name: str) -> None:
        """name: of the object, for messages."""
        self._blocks = blocks
        self._name = name
        self._rest = b""
        self._byte = 0
        self.crc32c = 0
        """Of the member that was read last."""

    def members(self) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Name, size, and content of each: to be read to its end before the next is asked for."""
        while True:
            header = b"".join(self._pieces(_BLOCK))
            if not any(header):
                return
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            except (tarfile.HeaderError, ValueError) as error:
                raise self.corrupt(f"a header of the tar is damaged: {error}") from error
            if not info.isreg():
                raise self.corrupt(f"{info.name} is no file")
            yield info.name, info.size, self._content(info.size)
            for _ in self._pieces(-info.size % _BLOCK):
                pass

    def document(self, size_bytes: int, content: Iterator[bytes]) -> dict[str, Any]:
        """JSON."""
        if size_bytes > _MAX_DOCUMENT_BYTES:
            raise self.corrupt("a document of it is too large")
        try:
            found = json.loads(b"".join(content))
        except (ValueError, RecursionError) as error:
            raise self.corrupt("a document of it is no JSON") from error
        if not isinstance(found, dict):
            raise self.corrupt("a document of it is no JSON object")
        return found

    def corrupt(self, message: str) -> Corrupt:
        """The error, with the place where reading stands."""
        return Corrupt(f"the backup is damaged: {message}", chunk=self._name, byte=self._byte)

    def _content(self, size_bytes: int) -> Iterator[bytes]:
        checksum = 0
        for piece in self._pieces(size_bytes):
            checksum = crc32c(piece, checksum)
            yield piece
        self.crc32c = checksum

    def _pieces(self, size_bytes: int) -> Iterator[bytes]:
        left = size_bytes
        while left:
            if not self._rest:
                self._rest = next(self._blocks, b"")
                if not self._rest:
                    raise self.corrupt("it ends before its end")
            piece, self._rest = self._rest[:left], self._rest[left:]
            left -= len(piece)
            self._byte += len(piece)
            yield piece


def unpacked(content: Iterator[bytes], corrupt: Callable[[str], Corrupt]) -> Iterator[bytes]:
    """The bytes that are in gzip, at most 1 MiB at a time, whatever they were packed from."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        for piece in content:
            data = piece
            while data:
                yield unpacker.decompress(data, _PIECE_BYTES)
                data = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error as error:
        raise corrupt(f"its rows cannot be unpacked: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise corrupt("its rows do not end where their member does")
