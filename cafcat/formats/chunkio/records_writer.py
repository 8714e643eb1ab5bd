"""Writing records, byte for byte as the original program does."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import InvalidInput, StoreFailed
from cafcat.formats.base import Sink
from cafcat.formats.chunkio.metering import INTERVAL_BYTES, MAX_POSITION, end_position, metered
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
    """A record of at most some MiB as it is written at a valid position, in parts."""
    header = pack_header(user_data, len(content), siphash(content))
    return metered(begin, begin, header + content)


class RecordWriter:
    """Appends records to a file. A record cannot be written in blocks: its length and hash come first.

    After an error of the sink nobody knows how much of a record arrived: every call raises StoreFailed, until
    `resume` says how large the file is now.
    """

    def __init__(self, sink: Sink, position: int = 0) -> None:
        """Args: sink: what is written is appended to the file; position: size in bytes of the file as it is. What
        is there is not looked at: the first record begins at the next multiple of 65,536, as after a crash."""
        self._sink = sink
        self._cause: BaseException | None = None
        self.resume(position)

    @property
    def position(self) -> int:
        """Size of the file in bytes."""
        return self._position

    def resume(self, position: int) -> None:
        """The file has so many bytes now, of which the last may be a torn record: zeros fill it up to the next
        multiple of 65,536 before anything else is written."""
        if not 0 <= position <= MAX_POSITION:
            raise InvalidInput(f"a file of {position} bytes cannot be appended to")
        self._position = position
        self._torn = True
        self._cause = None

    def write(self, user_data: bytes, content: bytes) -> Record:
        """Appends a record. user_data: 16 bytes. Raises InvalidInput, with nothing written, for user data of
        another length, content of more than 2,147,483,591 bytes, or a file that would exceed 2^63-1; what the sink
        raises."""
        if self._cause is not None:
            raise StoreFailed(f"the file is broken by an earlier error: {self._cause}") from self._cause
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
        """Padding and record, in blocks of about 1 MiB."""
        begin = record.begin
        padding = bytes(begin - self._position)
        header = pack_header(record.user_data, record.content_bytes, record.content_hash)
        yield b"".join([padding, *metered(begin, begin, header + content[:_BLOCK_BYTES])])
        view = memoryview(content)
        for start in range(_BLOCK_BYTES, len(content), _BLOCK_BYTES):
            position = end_position(begin, HEADER_BYTES + start)
            yield b"".join(metered(position, begin, bytes(view[start : start + _BLOCK_BYTES])))


def _new_record(begin: int, user_data: bytes, content: bytes) -> Record:
    if len(user_data) != USER_DATA_BYTES:
        raise InvalidInput(f"user data has {USER_DATA_BYTES} bytes, not {len(user_data)}")
    if len(content) > MAX_CONTENT_BYTES:
        raise InvalidInput(f"a record cannot have {len(content):,} bytes: {MAX_CONTENT_BYTES:,} are the most")
    end = end_position(begin, HEADER_BYTES + len(content))
    if end > MAX_POSITION:
        raise InvalidInput(f"the file is too large for another record: it would begin at byte {begin}")
    return Record(begin, end, user_data, len(content), siphash(content))
