"""Servers of the same files, as processes of their own: cafcat, nginx, rclone and SeaweedFS; and their CPU time."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.bench.bench import CAFCAT, Home
from tests.bench.memory import descendants
from tests.bench.nginx import free_port, nginx_server, running
from tests.bench.programs import Missing, find
from tests.s3_servers import base
from tests.s3_servers.keeper import answers, free_ports
from tests.s3_servers.seaweedfs import SeaweedFS
from tests.worlds.servers.s3_server import S3Server

__all__ = ["Cafcat", "Served", "cafcat_server", "nginx", "rclone", "seaweedfs"]

ACCESS_KEY, SECRET_KEY = base.ACCESS_KEY, base.SECRET_KEY
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_START_SECONDS = 60.0


class Served(NamedTuple):
    """A running server.

    Attributes:
        url: without a slash at its end.
        pids: its processes. Their descendants belong to it, too.
        database_pids: those of the database that it queries.
        access_key, secret_key: for requests of the S3 protocol; "" for requests that are not signed.
    """

    url: str
    pids: Sequence[int]
    database_pids: Sequence[int] = ()
    access_key: str = ""
    secret_key: str = ""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def s3(self) -> S3Server:
        return S3Server(self.url, self.access_key, self.secret_key, "us-east-1")

    def cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU seconds that the processes of the server and of its database have used."""
        return _cpu_seconds(self.pids), _cpu_seconds(self.database_pids)


class Cafcat(NamedTuple):
    """A running `cafcat serve`, with both of its doors. signed: the S3 side, for requests with an access key."""

    http: Served
    s3: Served
    signed: Served


@contextlib.contextmanager
def cafcat_server(home: Home, environ: Mapping[str, str] | None = None) -> Iterator[Cafcat]:
    """Run `cafcat serve` with one process. All files are public on its S3 side."""
    key = _json(home, "keys", "add")
    command = [*CAFCAT, "serve", "--json", "--port", "0", "--s3-port", "0", "--public", "."]
    variables = os.environ | home.environ | (environ or {})
    with subprocess.Popen([*command, "--access-log", os.devnull], stdout=subprocess.PIPE, env=variables) as process:
        try:
            assert process.stdout
            urls = json.loads(process.stdout.readline())["urls"]
            postgres = _parent(int(str(home.one("SELECT pg_backend_pid()"))))
            http, s3 = (Served(urls[door].rstrip("/"), [process.pid], [postgres]) for door in ("http", "s3"))
            signed = s3._replace(access_key=key["access_key_id"], secret_key=key["secret_access_key"])
            yield Cafcat(http, s3, signed)
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def nginx(folder: Path, root: Path) -> Iterator[Served]:
    """Serve a folder by nginx, with one process. folder: for nginx' own files; it is made."""
    with nginx_server(folder, root) as server:
        yield Served(server.endpoint_url, [int((folder / "nginx.pid").read_text())])


@contextlib.contextmanager
def rclone(protocol: str, root: Path, *, signed: bool = False) -> Iterator[Served]:
    """Serve a folder by `rclone serve http` or `rclone serve s3`, where the folders in it are buckets."""
    port = free_port()
    options = ["--etag-hash", ""] if protocol == "s3" else []  # MD5 would read each file twice
    options += ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"] if signed else []
    command = [find("rclone"), "serve", protocol, "--quiet", "--read-only", "--config", os.devnull, *options]
    with running([*command, "--addr", f"127.0.0.1:{port}", str(root)], port, quiet=True) as process:
        served = Served(f"http://127.0.0.1:{port}", [process.pid])
        yield served._replace(access_key=ACCESS_KEY, secret_key=SECRET_KEY) if signed else served


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Served]:
    """Run SeaweedFS without any objects, with master, volume server, filer and S3 side in one process.

    Args:
        folder: for its files; it is made, and removed.

    Raises:
        Missing: The program `weed` is not installed.
    """
    kind = SeaweedFS()
    find("weed")
    folder.mkdir()
    ports = free_ports(kind.port_count)
    [command] = kind.prepare(folder, ports)
    url = f"http://127.0.0.1:{ports[0]}"
    with running(command.arguments, ports[0], command.environment, quiet=True) as process:
        _wait(url, process)
        yield Served(url, [process.pid], access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    shutil.rmtree(folder)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait for an answer. Raises Missing if the server ends, or does not answer in time."""
    deadline = time.monotonic() + _START_SECONDS
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Missing(f"{process.args!r} does not answer")
        time.sleep(0.1)


def _json(home: Home, *words: str) -> dict[str, str]:
    """Return the document that a command of cafcat prints."""
    command = [*CAFCAT, *words, "--json"]
    done = subprocess.run(command, env=os.environ | home.environ, check=True, capture_output=True)
    document: dict[str, str] = json.loads(done.stdout)
    return document


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes, their descendants, and those that have ended."""
    everyone = {one for pid in pids for one in (pid, *descendants(pid))}
    return sum(sum(map(int, _fields(pid)[11:15])) for pid in everyone) * _TICK_SECONDS


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _fields(pid: int) -> list[str]:
    """Return what the kernel shows about a process after its name; nothing if the process has ended.

    Raises NotImplementedError on systems without /proc.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        if Path("/proc/self/stat").exists():
            return []
        raise NotImplementedError("this system does not show the CPU time of processes in /proc") from error
