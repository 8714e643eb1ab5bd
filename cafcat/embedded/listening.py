"""The TCP port of the embedded server on the loopback interface, which `cafcat db listen` opens for other programs.

The file `postgres.listen` beside the data folder has the port. A server with a port names its socket after the
port; a symbolic link keeps the usual name, by which all commands connect.
"""

import os
import socket
from pathlib import Path
from typing import Final

from cafcat.embedded.connecting import DATABASE, OWNER, PORT, SOCKET_NAME
from cafcat.embedded.roles import SUPERUSER

__all__ = ["LOOPBACK", "free_port", "is_free", "link_socket", "port_of", "server_settings", "set_port"]

LOOPBACK: Final = "127.0.0.1"
_FIRST_PORT: Final = 15432
_ACCESS: Final = f"""\
local all all trust
host all {SUPERUSER},{OWNER} all reject
host {DATABASE} all {LOOPBACK}/32 scram-sha-256
host all all all reject
"""
"""Rules in the format of pg_hba.conf. The roles that can change the catalog are not let in over TCP."""


def port_of(folder: Path) -> int | None:
    """Return the TCP port that the server of a data folder is to open; None if none.

    Args:
        folder: The data folder.
    """
    try:
        return int(_port_file(folder).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def set_port(folder: Path, port: int | None) -> None:
    """Store the TCP port that the server opens at its next start.

    Args:
        folder: The data folder.
        port: The port; None for no TCP port.

    Raises:
        OSError: The file cannot be written.
    """
    if port is None:
        _port_file(folder).unlink(missing_ok=True)
        return
    _port_file(folder).write_text(f"{port}\n", encoding="ascii")


def _port_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".listen")


def is_free(port: int) -> bool:
    """Return True if a server could open a TCP port on the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return the first free TCP port from 15432 on."""
    return next(port for port in range(_FIRST_PORT, 1 << 16) if is_free(port))


def server_settings(folder: Path) -> dict[str, str]:
    """Return the settings of the server that open the port; none if no port is stored.

    If another program uses the port, the server starts without it: the catalog is more important.

    Args:
        folder: The data folder.
    """
    port = port_of(folder)
    if port is None or not is_free(port):
        return {"port": str(PORT)}
    access = folder / "pg_hba.listen.conf"
    access.write_text(_ACCESS, encoding="ascii")
    os.chown(access, folder.stat().st_uid, folder.stat().st_gid)
    return {"port": str(port), "listen_addresses": LOOPBACK, "hba_file": str(access)}


def link_socket(sockets: Path, port: str) -> None:
    """Give the socket of a server that will open a TCP port its usual name, too.

    Args:
        sockets: Folder of the socket.
        port: The setting `port` of the server.
    """
    if port != str(PORT):
        (sockets / SOCKET_NAME).symlink_to(f".s.PGSQL.{port}")
