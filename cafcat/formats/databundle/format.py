"""The format, as others use it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.model import Entry

if TYPE_CHECKING:
    from cafcat.formats.databundle.reader import DataBundleReader
    from cafcat.formats.databundle.writer import DataBundleWriter

__all__ = ["DATABUNDLE", "DataBundleFormat"]

_MAGIC: Final = b"daBS"


class DataBundleFormat:
    """A chunk is one shard file. What writes and reads is imported when it is asked for: telling what an archive is
    needs none of it."""

    name: Final = "databundle"
    suffix: Final = ".dbs"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """True if the file begins as a shard does."""
        del tail  # the end of a shard may be elsewhere
        return head.startswith(_MAGIC)

    def writer(self, sink: Sink) -> "DataBundleWriter":
        """Raises NotInstalled if protobuf is not installed."""
        from cafcat.formats.databundle.writer import DataBundleWriter

        return DataBundleWriter(sink)

    def reader(self, archive: RandomReader) -> "DataBundleReader":
        """Raises Corrupt or Unsupported if it has no metadata at its end."""
        from cafcat.formats.databundle.reader import DataBundleReader

        return DataBundleReader(archive)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """See decoding.decode."""
        from cafcat.formats.databundle.decoding import decode

        return decode(span, entry)


DATABUNDLE: Final[Format] = DataBundleFormat()
