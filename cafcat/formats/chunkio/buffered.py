"""The original's buffered layer: what is written is collected, deflated, and becomes a record when it is large or
old enough."""

import time
from collections.abc import Callable
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.chunkio.deflating import Deflater
from cafcat.formats.chunkio.records import USER_DATA_BYTES, Record
from cafcat.formats.chunkio.records_writer import RecordWriter

__all__ = ["CLOSE_AT_BYTES", "BufferedWriter"]

CLOSE_AT_BYTES: Final = 128 << 10
"""As the original: of content before it is deflated."""


class BufferedWriter:
    """Collects content for records. One record is in memory, deflated. Nothing runs by itself: the age of a record
    is looked at by every write, and by `close_if_due`, which who writes seldom calls now and then."""

    def __init__(
        self,
        records: RecordWriter,
        *,
        close_at_bytes: int | None = CLOSE_AT_BYTES,
        close_at_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: close_at_bytes: a record ends with the write that makes it so large or larger; close_at_seconds:
        or so long after its first write; clock: in seconds. None: never."""
        self._records = records
        self._close_at_bytes = close_at_bytes
        self._close_at_seconds = close_at_seconds
        self._clock = clock
        self._deflater: Deflater | None = None
        self._user_data = b""
        self._began = 0.0

    @property
    def size_bytes(self) -> int:
        """Content of the open record, before it is deflated; 0 if there is none."""
        return 0 if self._deflater is None else self._deflater.size_bytes

    @property
    def due_in(self) -> float | None:
        """Seconds until `close_if_due` ends the record, 0 or less if it is time; None for never."""
        if self._deflater is None or self._close_at_seconds is None:
            return None
        return self._began + self._close_at_seconds - self._clock()

    def write(self, content: bytes, user_data: bytes) -> list[Record]:
        """Adds to the open record, or begins one, of which this is the user data. Gives the records that ended: one
        that was old enough, and the one that is large enough now. Raises InvalidInput; what the sink raises: then
        the record is still open, and `close` writes it again, once the RecordWriter was resumed."""
        closed = self.close_if_due()
        if self._deflater is None:
            if len(user_data) != USER_DATA_BYTES:
                raise InvalidInput(f"user data has {USER_DATA_BYTES} bytes, not {len(user_data)}")
            self._deflater, self._user_data, self._began = Deflater(), user_data, self._clock()
        self._deflater.write(content)
        full = self._close_at_bytes is not None and self.size_bytes >= self._close_at_bytes
        return [record for record in (closed, self.close() if full else None) if record is not None]

    def close_if_due(self) -> Record | None:
        """Ends the open record if it is old enough."""
        due_in = self.due_in
        return self.close() if due_in is not None and due_in <= 0 else None

    def abandon(self) -> None:
        """Drops the open record."""
        self._deflater = None

    def close(self) -> Record | None:
        """Ends the open record, if there is one, and writes it. Raises what RecordWriter.write raises."""
        if self._deflater is None:
            return None
        record = self._records.write(self._user_data, self._deflater.finished())
        self._deflater = None
        return record
