"""Presents a bundle (all its shard files and its index) as one archive, a `MultiFileArchive`."""

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
    """Return the bundle that a folder contains, or None if the folder has no file index/CURRENT.

    Raises:
        Corrupt: the index is not the complete index of a bundle.
        Unsupported: the index is too large, or the bundle has an unknown compression.
        NotInstalled: plyvel or protobuf is not installed.
        Conflict: another process changed the index while it was copied.
        TemporaryFileFailed: the temporary copy of the index failed.
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
        """Return the properties of the bundle by name, with the number of files in all shards."""
        return bundle_properties(self._files.config, self._files.files, self._files.directories)
