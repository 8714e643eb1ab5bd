"""nginx as a server of one bucket that is only read, and a proxy that delays each request.

nginx answers GET and HEAD of `/bucket/key`, with ranges, and ignores signatures: enough for reads by path-style S3
requests. It takes less time than an S3 server, so that clients can be compared. The proxy is a process of its own.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.worlds.servers.s3_server import S3Server

__all__ = ["delayed", "free_port", "nginx_server", "running"]

_START_SECONDS = 30.0
_BLOCK_BYTES = 1 << 18
_BACKLOG = 512
_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
{user}
events {{ worker_connections 2048; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 10000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@contextlib.contextmanager
def nginx_server(folder: Path, root: Path) -> Iterator[S3Server]:
    """Serve each folder in `root` as a bucket. Raises NotImplementedError if nginx is not installed.

    Args:
        folder: For nginx' own files; it is made.
        root: The folder with the buckets.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise NotImplementedError("nginx is missing: apt-get install nginx")
    folder.mkdir()
    port = free_port()
    user = "user root;" if Path("~").expanduser() == Path("/root") else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=port, root=root, user=user))
    with running([program, "-p", str(folder), "-c", str(configuration)], port):
        yield S3Server(f"http://127.0.0.1:{port}", "cafcat", "nobody-checks-it", "us-east-1")


@contextlib.contextmanager
def delayed(server: S3Server, seconds: float) -> Iterator[S3Server]:
    """Yield the server behind a proxy that delays each request by so many seconds."""
    upstream = urlsplit(server.endpoint_url).port
    port = free_port()
    command = [sys.executable, "-m", __name__, str(port), str(upstream), str(seconds)]
    with running(command, port):
        yield S3Server(f"http://127.0.0.1:{port}", server.access_key, server.secret_key, server.region)


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, environ: Mapping[str, str] | None = None, *, quiet: bool = False
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server meanwhile. It listens when the context begins. quiet: drop what it prints."""
    environment, output = os.environ | (environ or {}), subprocess.DEVNULL if quiet else None
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
    ) as process:
        try:
            _wait_for(port, process)
            yield process
        finally:
            process.terminate()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen")
        time.sleep(0.02)


def free_port() -> int:
    """Return a TCP port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _proxy(port: int, upstream: int, seconds: float) -> None:
    """Delay all data from a client.

    A client that waits for each answer before it sends the next request sends a request in one piece. So each
    request is delayed once.
    """

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_BLOCK_BYTES):
                await asyncio.sleep(delay)
                target.write(data)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(copy(reader, server_writer, seconds), copy(server_reader, writer, 0))

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=_BACKLOG)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_proxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
