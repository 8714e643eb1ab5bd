"""The format, as others use it."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Unsupported
from cafcat.formats.base import Format, RandomReader, Sink, Writer
from cafcat.formats.clp.header import MAGIC
from cafcat.formats.clp.packing import reassemble
from cafcat.formats.clp.reader import ClpReader
from cafcat.model import Entry

__all__ = ["CLP", "ClpFormat"]


class ClpFormat:
    """clp-s single-file archives. Their sections are the entries."""

    name: Final = "clp-s"
    suffix: Final = ".clp"
    names_files: Final = False
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """True if the file begins with the magic number."""
        del tail
        return head.startswith(MAGIC)

    def writer(self, sink: Sink) -> Writer:
        """Files cannot be packed into such an archive: raises Unsupported."""
        del sink
        message = "clp-s archives hold encoded logs, not files: only the program clp-s makes them"
        raise Unsupported(message, hint="choose another format for files")

    def reader(self, archive: RandomReader) -> ClpReader:
        """Raises Corrupt or Unsupported if the header or the table of sections cannot be right."""
        return ClpReader(archive)

    def reassemble(self, archive: RandomReader) -> Iterator[bytes]:
        """See packing.reassemble."""
        return reassemble(ClpReader(archive))

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """There is nothing to decode: raises Unsupported."""
        del span
        raise Unsupported(f"sections of clp-s archives are not encoded: {entry.decoding}", path=entry.path)


CLP: Final[Format] = ClpFormat()
