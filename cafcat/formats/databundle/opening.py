"""Opens a DataBundle shard file: either a chunk that cafcat wrote, or a shard of a bundle."""

from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import LocatedArchive, RandomReader
from cafcat.formats.databundle.bundles.shard import BundleShard, read_head, shard_file_list
from cafcat.formats.databundle.layout import TRAILER_BYTES, parse_trailer
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.reader import DataBundleReader

__all__ = ["open_shard"]

_BUNDLE_METADATA: Final = ("inline_metadata_table", "external_metadata")
"""Values of the oneof "metadata" in the head of a shard of a bundle."""


def open_shard(archive: RandomReader) -> DataBundleReader | BundleShard:
    """Return a reader for a shard file. Of a chunk that cafcat wrote, only the end is read, or also the head.

    The head of a chunk is read if `archive` is a LocatedArchive, because a shard of a bundle may end like a chunk.

    Raises:
        Corrupt: the archive, or the index of its bundle, is damaged, or the end of a chunk is missing.
        IndexMissing: the archive is a shard of a bundle, and the index of the bundle is missing.
        NotInstalled: protobuf, or the library that reads the index, is not installed.
        Unsupported: the compression is unknown, or the head or the index is too large.
        Conflict: another process changed the index while it was copied.
        TemporaryFileFailed: the temporary copy of the index failed.
    """
    messages()  # raises NotInstalled
    size_bytes = archive.size_bytes
    trailer = parse_trailer(archive.read_at(max(0, size_bytes - TRAILER_BYTES), size_bytes), size_bytes)
    if trailer is not None and not (isinstance(archive, LocatedArchive) and _head_is_of_bundle(archive)):
        return DataBundleReader(archive, trailer)
    head = read_head(archive)
    if head.header.WhichOneof("metadata") == "metadata_at_eof":
        message = "not a complete DataBundle shard: the metadata at its end is missing"
        raise Corrupt(message, chunk=archive.name, byte=size_bytes)
    return BundleShard(archive, head, shard_file_list(archive, head), int(head.header.shard_index))


def _head_is_of_bundle(archive: RandomReader) -> bool:
    """Return True if the head states that the list of files is in the head, or in the index of a bundle.

    Return False if it states that the list is at the end of the file, as in chunks of cafcat, or if the head is
    damaged. A shard of a bundle may happen to end like a chunk, so a valid head decides.
    """
    try:
        return read_head(archive).header.WhichOneof("metadata") in _BUNDLE_METADATA
    except (Corrupt, Unsupported):
        return False
