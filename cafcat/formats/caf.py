"""CAF 1.0: files back to back, a JSON index, and the size of the index as the last four bytes.

Layout, rules and deviations from the original programs: docs/formats/caf.md.
"""

from typing import Final

from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.formats.caf_reader import CafReader
from cafcat.formats.caf_writer import CafWriter

__all__ = ["CAF", "CafFormat"]

_FOOTER_BYTES: Final = 4
_TAIL_BYTES: Final = 64


class CafFormat:
    """The format of cafcat's own chunks."""

    name: Final = "caf"
    suffix: Final = ".caf"
    verbatim: Final = True

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


CAF: Final[Format] = CafFormat()
