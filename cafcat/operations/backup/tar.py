"""Backups of the catalog as tar files: docs/formats/backup.md. They are written and read sequentially.

A member is completed in memory before its header is written. Members are small enough for that, so a backup of any
size needs no temporary file.
"""

import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.base import Sink
from cafcat.progress import Progress
from cafcat.support.checksums import crc32c

__all__ = ["HEAD_NAME", "MANIFEST_NAME", "VERSION", "Member", "TarReader", "TarWriter"]

VERSION: Final = 1
HEAD_NAME: Final = "backup.json"
MANIFEST_NAME: Final = "manifest.json"

PART_BYTES: Final = 32 << 20
"""Size of the rows, before compression, at which a part of a table is complete, in bytes. The block of rows that
reaches this size is the last one of the part."""
_LEVEL: Final = 1
"""Level of zlib. Higher levels take longer than the database needs for the rows, and save only a tenth."""
_GZIP: Final = 31
_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE_BYTES: Final = 1 << 20
_MAX_DOCUMENT_BYTES: Final = 64 << 20


class Member(NamedTuple):
    """A part of a table, as the manifest lists it.

    Attributes:
        name: Name in the tar.
        size_bytes: Size in the tar, compressed.
        crc32c: CRC-32C of the bytes in the tar.
        rows: Number of rows.
    """

    name: str
    size_bytes: int
    crc32c: int
    rows: int


class TarWriter:
    """Writes the tar file of a backup, one member after the other.

    Attributes:
        size_bytes: Number of bytes that were written.
        members: The parts of tables that were written. JSON documents are not among them.
    """

    def __init__(self, sink: Sink, modified_at: int) -> None:
        """Prepare to write the tar file of a backup. This writes nothing yet.

        Args:
            sink: Receives the bytes of the tar.
            modified_at: Modification time of all members, in seconds since 1970.
        """
        self._sink = sink
        self._modified_at = modified_at
        self.size_bytes = 0
        self.members: list[Member] = []

    def add_rows(self, table: str, rows: Iterable[bytes], progress: Progress) -> None:
        """Write the rows of a table as the members `TABLE/000001.copy.gz`, `TABLE/000002.copy.gz` and so on.

        Args:
            table: Name of the table.
            rows: Blocks of lines in the format of COPY.
            progress: Advances after each part by the numbers of rows and compressed bytes.
        """
        part = _Part()
        for lines in rows:
            part.add(lines)
            if part.size_bytes >= PART_BYTES:
                self._add_part(table, part, progress)
                part = _Part()
        if part.rows:
            self._add_part(table, part, progress)

    def _add_part(self, table: str, part: "_Part", progress: Progress) -> None:
        number = sum(member.name.startswith(f"{table}/") for member in self.members) + 1
        data = part.finish()
        member = Member(f"{table}/{number:06d}.copy.gz", len(data), crc32c(data), part.rows)
        self._add(member.name, data)
        self.members.append(member)
        progress.advance(part.rows, len(data))

    def add_document(self, name: str, document: dict[str, Any]) -> None:
        """Write a JSON document as a member of the tar file."""
        self._add(name, json.dumps(document, indent=1).encode() + b"\n")

    def finish(self) -> None:
        """Write the end of the tar file: two blocks of zeros."""
        self._put(bytes(2 * _BLOCK))

    def _add(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(data), self._modified_at
        self._put(info.tobuf(tarfile.USTAR_FORMAT))
        self._put(data)
        self._put(bytes(-len(data) % _BLOCK))

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self.size_bytes += len(data)


class _Part:
    """Rows of a table that are being compressed into one member.

    Attributes:
        size_bytes: Size of the rows before compression.
        rows: Number of rows.
    """

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
        self._compressed = bytearray()
        self.size_bytes = self.rows = 0

    def add(self, lines: bytes) -> None:
        """Append rows of the table, one in each line, to the member."""
        self._compressed += self._compressor.compress(lines)
        self.rows += lines.count(b"\n")
        self.size_bytes += len(lines)

    def finish(self) -> bytes:
        """Return all rows as one gzip file. No further row can be added."""
        self._compressed += self._compressor.flush()
        return bytes(self._compressed)


class TarReader:
    """Reads the members of a backup's tar file in order.

    Methods raise Corrupt if the tar is damaged, or has a member that is not a regular file.

    Attributes:
        crc32c: CRC-32C of the member that was read last.
    """

    def __init__(self, blocks: Iterator[bytes], name: str) -> None:
        """Prepare to read the tar file of a backup. This reads nothing yet.

        Args:
            blocks: Bytes of the tar.
            name: Name of the object, for messages.
        """
        self._blocks = blocks
        self._name = name
        self._rest = b""
        self._byte = 0
        self.crc32c = 0
        """CRC-32C of the member that was read last."""

    def members(self) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Yield name, size in bytes and content of each member.

        The caller has to read a content to its end before it requests the next member.
        """
        while True:
            header = b"".join(self._pieces(_BLOCK))
            if not any(header):
                return
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            except (tarfile.HeaderError, ValueError) as error:
                raise self.corrupt(f"a header of the tar is damaged: {error}") from error
            if not info.isreg():
                raise self.corrupt(f"{info.name} is not a regular file")
            yield info.name, info.size, self._content(info.size)
            for _ in self._pieces(-info.size % _BLOCK):
                pass

    def document(self, size_bytes: int, content: Iterator[bytes]) -> dict[str, Any]:
        """Return the JSON object in a member. Raises Corrupt if it has none, or more than 64 MiB."""
        if size_bytes > _MAX_DOCUMENT_BYTES:
            raise self.corrupt("a JSON document in it is too large")
        try:
            found = json.loads(b"".join(content))
        except (ValueError, RecursionError) as error:
            raise self.corrupt("a document in it is not JSON") from error
        if not isinstance(found, dict):
            raise self.corrupt("a document in it is not a JSON object")
        return found

    def rows(self, content: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the decompressed rows in a member, in blocks of at most 1 MiB.

        Args:
            content: The compressed bytes of the member.

        Raises:
            Corrupt: The content is not one complete gzip file.
        """
        unpacker = zlib.decompressobj(wbits=_GZIP)
        try:
            for piece in content:
                data = piece
                while data:
                    yield unpacker.decompress(data, _PIECE_BYTES)
                    data = unpacker.unconsumed_tail
            yield unpacker.flush()
        except zlib.error as error:
            raise self.corrupt(f"its rows cannot be decompressed: {error}") from error
        if not unpacker.eof or unpacker.unused_data:
            raise self.corrupt("the compressed rows do not end at the end of their member")

    def corrupt(self, message: str) -> Corrupt:
        """Return the Corrupt error for a damaged backup, with the name of the backup and the reader's position."""
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
                    raise self.corrupt("it is truncated")
            piece, self._rest = self._rest[:left], self._rest[left:]
            left -= len(piece)
            self._byte += len(piece)
            yield piece
