"""Following a file that another process is writing."""

from collections.abc import Iterator

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader

__all__ = ["RecordTail"]


class RecordTail:
    """Gives each record once, when it is whole: header and content are there, and have their hashes.

    The last record of the file may be half written, and is waited for. A record that is not whole though another
    one begins after it never will be: it was torn, or is damaged, and is passed over and counted.
    """

    def __init__(self, archive: RandomReader, start: int = 0) -> None:
        """Args: archive: whose size_bytes says at each poll how large the file is by now; start: position from
        which on records count, such as `position` of an earlier tail."""
        self._archive = archive
        self._reader = RecordReader(archive)
        self._size_bytes = 0
        self.position = start
        """Where the next record is expected at the earliest."""
        self.passed_over = 0
        """Records that were not whole and never will be."""

    def poll(self) -> Iterator[Record]:
        """The records that became whole since. `content` of the reader is their content. Raises Corrupt if the file
        is shorter than it was: it is another one."""
        size_bytes = self._archive.size_bytes
        if size_bytes < self._size_bytes:
            message = f"the file became shorter: {size_bytes:,} bytes, it had {self._size_bytes:,}"
            raise Corrupt(message, chunk=self._archive.name, byte=size_bytes)
        self._size_bytes = size_bytes
        self._reader.refresh()
        first = self._reader.first(self.position)
        if first is not None:
            yield from self._whole(self._reader.records(first))

    def _whole(self, records: Iterator[Record]) -> Iterator[Record]:
        waiting = False
        for record in records:
            self.passed_over += waiting
            self.position = record.begin
            waiting = not self._reader.is_whole(record)
            if not waiting:
                self.position = record.end
                yield record

    def content(self, record: Record) -> bytes | None:
        """Its content; None if that changed meanwhile."""
        return self._reader.content(record)
