"""The embedded PostgreSQL: a server that cafcat runs for users without a server.

The first command that needs the server starts it. It keeps running after that command; `cafcat db stop` stops it.
It opens no TCP port unless it is asked to (listening.py); its Unix socket is in a private folder. All transactions
that it acknowledges are on disk, because fsync is never turned off.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg

from cafcat.catalog.connection import PgConnection
from cafcat.embedded.cluster import prepare
from cafcat.embedded.connecting import (
    DATABASE,
    PORT,
    SOCKET_NAME,
    Postmaster,
    connect_running,
    connect_to,
    read_postmaster,
    recorded_socket_folder,
    server_conninfo,
)
from cafcat.embedded.listening import link_socket, server_settings
from cafcat.embedded.locks import is_locked, locked, open_beside, try_lock
from cafcat.embedded.orphans import end_orphans
from cafcat.embedded.programs import (
    FREE_SPACE,
    OTHER_WAYS,
    ServerUser,
    fatal_line,
    find_programs,
    remedy_for,
    run_program,
)
from cafcat.embedded.roles import OWNER, SUPERUSER, is_missing, set_up_database
from cafcat.embedded.sockets import make_socket_folder, remove_socket_folder, socket_folder
from cafcat.errors import CafcatError, CatalogUnavailable
from cafcat.support.private import PRIVATE_FOLDER

__all__ = ["EmbeddedServer"]

ANSWER_SECONDS = 60.0
"""How long to wait for a connection while the server is starting or stopping, in seconds."""
RECOVERY_SECONDS = 900.0
"""How long to wait while a server replays its log after a crash (about max_wal_size at most), in seconds."""
STOP_SECONDS = 300.0
"""How long to wait for the last checkpoint of a server that stops, in seconds."""
POLL_SECONDS = 0.02
"""Time between two looks at the state of a server, in seconds."""

# The settings are passed on the command line. So a newer cafcat can change them for clusters that an older one
# made.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "dynamic_shared_memory_type": "mmap",  # /dev/shm is tiny in containers, and systemd empties it at log-out
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # cafcat parses the server's messages
    "logging_collector": "off",  # cafcat limits the size of the log itself: see connecting.py
    "cluster_name": "cafcat",
}

# Parts of the replies of a server that does not accept connections yet, or any more.
TEMPORARY_REPLIES = ("starting up", "shutting down", "recovery mode", "not yet accepting", "not accepting")
# Parts of the error messages of a start while child processes of a killed server are still ending.
TEMPORARY_FAILURES = ("pre-existing shared memory block", "already exists")


class EmbeddedServer:
    """The embedded PostgreSQL server of one data folder. Many processes and threads can use it at the same time.

    Attributes:
        folder: The data folder.
        log_file: The log of the server.
    """

    def __init__(self, folder: Path, *, programs: Path | None = None) -> None:
        """Create an object for the server of a data folder. The server is not started.

        Args:
            folder: The data folder. The folder and its parent are created when they are first needed.
            programs: Folder of PostgreSQL's programs (14 or newer), to use instead of those in the installed
                package.
        """
        self.folder = folder.resolve()
        self._programs = programs
        self._lock_file = self._beside(".lock")
        self._running_file = self._beside(".running")
        self.log_file = self._beside(".log")

    def _beside(self, suffix: str) -> Path:
        return self.folder.with_name(self.folder.name + suffix)

    @property
    def programs(self) -> Path:
        """The folder of PostgreSQL's programs, such as psql. Raises CatalogUnavailable if there is none."""
        return self._programs or find_programs()

    def conninfo(self, dbname: str = DATABASE, role: str = OWNER) -> str:
        """Return a libpq key=value string for this server, which overrides most PG* variables. Starts no server.

        Args:
            dbname: A database of this server.
            role: One of the roles in `cafcat.embedded.roles`.
        """
        return server_conninfo(self._socket_folder(), dbname, role)

    def url(self) -> str:
        """Return the libpq URL for connections of the owner role. The server is not started."""
        host = quote(str(self._socket_folder()), safe="")
        return f"postgresql:///{DATABASE}?host={host}&user={OWNER}&port={PORT}"

    def connect(self, role: str = OWNER) -> PgConnection:
        """Return a new connection to the database `cafcat` in autocommit mode.

        If the server is not running, it is started. A missing data folder, database or role is created.

        Args:
            role: One of the roles in `cafcat.embedded.roles`.

        Raises:
            CatalogUnavailable: The server cannot be created, started or reached.
        """
        with self._translated_errors():
            connection = connect_running(self.folder, role)
            if connection is not None:
                return connection
            _make_home(self.folder.parent)
            with locked(self._lock_file):
                return self._connect_or_start(role)

    def set_up(self) -> None:
        """Create the database and the roles if they are missing, and set owners and privileges in the database.

        If the server is not running, it is started.

        Raises:
            CatalogUnavailable: The server cannot be created, started or reached.
        """
        self.connect(SUPERUSER).close()
        with self._translated_errors(), locked(self._lock_file):
            set_up_database(self._socket_folder())

    def is_running(self) -> bool:
        """Return True if the server runs. It may still be starting, or already be stopping.

        Raises:
            CatalogUnavailable: The files of the server cannot be read, or another server uses the data folder.
        """
        with self._translated_errors():
            return self._running() is not None

    def stop(self) -> bool:
        """Stop the server after a checkpoint. This closes all its connections.

        Returns:
            True if the server was stopped, False if it was not running.

        Raises:
            CatalogUnavailable: The server does not stop, or another server uses the data folder.
        """
        with self._translated_errors():
            if not self._lock_file.exists():
                return False
            with locked(self._lock_file):
                postmaster = self._running()
                if postmaster is None:
                    return False
                sockets = self._socket_folder()
                self._shut_down(postmaster)
                (sockets / SOCKET_NAME).unlink(missing_ok=True)  # a link, if a TCP port was open
                remove_socket_folder(sockets, self.folder.stat().st_uid)
                return True

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate exceptions of the system and of psycopg into CatalogUnavailable."""
        try:
            yield
        except CafcatError:
            raise
        except OSError as error:
            if isinstance(error, FileExistsError | NotADirectoryError) and not os.path.isdir(self.folder.parent):
                existing = next(place for place in self.folder.parents if os.path.exists(place))
                message = f"{existing} is a file, and the home of cafcat needs a folder"
                raise CatalogUnavailable(message, hint="name a folder with --home or CAFCAT_HOME") from error
            place = f"{error.filename}: " if error.filename else ""
            raise CatalogUnavailable(
                f"the embedded database in {self.folder}: {place}{error.strerror}",
                hint=remedy_for(str(error), f"set CAFCAT_HOME to a folder that you can write to, or {OTHER_WAYS}"),
            ) from error
        except psycopg.Error as error:
            reason = error.diag.message_primary or fatal_line(str(error))
            message = f"the embedded database in {self.folder}: {reason}"
            hint = FREE_SPACE if isinstance(error, psycopg.errors.DiskFull) else None
            raise CatalogUnavailable(message, hint=hint) from error

    # Connecting

    def _socket_folder(self) -> Path:
        """Return the folder of the socket. If the server is not running, a start most likely uses this folder."""
        recorded = recorded_socket_folder(self.folder)
        if recorded is not None:
            return recorded
        try:
            owner = self.folder.stat().st_uid
        except OSError:
            owner = os.geteuid()
        return socket_folder(self.folder, owner)

    def _connect_or_start(self, role: str) -> PgConnection:
        """Return a connection to the server, which is started if it is not running.

        The caller holds the lock for starting, so that no other command starts or stops the server meanwhile. There
        may still be a starting server whose command was killed, or the last processes of a server that was killed.

        Raises:
            CatalogUnavailable: The server cannot be started, refused the connection, or did not accept one within
                60 seconds.
        """
        reason = ""
        limit = time.monotonic() + ANSWER_SECONDS
        while True:
            sockets = recorded_socket_folder(self.folder)
            if sockets is not None:
                try:
                    return connect_to(sockets, DATABASE, role)
                except psycopg.OperationalError as error:
                    reason = str(error)
                if is_missing(reason):
                    set_up_database(sockets)
                    continue
                self._check_reply(reason)
            if time.monotonic() > limit:  # not earlier: a start after a crash may take longer than the limit
                break
            self._make_available()
            time.sleep(POLL_SECONDS)
        raise CatalogUnavailable(
            f"the embedded database in {self.folder} did not answer within {ANSWER_SECONDS:.0f} seconds: "
            f"{fatal_line(reason)}",
            hint=f"look at {self.log_file}; another machine or container may be using this folder",
        )

    def _make_available(self) -> None:
        """Start the embedded server if it is not running. If it is ready but its socket is gone, stop it.

        `_connect_or_start` then calls this method again, which starts the server with a new socket.

        The socket may have been removed (systemd empties XDG_RUNTIME_DIR at log-out), or the data folder was moved.
        """
        postmaster = self._running()
        if postmaster is None:
            self._start()
        elif postmaster.status == "ready" and not self._is_reachable():
            self._shut_down(postmaster)

    def _is_reachable(self) -> bool:
        sockets = recorded_socket_folder(self.folder)
        return sockets is not None and (sockets / SOCKET_NAME).exists()

    def _check_reply(self, reason: str) -> None:
        """Raise CatalogUnavailable if the server refused a connection for a reason that waiting cannot remove."""
        if "FATAL:" in reason and not any(reply in reason for reply in TEMPORARY_REPLIES):
            refusal = fatal_line(reason)
            message = f"the embedded database in {self.folder} refused the connection: {refusal}"
            raise CatalogUnavailable(message, hint=remedy_for(refusal))

    # Starting and stopping

    def _running(self) -> Postmaster | None:
        """Return process and status of the server; None if it is not running.

        Raises:
            CatalogUnavailable: A server that cafcat did not start runs in the data folder.
        """
        postmaster = read_postmaster(self.folder)
        if postmaster is None or not postmaster.is_alive(self.folder):
            return None
        if not is_locked(self._running_file):
            raise CatalogUnavailable(
                f"a PostgreSQL server that cafcat did not start runs in {self.folder} (process {postmaster.pid})",
                hint="stop that server",
            )
        return postmaster

    def _start(self) -> None:
        """Start the server, and wait until it accepts connections.

        If processes of a killed server, or of a removed folder, still run or disturb the start, this returns
        without a server. These processes end soon.

        Raises:
            CatalogUnavailable: The server cannot be started.
        """
        running = try_lock(self._running_file)
        if running is None:
            end_orphans(self.folder)
            return
        try:
            user = prepare(self.folder, self.programs)
            log_start = self._launch(user, running)
        finally:
            os.close(running)
        self._await_ready(log_start)

    def _launch(self, user: ServerUser, running: int) -> int:
        """Start the server process as a daemon, without waiting until it is ready.

        A shell starts it and ends at once. So the system, and not this process, is the parent of the server and
        waits for its end. The server inherits only two descriptors, `running` and the log. If it inherited standard
        output, `cafcat ... | cat` would not end.

        Args:
            user: The user that runs the server.
            running: Descriptor that holds the lock of `postgres.running`.

        Returns:
            Offset in the log where the messages of this server begin, in bytes.
        """
        sockets = make_socket_folder(self.folder, user.uid, user.gid)
        for name in (SOCKET_NAME, SOCKET_NAME + ".lock"):  # remains of a server that was killed
            (sockets / name).unlink(missing_ok=True)
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        listening = server_settings(self.folder)
        link_socket(sockets, listening["port"])
        server = self._server_command(sockets, listening)
        log = open_beside(self.log_file, os.O_WRONLY | os.O_APPEND)
        try:
            log_start = os.lseek(log, 0, os.SEEK_END)
            shell = ["/bin/sh", "-c", '"$@" &', "sh", *user.prefix]
            daemon = {"start_new_session": True, "pass_fds": (running,), "stdout": log, "stderr": log}
            run_program(ServerUser(user.uid, user.gid, (), user.switch), [*shell, *server], **daemon)
        finally:
            os.close(log)
        return log_start

    def _server_command(self, sockets: Path, listening: dict[str, str]) -> list[str | Path]:
        quoted = str(sockets).replace('"', '""')
        settings = {**SETTINGS, **listening, "unix_socket_directories": f'"{quoted}"'}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.programs / "postgres", "-D", self.folder, *flags]

    def _await_ready(self, log_start: int) -> None:
        limit = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < limit:
            postmaster = read_postmaster(self.folder)
            if postmaster is not None and postmaster.status == "ready":
                return
            if not is_locked(self._running_file):
                self._raise_failure(log_start)
                return
            time.sleep(POLL_SECONDS)
        raise CatalogUnavailable(
            f"the embedded database in {self.folder} is still recovering after {RECOVERY_SECONDS:.0f} seconds",
            hint=f"try again later, and look at {self.log_file}",
        )

    def _raise_failure(self, log_start: int) -> None:
        """Raise CatalogUnavailable with the error from the server's log, unless a new start can succeed soon."""
        with open(self.log_file, "rb") as log:
            log.seek(log_start)
            reason = fatal_line(log.read(1 << 20).decode("utf-8", "replace"))
        if not any(failure in reason for failure in TEMPORARY_FAILURES):
            raise CatalogUnavailable(
                f"the embedded database in {self.folder} does not start: {reason}",
                hint=remedy_for(reason, f"look at {self.log_file}, or {OTHER_WAYS}"),
            )

    def _shut_down(self, postmaster: Postmaster) -> None:
        os.kill(postmaster.pid, signal.SIGINT)  # PostgreSQL's "fast" shutdown
        limit = time.monotonic() + STOP_SECONDS
        while is_locked(self._running_file):
            if time.monotonic() > limit:
                raise CatalogUnavailable(
                    f"the embedded database in {self.folder} has not stopped after {STOP_SECONDS:.0f} seconds",
                    hint=f"look at {self.log_file}",
                )
            time.sleep(POLL_SECONDS)


def _make_home(home: Path) -> None:
    """Create a missing home, readable for its owner only, and missing folders above it. Raises OSError."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(PRIVATE_FOLDER, exist_ok=True)
