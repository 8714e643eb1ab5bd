"""The archive format clp-s as an implementation of `ReassemblableFormat`."""

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
    """The archive format clp-s (single-file archives of logs), whose entries are the sections of an archive.

    Implements `Format` and `ReassemblableFormat`.
    """

    name: Final = "clp-s"
    suffix: Final = ".clp"
    names_files: Final = False
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the archive begins with the magic number of clp-s."""
        del tail
        return head.startswith(MAGIC)

    def writer(self, sink: Sink) -> Writer:
        """Raise Unsupported: files cannot be packed into a clp-s archive."""
        del sink
        message = "clp-s archives contain encoded logs, not files: only the program clp-s can write them"
        raise Unsupported(message, hint="choose another format for files")

    def reader(self, archive: RandomReader) -> ClpReader:
        """Return a reader for a clp-s archive.

        Raises:
            Corrupt: the header, the metadata or the table of sections is invalid, or the archive is incomplete.
            Unsupported: the version or the compression is unknown, or the metadata is too large.
        """
        return ClpReader(archive)

    def reassemble(self, archive: RandomReader) -> Iterator[bytes]:
        """Return a copy of a clp-s archive in blocks, made from its parts; see `packing.reassemble`."""
        return reassemble(ClpReader(archive))

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Raise Unsupported: entries of clp-s archives never have a `decoding`."""
        del span
        message = (
            f"entries of clp-s archives are stored unchanged, but this one has the decoding {entry.decoding!r}"
        )
        raise Unsupported(message, path=entry.path)


CLP: Final[Format] = ClpFormat()
