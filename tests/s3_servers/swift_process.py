"""OpenStack Swift with its S3 API, all of it in one process.

Call: `python -m tests.s3_servers.swift_process FOLDER PORT`.
FOLDER takes the objects and needs extended attributes. The server runs until it is killed.
"""

import json
import logging
import os
import socket
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"  # noqa: S105
REGION = "us-east-1"
DEVICE = "disk"

COMMON = """
[DEFAULT]
swift_dir = {folder}
devices = {folder}
mount_check = false
disable_fallocate = true
log_level = ERROR
log_requests = false
node_timeout = 120
recoverable_node_timeout = 120
conn_timeout = 120
client_timeout = 600
container_update_timeout = 120
error_suppression_interval = 0
fallocate_reserve = 0
disk_chunk_size = 1048576
network_chunk_size = 1048576
object_chunk_size = 1048576
client_chunk_size = 1048576
etag_validate_pct = 0
log_custom_handlers = tests.s3_servers.swift_process.log_to_stderr
recon_cache_path = {folder}
"""
"""Swift's own timeouts are seconds: on a busy machine it would answer 503, or list an object late."""

STORAGE = """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

PROXY = """
[pipeline:main]
pipeline = catch_errors cache turns listing_formats s3api tempauth copy slo proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
paste.filter_factory = tests.s3_servers.swift_process:cache_filter
[filter:turns]
paste.filter_factory = tests.s3_servers.swift_process:turns_filter
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = {region}
max_upload_part_num = 10000
[filter:tempauth]
use = egg:swift#tempauth
user_{user} = {secret} .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
rate_limit_segments_per_sec = 0
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
"""

CONSTANTS = """
[swift-hash]
swift_hash_path_prefix = cafcat
swift_hash_path_suffix = cafcat
[storage-policy:0]
name = default
default = yes
"""


class Memory:
    """Replaces memcached for servers that share one process.

    Entries never expire: Swift deletes outdated ones, and the server runs only for minutes.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str, **_options: Any) -> Any:
        text = self._values.get(key)
        return None if text is None else json.loads(text)

    def set(self, key: str, value: Any, **_options: Any) -> None:
        self._values[key] = json.dumps(value)

    def delete(self, key: str, **_options: Any) -> None:
        self._values.pop(key, None)

    def incr(self, key: str, delta: int = 1, **_options: Any) -> int:
        value: int = max(0, (self.get(key) or 0) + delta)
        self.set(key, value)
        return value


def cache_filter(_global_conf: dict[str, str], **_conf: str) -> Any:
    """Return a filter for Memory, as Paste's filter factory."""
    memory = Memory()

    def make(app: Any) -> Any:
        def middleware(environ: dict[str, Any], start_response: Any) -> Any:
            environ["swift.cache"] = memory
            return app(environ, start_response)

        return middleware

    return make


def turns_filter(_global_conf: dict[str, str], **_conf: str) -> Any:
    """Let concurrent writers of a key with If-None-Match take turns.

    S3 guarantees that only one of them succeeds. Swift checks first and writes later, so that all may succeed.
    """
    from eventlet.semaphore import Semaphore

    turns: defaultdict[str, Any] = defaultdict(Semaphore)

    def make(app: Any) -> Any:
        def middleware(environ: dict[str, Any], start_response: Any) -> Any:
            if environ["REQUEST_METHOD"] not in {"PUT", "POST"} or "HTTP_IF_NONE_MATCH" not in environ:
                return app(environ, start_response)
            with turns[environ["PATH_INFO"]]:
                body = app(environ, start_response)
                try:
                    return list(body)
                finally:
                    getattr(body, "close", bool)()

        return middleware

    return make


def log_to_stderr(
    _conf: Any, _name: str, _console: bool, _route: str, _format: str, logger: logging.Logger, _adapted: Any
) -> None:
    """Log to stderr in place of syslog. Swift calls this hook for its handlers."""
    logger.handlers[:] = [logging.StreamHandler(sys.stderr)]


def write_ring(name: str, port: int, folder: Path) -> None:
    """Write a ring with one device."""
    from swift.common.ring import RingBuilder

    builder = RingBuilder(2, 1, 0)
    place = {"ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "device": DEVICE, "weight": 1, "meta": "", **place})
    builder.rebalance()
    builder.get_ring().save(str(folder / f"{name}.ring.gz"))


def write_settings(name: str, folder: Path) -> Path:
    text = COMMON + (PROXY if name == "proxy" else STORAGE)
    user = ACCESS_KEY.replace(":", "_")
    path = folder / f"{name}.conf"
    path.write_text(text.format(folder=folder, name=name, region=REGION, user=user, secret=SECRET_KEY))
    return path


def listen(port: int = 0) -> Any:
    import eventlet

    listener = eventlet.listen(("127.0.0.1", port), backlog=512)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # and so for all that it accepts
    return listener


def serve(name: str, path: Path, listener: Any) -> None:
    """Serve a socket. The case of header names is kept, because clients of S3 expect "ETag"."""
    import eventlet
    from eventlet import wsgi
    from swift.common.wsgi import SwiftHttpProtocol, init_request_processor

    app, _conf, _logger, _log_name = init_request_processor(str(path), f"{name}-server")
    options = {"protocol": SwiftHttpProtocol, "capitalize_response_headers": False, "socket_timeout": 600}
    silent = logging.getLogger("silent")
    silent.disabled = True
    eventlet.spawn(wsgi.server, listener, app, silent, **options)


def do_not_sync() -> None:
    """Disable syncs: no data has to survive a power cut, and syncs are slow while other tests run."""
    from swift.common import db

    execute = db.GreenDBCursor.execute

    def unsynced(cursor: Any, statement: str, *values: Any) -> Any:
        return execute(cursor, statement.replace("synchronous = NORMAL", "synchronous = OFF"), *values)

    def nothing(fd: Any) -> None:
        """Replaces os.fsync."""

    db.GreenDBCursor.execute = unsynced
    os.fsync = os.fdatasync = nothing


def start(folder: Path, port: int) -> None:
    """Start the four servers."""
    do_not_sync()
    (folder / DEVICE).mkdir()
    (folder / "swift.conf").write_text(CONSTANTS)
    listeners = {name: listen() for name in ("account", "container", "object")} | {"proxy": listen(port)}
    ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
    for name in ("account", "container", "object"):
        write_ring(name, ports[name], folder)
    for name, listener in listeners.items():
        serve(name, write_settings(name, folder), listener)


def main(folder: Path, port: int) -> None:
    import eventlet
    from swift.common import utils

    utils.monkey_patch()
    start(folder, port)
    while True:
        eventlet.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
