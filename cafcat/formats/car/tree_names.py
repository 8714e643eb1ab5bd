"""Computes the paths of files in the UnixFS tree of cafcat's own CARs, and an upper bound for the tree's size."""

import re
from typing import Final

from cafcat.formats.car import dag_pb, varint
from cafcat.formats.car.cid import CID_BYTES
from cafcat.formats.car.index import SHA256_INDEX_RECORD_BYTES
from cafcat.formats.car.unixfs import DIRECTORY

__all__ = ["MAX_NODE_BYTES", "SHARD_BYTES_PER_LINK", "TreeSize", "tree_name"]

MAX_NODE_BYTES: Final = 256 << 10
"""Largest node of a directory in bytes. Larger directories are split into shards."""
SHARD_BYTES_PER_LINK: Final = 96
"""Upper bound in bytes for what sharding a directory adds per link; the writer enforces it. Usual names need about
60: there are at most 0.3 shards per link, each of at most 180 bytes with its section, link and index record."""

_UNUSUAL_PATH: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
_DATA_BYTES: Final = 2 + len(DIRECTORY)
_NODE_BYTES: Final = 3 + CID_BYTES + _DATA_BYTES + SHA256_INDEX_RECORD_BYTES
"""Size in bytes of an empty directory with its section and its index record, with the longest possible varint."""
_DIRECTORY_TOTAL: Final = (1 << 49) - 1
"""More bytes than all blocks below a directory can have."""
_MAX_COUNTED: Final = 65_536
"""When there are more folder hashes than this, all of them are forgotten."""


def tree_name(path: str) -> str:
    """Return the path in the UnixFS tree for the file `path`, or "" if the tree cannot have the file.

    Empty components and "." are removed; ".." becomes "%2E%2E". The result is "" if nothing remains.
    """
    if not _UNUSUAL_PATH.search(path):
        return path
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join("%2E%2E" if part == ".." else part for part in parts)


class TreeSize:
    """Computes an upper bound for the size of a UnixFS tree while files are added.

    The bound is exact if all files are in the root directory, it needs no shards, and the sizes of the files were
    exact.

    Folders are recognized by 64-bit hashes. When there are more than 65,536 hashes, all are forgotten, and a folder
    that occurs again is counted again. Two of these folders have the same hash with a probability of less than
    10^-9.
    """

    def __init__(self) -> None:
        self._link_bytes = 0
        self._links = 0
        self._folders = 0
        self._counted: set[int] = set()
        self._last: str | None = None

    @property
    def size_bytes(self) -> int:
        """Upper bound for the current size of the tree in bytes, with sections and index records."""
        return self.size_after((0, 0, 0))

    def cost(self, name: str, total_bytes: int) -> tuple[int, int, int]:
        """Return how much one more file would add to the tree, without adding it.

        Args:
            name: path of the file in the tree, as `tree_name` returns it.
            total_bytes: total size of the file's blocks in bytes, or an upper bound for it.

        Returns:
            Bytes of links, number of folders, and number of links. All are 0 if the name is "".
        """
        folder, _, last = name.rpartition("/")
        if not last:
            return 0, 0, 0
        link_bytes = dag_pb.link_size(CID_BYTES, len(last.encode()), total_bytes)
        if not folder or folder == self._last:
            return link_bytes, 0, 1
        new_name_sizes = self._uncounted_folders(folder)
        link_bytes += sum(dag_pb.link_size(CID_BYTES, size, _DIRECTORY_TOTAL) for size in new_name_sizes)
        return link_bytes, len(new_name_sizes), 1 + len(new_name_sizes)

    def size_after(self, cost: tuple[int, int, int]) -> int:
        """Return the upper bound in bytes if one more file with this `cost` were added."""
        link_bytes, folders, links = self._link_bytes + cost[0], self._folders + cost[1], self._links + cost[2]
        root = varint.size(CID_BYTES + _DATA_BYTES + link_bytes) + CID_BYTES + _DATA_BYTES
        size = root + SHA256_INDEX_RECORD_BYTES + link_bytes + folders * _NODE_BYTES
        return size if link_bytes + _DATA_BYTES <= MAX_NODE_BYTES else size + links * SHARD_BYTES_PER_LINK

    def add(self, name: str, cost: tuple[int, int, int]) -> None:
        """Add a file to the tree, given its path in the tree and the result of `cost` for it."""
        self._link_bytes += cost[0]
        self._folders += cost[1]
        self._links += cost[2]
        if cost[1]:
            self._mark_counted(name.rpartition("/")[0])

    def _mark_counted(self, folder: str) -> None:
        self._last = folder
        if len(self._counted) > _MAX_COUNTED:
            self._counted.clear()
        while folder and hash(folder) not in self._counted:
            self._counted.add(hash(folder))
            folder = folder.rpartition("/")[0]

    def _uncounted_folders(self, folder: str) -> list[int]:
        """Return the size in bytes of the name of each folder on the path `folder` that was not counted yet."""
        sizes: list[int] = []
        while folder and hash(folder) not in self._counted:
            folder, _, name = folder.rpartition("/")
            sizes.append(len(name.encode()))
        return sizes
