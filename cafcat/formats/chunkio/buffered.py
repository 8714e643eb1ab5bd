"""Writes records of ChunkIO as the class BufferedWriter of the original program (romkatv/ChunkIO) does.

Content is collected and deflated, and written as one record when it is large enough or old enough.
"""

from time import monotonic
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.chunkio.deflating import Deflater
from cafcat.formats.chunkio.records import USER_DATA_BYTES, Record
from cafcat.formats.chunkio.records_writer import RecordWriter

__all__ = ["CLOSE_AT_BYTES", "BufferedWriter"]

CLOSE_AT_BYTES: Final = 128 << 10
"""Default size in bytes of the content, before compression, at which a record ends, as in the original program."""


class BufferedWriter:
    """Collects and compresses content, and writes it as records. The open record, compressed, is in memory.

    There is no timer: each `write` checks the age of the open record. A caller that writes rarely must also call
    `close_if_due` from time to time. After the last `write`, the caller must call `close`.
    """

    def __init__(
        self,
        records: RecordWriter,
        *,
        close_at_bytes: int | None = CLOSE_AT_BYTES,
        close_at_seconds: float | None = None,
    ) -> None:
        """Prepare to write records. No record is open.

        Args:
            records: writes the finished records.
            close_at_bytes: a record ends with the `write` that makes its content this large, in bytes before
                compression. If None, the size ends no record.
            close_at_seconds: a record ends with the first `write` or `close_if_due` this many seconds after the
                record began. If None, the age ends no record.
        """
        self._records = records
        self._close_at_bytes = close_at_bytes
        self._close_at_seconds = close_at_seconds
        self._deflater: Deflater | None = None
        self._user_data = b""
        self._began = 0.0

    @property
    def size_bytes(self) -> int:
        """Size of the open record's content in bytes, before compression; 0 if no record is open."""
        return 0 if self._deflater is None else self._deflater.size_bytes

    @property
    def due_in_seconds(self) -> float | None:
        """Seconds until the open record is old enough to end; 0 or less if it is.

        None if no record is open, or if records do not end because of their age.
        """
        if self._deflater is None or self._close_at_seconds is None:
            return None
        return self._began + self._close_at_seconds - monotonic()

    def write(self, content: bytes, user_data: bytes) -> list[Record]:
        """Append content to the open record. If no record is open, begin one.

        Args:
            content: the content.
            user_data: 16 bytes for the header of a new record. Ignored if the content goes to an open record.

        Returns:
            The records that this call wrote: first the record that was open before, if it was old enough; then the
            record with this content, if it is large enough. Often empty. If the call raises an error, the record
            that was old enough may be written already.

        Raises:
            InvalidInput: the user data of a new record does not have 16 bytes. Or an earlier attempt to write the
                open record failed, so that it accepts no more content.
            StoreFailed: this call has to write a record, but an earlier write of the RecordWriter failed, and
                `RecordWriter.resume` was not called since. Errors of the sink pass through. The record is then
                still open; after `RecordWriter.resume`, `close` writes it again.
        """
        closed = self.close_if_due()
        if self._deflater is None:
            if len(user_data) != USER_DATA_BYTES:
                raise InvalidInput(f"user data must have {USER_DATA_BYTES} bytes, not {len(user_data)}")
            self._deflater, self._user_data, self._began = Deflater(), user_data, monotonic()
        self._deflater.write(content)
        full = self._close_at_bytes is not None and self.size_bytes >= self._close_at_bytes
        return [record for record in (closed, self.close() if full else None) if record is not None]

    def close_if_due(self) -> Record | None:
        """Write the open record if it is old enough. Return the written record, or None if none was written.

        Raises the errors of `RecordWriter.write`.
        """
        due_in_seconds = self.due_in_seconds
        return self.close() if due_in_seconds is not None and due_in_seconds <= 0 else None

    def abandon(self) -> None:
        """Discard the open record and its content, if a record is open."""
        self._deflater = None

    def close(self) -> Record | None:
        """Write the open record. Return the written record, or None if no record was open.

        Raises the errors of `RecordWriter.write`. The record is then still open: after `RecordWriter.resume`, call
        `close` again.
        """
        if self._deflater is None:
            return None
        record = self._records.write(self._user_data, self._deflater.finish())
        self._deflater = None
        return record
