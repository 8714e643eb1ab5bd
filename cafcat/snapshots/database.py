"""Open a snapshot file: one connection for each thread."""

import os
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotFound, Unavailable, Unsupported
from cafcat.snapshots.schema import APPLICATION_ID, READ_VERSIONS

__all__ = ["PooledRows", "Rows", "SnapshotFile", "sqlite_errors"]

_HEADER: Final = struct.Struct(">16sH10xI28xI4xI28x")
"""Header of the file: magic, bytes of a page, number of pages, user_version, application_id. See
https://sqlite.org/fileformat2.html, 1.3."""
_MAGIC: Final = b"SQLite format 3\0"
_MAPPED_BYTES: Final = 1 << 40
"""Requested number of bytes of the file that are mapped into memory, so that processes share its pages. SQLite maps
at most 2 GiB, and reads the rest."""


class _Connection(sqlite3.Connection):
    """A connection that is closed with the last reference to it: a thread that ends cannot close it."""

    def __del__(self) -> None:
        """Close the connection."""
        self.close()


class SnapshotFile:
    """A snapshot file whose header was checked. Makes connections to it.

    Attributes:
        path: Name of the file.
        version: Version of the format of its tables (user_version in the header of the file).
    """

    def __init__(self, path: str) -> None:
        """Read and check the header of a snapshot file.

        Raises:
            NotFound: The file does not exist.
            InvalidInput: The file is not a snapshot.
            Unsupported: Its tables have a version that cannot be read.
            Corrupt: The file is shorter or longer than its header says.
            Unavailable: The file cannot be read.
        """
        self.path = path
        try:
            with open(path, "rb", buffering=0) as file:
                head, status = file.read(_HEADER.size), os.fstat(file.fileno())
        except FileNotFoundError as error:
            raise NotFound("there is no such snapshot", path=path) from error
        except IsADirectoryError as error:
            raise _not_a_snapshot(path) from error
        except OSError as error:
            raise Unavailable(f"the snapshot cannot be read: {error.strerror}", path=path) from error
        self.version = _check(path, head, status.st_size)
        self._identity = (status.st_dev, status.st_ino)

    def connect(self) -> _Connection:
        """Return a new connection with one open transaction, so that no look-up needs to begin its own.

        Raises:
            Conflict: Another file has replaced the snapshot since its header was read.
            Corrupt: The file is damaged.
            Unavailable: The file cannot be read.
        """
        url = f"file://{quote(os.fsencode(self.path))}?immutable=1"
        with sqlite_errors(self.path):
            connection = sqlite3.connect(
                url, uri=True, isolation_level=None, check_same_thread=False, factory=_Connection
            )
            try:
                self._begin(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _begin(self, connection: _Connection) -> None:
        connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
        connection.execute("BEGIN")
        connection.execute("SELECT files FROM snapshot").fetchone()
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise Unavailable(f"the snapshot cannot be read: {error.strerror}", path=self.path) from error
        if self._identity != (status.st_dev, status.st_ino):
            message = "the snapshot was replaced by another file after it was opened for reading"
            raise Conflict(message, path=self.path, hint="open the snapshot again")


class Rows(threading.local):
    """Queries on a snapshot. Each thread has a connection of its own, made by its first `select`.

    Attributes:
        version: Version of the format of the snapshot's tables.
        execute: Runs a query with a new cursor, because a signal handler may read during another read. A thread has
            this attribute only after its first `select`.
    """

    execute: Callable[[str, tuple[Any, ...]], sqlite3.Cursor]

    def __init__(self, file: SnapshotFile) -> None:
        self._file = file
        self.version = file.version

    def select(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            InvalidInput: A name in the query is not valid UTF-8.
            Conflict: This is the first query of this thread, and another file has replaced the snapshot since its
                header was read.
            Unavailable: The file cannot be read.
            Corrupt: The file is damaged.
        """
        if "execute" not in self.__dict__:
            self.execute = self._file.connect().execute
        with sqlite_errors(self._file.path):
            return self.execute(statement, parameters).fetchall()


class PooledRows:
    """Queries on a snapshot, for threads that Python did not start.

    Python discards the thread-local values of such a thread whenever its call ends, so `Rows` would open the file
    for each query. Here, a query takes a connection that no other query uses. There are as many connections as
    queries ran at the same time.

    Attributes:
        version: Version of the format of the snapshot's tables.
    """

    def __init__(self, file: SnapshotFile) -> None:
        self._file = file
        self._idle: list[_Connection] = []
        self.version = file.version

    def select(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises the errors of `Rows.select`."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._file.connect()
        with sqlite_errors(self._file.path):
            rows = connection.execute(statement, parameters).fetchall()
        self._idle.append(connection)
        return rows


def _check(path: str, head: bytes, size_bytes: int) -> int:
    """Check the header of a snapshot file, and return the version of its tables.

    Args:
        path: Name of the file, for messages.
        head: First bytes of the file.
        size_bytes: Size of the file.

    Raises:
        InvalidInput: The file is not a snapshot.
        Unsupported: Its tables have a version that cannot be read.
        Corrupt: The file is shorter or longer than its header says.
    """
    if len(head) < _HEADER.size:
        raise _not_a_snapshot(path)
    magic, page_bytes, pages, version, application = _HEADER.unpack(head)
    if magic != _MAGIC or application != APPLICATION_ID:
        raise _not_a_snapshot(path)
    if version not in READ_VERSIONS:
        message = f"the snapshot has version {version}, this cafcat reads {_listed(READ_VERSIONS)}"
        raise Unsupported(message, path=path, hint="make a new snapshot, or use the cafcat that made it")
    expected = pages * (page_bytes if page_bytes > 1 else 1 << 16)
    if size_bytes != expected:
        message = f"the snapshot has {size_bytes} bytes instead of {expected}"
        raise Corrupt(message, path=path, hint="copy the snapshot file again")
    return int(version)


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, versions))


def _not_a_snapshot(path: str) -> InvalidInput:
    return InvalidInput("this is not a snapshot", path=path, hint="cafcat snapshot -o FILE makes one")


@contextmanager
def sqlite_errors(path: str) -> Iterator[None]:
    """Translate errors of SQLite about the snapshot at a path.

    Raises:
        InvalidInput: A name in the query is not valid UTF-8.
        Unavailable: The file cannot be read.
        Corrupt: The file is damaged.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError, UnicodeEncodeError) as error:
        raise InvalidInput("a name that is not valid UTF-8 cannot be in the catalog") from error
    except sqlite3.Error as error:
        raise _error_of(error, path) from error


def _error_of(error: sqlite3.Error, path: str) -> CafcatError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_NOMEM")):
        return Unavailable(f"the snapshot cannot be read: {error}", path=path)
    return Corrupt(
        f"the snapshot is damaged: {error}", path=path, hint="copy the file again, or make a new snapshot"
    )
