"""A shard file of a bundle as an archive by itself: it holds files, and their list is elsewhere."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cafcat.errors import Corrupt, IndexMissing, InvalidInput, NotFound, Unsupported
from cafcat.formats.base import ArchiveFolder, LocatedArchive, RandomReader
from cafcat.formats.databundle.bundles.compression import METHOD_NAMES
from cafcat.formats.databundle.bundles.copied_index import INDEX, opened_copy
from cafcat.formats.databundle.bundles.file_list import BundleList
from cafcat.formats.databundle.bundles.inline_rows import InlineRows
from cafcat.formats.databundle.bundles.record_decoding import DAMAGED
from cafcat.formats.databundle.bundles.rows import BundleConfig, BundleRows
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import HEAD, VERSION_MAGIC, parse_head
from cafcat.model import Entry

__all__ = ["BundleShard", "ShardHead", "about_bundle", "is_bundle", "listed", "listed_by_itself", "read_head"]

_CURRENT: Final = f"{INDEX}CURRENT"
_FIRST_BYTES: Final = 4096
_MOST_HEAD_BYTES: Final = 16 << 20
"""With rows in it; without, a head has some 30 bytes."""


class ShardHead(NamedTuple):
    """header: the message BundleShardHeader; data_start: position of the first data byte."""

    header: Any
    data_start: int

    @property
    def config(self) -> BundleConfig:
        """What it says of its bundle."""
        header = self.header
        return BundleConfig(int(header.shard_count), int(header.record_size), int(header.compression_method))

    def check_is(self, config: BundleConfig, shard: int, name: str) -> None:
        """Raises Corrupt if it is the head of another bundle, or another shard. name: of the file, for messages."""
        if self.config != config:
            raise Corrupt("the shard is damaged: its head is of another bundle", chunk=name, byte=0)
        if self.header.shard_index != shard:
            raise Corrupt("the shard is damaged: its head is of another shard", chunk=name, byte=0)

    def placed(self, entry: Entry, size_bytes: int) -> Entry:
        """An entry of RecordSpans in a shard file of this size: its span is in the file."""
        start, end = (self.data_start + byte for byte in (entry.start_byte, entry.end_byte))
        if end > size_bytes and entry.decoding is None and start < end:
            reason = f"{DAMAGED}it goes on beyond the end of the shard"
            entry = entry._replace(content_bytes=entry.size_bytes, decoding=reason)
        # The last record of a shard has no other end than that of the file.
        return entry._replace(start_byte=min(start, size_bytes), end_byte=min(end, size_bytes))


def read_head(archive: RandomReader) -> ShardHead:
    """Raises Corrupt; Unsupported for one of more than 16 MiB."""
    head = archive.read_at(0, min(_FIRST_BYTES, archive.size_bytes))
    if len(head) >= HEAD.size:
        end = HEAD.size + HEAD.unpack_from(head)[1]
        if end > _MOST_HEAD_BYTES:
            message = f"the head of the DataBundle shard has more than {_MOST_HEAD_BYTES:,} bytes"
            raise Unsupported(message, chunk=archive.name, byte=0)
        head += archive.read_at(len(head), max(len(head), min(end, archive.size_bytes)))
    try:
        return ShardHead(parse_head(head), HEAD.unpack_from(head)[2])
    except ValueError as error:
        raise Corrupt(f"not a whole DataBundle shard: {error}", chunk=archive.name, byte=0) from error


def is_bundle(folder: ArchiveFolder) -> bool:
    """Whether there is something that may be the index of one."""
    try:
        folder.open(_CURRENT)
    except (NotFound, InvalidInput):  # or a name that no store has there
        return False
    return True


def listed(folder: ArchiveFolder, only: int | None = None) -> BundleList:
    """What the index in the folder of a bundle says of all shards, or of one. Raises as opened_copy and
    BundleList."""
    with opened_copy(folder) as index:
        return BundleList(BundleRows(index, folder.name), folder.name, only)


def listed_by_itself(archive: RandomReader, head: ShardHead) -> BundleList:
    """What tells the files of a shard: rows in its head, else the index beside it. Raises IndexMissing if there is
    none, and as `listed`."""
    shard = int(head.header.shard_index)
    if head.header.WhichOneof("metadata") == "inline_metadata_table":
        rows = BundleRows(InlineRows(head.header.inline_metadata_table.rows), archive.name, head.config)
        return BundleList(rows, archive.name, shard)
    folder = archive.parent_folder() if isinstance(archive, LocatedArchive) else None
    if folder is None or not is_bundle(folder):
        message = "the files of this DataBundle shard are listed in the index of its bundle, which is not beside it"
        raise IndexMissing(message, chunk=archive.name, hint="name the shard in the folder of its bundle")
    return listed(folder, shard)


def about_bundle(config: BundleConfig, files: int, directories: int) -> dict[str, Any]:
    """As HasProperties.about has it."""
    return {
        "version": VERSION_MAGIC,
        "shards": config.shards,
        "compression": METHOD_NAMES[config.method],
        "record_size": config.record_bytes,
        "files": files,
        "directories": directories,
    }


class BundleShard(FileReader):
    """Reads one shard file by a list of its bundle. Memory: that of decode_records."""

    def __init__(self, archive: RandomReader, head: ShardHead, files: BundleList, shard: int) -> None:
        """Args: shard: its number. Raises Corrupt if its head is of another bundle, or another shard."""
        super().__init__(archive)
        head.check_is(files.config, shard, archive.name)
        self._head = head
        self._files = files
        self._shard = shard

    @property
    def index_span(self) -> tuple[int, int]:
        """Its list is elsewhere."""
        return self._archive.size_bytes, self._archive.size_bytes

    def properties(self) -> dict[str, Any]:
        """Of its bundle, with the files of this shard. Directories are those of the bundle."""
        return about_bundle(self._files.config, self._files.files, self._files.directories)

    def entries(self) -> Iterator[Entry]:
        """Its files in the order of their bytes. One that the index says nonsense of is listed, and raises Corrupt
        when it is opened."""
        for entry in self._files.entries(self._shard):
            yield self._head.placed(entry, self._archive.size_bytes)
