"""Lists the files in each shard of a bundle, with their spans.

The list is made once, from all rows of the bundle's index or of a shard's head.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from cafcat.formats.databundle.bundles.record_spans import RecordSpans
from cafcat.formats.databundle.bundles.rows import BundleConfig, BundleFile, BundleRows
from cafcat.model import Entry
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool, packed

__all__ = ["BundleFileList"]

_MEMORY_BYTES: Final = 16 << 20
_SORTED: Final = struct.Struct(">QQQI")
"""The sort key of a file (shard, offset, size), and its CRC-32C. The path follows."""
_LISTED: Final = struct.Struct(">QQQIH")
"""Start, end, size, CRC-32C, and size of the decoding in bytes. The decoding and the path follow."""


class BundleFileList:
    """The list of files of each shard of a bundle, in the order of their bytes. A long list is in a temporary file.

    Memory: that of ExternalSort, 16 MiB, and some 200 bytes for each shard.

    Attributes:
        config: configuration of the bundle.
        files: number of files in the list.
        directories: number of directories in the whole bundle.
    """

    def __init__(self, rows: BundleRows, name: str, only_shard: int | None = None) -> None:
        """Read all rows and make the list.

        Args:
            rows: the rows of the index, or of the head of a shard.
            name: name of the bundle or shard, for messages.
            only_shard: number of the shard of which files are listed; None to list the files of all shards.

        Raises:
            Corrupt: a row is damaged.
            Unsupported: the compression is unknown, or records have more than 8 MiB.
            TemporaryFileFailed: the temporary file failed.
        """
        self.config: BundleConfig = rows.config
        self.config.check_supported(name)
        self.files = self.directories = 0
        self._entries = Spool("the files of a bundle", _MEMORY_BYTES)
        self._shard_spans: dict[int, tuple[int, int]] = {}
        with closing(ExternalSort("the files of a bundle")) as files:
            self._sort_files(rows, only_shard, files)
            self._store_entries(rows, files)

    @property
    def shards(self) -> Sequence[int]:
        """Numbers of the shards that hold at least one listed file."""
        return list(self._shard_spans)

    def _sort_files(self, rows: BundleRows, only_shard: int | None, files: ExternalSort) -> None:
        for file in rows.files():
            if file.is_directory:
                self.directories += 1
            elif only_shard is None or file.shard == only_shard:
                _, _, shard, offset, size_bytes, checksum, _ = file
                files.add(_SORTED.pack(shard, offset, size_bytes, checksum) + file.path.encode())
        self.files = files.count

    def _store_entries(self, rows: BundleRows, files: ExternalSort) -> None:
        position = 0
        spans = RecordSpans(rows)
        for record in files:
            shard, offset, size_bytes, checksum = _SORTED.unpack_from(record)
            file = BundleFile(record[_SORTED.size :].decode(), False, shard, offset, size_bytes, checksum)
            record_bytes = packed(_pack(spans.entry(file)))
            self._entries.write(record_bytes)
            start, _ = self._shard_spans.get(shard, (position, position))
            position += len(record_bytes)
            self._shard_spans[shard] = start, position
        self._entries.flush()

    def entries(self, shard: int) -> Iterator[Entry]:
        """Return the entries of the listed files in a shard, with spans relative to the shard's first data byte.

        The result is empty if no file of this shard is listed.

        The span of a file in the last record may exceed the shard file, because the rows have no end of that
        record. Raises TemporaryFileFailed if the temporary file cannot be read.
        """
        return map(_unpack, self._entries.records(*self._shard_spans.get(shard, (0, 0))))


def _pack(entry: Entry) -> bytes:
    path, start, end, checksum, _, content_bytes, decoding = entry
    text = (decoding or "").encode()
    assert checksum is not None  # noqa: S101 - every file row has a checksum
    size_bytes = end - start if content_bytes is None else content_bytes
    return _LISTED.pack(start, end, size_bytes, checksum, len(text)) + text + path.encode()


def _unpack(record: bytes) -> Entry:
    start, end, size_bytes, checksum, decoding_bytes = _LISTED.unpack_from(record)
    path_start = _LISTED.size + decoding_bytes
    path, text = record[path_start:].decode(), record[_LISTED.size : path_start].decode()
    return (
        Entry(path, start, end, checksum, None, size_bytes, text)
        if text
        else Entry(path, start, end, checksum, None)
    )
