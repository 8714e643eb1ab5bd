"""Reading a CAR: by cafcat's own manifest, by the paths of a UnixFS tree, or block by block.

What is refused, and how, is listed in docs/formats/car.md.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import NOT_IN_TREE, UNCHECKED_HASH, RandomReader, Remark
from cafcat.formats.car import varint
from cafcat.formats.car.assembling import BROKEN, DAG, INLINE, decode, gather, pieces
from cafcat.formats.car.blocks import BlockTable
from cafcat.formats.car.cid import (
    BLAKE3,
    CID_BYTES,
    DAG_PB,
    RAW_SHA256,
    hash_is_known,
    hash_name,
    is_block_of,
    parse,
    text_of,
    try_text,
)
from cafcat.formats.car.header import Layout, read_layout
from cafcat.formats.car.index import IndexRecord, read_index
from cafcat.formats.car.listing import first_of_each
from cafcat.formats.car.manifest import find
from cafcat.formats.car.sections import MAX_HEAD_BYTES, MAX_SECTION_BYTES, Section, scan
from cafcat.formats.car.tree_reader import TreeReader
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import Entry

__all__ = ["CarReader"]

_NEAR_BYTES: Final = 64
"""The head of nearly every section is shorter."""


class CarReader:
    """Reads one archive. Memory: windows of 1 MiB, a block of at most 8 MiB, and what listing.first_of_each,
    BlockTable and TreeReader say; all of it together less than 200 MiB for any archive."""

    def __init__(self, archive: RandomReader, *, by_cid: bool = False, zero_ends: bool = False) -> None:
        """Args: by_cid: the entries are blocks, also where files could be given; zero_ends: a section of size zero
        is the end of the payload, as Filecoin pads archives. Raises Corrupt or Unsupported."""
        self._archive = archive
        self._zero_ends = zero_ends
        self._layout = read_layout(archive)
        self._by_cid = by_cid
        self._manifest = None if by_cid else find(archive, self._layout)
        self._table: BlockTable | None = None
        self._damage = self._layout.damage
        self._tree_listed = False
        self._unchecked: Counter[int] | None = None

    @property
    def layout(self) -> Layout:
        """Version, roots, and what stands where."""
        return self._layout

    @property
    def index_span(self) -> tuple[int, int]:
        """Of the index, with the manifest where there is one; at the end and empty if there is none."""
        size = self._archive.size_bytes
        if self._manifest is not None:
            return self._layout.data_end, size
        return size if self._layout.index_start is None else self._layout.index_start, size

    def entries(self) -> Iterator[Entry]:
        """Return each path once.

        In cafcat's own archives these are the files in the order of writing. In others they are the files of the
        tree, if the only root is a UnixFS directory or file. Else they are a block for each CID, in archive order.
        In a damaged archive they are the files or blocks that are whole before the damage.

        Raises:
            Corrupt: in place of the end, if the archive is damaged.
            Unsupported: see docs/formats/car.md.
            TemporaryFileFailed: millions of entries find no room.
        """
        if self._manifest is not None:
            return self._manifest.entries()
        tree = None if self._by_cid else self._tree()
        return self._up_to_damage(self._blocks() if tree is None else self._whole_files(tree))

    def blocks(self) -> Iterator[Entry]:
        """A block for each CID in the order of the archive, also where `entries` gives files. Raises as that."""
        return self._up_to_damage(self._blocks())

    def _up_to_damage(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        yield from first_of_each(entries)
        if self._damage is not None:
            raise self._damage

    def _whole_files(self, tree: TreeReader) -> Iterator[Entry]:
        """The files of a tree. Those with missing blocks are left out where the end of the archive is missing."""
        for entry in tree.entries():
            if self._damage is None or not (entry.decoding or "").startswith(BROKEN):
                yield entry
        self._tree_listed = True

    def remarks(self) -> Sequence[Remark]:
        """Return what is unusual in an archive of another program: blocks that cannot be checked here, and blocks
        that are in no file of the tree. See HasRemarks."""
        if self._manifest is not None:
            return ()  # all of it is cafcat's
        if self._unchecked is None:
            for _ in self._whole_sections():
                pass
        return [*self._unchecked_remark(self._unchecked or Counter()), *self._not_in_tree()]

    def _unchecked_remark(self, unchecked: Counter[int]) -> Iterator[Remark]:
        count = unchecked.total()
        if count:
            names = ", ".join(map(hash_name, sorted(unchecked)))
            message = f"cafcat does not check the hashes of {count:,} blocks: {names}"
            extra = "; pip install 'cafcat[blake3]' for BLAKE3" if BLAKE3 in unchecked else ""
            yield Remark(UNCHECKED_HASH, count, message + extra)

    def _not_in_tree(self) -> Iterator[Remark]:
        if not self._tree_listed or self._table is None or self._damage is not None:
            return
        count, first = self._table.never_found()
        if count:
            section = next(scan(self._archive, first, self._layout.data_end))
            message = (
                f"{count:,} blocks are in no file of the tree that the header names, the first is "
                f"{text_of(section.cid)} at byte {first}; --blocks lists all blocks"
            )
            yield Remark(NOT_IN_TREE, count, message)

    def properties(self) -> dict[str, Any]:
        """Version, roots, and what index there is."""
        return {
            "version": self._layout.version,
            "roots": [text_of(root) for root in self._layout.roots],
            "indexed": self._layout.index_start is not None,
            "fully_indexed": self._layout.fully_indexed,
        }

    def sections(self) -> Iterator[Section]:
        """All sections in order. Raises Corrupt."""
        layout = self._layout
        return scan(self._archive, layout.sections_start, layout.data_end, zero_ends=self._zero_ends)

    def _whole_sections(self) -> Iterator[Section]:
        """The sections up to the first damage, which is noted."""
        unchecked: Counter[int] = Counter()
        try:
            for section in self.sections():
                if not hash_is_known(section.cid):
                    unchecked[parse(section.cid).code] += 1
                yield section
        except Corrupt as error:
            self._damage = self._layout.damage or error
        self._unchecked = unchecked

    def index(self) -> Iterator[IndexRecord]:
        """The records of the index; none if there is no index. Raises Corrupt; Unsupported for another codec."""
        if self._layout.index_start is None:
            return iter(())
        return read_index(self._archive, self._layout.index_start, self._archive.size_bytes)

    def _blocks(self) -> Iterator[Entry]:
        for _, cid, data_start, data_end in self._whole_sections():
            yield Entry(text_of(cid), data_start, data_end, None, None)

    def _tree(self) -> TreeReader | None:
        """None if there is no single root, or it is not UnixFS."""
        roots = self._layout.roots
        if len(roots) != 1 or parse(roots[0]).codec != DAG_PB:
            return None
        payload_bytes = self._layout.data_end - self._layout.data_start
        tree = TreeReader(self._archive, self._blocks_by_cid(), roots[0], payload_bytes)
        return tree if tree.is_unixfs() else None

    def _blocks_by_cid(self) -> BlockTable:
        if self._table is None:
            self._table = BlockTable(self._archive, self._whole_sections())
        return self._table

    def open(self, entry: Entry) -> Iterator[bytes]:
        """The content of one of its entries in blocks of at most 1 MiB. Every block is checked against its hash, if
        that is one that is known here: see verifiable. Raises Corrupt, at the latest in place of the end."""
        return verified_content(self._content(entry), entry, self._archive, "manifest")

    def _content(self, entry: Entry) -> Iterator[bytes]:
        try:
            if entry.decoding is None:
                yield from pieces(self._checked_block(entry))
            elif entry.decoding.startswith(DAG) and self._table is not None:
                yield from self._gathered(entry, self._table)
            else:
                yield from decode(read_span(self._archive, entry), entry)
        except Corrupt as error:
            if error.chunk is None:
                error.chunk = self._archive.name
            raise

    def _gathered(self, entry: Entry, table: BlockTable) -> Iterator[bytes]:
        """From wherever its blocks stand."""
        root = try_text((entry.decoding or "").removeprefix(DAG))
        if root is None:
            raise Unsupported(f"no CID of a file: {entry.decoding!r}", path=entry.path)

        def fetch(cid: bytes) -> bytes | None:
            found = table.block(cid)
            return None if found is None else found[1]

        count = 0
        try:
            for block in gather(fetch, root, entry.end_byte - entry.start_byte):
                count += len(block)
                yield block
        except ValueError as error:
            raise self._corrupt(f"the file cannot be put together: {error}", entry) from error
        if count != entry.size_bytes:
            raise self._corrupt(f"its blocks have {count:,} bytes, it should have {entry.size_bytes:,}", entry)

    def _checked_block(self, entry: Entry) -> bytes:
        """The block that the span is."""
        cid, block = self._block_of(entry)
        if is_block_of(cid, block) is False:
            raise self._corrupt(f"the block is not the one of its CID {text_of(cid)}", entry)
        return block

    def _block_of(self, entry: Entry) -> tuple[bytes, bytes]:
        """CID and block of the section whose block the span is: in one read, unless the CID is uncommon. Raises
        Corrupt if it is none."""
        size_bytes = entry.end_byte - entry.start_byte
        if 0 <= size_bytes <= MAX_SECTION_BYTES and self._layout.sections_start < entry.start_byte:
            for most in (_NEAR_BYTES, MAX_HEAD_BYTES):
                start = max(self._layout.sections_start, entry.start_byte - most)
                data = self._archive.read_at(start, entry.end_byte)
                cid = _last_cid(data[: entry.start_byte - start], size_bytes)
                if cid is not None:
                    return cid, data[entry.start_byte - start :]
        raise self._corrupt("no block of a CAR stands there", entry)

    def verifiable(self, entry: Entry) -> bool:
        """Whether open can tell if the content is right: not if a block of it has a hash function that is not known
        here. Raises Corrupt."""
        if entry.decoding is None:
            return hash_is_known(self._block_of(entry)[0])
        if entry.decoding.startswith(INLINE):
            return True
        sections = scan(self._archive, entry.start_byte, entry.end_byte)
        return all(hash_is_known(section.cid) for section in sections)

    def _corrupt(self, message: str, entry: Entry) -> Corrupt:
        return Corrupt(message, path=entry.path, chunk=self._archive.name, byte=entry.start_byte)


def _last_cid(before: bytes, block_bytes: int) -> bytes | None:
    """The CID that these bytes end with, if the size of a section with such a block stands before it."""
    if before[-CID_BYTES:].startswith(RAW_SHA256) and _is_sized(before, CID_BYTES, block_bytes):
        return before[-CID_BYTES:]
    for cid_bytes in range(min(len(before), MAX_HEAD_BYTES) - 1, 3, -1):
        if _is_sized(before, cid_bytes, block_bytes):
            try:
                parse(before[-cid_bytes:])
            except ValueError:
                continue
            return before[-cid_bytes:]
    return None


def _is_sized(before: bytes, cid_bytes: int, block_bytes: int) -> bool:
    return before.endswith(varint.encode(cid_bytes + block_bytes), 0, len(before) - cid_bytes)
