"""The database and the store of a cluster, on addresses of their own."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cafcat.embedded.programs import choose_user, find_programs, run_program
from tests.cluster.hosts import DATABASE, NET, STORE
from tests.s3_servers.keeper import Server
from tests.s3_servers.kinds import KINDS
from tests.worlds.servers.s3_server import S3Server

__all__ = ["CountedStore", "database", "store"]

PORT = 5432
STORE_PORT = 8333
LISTING = re.compile(r"^GET (/[^/?]+/?\?\S*list-type=2\S*)")

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
    log_format requests '$request_method $request_uri $status $remote_addr';
    access_log {folder}/requests.log requests;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    client_max_body_size 0;
    keepalive_requests 1000000;
    upstream server {{ server 127.0.0.1:{port}; keepalive 64; }}
    server {{
        listen {address}:{own_port} backlog=512;
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
            proxy_request_buffering off;
        }}
    }}
}}
"""


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Run a Postgres server on the bridge, and yield the URL of an empty database."""
    folder.mkdir()
    data, programs, user = folder / "data", find_programs(), choose_user(folder)
    made = run_program(
        user, [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
    )
    assert made.returncode == 0, made.stderr
    with open(data / "pg_hba.conf", "a") as rules:
        rules.write(f"host all all {NET}.0/24 trust\n")
    settings = f"-c listen_addresses={DATABASE} -c port={PORT} -c unix_socket_directories={data} -c fsync=off"
    begin = ["start", "-w", "-l", folder / "log", "-o", f"{settings} -c max_connections=200"]
    control = [programs / "pg_ctl", "-D", data]
    started = run_program(user, [*control, *begin], stdout=subprocess.DEVNULL)
    assert started.returncode == 0, (folder / "log").read_text()
    try:
        yield f"postgresql://postgres@{DATABASE}:{PORT}/postgres"
    finally:
        run_program(user, [*control, "stop", "-m", "immediate"])


@dataclass
class CountedStore:
    """An S3 server, and the log of its requests."""

    server: S3Server
    log: Path

    def listings(self, bucket: str) -> Counter[str]:
        """Return how often each page of a listing of a bucket was requested."""
        with open(self.log) as lines:
            found = (LISTING.match(line) for line in lines)
            return Counter(match[1] for match in found if match and match[1].startswith(f"/{bucket}"))


@contextmanager
def store(folder: Path, kind_name: str) -> Iterator[CountedStore]:
    """Run an S3 server behind nginx, which listens on the bridge and logs the requests."""
    folder.mkdir()
    kind, data = KINDS[kind_name], folder / "data"
    data.mkdir()
    server = Server(kind, data)
    try:
        settings = folder / "nginx.conf"
        port = int(server.url.rpartition(":")[2])
        settings.write_text(NGINX.format(folder=folder, port=port, address=STORE, own_port=STORE_PORT))
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert nginx is not None, "no program nginx"
        command = [nginx, "-c", str(settings), "-e", str(folder / "error.log"), "-g", "user root;"]
        front = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            url = f"http://{STORE}:{STORE_PORT}"
            yield CountedStore(
                S3Server(url, kind.access_key, kind.secret_key, "us-east-1"), folder / "requests.log"
            )
        finally:
            front.terminate()
            front.wait()
    finally:
        server.stop()
