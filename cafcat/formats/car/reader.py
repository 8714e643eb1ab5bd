"""Reads the entries of a CAR: by cafcat's own manifest, by the paths of a UnixFS tree, or block by block.

docs/formats/car.md lists all refused cases.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cafcat.errors import Corrupt, NotInstalled, Unsupported
from cafcat.formats.base import NOT_IN_TREE, UNCHECKED_HASH, RandomReader, Remark
from cafcat.formats.car import varint
from cafcat.formats.car.assembling import BROKEN, DAG, INLINE, assemble, decode, split
from cafcat.formats.car.blocks import BlockTable
from cafcat.formats.car.cid import (
    BLAKE3,
    CID_BYTES,
    DAG_PB,
    RAW_SHA256,
    block_matches,
    can_check_hash,
    cid_from_text,
    cid_to_text,
    hash_name,
    parse,
)
from cafcat.formats.car.header import Layout, read_layout
from cafcat.formats.car.index import IndexRecord, read_index
from cafcat.formats.car.listing import first_of_each_path
from cafcat.formats.car.manifest import find_manifest
from cafcat.formats.car.sections import MAX_HEAD_BYTES, MAX_SECTION_BYTES, Section, scan
from cafcat.formats.car.tree_reader import TreeReader
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import Entry

__all__ = ["CarReader"]

_USUAL_HEAD_BYTES: Final = 64
"""Nearly all sections have a shorter head (size and CID), in bytes."""


class CarReader:
    """Reads one CAR. Implements `Reader`, `HasProperties`, `HasRemarks` and `BlockReader`.

    Memory: windows of 1 MiB, a block of at most 8 MiB, and the memory of `first_of_each_path`, BlockTable and
    TreeReader. All of it together is less than 200 MiB for any archive.
    """

    def __init__(self, archive: RandomReader, *, by_cid: bool = False, zero_padding: bool = False) -> None:
        """Read the header and look for a manifest.

        Args:
            archive: the archive.
            by_cid: if True, `entries` returns an entry for each block, even if the archive has files.
            zero_padding: if True, a section of size zero is the end of the payload, as in archives that Filecoin
                pads.

        Raises:
            Corrupt: the header is invalid or incomplete, or the manifest is not where its trailer points.
            Unsupported: the archive has another version than 1 and 2, or more than 100,000 roots.
        """
        self._archive = archive
        self._zero_padding = zero_padding
        self._layout = read_layout(archive)
        self._by_cid = by_cid
        self._manifest = None if by_cid else find_manifest(archive, self._layout)
        self._table: BlockTable | None = None
        self._damage = self._layout.damage
        self._tree_listed = False
        self._unchecked: Counter[int] | None = None

    @property
    def layout(self) -> Layout:
        """The header of the archive: its version, its roots, and the positions of its parts."""
        return self._layout

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` in bytes from the start of the manifest to the end of the archive.

        If there is no manifest, the span begins at the CARv2 index; if there is no index either, the span is empty.
        """
        size = self._archive.size_bytes
        if self._manifest is not None:
            return self._layout.data_end, size
        return size if self._layout.index_start is None else self._layout.index_start, size

    def entries(self) -> Iterator[Entry]:
        """Return the entries of the archive, each path once.

        For archives of cafcat these are the files in the order of writing. For other archives they are the files of
        the tree if the only root is a UnixFS directory or file. Otherwise they are the blocks, one for each CID, in
        archive order. If a section is invalid or the end is missing, only the files or blocks that are complete
        before this damage are returned. Otherwise files with missing blocks are returned, too. For these, and for
        damaged files and blocks, `open` raises Corrupt.

        Raises:
            Corrupt: the archive is damaged. A missing end, or an invalid section, is raised after the last complete
                entry; damage of the manifest, and names that are not UTF-8, are raised earlier.
            Unsupported: the tree, or the manifest, exceeds a limit of docs/formats/car.md, or the manifest has
                another version than 1.0.
            TemporaryFileFailed: the archive has so many entries that a temporary file is needed, and it failed.
        """
        if self._manifest is not None:
            return self._manifest.entries()
        tree = None if self._by_cid else self._tree()
        return self._up_to_damage(self._blocks() if tree is None else self._complete_files(tree))

    def blocks(self) -> Iterator[Entry]:
        """Yield one entry for each CID, in archive order, even if `entries` returns files.

        Blocks are not checked against their hashes; `open` does this.

        Raises:
            Corrupt: a section is invalid, or the end of the archive is missing. Raised after the last complete
                block.
            TemporaryFileFailed: the archive has so many blocks that a temporary file is needed, and it failed.
        """
        return self._up_to_damage(self._blocks())

    def _up_to_damage(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        yield from first_of_each_path(entries)
        if self._damage is not None:
            raise self._damage

    def _complete_files(self, tree: TreeReader) -> Iterator[Entry]:
        """Yield the files of a tree. If the archive is damaged, files with missing blocks are left out."""
        for entry in tree.entries():
            if self._damage is None or not (entry.decoding or "").startswith(BROKEN):
                yield entry
        self._tree_listed = True

    def remarks(self) -> Sequence[Remark]:
        """Return remarks about an archive of another program; none for an archive that cafcat wrote.

        One remark counts blocks whose hash cafcat cannot check, another one blocks that belong to no file of the
        tree. The second one is only made if `entries` was read to its end before, and all sections are valid and
        complete. If not all sections were read before, this call reads them. Damage raises no error here.

        Raises:
            TemporaryFileFailed: the temporary file of the table of blocks cannot be read.
        """
        if self._manifest is not None:
            return ()  # cafcat wrote the archive
        if self._unchecked is None:
            for _ in self._intact_sections():
                pass
        return [*self._unchecked_remark(self._unchecked or Counter()), *self._not_in_tree()]

    def _unchecked_remark(self, unchecked: Counter[int]) -> Iterator[Remark]:
        count = unchecked.total()
        if count:
            names = ", ".join(map(hash_name, sorted(unchecked)))
            message = f"cafcat cannot check the hashes of {count:,} blocks: {names}"
            extra = f"; for BLAKE3: {NotInstalled.remedy('blake3')}" if BLAKE3 in unchecked else ""
            yield Remark(UNCHECKED_HASH, count, message + extra)

    def _not_in_tree(self) -> Iterator[Remark]:
        if not self._tree_listed or self._table is None or self._damage is not None:
            return
        count, first = self._table.unused_blocks()
        if count:
            section = next(scan(self._archive, first, self._layout.data_end))
            message = (
                f"{count:,} blocks belong to no file of the tree that the header names; the first is "
                f"{cid_to_text(section.cid)} at byte {first}; `cafcat inspect --blocks` lists all blocks"
            )
            yield Remark(NOT_IN_TREE, count, message)

    def properties(self) -> dict[str, Any]:
        """Return the version, the roots as text, and two flags: `indexed` and `fully_indexed`.

        `indexed` is True if the header gives a position for an index, after the payload and within the archive.
        `fully_indexed` is True if the header states that this index has all blocks. The index itself is not read.
        """
        return {
            "version": self._layout.version,
            "roots": [cid_to_text(root) for root in self._layout.roots],
            "indexed": self._layout.index_start is not None,
            "fully_indexed": self._layout.fully_indexed,
        }

    def sections(self) -> Iterator[Section]:
        """Return all sections in order. Their blocks are not checked.

        Raises:
            Corrupt: a section is invalid or incomplete.
        """
        layout = self._layout
        return scan(self._archive, layout.sections_start, layout.data_end, zero_padding=self._zero_padding)

    def _intact_sections(self) -> Iterator[Section]:
        """Yield the sections up to the first invalid or incomplete one.

        Corrupt is not raised, but stored in `_damage`. The number of blocks that cannot be checked, by hash
        function, is stored in `_unchecked`.
        """
        unchecked: Counter[int] = Counter()
        try:
            for section in self.sections():
                if not can_check_hash(section.cid):
                    unchecked[parse(section.cid).hash_code] += 1
                yield section
        except Corrupt as error:
            self._damage = self._layout.damage or error
        self._unchecked = unchecked

    def index(self) -> Iterator[IndexRecord]:
        """Return the records of the archive's CARv2 index; none if the archive has no index.

        Raises:
            Corrupt: the index is invalid.
            Unsupported: the index has an unknown codec.
        """
        if self._layout.index_start is None:
            return iter(())
        return read_index(self._archive, self._layout.index_start, self._archive.size_bytes)

    def _blocks(self) -> Iterator[Entry]:
        for _, cid, data_start, data_end in self._intact_sections():
            yield Entry(cid_to_text(cid), data_start, data_end, None, None)

    def _tree(self) -> TreeReader | None:
        """Return a reader of the archive's UnixFS tree, after reading the positions of all sections.

        Return None if the archive does not have exactly one root, or the root is missing, damaged, or not a DAG-PB
        node that is a UnixFS file or directory.
        """
        roots = self._layout.roots
        if len(roots) != 1 or parse(roots[0]).codec != DAG_PB:
            return None
        payload_bytes = self._layout.data_end - self._layout.data_start
        tree = TreeReader(self._archive, self._blocks_by_cid(), roots[0], payload_bytes)
        return tree if tree.is_unixfs() else None

    def _blocks_by_cid(self) -> BlockTable:
        if self._table is None:
            self._table = BlockTable(self._archive, self._intact_sections())
        return self._table

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry in blocks of at most 1 MiB.

        Every block is checked against its hash, unless cafcat cannot compute its hash function: see `verifiable`.

        Raises:
            Corrupt: a block is missing or damaged, or the content does not match the CRC-32C in the manifest.
                Raised after the last block at the latest.
            Unsupported: the entry has an unknown `decoding`. Or it is "dag", its span has more than 1,048,576
                distinct blocks, and this reader did not list the tree.
            TemporaryFileFailed: the entry has the decoding "dag", and the temporary file for its blocks failed.
        """
        return verified_content(self._content(entry), entry, self._archive, "manifest")

    def _content(self, entry: Entry) -> Iterator[bytes]:
        try:
            if entry.decoding is None:
                yield from split(self._checked_block(entry))
            elif entry.decoding.startswith(DAG) and self._table is not None:
                yield from self._assembled(entry, self._table)
            else:
                yield from decode(read_span(self._archive, entry), entry)
        except Corrupt as error:
            if error.chunk is None:
                error.chunk = self._archive.name
            raise

    def _assembled(self, entry: Entry, table: BlockTable) -> Iterator[bytes]:
        """Yield the content of a file whose blocks may be anywhere in the archive, by the table of blocks."""
        root = cid_from_text((entry.decoding or "").removeprefix(DAG))
        if root is None:
            raise Unsupported(f"the entry has an invalid CID: {entry.decoding!r}", path=entry.path)

        count = 0
        try:
            for block in assemble(table, root, entry.end_byte - entry.start_byte):
                count += len(block)
                yield block
        except ValueError as error:
            raise self._corrupt(f"the file cannot be assembled from its blocks: {error}", entry) from error
        if count != entry.size_bytes:
            message = f"the file should have {entry.size_bytes:,} bytes, but its blocks have {count:,}"
            raise self._corrupt(message, entry)

    def _checked_block(self, entry: Entry) -> bytes:
        """Return the block that is the span of an entry. Raises Corrupt if it does not match its CID."""
        cid, block = self._block_of(entry)
        if block_matches(cid, block) is False:
            raise self._corrupt(f"the block does not match its CID {cid_to_text(cid)}", entry)
        return block

    def _block_of(self, entry: Entry) -> tuple[bytes, bytes]:
        """Return the CID and the bytes of the block that is the span of this entry.

        One read is enough, unless the CID is unusually long.

        Raises:
            Corrupt: no block of the archive has this span.
        """
        size_bytes = entry.end_byte - entry.start_byte
        if 0 <= size_bytes <= MAX_SECTION_BYTES and self._layout.sections_start < entry.start_byte:
            for head_bytes in (_USUAL_HEAD_BYTES, MAX_HEAD_BYTES):
                start = max(self._layout.sections_start, entry.start_byte - head_bytes)
                data = self._archive.read_at(start, entry.end_byte)
                cid = _last_cid(data[: entry.start_byte - start], size_bytes)
                if cid is not None:
                    return cid, data[entry.start_byte - start :]
        raise self._corrupt("the span of the entry is not a block of a CAR", entry)

    def verifiable(self, entry: Entry) -> bool:
        """Return True if `open` can check all blocks of an entry by their hashes.

        Return False if at least one block in the span of the entry has a hash function that cafcat cannot compute,
        even if it is a block of another file. The entry must be one that can be opened: the result for an entry
        with the decoding "broken" is meaningless.

        Raises:
            Corrupt: the blocks of the entry cannot be read.
        """
        if entry.decoding is None:
            return can_check_hash(self._block_of(entry)[0])
        if entry.decoding.startswith(INLINE):
            return True
        sections = scan(self._archive, entry.start_byte, entry.end_byte)
        return all(can_check_hash(section.cid) for section in sections)

    def _corrupt(self, message: str, entry: Entry) -> Corrupt:
        return Corrupt(message, path=entry.path, chunk=self._archive.name, byte=entry.start_byte)


def _last_cid(before: bytes, block_bytes: int) -> bytes | None:
    """Return the CID at the end of `before`, or None if `before` does not end with the head of a section.

    Args:
        before: the bytes of the archive right before a block.
        block_bytes: size of the block in bytes. The head must have the matching size of the section.
    """
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
