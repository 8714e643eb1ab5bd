"""The programs of a Dask cluster on this host."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from cafcat.clusters import open_cluster
from cafcat.errors import Unavailable
from cafcat.support.executors import worker_count
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["DaskPrograms", "free_port"]

PROJECT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class DaskPrograms:
    """A scheduler and two workers of Dask, with a thread and with two."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"dask://127.0.0.1:{self.port}"
        self._folder = folder
        self.processes = [self._start("scheduler", "--host", "127.0.0.1", "--port", f"{self.port}")]
        for threads in (1, 2):
            place = f"tcp://127.0.0.1:{self.port}"
            flags = [f"--nthreads={threads}", f"--local-directory={folder}", f"--name={threads}"]
            self.processes.append(self._start("worker", place, *flags))

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(PROJECT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_scheduler(self) -> None:
        self.processes[0].kill()

    def kill_worker(self) -> None:
        """Kill the worker with two threads, and the process that watches it."""
        os.killpg(self.processes[2].pid, signal.SIGKILL)

    def stop(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_for_workers(self) -> None:
        """Wait until both workers have joined."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with suppress(Unavailable), open_cluster(self.url) as cluster:
                if worker_count(cluster.executor) == 3:
                    return
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.2)
