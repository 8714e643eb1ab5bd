"""cafcat's own S3 server, on a free port of this machine, in a thread of the test."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

import cafcat
from cafcat.packed_files import PackedFiles
from cafcat.progress import Warnings
from cafcat.serve.connections import Connections
from cafcat.serve.doors import doors
from cafcat.serve.observing import AccessLog, Metrics
from cafcat.serve.options import ServeOptions
from cafcat.serve.s3.keys import NewKey, add_key
from cafcat.serve.s3.options import S3Options
from cafcat.serve.serving import Serving
from cafcat.serve.worker import door_server
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["Gateway", "gateway", "interpreter", "program"]


@dataclass(frozen=True)
class Gateway:
    """A running S3 server.

    Attributes:
        repository: the repository that it serves.
        port: its port on 127.0.0.1.
        key: an access key for all files.
    """

    repository: cafcat.Repository
    port: int
    key: NewKey

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: NewKey | None = None, **config: Any) -> Any:
        """Return a client of boto3 for the key; with `signature_version=UNSIGNED` for no key."""
        import boto3
        from botocore.config import Config

        signer = key or self.key
        config = {
            "retries": {"total_max_attempts": 1},
            "s3": {"addressing_style": "path"},
            "signature_version": "s3v4",
        } | config
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=signer.access_key_id,
            aws_secret_access_key=signer.secret_access_key,
            config=Config(**config),
        )

    def environment(self, key: NewKey | None = None) -> dict[str, str]:
        """Return the variables with which other programs find the server and the key."""
        signer = key or self.key
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_", "S3_"))
        }
        return kept | {
            "AWS_ACCESS_KEY_ID": signer.access_key_id,
            "AWS_SECRET_ACCESS_KEY": signer.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "S3_ENDPOINT_URL": self.url,
        }


@contextlib.contextmanager
def gateway(repository: cafcat.Repository, **options: Any) -> Iterator[Gateway]:
    """Serve a repository, as a process of `cafcat serve` does, until the `with` block ends.

    Args:
        repository: the repository.
        options: options of the S3 side.
    """
    key = add_key(repository.session)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers: list[uvicorn.Server] = []
        serving = _serve(repository, S3Options(**options), listener, servers)
        thread = threading.Thread(target=asyncio.run, args=(serving,), daemon=True)
        thread.start()
        try:
            wait_until(lambda: bool(servers) and servers[0].started)
            yield Gateway(repository, listener.getsockname()[1], key)
        finally:
            servers[0].should_exit = True
            thread.join(PATIENCE_SECONDS)


async def _serve(
    repository: PackedFiles, s3: S3Options, listener: socket.socket, servers: list[uvicorn.Server]
) -> None:
    """Run the server, which is added to `servers`, until its `should_exit` is set."""
    options = ServeOptions(http=False, s3_port=0, s3=s3, stop_seconds=5)
    serving = Serving(repository, options, Warnings())
    log, metrics = AccessLog(Path(os.devnull)), Metrics()
    [door] = doors(options)
    servers.append(door_server(door, serving, Connections(options, 100), (log, metrics)))
    try:
        await servers[0].serve([listener])
    finally:
        serving.close()
        log.close()


def program(name: str) -> str | None:
    """Return the path of a program of another project; None if it is not installed.

    It is looked for in the folders of CAFCAT_TEST_PROGRAMS, such as the `bin` of a virtual environment with the
    extra `test-clients`, and then in PATH.
    """
    found = [str(folder / name) for folder in _folders() if os.access(folder / name, os.X_OK)]
    return found[0] if found else shutil.which(name)


def interpreter(module: str) -> str | None:
    """Return the Python of a folder of CAFCAT_TEST_PROGRAMS that has a module; None if there is none."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for folder in _folders():
        command = [str(folder / "python"), "-c", f"import {module}"]
        if (folder / "python").exists() and not subprocess.run(
            command, env=environment, capture_output=True
        ).returncode:
            return command[0]
    return None


def _folders() -> list[Path]:
    return [Path(text) for text in os.environ.get("CAFCAT_TEST_PROGRAMS", "").split(os.pathsep) if text]
