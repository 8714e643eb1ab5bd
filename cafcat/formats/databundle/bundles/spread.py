"""A bundle as one archive: all its shard files, and its index."""

from collections.abc import Sequence
from typing import Any

from cafcat.formats.base import ArchiveFolder, RandomReader
from cafcat.formats.databundle.bundles.file_list import BundleList
from cafcat.formats.databundle.bundles.shard import BundleShard, about_bundle, is_bundle, listed, read_head
from cafcat.formats.databundle.layout import shard_name

__all__ = ["BundleSpread", "spread"]


def spread(folder: ArchiveFolder) -> "BundleSpread | None":
    """The bundle in a folder; None if there is no index in LevelDB's format. Raises Corrupt if it is not the whole
    index of a bundle, Unsupported, TemporaryFileFailed."""
    return BundleSpread(listed(folder)) if is_bundle(folder) else None


class BundleSpread:
    """A MultiFileArchive. names: of the shard files that hold files, as the published design names them."""

    def __init__(self, files: BundleList) -> None:
        self._files = files
        self._shards = {shard_name(shard): shard for shard in files.shards}

    @property
    def names(self) -> Sequence[str]:
        return list(self._shards)

    def reader(self, archive: RandomReader, name: str) -> BundleShard:
        """Of one of the shard files. Raises Corrupt if its head is of another."""
        return BundleShard(archive, read_head(archive), self._files, self._shards[name])

    def properties(self) -> dict[str, Any]:
        """Of all shards together."""
        return about_bundle(self._files.config, self._files.files, self._files.directories)
