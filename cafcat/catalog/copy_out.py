"""Reads the result of a COPY in blocks of many rows. psycopg returns each row by itself, which takes more time."""

import sys
from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.waiting import Ready, Wait

from cafcat.catalog.connection import PgConnection
from cafcat.native.copy import row_receiver

__all__ = ["copied_blocks"]

_BLOCK_BYTES: Final = 256 << 10

_ENDED: Final = -1
_FAILED: Final = -2

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
    """The rows of a running COPY, from libpq, which does not wait."""

    def __init__(self, connection: PgConnection) -> None:
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._is_read = False
        self._receiver = row_receiver(_libpq(), _BLOCK_BYTES)

    def copy_block(self) -> _Steps:
        """Return the next rows; b"" after the last one. `psycopg.Connection.wait` runs this generator."""
        while not self._is_read:
            rows, self._is_read = self._received()
            if rows:
                return rows
            if not self._is_read:
                yield from self._receive()
        yield from self._end()
        return b""

    def _received(self) -> tuple[bytes, bool]:
        """Return the rows that libpq has received, up to about a block, and whether the COPY has ended."""
        address = getattr(self._pgconn, "pgconn_ptr", None)  # documented, but not in the type of PGconn
        if self._receiver is not None and address is not None:
            received, result = self._receiver.receive(address, self._pgconn.socket)
            if result == _FAILED and not received:
                self._pgconn.get_copy_data(1)  # fails again, and raises the error
            return received, result == _ENDED
        rows: list[memoryview] = []
        row_bytes = block_bytes = 0
        while block_bytes < _BLOCK_BYTES:
            row_bytes, row = self._pgconn.get_copy_data(1)
            if row_bytes <= 0:
                break
            rows.append(row)
            block_bytes += row_bytes
        return b"".join(rows), row_bytes < 0

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


def _libpq() -> str:
    """Return the path of a library that is linked with the libpq of psycopg; "" if psycopg has none."""
    module = sys.modules.get(f"psycopg_{psycopg.pq.__impl__}.pq")
    return getattr(module, "__file__", None) or ""
