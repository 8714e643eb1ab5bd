"""Connects to an embedded server that is running already, as is the case for nearly every command."""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import UndefinedTable

from cafcat.catalog.connection import PgConnection, application_name, open_connection
from cafcat.catalog.schema import revision_of

__all__ = [
    "DATABASE",
    "OWNER",
    "PORT",
    "SOCKET_NAME",
    "Postmaster",
    "connect_running",
    "connect_to",
    "is_private",
    "read_postmaster",
    "recorded_socket_folder",
    "revision_and_home_of",
    "server_conninfo",
    "without_pg_variables",
]

DATABASE: Final = "cafcat"
"""Name of the catalog's database on the embedded server."""
OWNER: Final = "cafcat_owner"
"""The role that owns the database. Commands connect as this role, except for read-only queries: see roles.py."""
PORT: Final = 5432  # only a part of the socket's name: no TCP port is opened
SOCKET_NAME: Final = f".s.PGSQL.{PORT}"
LOG_LIMIT_BYTES: Final = 8 << 20
"""Size of the server's log above which it is truncated, in bytes."""
LOG_END_BYTES: Final = 256 << 10
"""Size of the end of the log that a truncation keeps, in bytes."""

_environment_lock = threading.Lock()


def connect_running(folder: Path, role: str = OWNER) -> PgConnection | None:
    """Return a new connection to the database `cafcat` of the embedded server, if the server is running.

    Before that, a server log of more than 8 MiB is shortened to its last 256 KiB.

    Args:
        folder: The data folder of the server, without symbolic links.
        role: One of the roles in `cafcat.embedded.roles`.

    Returns:
        The connection; None if the server is not running, or the connection or the log fails. The caller then uses
        EmbeddedServer.connect, which finds the reason, or starts the server.
    """
    with contextlib.suppress(OSError, psycopg.Error):
        _truncate_log(folder.with_name(folder.name + ".log"))
        sockets = recorded_socket_folder(folder)
        return None if sockets is None else connect_to(sockets, DATABASE, role)
    return None


def recorded_socket_folder(folder: Path) -> Path | None:
    """Return the folder of the socket that the file postmaster.pid in a data folder names.

    The command that started the server may have had another TMPDIR, so the folder cannot be computed.

    Returns:
        The folder; None if the file is missing, invalid or unfinished, or if the socket folder or its parent is not
        private. Also None if the file names another data folder, of which this one is a copy.
    """
    try:
        postmaster = read_postmaster(folder)
        owner = folder.stat().st_uid
    except OSError:
        return None
    if postmaster is None or postmaster.sockets is None or postmaster.folder != folder:
        return None
    sockets = postmaster.sockets
    return sockets if is_private(sockets, owner) and is_private(sockets.parent, owner) else None


class Postmaster(NamedTuple):
    """The content of the file postmaster.pid, which a server has in its data folder while it runs.

    Attributes:
        pid: Process id of the server.
        folder: Data folder of the server.
        sockets: Folder of its socket; None while the file is being written.
        status: Status of the server, such as "ready"; empty while the file is being written.
    """

    pid: int
    folder: Path
    sockets: Path | None
    status: str

    def is_alive(self, folder: Path) -> bool:
        """Return True if process `pid` exists and is the server of a data folder.

        The result is False if the process id belongs to another process by now, or to a zombie whose parent does
        not wait for it, as in a container whose process 1 is an application. The result is also False if the folder
        is a copy, whose process id comes from another machine. On a system without /proc, a process with this id is
        the server if postmaster.pid names this folder.

        Args:
            folder: The data folder, in which postmaster.pid was found.
        """
        try:
            os.kill(self.pid, 0)
            if Path("/proc/self/cwd").exists():
                return Path(f"/proc/{self.pid}/cwd").samefile(folder)
            return self.folder == folder
        except PermissionError:
            # A server runs as the owner of its folder. If this process's user is the owner, `pid` is another
            # program.
            return folder.stat().st_uid != os.geteuid()
        except OSError:
            return False


def read_postmaster(folder: Path) -> Postmaster | None:
    """Return the content of the file postmaster.pid in a data folder.

    The format of this file: https://github.com/postgres/postgres/blob/REL_18_STABLE/src/include/utils/pidfile.h

    Returns:
        The content; None if the file is missing or invalid.

    Raises:
        OSError: The file exists and cannot be read.
    """
    try:
        lines = os.fsdecode((folder / "postmaster.pid").read_bytes()).split("\n")
    except FileNotFoundError:
        return None
    if not lines[0].isdigit() or len(lines) < 2:
        return None
    lines += [""] * 8
    return Postmaster(int(lines[0]), Path(lines[1]), Path(lines[4]) if lines[4] else None, lines[7].strip())


def is_private(folder: Path, uid: int) -> bool:
    """Return True if a path is a folder (no symbolic link) of user `uid`, without permissions for other users."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def server_conninfo(sockets: Path, dbname: str, role: str) -> str:
    """Return a libpq key=value string for a connection to an embedded server. It overrides most PG* variables.

    Args:
        sockets: Folder of the server's socket.
        dbname: Name of the database.
        role: Role of the login.
    """
    return make_conninfo(
        host=str(sockets),
        hostaddr="",
        port=PORT,
        user=role,
        dbname=dbname,
        options="",
        sslmode="disable",
        gssencmode="disable",
        connect_timeout=30,
    )


def connect_to(sockets: Path, dbname: str, role: str) -> PgConnection:
    """Return a new connection to an embedded server in autocommit mode.

    The caller has checked that the socket folder is private. Otherwise another user could pose as the server.

    Args:
        sockets: Folder of the server's socket.
        dbname: Name of the database.
        role: Role of the login.

    Raises:
        psycopg.Error: The connection fails.
    """
    with without_pg_variables():
        conninfo = make_conninfo(server_conninfo(sockets, dbname, role), application_name=application_name())
        return open_connection(conninfo)


def revision_and_home_of(connection: PgConnection) -> tuple[str | None, str | None]:
    """Return the schema revision of an embedded database, and the URL of the home at its last use.

    The revision is None if there is no cafcat schema. The URL is None if it was not recorded yet, or the schema is
    too old to record it. If the schema is of the current revision, this costs one query.
    """
    statement = "SELECT version_num, (SELECT home FROM catalog_identity) FROM alembic_version"
    try:
        row = connection.execute(statement).fetchone()
    except UndefinedTable:
        return revision_of(connection), None
    return (str(row[0]), row[1]) if row else (None, None)


@contextlib.contextmanager
def without_pg_variables() -> Iterator[None]:
    """Remove all PG* variables from the environment of this process inside the `with` block.

    A conninfo does not override some of libpq's variables, such as PGSERVICE and PGTZ. Only one thread at a time is
    in such a block.
    """
    with _environment_lock:
        removed = {}
        for name in list(os.environ):
            if name.startswith("PG"):
                removed[name] = os.environ.pop(name)
        try:
            yield
        finally:
            os.environ.update(removed)


def _truncate_log(log: Path) -> None:
    """Shorten the server's log to its last 256 KiB if it has more than 8 MiB.

    The server only appends to the log, so it continues to work with the shorter file.

    Raises:
        OSError: The log cannot be read or written.
    """
    if not log.exists() or log.stat().st_size <= LOG_LIMIT_BYTES:
        return
    with os.fdopen(os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
        file.seek(-LOG_END_BYTES, os.SEEK_END)
        end = file.read(LOG_END_BYTES)
        file.truncate(0)
        file.write(end)
