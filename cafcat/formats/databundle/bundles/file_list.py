"""Which files each shard of a bundle holds, and where: made once of all rows, which nobody needs afterwards."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from cafcat.formats.databundle.bundles.record_spans import RecordSpans
from cafcat.formats.databundle.bundles.rows import BundleConfig, BundleFile, BundleRows
from cafcat.model import Entry
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool, packed

__all__ = ["BundleList"]

_MEMORY_BYTES: Final = 16 << 20
_SORTED: Final = struct.Struct(">QQQI")
"""Shard, offset, size and CRC-32C of a file, sorted by the first three. Its path follows."""
_LISTED: Final = struct.Struct(">QQQIH")
"""Start, end, size, CRC-32C, bytes of the decoding; decoding and path follow."""


class BundleList:
    """The files of each shard in the order of their bytes, in a temporary file if they are many.

    config: of the bundle; files, directories: how many there are; shards: numbers of those that hold files. Memory:
    that of ExternalSort, 16 MiB, and some 200 bytes for each shard.
    """

    def __init__(self, rows: BundleRows, name: str, only: int | None = None) -> None:
        """Args: name: of the bundle, for messages; only: the shard whose files are wanted, in place of all. Goes
        through all rows. Raises Corrupt, Unsupported, TemporaryFileFailed."""
        self.config: BundleConfig = rows.config
        self.config.check_known(name)
        self.files = self.directories = 0
        self._entries = Spool("the files of a bundle", _MEMORY_BYTES)
        self._parts: dict[int, tuple[int, int]] = {}
        with closing(ExternalSort("the files of a bundle")) as files:
            self._sort(rows, only, files)
            self._place_all(rows, files)

    @property
    def shards(self) -> Sequence[int]:
        return list(self._parts)

    def _sort(self, rows: BundleRows, only: int | None, files: ExternalSort) -> None:
        for file in rows.files():
            if file.is_directory:
                self.directories += 1
            elif only is None or file.shard == only:
                _, _, shard, offset, size_bytes, checksum, _ = file
                files.add(_SORTED.pack(shard, offset, size_bytes, checksum) + file.path.encode())
        self.files = files.count

    def _place_all(self, rows: BundleRows, files: ExternalSort) -> None:
        position = 0
        places = RecordSpans(rows)
        for record in files:
            shard, offset, size_bytes, checksum = _SORTED.unpack_from(record)
            file = BundleFile(record[_SORTED.size :].decode(), False, shard, offset, size_bytes, checksum)
            listed = packed(_packed(places.entry(file)))
            self._entries.write(listed)
            start, _ = self._parts.get(shard, (position, position))
            position += len(listed)
            self._parts[shard] = start, position
        self._entries.flush()

    def entries(self, shard: int) -> Iterator[Entry]:
        """Its files; spans are counted from its first data byte. They end at the latest there: the last record of a
        shard has no other end than that of the file."""
        return map(_unpacked, self._entries.records(*self._parts.get(shard, (0, 0))))


def _packed(entry: Entry) -> bytes:
    path, start, end, checksum, _, content_bytes, decoding = entry
    word = (decoding or "").encode()
    assert checksum is not None  # noqa: S101 - every row of a file has one
    size_bytes = end - start if content_bytes is None else content_bytes
    return _LISTED.pack(start, end, size_bytes, checksum, len(word)) + word + path.encode()


def _unpacked(record: bytes) -> Entry:
    start, end, size_bytes, checksum, word_bytes = _LISTED.unpack_from(record)
    path_at = _LISTED.size + word_bytes
    path, word = record[path_at:].decode(), record[_LISTED.size : path_at].decode()
    return (
        Entry(path, start, end, checksum, None, size_bytes, word)
        if word
        else Entry(path, start, end, checksum, None)
    )
