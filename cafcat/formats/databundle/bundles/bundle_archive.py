"""A bundle as one archive: all its shard files and its index."""

from collections.abc import Sequence
from typing import Any

from cafcat.formats.base import ArchiveFolder, RandomReader
from cafcat.formats.databundle.bundles.file_list import BundleFileList
from cafcat.formats.databundle.bundles.shard import (
    BundleShard,
    bundle_properties,
    is_bundle,
    read_file_list,
    read_head,
)
from cafcat.formats.databundle.layout import shard_name

__all__ = ["BundleArchive", "open_bundle"]


def open_bundle(folder: ArchiveFolder) -> "BundleArchive | None":
    """Return the bundle in a folder, or None if the folder has no index in LevelDB's format.

    Raises:
        Corrupt: the index is not the complete index of a bundle.
        Unsupported: the index is too large, or the bundle has an unknown compression.
        TemporaryFileFailed: the temporary copy of the index failed.
    """
    return BundleArchive(read_file_list(folder)) if is_bundle(folder) else None


class BundleArchive:
    """A bundle. Implements `MultiFileArchive`."""

    def __init__(self, files: BundleFileList) -> None:
        """Use this list of the files in the bundle."""
        self._files = files
        self._shards = {shard_name(shard): shard for shard in files.shards}

    @property
    def names(self) -> Sequence[str]:
        """Names of the shard files that hold files, as the published design has them."""
        return list(self._shards)

    def reader(self, archive: RandomReader, name: str) -> BundleShard:
        """Return a reader for one of the shard files.

        Raises:
            Corrupt: the head of the file belongs to another bundle or another shard.
        """
        return BundleShard(archive, read_head(archive), self._files, self._shards[name])

    def properties(self) -> dict[str, Any]:
        """Return the properties of the bundle, with the number of files in all shards."""
        return bundle_properties(self._files.config, self._files.files, self._files.directories)
