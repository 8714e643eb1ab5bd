"""The format, as others use it."""

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
    """ChunkIO, as the original program writes it."""

    name: Final = "chunkio"
    suffix: Final = ".cio"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """True if the file begins as the original begins it. Nobody checks these bytes afterwards."""
        del tail  # the last bytes may be those of any content
        return head.startswith(FILE_HEADER)

    def writer(self, sink: Sink) -> ChunkIoWriter:
        return ChunkIoWriter(sink)

    def reader(self, archive: RandomReader) -> ChunkIoReader:
        """Raises Corrupt if there is no record, or if a chunk of cafcat's own has lost its end."""
        return ChunkIoReader(archive)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """See decoding.decode."""
        return decode(span, entry)


CHUNKIO: Final[Format] = ChunkIoFormat()
