"""A PostgreSQL server that listens on TCP and has a certificate of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.worlds.memory import memory_folder
from tests.worlds.servers.replica import new_server

__all__ = ["TlsServer", "tls_server"]

NAME = "db.example"


class TlsServer(NamedTuple):
    """A running server, with an empty catalog.

    Attributes:
        url: The URL of the catalog by TCP, without sslmode. The name of the server is that of its certificate.
        certificate: The file of the certificate, which is signed by itself.
    """

    url: str
    certificate: Path


@contextlib.contextmanager
def tls_server() -> Iterator[TlsServer]:
    """Yield a server that accepts connections with and without TLS."""
    folder = Path(tempfile.mkdtemp(prefix="cafcat-tls-", dir=memory_folder()))
    server = None
    try:
        server = new_server(folder)
        server.stop()
        _make_certificate(server.data)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server.start(listen_addresses="127.0.0.1", port=str(port), ssl="on")
        certificate = folder / "certificate.pem"
        shutil.copy(server.data / "server.crt", certificate)
        # libpq compares the name with the certificate. The address could be that of any host.
        url = f"postgresql://cafcat@{NAME}:{port}/catalog?hostaddr=0.0.0.0"
        yield TlsServer(url, certificate)
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder)


def _make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = [folder / "server.key", folder / "server.crt"]
    subprocess.run([*command, *names, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    owner = folder.stat()
    for file in files:
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
