"""Where a file stands in the UnixFS tree of cafcat's own CARs, and how large that tree can become."""

import re
from typing import Final

from cafcat.formats.car import dag_pb, varint
from cafcat.formats.car.cid import CID_BYTES
from cafcat.formats.car.index import SHA256_INDEX_RECORD_BYTES
from cafcat.formats.car.unixfs import DIRECTORY

__all__ = ["MAX_NODE_BYTES", "SHARD_BYTES_PER_LINK", "TreeSize", "tree_name"]

MAX_NODE_BYTES: Final = 256 << 10
"""A directory whose node would be larger is spread over shards."""
SHARD_BYTES_PER_LINK: Final = 96
"""Sharding a directory adds no more than this for each of its links: the writer sees to it. Usual names need about
60: there are at most 0.3 shards for a link, each of at most 180 bytes with its section, link and index record."""

_UNUSUAL: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
_DATA_BYTES: Final = 2 + len(DIRECTORY)
_NODE_BYTES: Final = 3 + CID_BYTES + _DATA_BYTES + SHA256_INDEX_RECORD_BYTES
"""Of an empty directory with its section and its index record, with the longest varint that a section of it has."""
_DIRECTORY_TOTAL: Final = (1 << 49) - 1
"""More than all blocks below a directory can have."""
_MOST_KNOWN: Final = 65_536


def tree_name(path: str) -> str:
    """The path in the tree, "" if it has none: without empty components and ".", and with "%2E%2E" for ".."."""
    if not _UNUSUAL.search(path):
        return path
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join("%2E%2E" if part == ".." else part for part in parts)


class TreeSize:
    """Counts what a tree of some files takes at most: exactly, if all are in one folder that needs no shards.

    Folders are told apart by hashes of 64 bits, of which it forgets all when there are 65,536; a folder that comes
    again later is counted again. Two folders count as one by chance with a probability of less than 10^-9.
    """

    def __init__(self) -> None:
        self._link_bytes = 0
        self._links = 0
        self._folders = 0
        self._known: set[int] = set()
        self._last: str | None = None

    @property
    def size_bytes(self) -> int:
        """Of the tree now, with sections and index records."""
        return self.after((0, 0, 0))

    def needs(self, name: str, total_bytes: int) -> tuple[int, int, int]:
        """What one more file adds: bytes of links, folders, links. name: in the tree."""
        folder, _, last = name.rpartition("/")
        if not last:
            return 0, 0, 0
        link_bytes = dag_pb.link_size(CID_BYTES, len(last.encode()), total_bytes)
        if not folder or folder == self._last:
            return link_bytes, 0, 1
        new = self._new_folders(folder)
        link_bytes += sum(dag_pb.link_size(CID_BYTES, size, _DIRECTORY_TOTAL) for size in new)
        return link_bytes, len(new), 1 + len(new)

    def after(self, needs: tuple[int, int, int]) -> int:
        """Size in bytes of the tree with that in addition."""
        link_bytes, folders, links = self._link_bytes + needs[0], self._folders + needs[1], self._links + needs[2]
        root = varint.size(CID_BYTES + _DATA_BYTES + link_bytes) + CID_BYTES + _DATA_BYTES
        size = root + SHA256_INDEX_RECORD_BYTES + link_bytes + folders * _NODE_BYTES
        return size if link_bytes + _DATA_BYTES <= MAX_NODE_BYTES else size + links * SHARD_BYTES_PER_LINK

    def take(self, name: str, needs: tuple[int, int, int]) -> None:
        """Adds the file of that name, which needs so much."""
        self._link_bytes += needs[0]
        self._folders += needs[1]
        self._links += needs[2]
        if needs[1]:
            self._remember(name.rpartition("/")[0])

    def _remember(self, folder: str) -> None:
        self._last = folder
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        while folder and hash(folder) not in self._known:
            self._known.add(hash(folder))
            folder = folder.rpartition("/")[0]

    def _new_folders(self, folder: str) -> list[int]:
        """Sizes in bytes of the names of those that are not known."""
        sizes: list[int] = []
        while folder and hash(folder) not in self._known:
            folder, _, name = folder.rpartition("/")
            sizes.append(len(name.encode()))
        return sizes
