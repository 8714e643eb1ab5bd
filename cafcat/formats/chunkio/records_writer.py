"""Writes the records of a ChunkIO file, with the same bytes as the original program (romkatv/ChunkIO)."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import InvalidInput, StoreFailed
from cafcat.formats.base import Sink
from cafcat.formats.chunkio.metering import INTERVAL_BYTES, MAX_POSITION, end_position, insert_meters
from cafcat.formats.chunkio.records import (
    HEADER_BYTES,
    MAX_CONTENT_BYTES,
    USER_DATA_BYTES,
    Record,
    pack_header,
)
from cafcat.formats.chunkio.siphash import siphash

__all__ = ["RecordWriter", "record_bytes"]

_BLOCK_BYTES: Final = 1 << 20


def record_bytes(begin: int, user_data: bytes, content: bytes) -> list[bytes | memoryview]:
    """Return the bytes of a record with its meters, as a list of parts to be written one after the other.

    The content should have at most some MiB, because it is copied.

    Args:
        begin: valid position (see `is_position`) in the file at which the record is written.
        user_data: 16 bytes.
        content: the content of the record.
    """
    header = pack_header(user_data, len(content), siphash(content))
    return insert_meters(begin, begin, header + content)


class RecordWriter:
    """Appends records to a ChunkIO file.

    The size and the hash precede the content, so a record cannot be written in blocks.

    After an error of the sink it is unknown how many bytes arrived. Then `write` raises StoreFailed until `resume`
    is called with the current size of the file.
    """

    def __init__(self, sink: Sink, position: int = 0) -> None:
        """Prepare to append to a file.

        Args:
            sink: appends to the file.
            position: current size of the file in bytes. The existing bytes are not read: the first record begins at
                this position, rounded up to a multiple of 65,536, as after a crash.

        Raises:
            InvalidInput: the position is negative or above 2^63-1.
        """
        self._sink = sink
        self._cause: BaseException | None = None
        self.resume(position)

    @property
    def position(self) -> int:
        """Size of the file in bytes after the last `resume` or successful `write`."""
        return self._position

    def resume(self, position: int) -> None:
        """Allow `write` again after an error of the sink.

        The file may end with a torn record. Therefore the next `write` first appends zeros up to a multiple of
        65,536.

        Args:
            position: current size of the file in bytes.

        Raises:
            InvalidInput: the position is negative or above 2^63-1.
        """
        if not 0 <= position <= MAX_POSITION:
            raise InvalidInput(f"cannot append to a file of {position} bytes: expected 0 to {MAX_POSITION} bytes")
        self._position = position
        self._torn = True
        self._cause = None

    def write(self, user_data: bytes, content: bytes) -> Record:
        """Append a record, and return its description.

        Args:
            user_data: 16 bytes for the use of the caller.
            content: the content of the record.

        Raises:
            InvalidInput: the user data does not have 16 bytes, the content has more than 2,147,483,591 bytes, or
                the file would exceed 2^63-1 bytes. No bytes were written.
            StoreFailed: an earlier `write` failed, and `resume` was not called since. Errors of the sink pass
                through.
        """
        if self._cause is not None:
            raise StoreFailed(f"the file is broken because of an earlier error: {self._cause}") from self._cause
        begin = -(-self._position // INTERVAL_BYTES) * INTERVAL_BYTES if self._torn else self._position
        record = _new_record(begin, user_data, content)
        try:
            for block in self._blocks(record, content):
                self._sink.write(block)
        except BaseException as error:
            self._cause = error
            raise
        self._position = record.end
        self._torn = False
        return record

    def _blocks(self, record: Record, content: bytes) -> Iterator[bytes]:
        """Yield the padding before the record, and the record with its meters, in blocks of about 1 MiB."""
        begin = record.begin
        padding = bytes(begin - self._position)
        header = pack_header(record.user_data, record.content_bytes, record.content_hash)
        yield b"".join([padding, *insert_meters(begin, begin, header + content[:_BLOCK_BYTES])])
        view = memoryview(content)
        for start in range(_BLOCK_BYTES, len(content), _BLOCK_BYTES):
            position = end_position(begin, HEADER_BYTES + start)
            yield b"".join(insert_meters(position, begin, bytes(view[start : start + _BLOCK_BYTES])))


def _new_record(begin: int, user_data: bytes, content: bytes) -> Record:
    if len(user_data) != USER_DATA_BYTES:
        raise InvalidInput(f"user data must have {USER_DATA_BYTES} bytes, not {len(user_data)}")
    if len(content) > MAX_CONTENT_BYTES:
        raise InvalidInput(f"a record cannot have {len(content):,} bytes: the limit is {MAX_CONTENT_BYTES:,}")
    end = end_position(begin, HEADER_BYTES + len(content))
    if end > MAX_POSITION:
        raise InvalidInput(f"the file is too large for another record, which would begin at byte {begin}")
    return Record(begin, end, user_data, len(content), siphash(content))
