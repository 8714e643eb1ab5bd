"""The clp-s format object."""

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
    """clp-s single-file archives; their sections are the entries. Implements `Format` and `ReassemblableFormat`."""

    name: Final = "clp-s"
    suffix: Final = ".clp"
    names_files: Final = False
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the archive begins with the magic number."""
        del tail
        return head.startswith(MAGIC)

    def writer(self, sink: Sink) -> Writer:
        """Raise Unsupported: files cannot be packed into a clp-s archive."""
        del sink
        message = "clp-s archives contain encoded logs, not files: only the program clp-s can write them"
        raise Unsupported(message, hint="choose another format for files")

    def reader(self, archive: RandomReader) -> ClpReader:
        """Return a reader for an archive.

        Raises:
            Corrupt, Unsupported: the header or the metadata is invalid.
        """
        return ClpReader(archive)

    def reassemble(self, archive: RandomReader) -> Iterator[bytes]:
        """Return a copy of the archive; see `packing.reassemble`."""
        return reassemble(ClpReader(archive))

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Raise Unsupported: entries of clp-s archives never have a `decoding`."""
        del span
        raise Unsupported(
            f"sections of clp-s archives are not encoded, but the entry is: {entry.decoding}", path=entry.path
        )


CLP: Final[Format] = ClpFormat()
