"""The files of a UnixFS tree, by their paths, in archives of other programs."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.assembling import BROKEN, DAG, INLINE, MAX_DEPTH, SYMLINK
from cafcat.formats.car.blocks import BlockSpan, BlockTable
from cafcat.formats.car.cid import DAG_PB, IDENTITY, parse, text_of
from cafcat.formats.car.manifest import SECTIONS
from cafcat.model import Entry

__all__ = ["MAX_FOLDERS", "MAX_NAME_BYTES", "TreeReader"]

MAX_FOLDERS: Final = 1024
"""A tree may be so deep, shards included."""
MAX_NAME_BYTES: Final = 64 << 10
"""A path may be so long; what the catalog takes is shorter."""
MAX_OPEN_BYTES: Final = 64 << 20
"""So large may the nodes be together that lead to one file."""
_FREE_LINKS: Final = 20_000
_BYTES_PER_LINK: Final = 4

_FOLDERS: Final = (unixfs.Kind.DIRECTORY, unixfs.Kind.HAMT_SHARD)
_FILES: Final = (unixfs.Kind.FILE, unixfs.Kind.RAW)


class _Broken(Exception):
    """The block of this CID is missing, or not what it should be."""

    def __init__(self, cid: bytes) -> None:
        super().__init__()
        self.cid = cid


class _Folder(NamedTuple):
    """A directory, or a shard of one, whose links are gone through. digits: of the place that names in a shard
    begin with, else 0."""

    path: str
    links: Iterator[dag_pb.Link]
    digits: int
    size_bytes: int
    place: BlockSpan


class _Node(NamedTuple):
    place: BlockSpan
    block: bytes
    links: tuple[dag_pb.Link, ...]
    data: unixfs.Node


class _Extent:
    """What is known of a file while its DAG is gone through."""

    def __init__(self) -> None:
        self.content_bytes = 0
        self._low = 1 << 63
        self._high = 0
        self._section_bytes = 0
        self._last = 0
        self._in_order = True

    def take(self, place: BlockSpan, content_bytes: int) -> None:
        self._low = min(self._low, place.start)
        self._high = max(self._high, place.data_end)
        self._section_bytes += place.data_end - place.start
        if content_bytes:
            self._in_order = self._in_order and place.start >= self._last
            self._last = place.data_end
            self.content_bytes += content_bytes

    def take_inline(self, content_bytes: int) -> None:
        """Bytes that stand in a CID."""
        self.content_bytes += content_bytes
        self._in_order = False

    @property
    def span(self) -> tuple[int, int]:
        return (self._low, self._high) if self._high else (0, 0)

    @property
    def is_sections(self) -> bool:
        """Whether the sections of the span, one after the other, are the file."""
        return self._in_order and self._high > 0 and self._section_bytes == self._high - self._low


class TreeReader:
    """Goes through the tree from its root, each directory in the order of its links.

    Memory: 64 MiB of the nodes that lead to the file, and a node of at most 8 MiB taken apart. Time is bounded:
    no more links are followed than a quarter of the payload's bytes, and 20,000, which is ten times what a tree
    without repetitions can have. Nodes are checked against their hashes.
    """

    def __init__(self, archive: RandomReader, table: BlockTable, root: bytes, payload_bytes: int) -> None:
        self._archive = archive
        self._table = table
        self._root = root
        self._links_left = _FREE_LINKS + payload_bytes // _BYTES_PER_LINK
        self._open: list[_Folder] = []
        self._open_bytes = 0

    def is_unixfs(self) -> bool:
        """Whether the root is there, and a file or directory of UnixFS."""
        try:
            return self._node(self._root, None).data.kind in _FOLDERS + _FILES
        except (_Broken, Corrupt):
            return False

    def entries(self) -> Iterator[Entry]:
        """The files and symlinks. A block that is missing or damaged costs what hangs on it: an entry stands in its
        place that cannot be opened. Raises Unsupported where a bound is exceeded; Corrupt for a name that is no
        UTF-8."""
        yield from self._visit("", self._root, None)
        while self._open:
            folder = self._open[-1]
            link = next(folder.links, None)
            if link is None:
                self._open_bytes -= self._open.pop().size_bytes
            else:
                yield from self._follow(folder, link)

    def _follow(self, folder: _Folder, link: dag_pb.Link) -> Iterator[Entry]:
        self._count_link()
        name = self._name(link.name)
        if not folder.digits:
            yield from self._visit(_joined(folder.path, name), link.cid, folder.place)
        elif len(name) > folder.digits:
            yield from self._visit(_joined(folder.path, name[folder.digits :]), link.cid, folder.place)
        else:
            yield from self._enter_shard(folder, link.cid)

    def _enter_shard(self, folder: _Folder, cid: bytes) -> Iterator[Entry]:
        try:
            node = self._node(cid, folder.place)
            if node.data.kind != unixfs.Kind.HAMT_SHARD:
                raise _Broken(cid)
        except _Broken:
            yield _broken(_joined(folder.path, text_of(cid)), cid, folder.place)
        else:
            self._enter(folder.path, node)

    def _visit(self, path: str, cid: bytes, parent: BlockSpan | None) -> Iterator[Entry]:
        """A file, or a directory, whose files follow."""
        try:
            if parse(cid).codec != DAG_PB:
                yield self._block(path, cid, parent)
                return
            node = self._node(cid, parent)
            if node.data.kind in _FOLDERS:
                self._enter(path, node)
            elif node.data.kind == unixfs.Kind.SYMLINK:
                yield self._symlink(path, cid, node)
            elif node.data.kind in _FILES:
                yield self._file(path or text_of(cid), cid, node)
            else:
                raise _Broken(cid)
        except _Broken as broken:
            yield _broken(path or text_of(cid), broken.cid, parent)

    def _block(self, path: str, cid: bytes, parent: BlockSpan | None) -> Entry:
        """A file that is one block as it is."""
        _, _, code, digest = parse(cid)
        if code == IDENTITY and parent is not None:
            return Entry(path, parent.data_start, parent.data_end, None, None, len(digest), INLINE + text_of(cid))
        place = self._place(cid)
        return Entry(path, place.data_start, place.data_end, None, None)

    def _symlink(self, path: str, cid: bytes, node: _Node) -> Entry:
        size_bytes, time = len(node.data.data), node.data.modified_ns
        if parse(cid).code == IDENTITY:
            start, end = node.place.data_start, node.place.data_end
            return Entry(path, start, end, None, time, size_bytes, INLINE + text_of(cid))
        return Entry(path, node.place.start, node.place.data_end, None, time, size_bytes, SYMLINK)

    def _file(self, path: str, cid: bytes, root: _Node) -> Entry:
        time = root.data.modified_ns
        if parse(cid).code == IDENTITY and not root.links:
            size_bytes, inline = len(root.data.data), INLINE + text_of(cid)
            return Entry(path, root.place.data_start, root.place.data_end, None, time, size_bytes, inline)
        extent = self._extent(cid, root)
        decoding = SECTIONS if extent.is_sections else DAG + text_of(cid)
        return Entry(path, *extent.span, None, time, extent.content_bytes, decoding)

    def _extent(self, cid: bytes, root: _Node) -> _Extent:
        extent = _Extent()
        waiting: list[Iterator[bytes]] = []
        self._take(extent, cid, root, waiting)
        while waiting:
            child = next(waiting[-1], None)
            if child is None:
                waiting.pop()
                continue
            self._count_link()
            if parse(child).codec == DAG_PB:
                self._take(extent, child, self._node(child, root.place), waiting)
            elif parse(child).code == IDENTITY:
                extent.take_inline(len(parse(child).digest))
            else:
                place = self._place(child)
                extent.take(place, place.data_end - place.data_start)
        return extent

    def _take(self, extent: _Extent, cid: bytes, node: _Node, waiting: list[Iterator[bytes]]) -> None:
        if node.data.kind not in _FILES or len(waiting) >= MAX_DEPTH:
            raise _Broken(cid)
        if parse(cid).code == IDENTITY:
            extent.take_inline(len(node.data.data))
        else:
            extent.take(node.place, len(node.data.data))
        if node.links:
            waiting.append(link.cid for link in node.links)

    def _enter(self, path: str, node: _Node) -> None:
        digits = len(f"{node.data.fanout - 1:X}") if node.data.kind == unixfs.Kind.HAMT_SHARD else 0
        self._open.append(_Folder(path, dag_pb.links_of(node.block), digits, len(node.block), node.place))
        if len(self._open) > MAX_FOLDERS:
            raise self._unsupported(f"a tree of more than {MAX_FOLDERS:,} levels")
        self._open_bytes += len(node.block)
        if self._open_bytes > MAX_OPEN_BYTES:
            raise self._unsupported(f"nodes of more than {MAX_OPEN_BYTES:,} bytes lead to one file")

    def _node(self, cid: bytes, parent: BlockSpan | None) -> _Node:
        """Raises _Broken."""
        try:
            if parse(cid).code == IDENTITY and parent is not None:
                place, block = parent, parse(cid).digest
            else:
                found = self._table.block(cid)
                if found is None:
                    raise _Broken(cid)
                place, block = found
            node = dag_pb.decode(block)
            return _Node(place, block, node.links, unixfs.decode(node.data or b""))
        except (Corrupt, ValueError) as error:
            raise _Broken(cid) from error

    def _place(self, cid: bytes) -> BlockSpan:
        place = self._table.find(cid)
        if place is None:
            raise _Broken(cid)
        return place

    def _name(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise Corrupt(f"a name is not valid UTF-8: {name[:80]!r}", chunk=self._archive.name) from error

    def _count_link(self) -> None:
        self._links_left -= 1
        if self._links_left < 0:
            raise self._unsupported("its tree repeats the same blocks too often: it would unfold to too many files")
        if self._open and len(self._open[-1].path) > MAX_NAME_BYTES:
            raise self._unsupported(f"a path of more than {MAX_NAME_BYTES:,} bytes")

    def _unsupported(self, message: str) -> Unsupported:
        return Unsupported(message, chunk=self._archive.name)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _broken(path: str, cid: bytes, parent: BlockSpan | None) -> Entry:
    start, end = (parent.data_start, parent.data_end) if parent else (0, 0)
    return Entry(path, start, end, None, None, 0, BROKEN + text_of(cid))
