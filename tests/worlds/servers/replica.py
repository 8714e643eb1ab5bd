"""A primary server and a streaming standby of it, from the machine's own PostgreSQL."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg

from cafcat.catalog import schema
from cafcat.embedded.programs import choose_user, run_program
from tests.worlds.memory import memory_folder
from tests.worlds.servers.services import FAST_SETTINGS, debian_programs
from tests.worlds.waiting import wait_until

__all__ = ["Pair", "Server", "new_server", "server_pair"]

SUPERUSER = "postgres"


class Server:
    """A server in a folder of its own, which listens on a socket in this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._user = choose_user(folder)
        self._frozen: list[int] = []

    def run(self, program: str, *arguments: str | Path) -> None:
        # Not into pipes: the server keeps them open.
        result = run_program(
            self._user,
            [debian_programs() / program, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert result.returncode == 0, (program, arguments, self._log())

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def start(self, **further: str) -> None:
        """Start the server, with further settings of PostgreSQL by name."""
        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "max_connections": "50"}
        settings = {
            **FAST_SETTINGS,
            **options,
            "hot_standby_feedback": "off",
            "max_standby_streaming_delay": "100ms",
            **further,
        }
        words = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.folder / "log", "-o", words)

    def stop(self) -> None:
        for pid in self._frozen:
            os.kill(pid, signal.SIGCONT)
        if (self.data / "postmaster.pid").exists():
            self.run("pg_ctl", "stop", "-m", "immediate", "-D", self.data)

    def kill(self) -> None:
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all processes of the server, until it is killed."""
        rows = self.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        self._frozen = [
            int((self.data / "postmaster.pid").read_text().split()[0]),
            *(int(str(pid)) for (pid,) in rows),
        ]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def url(self, role: str = SUPERUSER, dbname: str = "postgres") -> str:
        return f"postgresql:///{dbname}?host={quote(str(self.folder), safe='')}&user={role}"

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def new_server(folder: Path) -> Server:
    """Return a new server in an existing folder, which is started. It has a role `cafcat` and its database."""
    user = choose_user(folder)
    os.chown(folder, user.uid, user.gid)
    server = Server(folder)
    server.run(
        "initdb", "-D", server.data, "-U", SUPERUSER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"
    )
    server.start()
    server.execute("CREATE ROLE cafcat LOGIN")
    server.execute("CREATE DATABASE catalog OWNER cafcat")
    schema.upgrade(server.url("cafcat", "catalog"))
    return server


class Pair:
    """A primary with an empty catalog, and its standby."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def database_url(self) -> str:
        return self.primary.url("cafcat", "catalog")

    @property
    def read_url(self) -> str:
        return self.standby.url("cafcat", "catalog")

    def pause(self) -> None:
        """Stop replaying the log on the standby."""
        self.standby.execute("SELECT pg_wal_replay_pause()")
        wait_until(lambda: self.standby.execute("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])

    def resume(self) -> None:
        self.standby.execute("SELECT pg_wal_replay_resume()")

    def wait_for_replay(self) -> None:
        """Wait until the standby has everything."""
        self.primary.execute("SELECT pg_current_xact_id()")  # a record after the header of a new page of the log
        [(position,)] = self.primary.execute("SELECT pg_current_wal_insert_lsn()::text")
        wait_until(lambda: self.standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{position}'") == [(True,)])


@contextlib.contextmanager
def server_pair() -> Iterator[Pair]:
    """Yield a running primary and a running standby."""
    folder = Path(tempfile.mkdtemp(prefix="cafcat-pair-", dir=memory_folder()))
    servers = []
    try:
        for name in ("primary", "standby"):
            (folder / name).mkdir()
            user = choose_user(folder / name)
            os.chown(folder / name, user.uid, user.gid)
        folder.chmod(0o755)
        primary = new_server(folder / "primary")
        servers.append(primary)
        standby = Server(folder / "standby")
        options = ["-D", standby.data, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        standby.run("pg_basebackup", "-d", primary.url(), *options)
        standby.start()
        servers.append(standby)
        yield Pair(primary, standby)
    finally:
        for server in servers:
            with contextlib.suppress(AssertionError):
                server.stop()
        shutil.rmtree(folder)
