"""Lists the files of the UnixFS tree in a CAR of another program, with their paths."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.assembling import BROKEN, DAG, INLINE, MAX_DEPTH, SYMLINK
from cafcat.formats.car.blocks import BlockSpan, BlockTable
from cafcat.formats.car.cid import DAG_PB, IDENTITY, cid_to_text, parse
from cafcat.formats.car.manifest import SECTIONS
from cafcat.model import Entry

__all__ = ["MAX_FOLDERS", "MAX_NAME_BYTES", "TreeReader"]

MAX_FOLDERS: Final = 1024
"""Largest depth of a tree, including shards."""
MAX_NAME_BYTES: Final = 64 << 10
"""Largest path of a directory in a tree, counted in characters. The limit of the catalog is lower."""
MAX_OPEN_BYTES: Final = 64 << 20
"""Largest total size in bytes of the nodes on the path to one file."""
_FREE_LINKS: Final = 20_000
"""Number of links that may be followed in a tree of any size."""
_BYTES_PER_LINK: Final = 4
"""For each group of this many bytes in the payload, one more link may be followed."""

_FOLDERS: Final = (unixfs.Kind.DIRECTORY, unixfs.Kind.HAMT_SHARD)
_FILES: Final = (unixfs.Kind.FILE, unixfs.Kind.RAW)


class _BrokenBlock(Exception):
    """The block with the CID `cid` is missing, damaged, or not a valid node."""

    def __init__(self, cid: bytes) -> None:
        super().__init__()
        self.cid = cid


class _Folder(NamedTuple):
    """A directory of a UnixFS tree, or a shard of a directory, that is being listed.

    Attributes:
        path: path of the directory.
        links: the links that were not followed yet.
        digits: number of hexadecimal digits of the slot at the start of each name in a shard; 0 for plain
            directories.
        size_bytes: size of the node in bytes.
        span: position of the node.
    """

    path: str
    links: Iterator[dag_pb.Link]
    digits: int
    size_bytes: int
    span: BlockSpan


class _Node(NamedTuple):
    """A decoded node of a UnixFS tree.

    Attributes:
        span: position of the node's section; for an inline node, the position of a node above it.
        block: the bytes of the node.
        links: the links of the node.
        data: the UnixFS data of the node.
        is_inline: True if the node has no section, because the identity CID in a link contains it.
    """

    span: BlockSpan
    block: bytes
    links: tuple[dag_pb.Link, ...]
    data: unixfs.Node
    is_inline: bool


class _Extent:
    """The span and the size of a file, collected while its DAG is traversed.

    Attributes:
        content_bytes: size of the file's content so far, in bytes.
    """

    def __init__(self) -> None:
        self.content_bytes = 0
        self._low = 1 << 63
        self._high = 0
        self._section_bytes = 0
        self._last = 0
        self._in_order = True

    def add_block(self, span: BlockSpan, content_bytes: int) -> None:
        self._low = min(self._low, span.start)
        self._high = max(self._high, span.data_end)
        self._section_bytes += span.data_end - span.start
        if content_bytes:
            self._in_order = self._in_order and span.start >= self._last
            self._last = span.data_end
            self.content_bytes += content_bytes

    def add_inline(self, content_bytes: int) -> None:
        """Count file content that an identity CID contains, so that it has no section."""
        self.content_bytes += content_bytes
        self._in_order = False

    @property
    def span(self) -> tuple[int, int]:
        return (self._low, self._high) if self._high else (0, 0)

    @property
    def is_sections(self) -> bool:
        """True if the sections in the span, in order, are exactly the blocks of the file."""
        return self._in_order and self._high > 0 and self._section_bytes == self._high - self._low


class TreeReader:
    """Lists a UnixFS tree from its root, each directory in the order of its links.

    Memory: 64 MiB of the nodes on the path to a file, and one decoded node of at most 8 MiB. Time is bounded: at
    most 20,000 links are followed, and one more for each four bytes of the payload. This is ten times as many as a
    tree without repetitions can have. Nodes are checked against their hashes, but not the leaves of files.
    """

    def __init__(self, archive: RandomReader, table: BlockTable, root: bytes, payload_bytes: int) -> None:
        """Prepare to list a tree.

        Args:
            archive: the archive.
            table: finds the blocks of the archive.
            root: CID of the root of the tree.
            payload_bytes: size of the payload in bytes. It limits the number of links that are followed.
        """
        self._archive = archive
        self._table = table
        self._root = root
        self._links_left = _FREE_LINKS + payload_bytes // _BYTES_PER_LINK
        self._open: list[_Folder] = []
        self._open_bytes = 0

    def is_unixfs(self) -> bool:
        """Return True if the root of the tree is in the archive, undamaged, and a UnixFS file or directory.

        Raises TemporaryFileFailed if the temporary file of the table cannot be read.
        """
        try:
            return self._node(self._root, None).data.kind in _FOLDERS + _FILES
        except (_BrokenBlock, Corrupt):
            return False

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all files and symlinks in the tree. Paths may be repeated.

        For a missing block, or a damaged node, an entry is yielded that cannot be opened. It replaces the file with
        this block, or all files below this directory node. Empty directories have no entries.

        Raises:
            Unsupported: the tree exceeds a limit: number of links, number of levels, size of paths or of nodes.
            Corrupt: a name is not valid UTF-8.
            TemporaryFileFailed: the temporary file of the table cannot be read.
        """
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
            yield from self._visit(_joined(folder.path, name), link.cid, folder.span)
        elif len(name) > folder.digits:
            yield from self._visit(_joined(folder.path, name[folder.digits :]), link.cid, folder.span)
        else:
            yield from self._enter_shard(folder, link.cid)

    def _enter_shard(self, folder: _Folder, cid: bytes) -> Iterator[Entry]:
        try:
            node = self._node(cid, folder.span)
            if node.data.kind != unixfs.Kind.HAMT_SHARD:
                raise _BrokenBlock(cid)
        except _BrokenBlock:
            yield _broken(_joined(folder.path, cid_to_text(cid)), cid, folder.span)
        else:
            self._enter(folder.path, node)

    def _visit(self, path: str, cid: bytes, parent: BlockSpan | None) -> Iterator[Entry]:
        """Yield the entry of a file or symlink, or open a directory, whose links `entries` follows next.

        Args:
            path: path in the tree.
            cid: CID of the file, symlink or directory.
            parent: position of the directory node with the link; None for the root.
        """
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
                yield self._file(path or cid_to_text(cid), cid, node)
            else:
                raise _BrokenBlock(cid)
        except _BrokenBlock as broken:
            yield _broken(path or cid_to_text(cid), broken.cid, parent)

    def _block(self, path: str, cid: bytes, parent: BlockSpan | None) -> Entry:
        """Return the entry of a file that is a single block, and not a DAG-PB node."""
        _, _, code, digest = parse(cid)
        if code == IDENTITY and parent is not None:
            return Entry(
                path, parent.data_start, parent.data_end, None, None, len(digest), INLINE + cid_to_text(cid)
            )
        span = self._find_span(cid)
        return Entry(path, span.data_start, span.data_end, None, None)

    def _symlink(self, path: str, cid: bytes, node: _Node) -> Entry:
        size_bytes, time = len(node.data.data), node.data.modified_ns
        if node.is_inline:
            start, end = node.span.data_start, node.span.data_end
            return Entry(path, start, end, None, time, size_bytes, INLINE + cid_to_text(cid))
        return Entry(path, node.span.start, node.span.data_end, None, time, size_bytes, SYMLINK)

    def _file(self, path: str, cid: bytes, root: _Node) -> Entry:
        time = root.data.modified_ns
        if root.is_inline and not root.links:
            size_bytes, inline = len(root.data.data), INLINE + cid_to_text(cid)
            return Entry(path, root.span.data_start, root.span.data_end, None, time, size_bytes, inline)
        extent = self._extent(cid, root)
        decoding = SECTIONS if extent.is_sections else DAG + cid_to_text(cid)
        return Entry(path, *extent.span, None, time, extent.content_bytes, decoding)

    def _extent(self, cid: bytes, root: _Node) -> _Extent:
        extent = _Extent()
        pending: list[Iterator[bytes]] = []
        self._add_node(extent, cid, root, pending)
        while pending:
            child = next(pending[-1], None)
            if child is None:
                pending.pop()
                continue
            self._count_link()
            if parse(child).codec == DAG_PB:
                self._add_node(extent, child, self._node(child, root.span), pending)
            elif parse(child).hash_code == IDENTITY:
                extent.add_inline(len(parse(child).digest))
            else:
                span = self._find_span(child)
                extent.add_block(span, span.data_end - span.data_start)
        return extent

    def _add_node(self, extent: _Extent, cid: bytes, node: _Node, pending: list[Iterator[bytes]]) -> None:
        if node.data.kind not in _FILES or len(pending) >= MAX_DEPTH:
            raise _BrokenBlock(cid)
        if node.is_inline:
            extent.add_inline(len(node.data.data))
        else:
            extent.add_block(node.span, len(node.data.data))
        if node.links:
            pending.append(link.cid for link in node.links)

    def _enter(self, path: str, node: _Node) -> None:
        digits = len(f"{node.data.fanout - 1:X}") if node.data.kind == unixfs.Kind.HAMT_SHARD else 0
        self._open.append(_Folder(path, dag_pb.links_of(node.block), digits, len(node.block), node.span))
        if len(self._open) > MAX_FOLDERS:
            raise self._unsupported(f"the tree has more than {MAX_FOLDERS:,} levels")
        self._open_bytes += len(node.block)
        if self._open_bytes > MAX_OPEN_BYTES:
            raise self._unsupported(f"the nodes above one file have more than {MAX_OPEN_BYTES:,} bytes")

    def _node(self, cid: bytes, parent: BlockSpan | None) -> _Node:
        """Return the decoded UnixFS node of a CID. Raises _BrokenBlock if it is missing, damaged or not UnixFS.

        Args:
            cid: CID of the node.
            parent: the span that an inline node gets; None for the root of the tree, which is never inline.
        """
        try:
            is_inline = parent is not None and parse(cid).hash_code == IDENTITY
            if parent is not None and is_inline:
                span, block = parent, parse(cid).digest
            else:
                found = self._table.block(cid)
                if found is None:
                    raise _BrokenBlock(cid)
                span, block = found
            node = dag_pb.decode(block)
            return _Node(span, block, node.links, unixfs.decode(node.data or b""), is_inline)
        except (Corrupt, ValueError) as error:
            raise _BrokenBlock(cid) from error

    def _find_span(self, cid: bytes) -> BlockSpan:
        span = self._table.find(cid)
        if span is None:
            raise _BrokenBlock(cid)
        return span

    def _name(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            message = f"the name of a link in the tree is not valid UTF-8: {name[:80]!r}"
            raise Corrupt(message, chunk=self._archive.name) from error

    def _count_link(self) -> None:
        self._links_left -= 1
        if self._links_left < 0:
            raise self._unsupported("the tree links to the same blocks too often: it would have too many files")
        if self._open and len(self._open[-1].path) > MAX_NAME_BYTES:
            raise self._unsupported(f"the tree has a path of more than {MAX_NAME_BYTES:,} characters")

    def _unsupported(self, message: str) -> Unsupported:
        return Unsupported(message, chunk=self._archive.name)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _broken(path: str, cid: bytes, parent: BlockSpan | None) -> Entry:
    start, end = (parent.data_start, parent.data_end) if parent else (0, 0)
    return Entry(path, start, end, None, None, 0, BROKEN + cid_to_text(cid))
