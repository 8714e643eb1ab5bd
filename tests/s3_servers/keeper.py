"""The process that runs one S3 server: `python -m tests.s3_servers.keeper KIND FOLDER STATE`.

FOLDER takes the server's files. STATE is shared by all processes that use the server: each holds a shared lock on
STATE/users meanwhile. The keeper writes the server's URL to STATE/endpoint once the server answers. As soon as
STATE/users meanwhile. The keeper writes the server's URL to STATE/endpoint once the server answers. When no process
holds that lock any more, the keeper ends the server and removes FOLDER and the URL. The kernel releases the locks
of
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tests.s3_servers.base import ServerKind
from tests.s3_servers.kinds import KINDS

__all__ = ["answers"]

START_SECONDS = 60
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.5
ATTEMPTS = 3
"""Another program may take a port between its choice and its use."""


def answers(url: str) -> bool:
    """Return True if a server answers HTTP at this URL. A refusal is an answer, too."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code != 503  # SeaweedFS: the gateway is up, the filer is not
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Server:
    """The processes of one server."""

    def __init__(self, kind: ServerKind, folder: Path) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = free_ports(kind.port_count)
        self.url = f"http://127.0.0.1:{ports[0]}"
        try:
            for command in kind.prepare(folder, ports):
                environment = os.environ | dict(command.environment)
                process = subprocess.Popen(command.arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL)
                self._processes.append(process)
            self._wait()
            kind.finish()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.url):
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError("the server ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer after {START_SECONDS} seconds")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


def started(kind: ServerKind, folder: Path) -> Server:
    for attempt in range(1, ATTEMPTS + 1):
        place = folder / str(attempt)
        place.mkdir()
        try:
            return Server(kind, place)
        except Exception:
            traceback.print_exc()
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def wait_until_unused(users: IO[bytes]) -> None:
    while True:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
        else:
            return


def main(kind: ServerKind, folder: Path, state: Path) -> None:
    endpoint = state / "endpoint"
    with open(state / "users", "ab") as users:
        try:
            server = started(kind, folder)
            (state / "starting").write_text(server.url)
            (state / "starting").rename(endpoint)
            wait_until_unused(users)
            server.stop()
        finally:
            endpoint.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            sys.stderr.flush()
            os.killpg(0, signal.SIGKILL)  # with all that a server may have started


if __name__ == "__main__":
    main(KINDS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
