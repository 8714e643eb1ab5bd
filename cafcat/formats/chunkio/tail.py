"""Follows a ChunkIO file that another process is writing, and returns its new records."""

from collections.abc import Iterator

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader

__all__ = ["RecordTail"]


class RecordTail:
    """Follows a growing ChunkIO file, and returns each record once, when it is complete and its hashes are right.

    The last record of the file may be incomplete; a `poll` after its completion returns it. An incomplete record
    that is followed by another record was torn or is damaged; it is skipped and counted.

    Attributes:
        position: earliest position in bytes at which the next record can begin.
        skipped_count: number of skipped records. Records whose header is damaged are not found and not counted.
    """

    def __init__(self, archive: RandomReader, start: int = 0) -> None:
        """Prepare to follow a file.

        Args:
            archive: the file. Its `size_bytes` must be current at each poll.
            start: records that begin before this position (in bytes) are not returned. To continue an earlier tail,
                give its `position`.
        """
        self._archive = archive
        self._reader = RecordReader(archive)
        self._size_bytes = 0
        self.position = start
        self.skipped_count = 0

    def poll(self) -> Iterator[Record]:
        """Yield the records that became complete since the last call of `poll`. Does not wait for more.

        Records that the caller does not take from the iterator are yielded by the next call.

        Raises:
            Corrupt: the file is shorter than at the last call, because it was cut or replaced.
        """
        size_bytes = self._archive.size_bytes
        if size_bytes < self._size_bytes:
            message = f"the file became shorter: it has {size_bytes:,} bytes and had {self._size_bytes:,}"
            raise Corrupt(message, chunk=self._archive.name, byte=size_bytes)
        self._size_bytes = size_bytes
        self._reader.refresh()
        first = self._reader.first(self.position)
        if first is not None:
            yield from self._intact_records(self._reader.records(first))

    def _intact_records(self, records: Iterator[Record]) -> Iterator[Record]:
        incomplete = False
        for record in records:
            self.skipped_count += incomplete
            self.position = record.begin
            incomplete = not self._reader.is_intact(record)
            if not incomplete:
                self.position = record.end
                yield record

    def content(self, record: Record) -> bytes | None:
        """Return the whole content of a record that `poll` returned. Reads the content twice.

        Return None if the content was changed or cut since.
        """
        return self._reader.content(record)
