"""The format, as others use it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.formats.base import ArchiveFolder, MultiFileFormat, RandomReader, Sink
from cafcat.model import Entry

if TYPE_CHECKING:
    from cafcat.formats.databundle.bundles.shard import BundleShard
    from cafcat.formats.databundle.bundles.spread import BundleSpread
    from cafcat.formats.databundle.reader import DataBundleReader
    from cafcat.formats.databundle.writer import DataBundleWriter

__all__ = ["DATABUNDLE", "DataBundleFormat"]

_MAGIC: Final = b"daBS"


class DataBundleFormat:
    """A chunk is one shard file with its metadata at its end; shards of bundles are read, too. What writes and
    reads is imported when it is asked for: telling what an archive is needs none of it."""

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

    def reader(self, archive: RandomReader) -> "DataBundleReader | BundleShard":
        """Of a chunk, or of a shard of a bundle. Raises Corrupt or Unsupported; IndexMissing if the index that
        lists its files is not beside it; NotInstalled."""
        from cafcat.formats.databundle.opening import open_shard

        return open_shard(archive)

    def open_folder(self, folder: ArchiveFolder) -> "BundleSpread | None":
        """The bundle in a folder; see spread.spread."""
        from cafcat.formats.databundle.bundles.spread import spread

        return spread(folder)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """See content.decoded."""
        from cafcat.formats.databundle.content import decoded

        return decoded(span, entry)


DATABUNDLE: Final[MultiFileFormat] = DataBundleFormat()
