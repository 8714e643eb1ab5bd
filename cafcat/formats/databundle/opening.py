"""Which of both a shard file is: a chunk that cafcat wrote, or a shard of a bundle."""

from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import LocatedArchive, RandomReader
from cafcat.formats.databundle.bundles.shard import BundleShard, listed_by_itself, read_head
from cafcat.formats.databundle.layout import TRAILER_BYTES, parse_trailer
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.reader import DataBundleReader

__all__ = ["open_shard"]

_OF_BUNDLES: Final = ("inline_metadata_table", "external_metadata")


def open_shard(archive: RandomReader) -> DataBundleReader | BundleShard:
    """Its reader. The end of a chunk is enough. Raises Corrupt if that is missing, IndexMissing if the index of a
    bundle is not beside it, NotInstalled, Unsupported."""
    messages()  # raises NotInstalled
    size_bytes = archive.size_bytes
    place = parse_trailer(archive.read_at(max(0, size_bytes - TRAILER_BYTES), size_bytes), size_bytes)
    if place is not None and not (isinstance(archive, LocatedArchive) and _begins_as_of_a_bundle(archive)):
        return DataBundleReader(archive, place)
    head = read_head(archive)
    if head.header.WhichOneof("metadata") == "metadata_at_eof":
        message = "not a whole DataBundle shard: its metadata should be at its end, and are not"
        raise Corrupt(message, chunk=archive.name, byte=size_bytes)
    return BundleShard(archive, head, listed_by_itself(archive, head), int(head.header.shard_index))


def _begins_as_of_a_bundle(archive: RandomReader) -> bool:
    """Where all of it can be read, its head has the word, unless that is damaged: the last file of a bundle may end
    as a chunk does."""
    try:
        return read_head(archive).header.WhichOneof("metadata") in _OF_BUNDLES
    except (Corrupt, Unsupported):
        return False
