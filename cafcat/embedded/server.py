"""The embedded PostgreSQL: a server of our own for those who have none.

It starts with the first command that needs it and outlives it; `cafcat db stop` stops it. It opens no TCP port:
its unix socket lies in a private folder. Everything it acknowledges is on disk (fsync is never turned off).
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cafcat.catalog.connection import PgConnection, open_connection
from cafcat.catalog.locking import application_name
from cafcat.embedded.cluster import prepare
from cafcat.embedded.programs import OTHER_WAYS, ServerUser, fatal_line, find_programs, run_program
from cafcat.embedded.roles import OWNER, SUPERUSER, is_role_missing, set_up_roles
from cafcat.embedded.sockets import (
    PORT,
    SOCKET_NAME,
    is_private,
    make_socket_folder,
    remove_socket_folder,
    socket_folder,
)
from cafcat.embedded.state import (
    Postmaster,
    bound_log,
    is_held,
    locked,
    open_beside,
    read_postmaster,
    take,
)
from cafcat.errors import CafcatError, CatalogUnavailable
from cafcat.support.private import PRIVATE_FOLDER

__all__ = ["EmbeddedServer", "without_pg_variables"]

DATABASE = "cafcat"
PATIENCE_SECONDS = 60.0  # for a server that others start or stop, or whose last children still end
RECOVERY_SECONDS = 900.0  # for one that replays its log after a crash: at most max_wal_size of it
STOP_SECONDS = 300.0  # for a last checkpoint
POLL_SECONDS = 0.02

# On the command line, so that a newer cafcat's values reach clusters that an older one made.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "dynamic_shared_memory_type": "mmap",  # containers have a tiny /dev/shm; systemd empties it at log-out
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # we read the server's messages
    "logging_collector": "off",  # the log is ours, see bound_log
    "cluster_name": "cafcat",
}

# The server is there, but not yet or no longer for us.
PASSING_REPLIES = ("starting up", "shutting down", "recovery mode", "not yet accepting", "not accepting")
# Seen when the server before this one was killed and something of it is left.
PASSING_FAILURES = ("pre-existing shared memory block", "already exists")

_environment_lock = threading.Lock()


class EmbeddedServer:
    """One PostgreSQL server over one data folder. Safe to use from many processes and threads at once.

    Args: folder: the data folder, made when first needed; its parent is made too. programs: the folder of other
    PostgreSQL programs (14 or newer) than those of the wheel.
    """

    def __init__(self, folder: Path, *, programs: Path | None = None) -> None:
        self.folder = folder.resolve()
        self._programs = programs
        self._lock_file = self._beside(".lock")
        self._running_file = self._beside(".running")
        self.log_file = self._beside(".log")

    def _beside(self, suffix: str) -> Path:
        return self.folder.with_name(self.folder.name + suffix)

    @property
    def programs(self) -> Path:
        """The folder of postgres, psql, pg_dump ... Raises CatalogUnavailable where there are none."""
        return self._programs or find_programs()

    def conninfo(self, dbname: str = DATABASE, role: str = OWNER) -> str:
        """Return libpq keywords for this server, proof against most PG* variables. Starts nothing.

        Args:
            dbname: a database of this server.
            role: one of `embedded_roles`.
        """
        return _conninfo(self._sockets(), dbname, role)

    def url(self) -> str:
        """Return the libpq URL of the owner's connection, for psql and other programs. Starts nothing."""
        host = quote(str(self._sockets()), safe="")
        return f"postgresql:///{DATABASE}?host={host}&user={OWNER}&port={PORT}"

    def connect(self, role: str = OWNER) -> PgConnection:
        """Return a connection to the database `cafcat`, in autocommit; makes and starts the server if need be.

        Args:
            role: one of `embedded_roles`. The roles are made in a cluster that does not have them yet.

        Raises:
            CatalogUnavailable: in one line what is in the way, and what to do.
        """
        with self._translated():
            bound_log(self.log_file)
            sockets = self._known_sockets()
            if sockets is not None:
                with contextlib.suppress(psycopg.OperationalError):
                    return _connect(sockets, DATABASE, role)
            _make_home(self.folder.parent)
            with locked(self._lock_file):
                return self._connect_or_start(role)

    def set_up(self) -> None:
        """Give the roles what they are to have of the database as it is now. Raises CatalogUnavailable."""
        self.connect(SUPERUSER).close()
        with self._translated(), locked(self._lock_file):
            _set_up(self._sockets())

    def is_running(self) -> bool:
        """Whether the server runs (it may still be starting). Raises CatalogUnavailable if that cannot be told."""
        with self._translated():
            return self._running() is not None

    def stop(self) -> bool:
        """Ends the server, and with it all connections, after a checkpoint; False if it was not running."""
        with self._translated():
            if not self._lock_file.exists():
                return False
            with locked(self._lock_file):
                postmaster = self._running()
                if postmaster is None:
                    return False
                sockets = self._sockets()
                self._shut_down(postmaster)
                remove_socket_folder(sockets, self.folder.stat().st_uid)
                return True

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CafcatError:
            raise
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            raise CatalogUnavailable(
                f"the embedded database in {self.folder}: {place}{error.strerror}",
                hint=f"set CAFCAT_HOME to a folder that you can write to, or {OTHER_WAYS}",
            ) from error
        except psycopg.Error as error:
            reason = fatal_line(str(error))
            raise CatalogUnavailable(f"the embedded database in {self.folder}: {reason}") from error

    # Connecting

    def _sockets(self) -> Path:
        """Where the socket is; or, when nothing runs, will most likely be."""
        known = self._known_sockets()
        if known is not None:
            return known
        try:
            owner = self.folder.stat().st_uid
        except OSError:
            owner = os.geteuid()
        return socket_folder(self.folder, owner)

    def _known_sockets(self) -> Path | None:
        """The socket folder that the server recorded: the command that started it may have had another TMPDIR.
        None if this record is of another folder (of which this one is a copy), or the socket folder not safe."""
        try:
            postmaster = read_postmaster(self.folder)
            owner = self.folder.stat().st_uid
        except OSError:
            return None
        if postmaster is None or postmaster.sockets is None or postmaster.folder != self.folder:
            return None
        sockets = postmaster.sockets
        return sockets if is_private(sockets, owner) and is_private(sockets.parent, owner) else None

    def _connect_or_start(self, role: str) -> PgConnection:
        """Under the lock: nobody else starts or stops the server meanwhile. What we find may still be a server
        whose starter was killed, or the remains of one that was."""
        reason = ""
        limit = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < limit:
            sockets = self._known_sockets()
            if sockets is not None:
                try:
                    return _connect(sockets, DATABASE, role)
                except psycopg.OperationalError as error:
                    reason = str(error)
                if _is_no_database(reason) or is_role_missing(reason):
                    _set_up(sockets)
                    continue
                self._check_reply(reason)
            self._make_available()
            time.sleep(POLL_SECONDS)
        raise CatalogUnavailable(
            f"the embedded database in {self.folder} did not answer within {PATIENCE_SECONDS:.0f} seconds: "
            f"{fatal_line(reason)}",
            hint=f"look at {self.log_file}; it may be in use by another machine or container",
        )

    def _make_available(self) -> None:
        """Starts the server if none runs; stops one that cannot be reached any more, because its socket was
        removed (systemd empties XDG_RUNTIME_DIR at log-out) or its folder moved."""
        postmaster = self._running()
        if postmaster is None:
            self._start()
        elif postmaster.status == "ready" and not self._is_reachable():
            self._shut_down(postmaster)

    def _is_reachable(self) -> bool:
        sockets = self._known_sockets()
        return sockets is not None and (sockets / SOCKET_NAME).exists()

    def _check_reply(self, reason: str) -> None:
        """Raises CatalogUnavailable if a server answered, and will not answer otherwise in a moment."""
        if "FATAL:" in reason and not any(reply in reason for reply in PASSING_REPLIES):
            raise CatalogUnavailable(
                f"the embedded database in {self.folder} refused the connection: {fatal_line(reason)}"
            )

    # Starting and stopping

    def _running(self) -> Postmaster | None:
        postmaster = read_postmaster(self.folder)
        if postmaster is None or not postmaster.is_alive(self.folder):
            return None
        if not is_held(self._running_file):
            raise CatalogUnavailable(
                f"a PostgreSQL server that cafcat did not start runs in {self.folder} (process {postmaster.pid})",
                hint="stop it",
            )
        return postmaster

    def _start(self) -> None:
        """Starts the server and waits until it is ready. Returns without one where the remains of a killed one
        are in the way: its children end soon."""
        running = take(self._running_file)
        if running is None:
            return
        try:
            user = prepare(self.folder, self.programs)
            log_start = self._launch(user, running)
        finally:
            os.close(running)
        self._await_ready(log_start)

    def _launch(self, user: ServerUser, running: int) -> int:
        """Starts the postmaster as a daemon; returns where its part of the log begins, in bytes.

        The shell ends at once, so that the system collects the postmaster when it ends, not we. Of our
        descriptors it gets `running` and the log, nothing else: `cafcat ... | cat` must end."""
        sockets = make_socket_folder(self.folder, user.uid, user.gid)
        for name in (SOCKET_NAME, SOCKET_NAME + ".lock"):  # of a server that was killed
            (sockets / name).unlink(missing_ok=True)
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        server = self._server_command(sockets)
        log = open_beside(self.log_file, os.O_WRONLY | os.O_APPEND)
        try:
            log_start = os.lseek(log, 0, os.SEEK_END)
            shell = ["/bin/sh", "-c", '"$@" &', "sh", *user.prefix]
            daemon = {"start_new_session": True, "pass_fds": (running,), "stdout": log, "stderr": log}
            run_program(ServerUser(user.uid, user.gid, (), user.switch), [*shell, *server], **daemon)
        finally:
            os.close(log)
        return log_start

    def _server_command(self, sockets: Path) -> list[str | Path]:
        quoted = str(sockets).replace('"', '""')
        settings = {**SETTINGS, "port": str(PORT), "unix_socket_directories": f'"{quoted}"'}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.programs / "postgres", "-D", self.folder, *flags]

    def _await_ready(self, log_start: int) -> None:
        limit = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < limit:
            postmaster = read_postmaster(self.folder)
            if postmaster is not None and postmaster.status == "ready":
                return
            if not is_held(self._running_file):
                self._explain_failure(log_start)
                return
            time.sleep(POLL_SECONDS)
        raise CatalogUnavailable(
            f"the embedded database in {self.folder} still recovers after {RECOVERY_SECONDS:.0f} seconds",
            hint=f"try again later, and look at {self.log_file}",
        )

    def _explain_failure(self, log_start: int) -> None:
        with open(self.log_file, "rb") as log:
            log.seek(log_start)
            reason = fatal_line(log.read(1 << 20).decode("utf-8", "replace"))
        if not any(failure in reason for failure in PASSING_FAILURES):
            raise CatalogUnavailable(
                f"the embedded database in {self.folder} does not start: {reason}",
                hint=f"look at {self.log_file}, or {OTHER_WAYS}",
            )

    def _shut_down(self, postmaster: Postmaster) -> None:
        os.kill(postmaster.pid, signal.SIGINT)  # PostgreSQL's "fast" shutdown
        limit = time.monotonic() + STOP_SECONDS
        while is_held(self._running_file):
            if time.monotonic() > limit:
                raise CatalogUnavailable(
                    f"the embedded database in {self.folder} has not stopped after {STOP_SECONDS:.0f} seconds",
                    hint=f"look at {self.log_file}",
                )
            time.sleep(POLL_SECONDS)


def _make_home(home: Path) -> None:
    """Only its owner may read it; folders above are made as the umask says. Raises OSError."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(PRIVATE_FOLDER, exist_ok=True)


def _conninfo(sockets: Path, dbname: str, role: str) -> str:
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


def _connect(sockets: Path, dbname: str, role: str) -> PgConnection:
    """Only ever to a socket folder that was found private: in another one, anybody could pose as the server."""
    with without_pg_variables():
        conninfo = make_conninfo(_conninfo(sockets, dbname, role), application_name=application_name())
        return open_connection(conninfo)


def _is_no_database(reason: str) -> bool:
    return f'database "{DATABASE}" does not exist' in reason


def _set_up(sockets: Path) -> None:
    """Make the database and the roles, as far as they do not exist. Raises psycopg's exceptions."""
    with _connect(sockets, "postgres", SUPERUSER) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if found is None:
            # Names all that matters: a cluster of somebody else's making may have other defaults.
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
            connection.execute(statement.format(sql.Identifier(DATABASE)))
    with _connect(sockets, DATABASE, SUPERUSER) as connection:
        set_up_roles(connection, DATABASE)


@contextlib.contextmanager
def without_pg_variables() -> Iterator[None]:
    """Some of libpq's variables (PGSERVICE, PGTZ) cannot be overruled by a conninfo; they are put aside."""
    with _environment_lock:
        aside = {name: value for name, value in os.environ.items() if name.startswith("PG")}
        for name in aside:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(aside)
