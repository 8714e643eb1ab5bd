"""Writes the UnixFS tree of a CAR, each directory after its subdirectories. Paths are sorted, on disk if many."""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.cid import RAW_SHA256
from cafcat.formats.car.nodes import DAG_PB_SHA256, SectionWriter
from cafcat.formats.car.shards import write_shards
from cafcat.formats.car.tree_names import MAX_NODE_BYTES
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool

__all__ = ["TreeWriter"]

_VALUE: Final = struct.Struct(">QB32sQ")
"""Position of the file in the order of writing, whether its CID is that of a leaf, the digest, and the total size
of its blocks in bytes."""
_BUFFER_BYTES: Final = 4 << 20
"""Links beyond this size are written to disk."""


class TreeWriter:
    """Collects files in any order, then writes their UnixFS tree.

    If two files have the same path in the tree, the tree has the file that was added later. If a file and a folder
    have the same path, the tree has the folder. A file with the path "" is left out.

    Memory: that of ExternalSort, 4 MiB of links, and one node of 256 KiB. While a directory of shards is written,
    that of another ExternalSort.
    """

    def __init__(self) -> None:
        self._files = ExternalSort("a tree of files")
        self._links = _LinkStack()
        self._open: list[tuple[bytes, int, int]] = []

    def add(self, name: str, cid: bytes, total_bytes: int) -> None:
        """Add a file whose own blocks are written already.

        Args:
            name: path in the tree, as `tree_name` returns it.
            cid: CID of the file.
            total_bytes: total size of all blocks of the file in bytes.

        Raises:
            TemporaryFileFailed: the temporary file cannot be written.
        """
        # Slashes become NULs, which no name contains: then sorting by bytes gives the order of the tree.
        key = name.replace("/", "\0").encode()
        value = _VALUE.pack(self._files.count, cid.startswith(RAW_SHA256), cid[-32:], total_bytes)
        self._files.add(key + value)

    def write(self, sections: SectionWriter) -> bytes:
        """Write the directories and return the CID of the root. Afterwards the writer cannot be used.

        Args:
            sections: writes the nodes of the directories.

        Raises:
            TemporaryFileFailed: a temporary file failed. Errors of the sink pass through.
        """
        self._open = [(b"", 0, 0)]
        for key, value in self._files_in_tree():
            *folders, name = key.split(b"\0")
            self._enter(folders, sections)
            _, is_leaf, digest, total_bytes = _VALUE.unpack(value)
            self._link((RAW_SHA256 if is_leaf else DAG_PB_SHA256) + digest, name, total_bytes)
        self._enter([], sections)
        cid, _ = self._close_directory(sections)
        self._files.close()
        self._links.close()
        return cid

    def _files_in_tree(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the value of each file that the tree gets, in the order of the tree."""
        last: tuple[bytes, bytes] | None = None
        for record in self._files:
            key = record[: -_VALUE.size]
            if last is not None and key != last[0] and not key.startswith(last[0] + b"\0"):
                yield last
            last = (key, record[-_VALUE.size :]) if key else None
        if last is not None:
            yield last

    def _enter(self, folders: list[bytes], sections: SectionWriter) -> None:
        """Write the open directories that are not on the path `folders`, and open the missing ones of that path."""
        names = [name for name, _, _ in self._open[1:]]
        same = 0
        while same < min(len(names), len(folders)) and names[same] == folders[same]:
            same += 1
        while len(self._open) > same + 1:
            name = self._open[-1][0]
            cid, total_bytes = self._close_directory(sections)
            self._link(cid, name, total_bytes)
        for name in folders[same:]:
            self._open.append((name, self._links.end, 0))

    def _link(self, cid: bytes, name: bytes, total_bytes: int) -> None:
        self._links.push(dag_pb.encode_link(cid, name, total_bytes))
        folder, start, total = self._open[-1]
        self._open[-1] = (folder, start, total + total_bytes)

    def _close_directory(self, sections: SectionWriter) -> tuple[bytes, int]:
        """Write the innermost open directory. Return its CID, and the total size of its tree of blocks in bytes."""
        _, start, total_bytes = self._open.pop()
        size_bytes = self._links.end - start
        if size_bytes + 2 + len(unixfs.DIRECTORY) > MAX_NODE_BYTES:
            cid, total_bytes = write_shards(sections, self._links.links_from(start))
        else:
            block = dag_pb.encode(b"".join(self._links.blocks(start)), unixfs.DIRECTORY)
            cid, total_bytes = sections.write_node(block), total_bytes + len(block)
        self._links.truncate(start)
        return cid, total_bytes


class _LinkStack:
    """The encoded links of all open directories, innermost directory last. Beyond 4 MiB they are on disk."""

    def __init__(self) -> None:
        self._top = bytearray()
        self._below = 0
        self._spool = Spool("a tree of files", 0)

    @property
    def end(self) -> int:
        return self._below + len(self._top)

    def push(self, link: bytes) -> None:
        self._top += link
        if len(self._top) >= _BUFFER_BYTES:
            self._spool.seek(self._below)
            self._spool.write(self._top)
            self._spool.flush()
            self._below += len(self._top)
            self._top.clear()

    def blocks(self, start: int) -> Iterator[bytes]:
        """Yield the encoded links from the byte `start` of the stack on, in blocks of at most 4 MiB."""
        while start < self._below:
            self._spool.seek(start)
            block = self._spool.read(min(self._below - start, 1 << 20))
            start += len(block)
            yield block
        yield bytes(self._top[start - self._below :])

    def links_from(self, start: int) -> Iterator[dag_pb.Link]:
        """Yield the decoded links from the byte `start` of the stack on."""
        rest = b""
        for block in self.blocks(start):
            rest += block
            offset = 0
            while (end := dag_pb.link_end(rest, offset)) <= len(rest):
                yield dag_pb.decode(rest[offset:end]).links[0]
                offset = end
            rest = rest[offset:]

    def truncate(self, start: int) -> None:
        """Remove the links from the byte `start` of the stack on."""
        del self._top[max(0, start - self._below) :]
        self._below = min(self._below, start)

    def close(self) -> None:
        self._spool.close()
