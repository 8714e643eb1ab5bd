"""Hosts of a cluster as network namespaces of this machine: one bridge, and an address for each of them.

The root namespace has the addresses of the database and of the store. A host can be cut off from one address: its
packets to that address then get lost without an answer, as on a broken network. Root only (ip-netns(8)).
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["CLIENT", "DATABASE", "SCHEDULER", "STORE", "Host", "Network", "missing"]

NET = "198.18.77"
DATABASE, STORE, SCHEDULER, CLIENT = f"{NET}.1", f"{NET}.2", f"{NET}.3", f"{NET}.4"
NOWHERE = "02:00:00:00:00:99"
"""A hardware address that no host has."""
BRIDGE = "cafbr"
RESTART_SECONDS = 1.0
SCRIPT = 'hostname "$0" && mount -t tmpfs none "$1" && shift && exec "$@"'
SEPARATE = ("unshare", "--uts", "--mount", "sh", "-c", SCRIPT)
"""Runs a program under a host name, so that it is not taken for a process of this host, and with a folder that no
other host sees: nodes of Ray keep files with fixed names there."""


def missing() -> str | None:
    """Return why this machine cannot have hosts, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no program ip (Debian: apt-get install iproute2)"
    failed = run("netns", "add", "caf-probe", check=False)
    if failed:
        return "this machine has no network namespaces"
    run("netns", "del", "caf-probe")
    return None


def run(*arguments: str, check: bool = True) -> int:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True).returncode


class Host:
    """A network namespace, and the program that runs in it. The program is started again when it ends."""

    def __init__(self, number: int, address: str) -> None:
        self.address = address
        self.name = f"caf{number}"
        self._command: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None
        self._own = Path()
        self._environment: Mapping[str, str] = {}
        inner, outer = f"{self.name}i", f"{self.name}o"
        run("netns", "add", self.name)
        run("link", "add", outer, "type", "veth", "peer", "name", inner)
        run("link", "set", inner, "netns", self.name)
        run("link", "set", outer, "master", BRIDGE)
        run("link", "set", outer, "up")
        self.ip("addr", "add", f"{address}/24", "dev", inner)
        self.ip("link", "set", inner, "up")
        self.ip("link", "set", "lo", "up")
        self._device = inner

    def ip(self, *arguments: str) -> None:
        run("-n", self.name, *arguments)

    def serve(self, command: Sequence[str], environment: Mapping[str, str], log: Path, own: Path) -> None:
        """Run a program on the host until `remove`.

        Args:
            command: the program and its arguments.
            environment: all its environment variables.
            log: takes its output.
            own: a folder that has other files on each host.
        """
        self._command, self._environment, self._log, self._own = command, environment, log, own
        self._start()

    def _start(self) -> None:
        assert self._log is not None
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *SEPARATE, self.name, str(self._own), *self._command],
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def watch(self) -> bool:
        """Start the program again if it has ended, as an init system does. Return True if it had ended."""
        if self._process is None or self._process.poll() is None:
            return False
        self.kill()
        time.sleep(RESTART_SECONDS)
        self._start()
        return True

    def kill(self) -> None:
        """Kill all processes of the host, and no others."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], check=False, capture_output=True, text=True)
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def cut(self, address: str) -> None:
        """Lose all packets to an address."""
        self.ip("neigh", "replace", address, "lladdr", NOWHERE, "dev", self._device, "nud", "permanent")

    def heal(self, address: str) -> None:
        self.ip("neigh", "del", address, "dev", self._device)

    def remove(self) -> None:
        self.kill()
        self._process = None
        run("netns", "del", self.name, check=False)


class Network:
    """The bridge with its hosts, as a context manager.

    Attributes:
        scheduler: the host of the scheduler.
        workers: the hosts of the workers.
    """

    def __init__(self, workers: int = 4) -> None:
        self._count = workers
        self.workers: list[Host] = []

    def __enter__(self) -> Self:
        run("link", "add", BRIDGE, "type", "bridge")
        try:
            for address in (DATABASE, STORE, CLIENT):
                run("addr", "add", f"{address}/24", "dev", BRIDGE)
            run("link", "set", BRIDGE, "up")
            self.scheduler = Host(0, SCHEDULER)
            self.workers = [Host(number, f"{NET}.{10 + number}") for number in range(1, self._count + 1)]
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def hosts(self) -> list[Host]:
        return [self.scheduler, *self.workers]

    def __exit__(self, *_: object) -> None:
        for host in [*self.workers, *([self.scheduler] if hasattr(self, "scheduler") else [])]:
            host.remove()
        run("link", "del", BRIDGE, check=False)
