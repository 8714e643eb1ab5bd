"""Writing the UnixFS tree of an archive: its files are sorted on disk, the deepest directory comes first."""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.cid import RAW_SHA256
from cafcat.formats.car.nodes import DAG_PB_SHA256, PutNode, put_node
from cafcat.formats.car.shards import put_shards
from cafcat.formats.car.tree_names import MAX_NODE_BYTES
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool

__all__ = ["TreeWriter"]

_WHERE: Final = struct.Struct(">QB32sQ")
"""Ordinal of the file; whether its CID is that of a leaf; digest; bytes of all its blocks."""
_HELD_BYTES: Final = 4 << 20


class TreeWriter:
    """Gathers files in any order, then writes their tree.

    Of two files that come to the same place the later one stands there; where a file and a folder do, the folder.
    Memory: that of ExternalSort, 4 MiB of links, and one node of 256 KiB.
    """

    def __init__(self) -> None:
        self._files = ExternalSort("a tree of files")
        self._links = _LinkStack()
        self._open: list[tuple[bytes, int, int]] = []

    def add(self, name: str, cid: bytes, total_bytes: int) -> None:
        """A file by its tree_name; total_bytes: of all its blocks. Raises TemporaryFileFailed."""
        # With NUL in place of the slash, which no name has, the order of bytes is that of the tree.
        key = name.replace("/", "\0").encode()
        where = _WHERE.pack(self._files.count, cid.startswith(RAW_SHA256), cid[-32:], total_bytes)
        self._files.add(key + where)

    def write(self, put: PutNode) -> bytes:
        """Writes the tree; returns the CID of its root. Afterwards the writer is empty. Raises what `put` raises,
        and TemporaryFileFailed."""
        self._open = [(b"", 0, 0)]
        for key, where in self._standing():
            *folders, name = key.split(b"\0")
            self._enter(folders, put)
            _, is_leaf, digest, total_bytes = _WHERE.unpack(where)
            self._link((RAW_SHA256 if is_leaf else DAG_PB_SHA256) + digest, name, total_bytes)
        self._enter([], put)
        cid, _ = self._close_directory(put)
        self._files.close()
        self._links.close()
        return cid

    def _standing(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and place of each file that has a place in the tree, in the order of the tree."""
        last: tuple[bytes, bytes] | None = None
        for record in self._files:
            key = record[: -_WHERE.size]
            if last is not None and key != last[0] and not key.startswith(last[0] + b"\0"):
                yield last
            last = (key, record[-_WHERE.size :]) if key else None
        if last is not None:
            yield last

    def _enter(self, folders: list[bytes], put: PutNode) -> None:
        """Closes the directories that are left, and opens those that are entered."""
        names = [name for name, _, _ in self._open[1:]]
        same = 0
        while same < min(len(names), len(folders)) and names[same] == folders[same]:
            same += 1
        while len(self._open) > same + 1:
            name = self._open[-1][0]
            cid, total_bytes = self._close_directory(put)
            self._link(cid, name, total_bytes)
        for name in folders[same:]:
            self._open.append((name, self._links.end, 0))

    def _link(self, cid: bytes, name: bytes, total_bytes: int) -> None:
        self._links.push(dag_pb.encode_link(cid, name, total_bytes))
        folder, start, total = self._open[-1]
        self._open[-1] = (folder, start, total + total_bytes)

    def _close_directory(self, put: PutNode) -> tuple[bytes, int]:
        """CID and bytes of all blocks of the innermost open directory."""
        _, start, total_bytes = self._open.pop()
        size_bytes = self._links.end - start
        if size_bytes + 2 + len(unixfs.DIRECTORY) > MAX_NODE_BYTES:
            cid, total_bytes = put_shards(put, self._links.since(start))
        else:
            block = dag_pb.encode(b"".join(self._links.blocks(start)), unixfs.DIRECTORY)
            cid, total_bytes = put_node(put, block), total_bytes + len(block)
        self._links.cut(start)
        return cid, total_bytes


class _LinkStack:
    """Encoded links of all open directories, the innermost at the end; beyond 4 MiB they are on disk."""

    def __init__(self) -> None:
        self._top = bytearray()
        self._below = 0
        self._spool = Spool("a tree of files", 0)

    @property
    def end(self) -> int:
        return self._below + len(self._top)

    def push(self, link: bytes) -> None:
        self._top += link
        if len(self._top) >= _HELD_BYTES:
            self._spool.seek(self._below)
            self._spool.write(self._top)
            self._spool.flush()
            self._below += len(self._top)
            self._top.clear()

    def blocks(self, start: int) -> Iterator[bytes]:
        """All from there on, in blocks of at most 4 MiB."""
        while start < self._below:
            self._spool.seek(start)
            block = self._spool.read(min(self._below - start, 1 << 20))
            start += len(block)
            yield block
        yield bytes(self._top[start - self._below :])

    def since(self, start: int) -> Iterator[dag_pb.Link]:
        """The same as links."""
        rest = b""
        for block in self.blocks(start):
            rest += block
            at = 0
            while (end := dag_pb.link_end(rest, at)) <= len(rest):
                yield dag_pb.decode(rest[at:end]).links[0]
                at = end
            rest = rest[at:]

    def cut(self, start: int) -> None:
        """Forgets all from there on."""
        del self._top[max(0, start - self._below) :]
        self._below = min(self._below, start)

    def close(self) -> None:
        self._spool.close()
