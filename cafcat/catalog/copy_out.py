"""Reads the result of a COPY in blocks of many rows. psycopg returns each row by itself, which takes more time."""

from collections.abc import Generator
from typing import Any, Final

from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.waiting import Ready, Wait

from cafcat.catalog.connection import PgConnection

__all__ = ["copied_blocks"]

_BLOCK_BYTES: Final = 256 << 10

_Steps = Generator[Wait, Ready, bytes]


def copied_blocks(
    connection: PgConnection, statement: bytes, parameters: Any = None
) -> Generator[bytes, None, None]:
    """Execute a COPY ... TO STDOUT, and yield its rows in blocks.

    A block has at most about 256 KiB: the rows that the server has sent so far, and never a part of a row. In the
    binary format, the first block begins with the header. The caller must read the blocks to the end or close the
    iterator.

    Args:
        connection: The connection.
        statement: The statement.
        parameters: Its parameters.

    Raises:
        psycopg.Error: The server refuses or breaks off the statement, or the connection is lost.
    """
    with connection.cursor() as cursor, cursor.copy(statement, parameters):
        rows = _Rows(connection)
        while block := connection.wait(rows.copy_block()):
            yield block


class _Rows:
    """Takes the rows of a running COPY from libpq, which does not wait."""

    def __init__(self, connection: PgConnection) -> None:
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._is_read = False

    def copy_block(self) -> _Steps:
        """Return the next rows; b"" after the last one. `psycopg.Connection.wait` runs this generator."""
        rows: list[memoryview] = []
        block_bytes = 0
        while block_bytes < _BLOCK_BYTES and not self._is_read:
            row_bytes, row = self._pgconn.get_copy_data(1)
            if row_bytes > 0:
                rows.append(row)
                block_bytes += row_bytes
            elif row_bytes < 0:
                self._is_read = True
            elif rows:
                break
            else:
                yield from self._receive()
        if not rows:
            yield from self._end()
        return b"".join(rows)

    def _receive(self) -> Generator[Wait, Ready, None]:
        while not (yield Wait.R):
            pass
        self._pgconn.consume_input()

    def _end(self) -> Generator[Wait, Ready, None]:
        """Take the results of the statement after its last row. Raises the error with which the statement ended."""
        error = None
        while True:
            while self._pgconn.is_busy():
                yield from self._receive()
            result = self._pgconn.get_result()
            if result is None:  # only now can the connection execute another statement
                break
            if result.status != ExecStatus.COMMAND_OK:
                error = error or error_from_result(result, encoding=self._encoding)
        if error is not None:
            raise error
