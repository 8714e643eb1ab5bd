"""Writes a CARv2: the blocks of files as they arrive; then tree, manifest and index; last the final head."""

from collections.abc import Iterator, Sequence
from typing import Final

from cafcat.errors import Unsupported
from cafcat.formats.base import UNLIMITED, FinishedArchive, HeadSink, Sink
from cafcat.formats.car import varint
from cafcat.formats.car.cid import CID_BYTES
from cafcat.formats.car.header import HEAD_BYTES, PRAGMA, V2_DATA_START, encode_head
from cafcat.formats.car.index import SHA256_INDEX_EMPTY_BYTES, SHA256_INDEX_RECORD_BYTES
from cafcat.formats.car.manifest import FOOTER, LEAF_BYTES, SECTIONS, TRAILER_BYTES, trailer
from cafcat.formats.car.nodes import SECTION_BYTES, SectionWriter, largest_file_bytes, write_large_file
from cafcat.formats.car.tree_names import TreeSize, tree_name
from cafcat.formats.car.tree_writer import TreeWriter
from cafcat.formats.index_text import MAX_INDEX_BYTES, entry_text, longest_text_bytes
from cafcat.formats.writing import BufferedBytes, FileWriter, IndexedWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["CarEntryWriter", "CarWriter"]

_FIXED_BYTES: Final = FOOTER.size + TRAILER_BYTES + SHA256_INDEX_EMPTY_BYTES
_PLACEHOLDER_HEAD: Final = PRAGMA + bytes(HEAD_BYTES - len(PRAGMA))
"""Head of an unfinished archive. Readers refuse it."""
_new_tuple: Final = tuple.__new__


class CarWriter(IndexedWriter):
    """Writes one CAR. The caller must add each path only once; otherwise readers refuse the archive.

    Memory: 4 MiB of small files, or 1 MiB of a large one and some 90 bytes for each of its leaves; 8 MiB of
    manifest; three times 24 MiB for sorting; 4 MiB of the tree. The rest is in temporary files: some 250 bytes for
    each file.

    After an error of the sink, or of a temporary file, every method raises StoreFailed. After `finalize`, every
    method raises InvalidInput.
    """

    _INDEX_LABEL = "the archive's manifest"

    def __init__(self, sink: Sink, *, max_manifest_bytes: int = MAX_INDEX_BYTES) -> None:
        """Prepare to write an archive to `sink`.

        Args:
            sink: receives the archive.
            max_manifest_bytes: largest size of the manifest in bytes. Tests use smaller values than the limit of
                the format.

        Raises:
            Unsupported: the sink is not a HeadSink.
        """
        if not isinstance(sink, HeadSink):
            raise Unsupported(
                "a CAR cannot be written to this output, whose first bytes cannot be rewritten at the end"
            )
        super().__init__(max_manifest_bytes)
        self._sink: HeadSink = sink
        self._out = BufferedBytes(sink)
        self._sections = SectionWriter(self._out)
        self._sections.write(_PLACEHOLDER_HEAD)
        self._tree = TreeWriter()
        self._tree_size = TreeSize()
        self._open: CarEntryWriter | None = None

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append as many whole files as fit, from the first on, and return their entries; see `Writer.add_all`.

        Raises:
            Refused: the name of a file cannot be stored; no bytes were written. Errors of the sink pass through.
        """
        self._check_usable()
        for file in files:
            longest_text_bytes(file.path)  # raises Refused
        entries: list[Entry] = []
        with self._break_on_error():
            for path, content, modified_ns, _ in files:
                add = self._add_leaf if len(content) <= LEAF_BYTES else self._add_large
                entry = add(path, content, modified_ns, max_bytes)
                if entry is None:
                    break
                entries.append(entry)
            if entries:
                self._out.flush()
        return entries

    def _add_leaf(self, path: str, content: bytes, modified_ns: int | None, max_bytes: int) -> Entry | None:
        """Append a file of at most 1 MiB, as one block, and return its entry. Return None if it does not fit."""
        size_bytes = len(content)
        head = varint.encode(CID_BYTES + size_bytes)
        start = self._sections.position + len(head) + CID_BYTES
        entry = _new_tuple(Entry, (path, start, start + size_bytes, crc32c(content), modified_ns, None, None))
        text = entry_text(self._comma, entry)
        name = tree_name(path)
        cost = self._tree_size.cost(name, size_bytes)
        end = (
            start
            + size_bytes
            + (self._sections.count + 1) * SHA256_INDEX_RECORD_BYTES
            + self._tree_size.size_after(cost)
        )
        manifest_bytes = self._index.size_bytes + len(text)
        if end + manifest_bytes + _FIXED_BYTES > max_bytes or manifest_bytes > self._max_index_bytes:
            return None
        self._tree_size.add(name, cost)
        self._tree.add(name, self._sections.write_leaf(head, content), size_bytes)
        self._append(text, 1, size_bytes)
        return entry

    def _add_large(self, path: str, content: bytes, modified_ns: int | None, max_bytes: int) -> Entry | None:
        """Append a file of more than 1 MiB, as several blocks; return its entry. Return None if it does not fit."""
        if self.size_if_finalized(path, len(content)) > max_bytes or not self.can_add(path, len(content)):
            return None
        entry_writer = self.open(path, modified_ns)
        entry_writer.write(content)
        return entry_writer.close()

    def open(self, path: str, modified_ns: int | None) -> "CarEntryWriter":
        """Begin a file that is written in blocks, and return its writer.

        Raises:
            Refused: the name cannot be stored, or the manifest is full. No bytes were written.
            InvalidInput: another file of this archive is still open.
        """
        self._check_can_open(path)
        name = tree_name(path)
        self._tree_size.add(name, self._tree_size.cost(name, UNLIMITED))
        self._open = CarEntryWriter(self, path, modified_ns)
        return self._open

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Return an upper bound for the size of the archive in bytes if it were finalized now; see `Writer`.

        The result is exact if all files were added with `add` or `add_all`, have at most 1 MiB, and are in the root
        directory of a tree without shards. One more file, and the file being written, count with the longest entry
        that the manifest can have for their name. Bytes of abandoned files are included.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        size = (
            self._sections.position
            + self._index_bytes()
            + _FIXED_BYTES
            + self._sections.count * SHA256_INDEX_RECORD_BYTES
        )
        if self._open is not None:
            size += self._open.pending_bytes
        if path is None:
            return size + self._tree_size.size_bytes
        tree_bytes = self._tree_size.size_after(self._tree_size.cost(tree_name(path), UNLIMITED))
        return size + largest_file_bytes(size_bytes, LEAF_BYTES) + longest_text_bytes(path) + tree_bytes

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more entry could make the manifest exceed its limit. The file's size is ignored.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        del size_bytes
        self._check_not_ended()
        return self._index_bytes() + longest_text_bytes(path) <= self._max_index_bytes

    def finalize(self) -> FinishedArchive:
        """Write the tree, the manifest and the index, then the final head. Return the sizes of the archive.

        Raises:
            InvalidInput: a file is still open, or the archive is finished already.
            TemporaryFileFailed: a temporary file failed. Errors of the sink pass through.
        """
        self._check_usable()
        with self._break_on_error():
            root = self._tree.write(self._sections)
            data_end = self._sections.position
            checksum = 0
            for block in self._tail(data_end):
                checksum = crc32c(block, checksum)
                self._sections.write(block)
            self._out.flush()
            index_start = data_end + self._index.size_bytes + FOOTER.size + TRAILER_BYTES
            self._sink.rewrite_head(encode_head(root, data_end - V2_DATA_START, index_start))
        self._ended = "finished"
        return FinishedArchive(
            self._sections.position,
            data_end,
            self._sections.position,
            self.file_count,
            self._content_bytes,
            checksum,
        )

    def _tail(self, data_end: int) -> Iterator[bytes]:
        """Yield the bytes after the payload, which ends at `data_end`: manifest, trailer and index."""
        manifest_bytes = self._index.size_bytes
        index_start = data_end + manifest_bytes + FOOTER.size + TRAILER_BYTES
        yield from self._index.blocks()
        yield FOOTER.pack(manifest_bytes) + trailer(data_end, index_start + self._sections.cids.size_bytes)
        yield from self._sections.cids.blocks()


class CarEntryWriter(FileWriter[CarWriter]):
    """Writes one file of a CAR in blocks. Created by `CarWriter.open`."""

    def __init__(self, writer: CarWriter, path: str, modified_ns: int | None) -> None:
        """Prepare to write a file at the current end of the archive.

        Args:
            writer: the writer of the archive.
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
        """
        super().__init__(writer, path, modified_ns)
        self._start = writer._sections.position
        self._buffer = bytearray()
        self._digests: list[bytes] = []

    @property
    def pending_bytes(self) -> int:
        """Upper bound in bytes for the sections and index records still to be written if the file ended now."""
        written = len(self._digests)
        size_bytes = written * LEAF_BYTES + len(self._buffer)
        return largest_file_bytes(size_bytes, LEAF_BYTES) - written * (LEAF_BYTES + SECTION_BYTES)

    def write(self, block: bytes) -> None:
        """Append a block to the file. After an error of the sink, the whole archive is broken; see `CarWriter`."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        self._buffer += block
        if len(self._buffer) > LEAF_BYTES:
            with self._writer._break_on_error():
                self._write_leaves()

    def _write_leaves(self) -> None:
        """Write all full leaves of the buffer, but keep at least one byte: `close` writes the last leaf."""
        at = 0
        while len(self._buffer) - at > LEAF_BYTES:
            self._write_leaf(bytes(self._buffer[at : at + LEAF_BYTES]))
            at += LEAF_BYTES
        del self._buffer[:at]
        self._writer._out.flush()

    def _write_leaf(self, content: bytes) -> None:
        head = varint.encode(CID_BYTES + len(content))
        self._digests.append(self._writer._sections.write_leaf(head, content)[-32:])

    def close(self) -> Entry:
        """Write the rest of the file and its inner nodes, and return its entry. Errors of the sink pass through."""
        self._check_open()
        writer = self._writer
        writer._open = None
        with writer._break_on_error():
            self._write_leaf(bytes(self._buffer))
            entry = self._entry(writer._sections.position)
            text = entry_text(writer._comma, entry)
            cid, total_bytes = self._write_nodes()
            writer._tree.add(tree_name(self.path), cid, total_bytes)
            writer._append(text, 1, entry.size_bytes)
            writer._out.flush()
        return entry

    def _entry(self, end: int) -> Entry:
        leaves, size_bytes = len(self._digests), len(self._buffer)
        if leaves == 1:
            return Entry(self.path, end - size_bytes, end, self._checksum, self._modified_ns)
        content_bytes = (leaves - 1) * LEAF_BYTES + size_bytes
        return Entry(self.path, self._start, end, self._checksum, self._modified_ns, content_bytes, SECTIONS)

    def _write_nodes(self) -> tuple[bytes, int]:
        """Write the inner nodes of the file. Return its CID, and the total size of its blocks in bytes."""
        size_bytes = (len(self._digests) - 1) * LEAF_BYTES + len(self._buffer)
        return write_large_file(self._writer._sections, self._digests, LEAF_BYTES, size_bytes, self._modified_ns)
