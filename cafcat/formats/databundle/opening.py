"""Opens archives of the format DataBundle: chunks that cafcat wrote, shards of bundles, and whole bundles."""

from collections.abc import Sequence
from typing import Any, Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import ArchiveFolder, LocatedArchive, RandomReader
from cafcat.formats.databundle.bundles.file_list import BundleFileList
from cafcat.formats.databundle.bundles.shard import (
    BundleShard,
    bundle_properties,
    is_bundle,
    read_file_list,
    read_head,
    shard_file_list,
)
from cafcat.formats.databundle.layout import TRAILER_BYTES, parse_trailer, shard_name
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.reader import DataBundleReader

__all__ = ["BundleArchive", "open_bundle", "open_shard"]

_BUNDLE_METADATA: Final = ("inline_metadata_table", "external_metadata")
"""Values of the oneof "metadata" in the head of a shard of a bundle."""


def open_shard(archive: RandomReader) -> DataBundleReader | BundleShard:
    """Return a reader for a shard file: for a chunk that cafcat wrote, or for a shard of a bundle.

    This call reads the trailer of a chunk. If `archive` is a LocatedArchive, the call also reads the head, because
    a shard of a bundle may end like a chunk. For a shard of a bundle, it reads the head and all rows of files.

    Raises:
        Corrupt: the archive, or the index of its bundle, is damaged, or the end of a chunk is missing.
        IndexMissing: the archive is a shard of a bundle, and the index of the bundle is missing.
        NotInstalled: protobuf, or the library that reads the index, is not installed.
        Unsupported: the compression is unknown, or the records, the head or the index are too large.
        Conflict: another process changed the index while it was copied.
        StoreFailed: a temporary file, such as the copy of the index, failed.
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


def open_bundle(folder: ArchiveFolder) -> "BundleArchive | None":
    """Return the bundle that a folder contains, or None if the folder has no file index/CURRENT.

    Raises:
        Corrupt: the index is damaged, or is not the complete index of a bundle.
        Unsupported: the index or the records are too large, or the bundle has an unknown compression.
        NotInstalled: plyvel or protobuf is not installed.
        Conflict: another process changed the index while it was copied.
        StoreFailed: a temporary file, such as the copy of the index, failed.
    """
    return BundleArchive(read_file_list(folder)) if is_bundle(folder) else None


class BundleArchive:
    """A bundle as one archive, given the list of its files. Implements `MultiFileArchive`."""

    def __init__(self, files: BundleFileList) -> None:
        self._files = files
        self._shards = {shard_name(shard): shard for shard in files.shards}

    @property
    def names(self) -> Sequence[str]:
        """Names of the shard files that hold at least one file, such as "shard-00000003"."""
        return list(self._shards)

    def reader(self, archive: RandomReader, name: str) -> BundleShard:
        """Return a reader for one of the shard files.

        Args:
            archive: the shard file.
            name: name of the shard file, one of `names`.

        Raises:
            Corrupt: the head of the file is invalid, or belongs to another bundle or another shard.
            Unsupported: the head has more than 16 MiB.
        """
        return BundleShard(archive, read_head(archive), self._files, self._shards[name])

    def properties(self) -> dict[str, Any]:
        """Return the properties of the bundle by name, with the numbers of files and directories in all shards."""
        return bundle_properties(self._files.config, self._files.files, self._files.directories)
