"""The format CAF 1.0: file data back to back, a JSON index, and the size of the index in the last four bytes.

Layout, rules and differences from the original programs: docs/formats/caf.md.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.errors import Unsupported
from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.formats.caf.writer import CafWriter
from cafcat.model import Entry

if TYPE_CHECKING:
    from cafcat.formats.caf.reader import CafReader

__all__ = ["CAF", "CafFormat"]

_FOOTER_BYTES: Final = 4
_TAIL_BYTES: Final = 64


class CafFormat:
    """The archive format CAF, the default for new chunks. Implements `Format`."""

    name: Final = "caf"
    suffix: Final = ".caf"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the bytes before the 4-byte footer end with "}", as the JSON index of a CAF does.

        White space after the "}" is ignored. If all 60 bytes of `tail` before the footer are white space, the
        result is True, because the "}" may come before them.

        CAF has no magic number, so all other formats are tried first. The footer itself is not checked: an archive
        with a damaged footer should be reported as damaged, not as unknown.
        """
        del head  # a CAF can begin with any bytes: those of its first file
        text = tail[:-_FOOTER_BYTES].rstrip(b" \t\r\n")
        return text.endswith(b"}") or (not text and len(tail) >= _TAIL_BYTES)

    def writer(self, sink: Sink) -> CafWriter:
        """Return a writer that writes a new CAF to `sink`."""
        return CafWriter(sink)

    def reader(self, archive: RandomReader) -> "CafReader":
        """Return a reader for a CAF.

        Raises:
            Corrupt: the archive has no footer, or the footer gives a larger index than the archive can hold.
        """
        from cafcat.formats.caf.reader import CafReader  # an ingest reads no archive

        return CafReader(archive)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Raise Unsupported: CAF entries never have a `decoding`."""
        del span
        message = f"entries of a CAF are stored unchanged, but this entry has the decoding {entry.decoding!r}"
        raise Unsupported(message, path=entry.path)


CAF: Final[Format] = CafFormat()
