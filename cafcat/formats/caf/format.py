"""CAF 1.0: files back to back, a JSON index, and the size of the index as the last four bytes.

Layout, rules and deviations from the original programs: docs/formats/caf.md.
"""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Unsupported
from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.formats.caf.reader import CafReader
from cafcat.formats.caf.writer import CafWriter
from cafcat.model import Entry

__all__ = ["CAF", "CafFormat"]

_FOOTER_BYTES: Final = 4
_TAIL_BYTES: Final = 64


class CafFormat:
    """The format of cafcat's own chunks."""

    name: Final = "caf"
    suffix: Final = ".caf"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """True if a JSON object ends before the footer. CAF has no magic number, so other formats go first.

        The footer itself is not judged: an archive with a damaged footer is better called damaged than unknown.
        """
        del head  # the first bytes are those of a file
        text = tail[:-_FOOTER_BYTES].rstrip(b" \t\r\n")
        return text.endswith(b"}") or (not text and len(tail) >= _TAIL_BYTES)

    def writer(self, sink: Sink) -> CafWriter:
        return CafWriter(sink)

    def reader(self, archive: RandomReader) -> CafReader:
        """Raises Corrupt if the footer cannot be right."""
        return CafReader(archive)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """There is nothing to decode: raises Unsupported."""
        del span
        raise Unsupported(f"CAF has no content that is encoded: {entry.decoding}", path=entry.path)


CAF: Final[Format] = CafFormat()
