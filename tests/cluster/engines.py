"""The programs of the engines on the hosts of a cluster."""

import sys
from pathlib import Path

from tests.cluster.hosts import SCHEDULER, Host

__all__ = ["ENGINES", "DaskEngine", "RayEngine"]

BIN = Path(sys.executable).parent
OBJECT_BYTES = 80_000_000
"""Memory for objects of a Ray node: the smallest that it takes."""


class DaskEngine:
    """Dask: a scheduler, and a worker with a thread on each host."""

    url = f"dask://{SCHEDULER}:8786"

    def scheduler(self, _folder: Path) -> list[str]:
        return [str(BIN / "dask"), "scheduler", "--host", SCHEDULER, "--port", "8786", "--no-dashboard"]

    def worker(self, host: Host, folder: Path) -> list[str]:
        place = ["--host", host.address, "--name", host.name, "--local-directory", str(folder)]
        return [str(BIN / "dask"), "worker", f"tcp://{SCHEDULER}:8786", *place, "--nthreads=1", "--no-dashboard"]


class RayEngine:
    """Ray: a head node without processors, and a node with one processor on each host."""

    url = f"ray://{SCHEDULER}:10001"
    _OPTIONS = ("--block", "--disable-usage-stats", f"--object-store-memory={OBJECT_BYTES}")

    def scheduler(self, folder: Path) -> list[str]:
        head = ["--head", f"--node-ip-address={SCHEDULER}", "--port=6379", "--ray-client-server-port=10001"]
        limits = ["--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}"]
        return [str(BIN / "ray"), "start", *head, *limits, *self._OPTIONS]

    def worker(self, host: Host, _folder: Path) -> list[str]:
        place = [f"--address={SCHEDULER}:6379", f"--node-ip-address={host.address}", "--num-cpus=1"]
        return [str(BIN / "ray"), "start", *place, *self._OPTIONS]


ENGINES = {"dask": DaskEngine(), "ray": RayEngine()}
