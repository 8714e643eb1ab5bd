"""The archive format ChunkIO as an implementation of `Format`."""

from collections.abc import Iterator
from typing import Final

from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.formats.chunkio.decoding import decode
from cafcat.formats.chunkio.metering import FILE_HEADER
from cafcat.formats.chunkio.reader import ChunkIoReader
from cafcat.formats.chunkio.writer import ChunkIoWriter
from cafcat.model import Entry

__all__ = ["CHUNKIO", "ChunkIoFormat"]


class ChunkIoFormat:
    """The archive format ChunkIO. Implements `Format`.

    cafcat writes a record with the same bytes as the original program, romkatv/ChunkIO.
    """

    name: Final = "chunkio"
    suffix: Final = ".cio"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the archive begins with the 16 bytes of ChunkIO's file header.

        Readers do not check these bytes.
        """
        del tail  # an archive may end with any content
        return head.startswith(FILE_HEADER)

    def writer(self, sink: Sink) -> ChunkIoWriter:
        """Return a writer that writes a new ChunkIO archive to `sink`."""
        return ChunkIoWriter(sink)

    def reader(self, archive: RandomReader) -> ChunkIoReader:
        """Return a reader for a ChunkIO archive.

        Raises:
            Corrupt: the archive has bytes but no readable record, or cafcat wrote it, but it does not end with an
                index.
        """
        return ChunkIoReader(archive)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry, from the bytes of its span; see `Format.decode` and `decoding.decode`."""
        return decode(span, entry)


CHUNKIO: Final[Format] = ChunkIoFormat()
