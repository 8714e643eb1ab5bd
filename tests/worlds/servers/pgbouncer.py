"""PgBouncer in transaction mode, in front of the Postgres server of the tests."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from cafcat.embedded.programs import choose_user
from tests.worlds.servers.services import OWNER, missing_service
from tests.worlds.waiting import wait_until

__all__ = ["PgBouncer", "pgbouncer", "pgbouncer_program", "pgbouncer_version"]

SERVER_CONNECTIONS = 2
"""Server connections of a pool: fewer than the clients of most verbs, so that clients change connections."""


def pgbouncer_program() -> str:
    """Return the path of PgBouncer, or skip the test."""
    path = os.pathsep.join([os.environ.get("CAFCAT_TEST_PROGRAMS", ""), os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which("pgbouncer", path=path) or missing_service("no pgbouncer (apt-get install pgbouncer)")


def pgbouncer_version() -> tuple[int, int]:
    """Return major and minor version of PgBouncer. From 1.21 on, it can pool prepared statements."""
    output = subprocess.run([pgbouncer_program(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", output)
    assert found, output
    return int(found[1]), int(found[2])


class PgBouncer:
    """A running PgBouncer. Clients get any free server connection for each transaction."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, database_url: str) -> str:
        """Return the URL of the same database, through the pooler."""
        given = conninfo_to_dict(database_url)
        user, password, name = (quote(str(given.get(key) or ""), safe="") for key in ("user", "password", "dbname"))
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@127.0.0.1:{self.port}/{name}?sslmode=disable&gssencmode=disable"

    def open_all(self, url: str) -> set[int]:
        """Open all server connections for a URL, and return their process ids.

        PgBouncer opens a connection only if a client needs it. From now on, the clients change connections.
        """
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(psycopg.connect(url)) for _ in range(SERVER_CONNECTIONS)]
            return {client.execute("SELECT pg_backend_pid()").fetchone()[0] for client in clients}  # type: ignore[index]


@contextlib.contextmanager
def pgbouncer(folder: Path, conninfo: str, settings: Mapping[str, str] | None = None) -> Iterator[PgBouncer]:
    """Run a PgBouncer in transaction mode for all databases of a server.

    Args:
        folder: an empty folder for its files.
        conninfo: of the server.
        settings: further settings of pgbouncer.ini.
    """
    port, given = _free_port(), conninfo_to_dict(conninfo)
    values = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": str(folder / "users.txt"),
        "admin_users": "pgbouncer",
        "pool_mode": "transaction",
        "default_pool_size": str(SERVER_CONNECTIONS),
        "server_round_robin": "1",  # a client gets another connection for its next transaction
        "max_client_conn": "200",
        **(settings or {}),
    }
    server = f"* = host={given.get('host') or '127.0.0.1'} port={given.get('port') or 5432}"
    lines = ["[databases]", server, "[pgbouncer]", *(f"{name} = {value}" for name, value in values.items())]
    (folder / "pgbouncer.ini").write_text("\n".join([*lines, ""]))
    users = {OWNER: OWNER, "pgbouncer": "", str(given.get("user")): str(given.get("password") or "")}
    (folder / "users.txt").write_text("".join(f'"{user}" "{password}"\n' for user, password in users.items()))
    user = choose_user(folder)  # it does not run as root, and the sockets of the server are private
    command = [*user.prefix, pgbouncer_program(), str(folder / "pgbouncer.ini")]
    log = folder / "pgbouncer.log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, **user.switch) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(port))
            assert process.poll() is None, log.read_text()
            yield PgBouncer(port)
        finally:
            process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
