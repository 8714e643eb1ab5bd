"""Reads shard files of bundles as archives. The list of a shard's files is in its head or the bundle's index."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cafcat.errors import Corrupt, IndexMissing, InvalidInput, NotFound, Unsupported
from cafcat.formats.base import ArchiveFolder, LocatedArchive, RandomReader
from cafcat.formats.databundle.bundles.compression import METHOD_NAMES
from cafcat.formats.databundle.bundles.copied_index import INDEX, open_index_copy
from cafcat.formats.databundle.bundles.file_list import BundleFileList
from cafcat.formats.databundle.bundles.record_decoding import DAMAGED
from cafcat.formats.databundle.bundles.rows import BundleConfig, BundleRows, InlineRows
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import HEAD, VERSION_MAGIC, parse_head
from cafcat.model import Entry

__all__ = [
    "BundleShard",
    "ShardHead",
    "bundle_properties",
    "is_bundle",
    "read_file_list",
    "read_head",
    "shard_file_list",
]

_CURRENT: Final = f"{INDEX}CURRENT"
_FIRST_BYTES: Final = 4096
"""Number of bytes that are read first; most heads are smaller."""
_MAX_HEAD_BYTES: Final = 16 << 20
"""Largest head in bytes. A head without rows has some 30 bytes."""


class ShardHead(NamedTuple):
    """The head of a shard file.

    Attributes:
        header: the protobuf message BundleShardHeader.
        data_start: position of the first data byte in the file.
    """

    header: Any
    data_start: int

    @property
    def config(self) -> BundleConfig:
        """The configuration of the shard's bundle, as the head stores it."""
        header = self.header
        return BundleConfig(int(header.shard_count), int(header.record_size), int(header.compression_method))

    def check_belongs(self, config: BundleConfig, shard: int, name: str) -> None:
        """Check that the head belongs to this shard of this bundle.

        Args:
            config: configuration of the bundle.
            shard: number of the shard.
            name: name of the file, for messages.

        Raises:
            Corrupt: the head belongs to another bundle or another shard.
        """
        if self.config != config:
            raise Corrupt("the shard is damaged: its head belongs to another bundle", chunk=name, byte=0)
        if self.header.shard_index != shard:
            raise Corrupt("the shard is damaged: its head belongs to another shard", chunk=name, byte=0)

    def with_file_span(self, entry: Entry, size_bytes: int) -> Entry:
        """Return an entry of RecordSpans with a span relative to the start of the shard file.

        The span is cut at the end of the shard file. An entry without `decoding` that would be cut gets a
        `decoding` that marks it as damaged.

        Args:
            entry: the entry; its span is relative to the first data byte.
            size_bytes: size of the shard file in bytes.
        """
        start, end = (self.data_start + byte for byte in (entry.start_byte, entry.end_byte))
        if end > size_bytes and entry.decoding is None and start < end:
            reason = f"{DAMAGED}its span exceeds the shard file"
            entry = entry._replace(content_bytes=entry.size_bytes, decoding=reason)
        # The last record of a shard ends with the file.
        return entry._replace(start_byte=min(start, size_bytes), end_byte=min(end, size_bytes))


def read_head(archive: RandomReader) -> ShardHead:
    """Read and parse the head of a shard file.

    Raises:
        Corrupt: the head is invalid or incomplete.
        Unsupported: the head has more than 16 MiB.
    """
    head = archive.read_at(0, min(_FIRST_BYTES, archive.size_bytes))
    if len(head) >= HEAD.size:
        end = HEAD.size + HEAD.unpack_from(head)[1]
        if end > _MAX_HEAD_BYTES:
            message = f"the head of the DataBundle shard has more than {_MAX_HEAD_BYTES:,} bytes"
            raise Unsupported(message, chunk=archive.name, byte=0)
        head += archive.read_at(len(head), max(len(head), min(end, archive.size_bytes)))
    try:
        return ShardHead(parse_head(head), HEAD.unpack_from(head)[2])
    except ValueError as error:
        raise Corrupt(f"not a complete DataBundle shard: {error}", chunk=archive.name, byte=0) from error


def is_bundle(folder: ArchiveFolder) -> bool:
    """Return True if the folder has a file index/CURRENT, so that it may be a bundle."""
    try:
        folder.open(_CURRENT)
    except (NotFound, InvalidInput):  # InvalidInput: the store cannot have such a name
        return False
    return True


def read_file_list(folder: ArchiveFolder, only: int | None = None) -> BundleFileList:
    """Read the index of a bundle, and return the list of the bundle's files.

    Args:
        folder: the folder of the bundle.
        only: number of the shard of which files are listed; None to list the files of all shards.

    Raises:
        Corrupt: the index is damaged or incomplete.
        Unsupported: the index or the records are too large, or the bundle has an unknown compression.
        NotInstalled: plyvel or protobuf is not installed.
        Conflict: another process changed the index while it was copied.
        StoreFailed: a temporary file, such as the copy of the index, failed.
    """
    with open_index_copy(folder) as index:
        return BundleFileList(BundleRows(index, folder.name), folder.name, only)


def shard_file_list(archive: RandomReader, head: ShardHead) -> BundleFileList:
    """Return the list of a shard's files, from the rows in its head, or else from the index in its folder.

    Raises:
        IndexMissing: the head has no rows, and the folder of the shard is unknown or has no index. Errors of
            `read_file_list` pass through.
    """
    shard = int(head.header.shard_index)
    if head.header.WhichOneof("metadata") == "inline_metadata_table":
        rows = BundleRows(InlineRows(head.header.inline_metadata_table.rows), archive.name, head.config)
        return BundleFileList(rows, archive.name, shard)
    folder = archive.parent_folder() if isinstance(archive, LocatedArchive) else None
    if folder is None or not is_bundle(folder):
        message = "the index of the bundle, which lists the files of this DataBundle shard, is missing"
        hint = "give the path of the shard in the folder of its bundle, beside the folder index"
        raise IndexMissing(message, chunk=archive.name, hint=hint)
    return read_file_list(folder, shard)


def bundle_properties(config: BundleConfig, files: int, directories: int) -> dict[str, Any]:
    """Return the properties of a bundle by name, as JSON values; see `HasProperties.properties`.

    These are version, number of shards, compression, record size in bytes, and numbers of files and directories.

    Args:
        config: configuration of the bundle, with a known compression method.
        files: number of files to report.
        directories: number of directories to report.
    """
    return {
        "version": VERSION_MAGIC,
        "shards": config.shards,
        "compression": METHOD_NAMES[config.method],
        "record_size": config.record_bytes,
        "files": files,
        "directories": directories,
    }


class BundleShard(FileReader):
    """Reads one shard file of a bundle by a list of its files. Implements `Reader` and `HasProperties`.

    Memory: that of `decode_records`.
    """

    def __init__(self, archive: RandomReader, head: ShardHead, files: BundleFileList, shard: int) -> None:
        """Prepare to read a shard file. Only the given head is checked.

        Args:
            archive: the shard file.
            head: the head of the file.
            files: the list of the bundle's files.
            shard: number of the shard.

        Raises:
            Corrupt: the head belongs to another bundle or another shard.
        """
        super().__init__(archive)
        head.check_belongs(files.config, shard, archive.name)
        self._head = head
        self._files = files
        self._shard = shard

    @property
    def index_span(self) -> tuple[int, int]:
        """An empty span at the end of the file, because the list of files is not at the end of a shard."""
        return self._archive.size_bytes, self._archive.size_bytes

    def properties(self) -> dict[str, Any]:
        """Return the properties of the bundle by name.

        `files` counts the files of this shard, or of all shards if the bundle was opened as a whole. `directories`
        counts all directories of the bundle.
        """
        return bundle_properties(self._files.config, self._files.files, self._files.directories)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the files in the shard, in the order of their bytes before compression.

        A file whose records are invalid or unsupported is listed, too. Opening it raises Corrupt or Unsupported.
        Raises TemporaryFileFailed if the temporary file of the list cannot be read.
        """
        for entry in self._files.entries(self._shard):
            yield self._head.with_file_span(entry, self._archive.size_bytes)
