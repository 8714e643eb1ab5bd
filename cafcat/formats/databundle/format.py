"""The archive format DataBundle as an implementation of `MultiFileFormat`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.formats.base import ArchiveFolder, MultiFileFormat, RandomReader, Sink
from cafcat.model import Entry

if TYPE_CHECKING:
    from cafcat.formats.databundle.bundles.shard import BundleShard
    from cafcat.formats.databundle.opening import BundleArchive
    from cafcat.formats.databundle.reader import DataBundleReader
    from cafcat.formats.databundle.writer import DataBundleWriter

__all__ = ["DATABUNDLE", "DataBundleFormat"]

_MAGIC: Final = b"daBS"


class DataBundleFormat:
    """The archive format DataBundle. Implements `Format` and `MultiFileFormat`.

    A chunk of cafcat is one shard file with its metadata at its end; shards of bundles can be read, too. The
    modules for reading and writing are imported on first use, because detecting the format does not need them.
    """

    name: Final = "databundle"
    suffix: Final = ".dbs"
    names_files: Final = True
    rewrites_head: Final = False

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the archive begins with the magic number of a shard file."""
        del tail  # the metadata of a shard may be in another file
        return head.startswith(_MAGIC)

    def writer(self, sink: Sink) -> "DataBundleWriter":
        """Return a writer that writes a new archive, one shard file, to `sink`.

        Raises:
            NotInstalled: protobuf is not installed.
        """
        from cafcat.formats.databundle.writer import DataBundleWriter

        return DataBundleWriter(sink)

    def reader(self, archive: RandomReader) -> "DataBundleReader | BundleShard":
        """Return a reader for a chunk of cafcat or for a shard of a bundle.

        Raises:
            Corrupt: the archive, or the index of its bundle, is damaged, or the end of a chunk is missing.
            Unsupported: the compression is unknown, or the records, the head or the index are too large.
            IndexMissing: the archive is a shard of a bundle, and the index of the bundle is missing.
            NotInstalled: protobuf, or the library that reads the index, is not installed.
            Conflict: another process changed the index while it was copied.
            StoreFailed: a temporary file, such as the copy of the index, failed.
        """
        from cafcat.formats.databundle.opening import open_shard

        return open_shard(archive)

    def open_folder(self, folder: ArchiveFolder) -> "BundleArchive | None":
        """Return the bundle that a folder contains; None if it has no index. See `opening.open_bundle`."""
        from cafcat.formats.databundle.opening import open_bundle

        return open_bundle(folder)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry that has a `decoding`; see `content.decode_content`."""
        from cafcat.formats.databundle.content import decode_content

        return decode_content(span, entry)


DATABUNDLE: Final[MultiFileFormat] = DataBundleFormat()
