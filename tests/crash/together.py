"""Several commands at the same time, some of them killed, stopped or interrupted; then all files are compared.

Two writers change files in folders of their own, and ingest, remove and restore them. Two caretakers run `repack`,
`prune`, `copy`, `backup` and other verbs on the same catalog meanwhile. After each round, the files that `extract`
returns must be those of the writers' records, `verify --level data` and `db check` must find nothing, and a catalog
that `rebuild` makes from the stores must have the same files.

`python -m tests.crash.together` (or `make together`) prints a line for each round, and ends with 1 if anything was
found. The folder then has a log of all commands. With --full-disk (root), home and stores are on a file system in
memory that has no space left now and then.
"""

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread

from tests.worlds.commands import command_line

__all__ = ["World", "explore"]

FAULTS = ("kill", "kill", "stop", "term", "int")
"""What happens to a command that meets a fault; kills twice as often as each of the others."""
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
WRITER_FAULTS, CARETAKER_FAULTS, REMOVAL_FAULTS = 0.35, 0.3, 0.2
"""The share of commands that meet a fault."""
CARE = (
    "repack --max-unused 0% --yes",
    "repack --small 1MB --yes",
    "repack --small 1MB --target-size 100kB --yes",
    "prune --grace 0 --yes",
    "prune --grace 1s --yes",
    "verify --level data",
    "copy --all --to {copies}",
    "backup --to {copies}",
    "recover",
    "repair --from-copy --yes",
    "db partition 0 --yes",
    "db partition 3 --yes",
)
FORMATS = ("caf", "caf", "car", "chunkio", "databundle")
NAMES = 40
SIZES = (0, 10, 500, 5_000, 30_000, 300_000)
_DISK_MB = 400

Content = str | None
"""SHA-256 of a file; None for a path without a file."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(folder: Path) -> dict[str, str]:
    """Return the contents of all files below a folder by their paths."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in files}


class World:
    """A repository with a store and a store of copies, and a record of the contents that its files may have.

    Attributes:
        folder: Folder of the sources, the output and the log.
        disk: Folder of the home and the stores.
        possible: The contents that each path may have: several after a command that changes the path was killed.
        codes: Number of commands by verb and exit code.
        found: What is wrong, a sentence each.
    """

    def __init__(self, folder: Path, disk: Path) -> None:
        self.folder = folder
        self.disk = disk
        self.store, self.copies = disk / "store", disk / "copies"
        self.possible: dict[str, set[Content]] = {}
        self.codes: Counter[tuple[str, int]] = Counter()
        self.found: list[str] = []
        self.environ = self._environ_of(disk / "home")

    def _environ_of(self, home: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAFCAT_", "PG"))}
        return kept | {"CAFCAT_HOME": str(home), "CAFCAT_STORE": str(self.store)}

    def run(
        self,
        words: list[str],
        fault: str | None = None,
        after: float = 0.0,
        stopped: float = 0.0,
        environ: Mapping[str, str] | None = None,
    ) -> int:
        """Run a command, and return its exit code.

        Args:
            words: The command.
            fault: One of FAULTS; None for a command that runs to its end.
            after: Seconds until the fault.
            stopped: Seconds for which "stop" stops the command.
            environ: Environment of the command; None for that of this repository.
        """
        process = subprocess.Popen(
            command_line(*words, "--debug"),
            cwd=self.folder,
            env=environ or self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a signal then reaches its workers, too
        )
        if fault is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
            if process.poll() is None:
                _strike(process.pid, fault, stopped)
        output = process.communicate()[0].decode(errors="replace").strip()
        self.codes[words[0], process.returncode] += 1
        with (self.folder / "log").open("a") as log:
            log.write(f"{time.time():.2f} {process.returncode} {fault or '-'} {' '.join(words)}\n{output}\n")
        if "this is a bug of cafcat" in output:
            self.found.append(f"{' '.join(words)} ended with a bug: {output[-400:]}")
        return process.returncode

    def check(self) -> None:
        """Compare catalog, stores and a rebuilt catalog with the record, and note what differs.

        No other command may run. Afterwards, the record has the contents that were found.
        """
        for words in ("db partition --cancel", "recover"):
            self.run(words.split())
        found = self._extracted(self.environ, "extracted")
        for path in sorted(self.possible | found.keys()):
            if found.get(path) not in self.possible.get(path, {None}):
                self.found.append(f"{path} has content {found.get(path)}, not one of {self.possible.get(path)}")
        for words in ("verify --level data", "db check"):
            if code := self.run(words.split()):
                self.found.append(f"{words} ended with {code}")
        if (rebuilt := self._rebuilt()) != found:
            paths = sorted(path for path, _ in rebuilt.items() ^ found.items())
            self.found.append(f"the rebuilt catalog has other files: {', '.join(paths[:10])}")
        self.possible = {path: {found.get(path)} for path in self.possible | found.keys()}

    def _extracted(self, environ: Mapping[str, str], name: str) -> dict[str, str]:
        output = self.folder / name
        shutil.rmtree(output, ignore_errors=True)
        if code := self.run(["extract", "-C", name], environ=environ):
            self.found.append(f"extract ended with {code}")
        return contents(output)

    def _rebuilt(self) -> dict[str, str]:
        """Return the files of a catalog that `rebuild` makes from the stores, in a home of its own."""
        home = self.folder / "rebuilt-home"
        environ = self._environ_of(home)
        stores = [str(store) for store in (self.store, self.copies) if (store / "journal").is_dir()]
        try:
            if code := self.run(["rebuild", *stores], environ=environ):
                self.found.append(f"rebuild ended with {code}")
            return self._extracted(environ, "rebuilt")
        finally:
            self.run(["db", "stop"], environ=environ)
            shutil.rmtree(home, ignore_errors=True)


def _strike(process: int, fault: str, stopped: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        if fault == "stop":
            os.killpg(process, signal.SIGSTOP)
            time.sleep(stopped)
            os.killpg(process, signal.SIGCONT)
        else:
            os.killpg(process, _SIGNALS[fault])


class Worker:
    """Runs one command after the other."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.world = world
        self.name = name
        self.random = random.Random(f"{seed} {name}")

    def work(self, until: float) -> None:
        """Work until a time of the monotonic clock."""
        while time.monotonic() < until:
            self.step()

    def step(self) -> None:
        raise NotImplementedError

    def run(self, words: list[str], faults: float) -> int:
        """Run a command that meets a fault with the probability `faults`. Returns its exit code."""
        fault = self.random.choice(FAULTS) if self.random.random() < faults else None
        return self.world.run(words, fault, self.random.uniform(0.15, 1.5), self.random.uniform(0.5, 4))


class Caretaker(Worker):
    """Runs the verbs that do not change files."""

    def step(self) -> None:
        words = self.random.choice(CARE).format(copies=self.world.copies)
        self.run(words.split(), CARETAKER_FAULTS)


class Writer(Worker):
    """Changes the files of a folder, and brings the changes into the catalog."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._written = 0
        (world.folder / name).mkdir()

    def step(self) -> None:
        choice = self.random.choice(("ingest", "ingest", "ingest", "ingest", "delete", "remove", "restore"))
        if choice in ("ingest", "delete"):
            self._ingest(deletes=choice == "delete")
        elif paths := self._packed():
            self._remove(self.random.choice(paths), restores=choice == "restore")

    def _of_this_writer(self) -> list[str]:
        return sorted(path for path in list(self.world.possible) if path.startswith(f"{self.name}/"))

    def _packed(self) -> list[str]:
        """Return the paths of this writer that certainly have a file, whose content is certain."""
        known = ((path, self.world.possible[path]) for path in self._of_this_writer())
        return [path for path, possible in known if len(possible) == 1 and None not in possible]

    def _ingest(self, *, deletes: bool) -> None:
        options = ["--delete", "--max-delete", "100"] if deletes else []
        for path in self._write():
            self._may_have(path, digest((self.world.folder / path).read_bytes()))
        if deletes:
            self._unlink()
            for path in self._of_this_writer():
                if not (self.world.folder / path).exists():
                    self._may_have(path, None)
        options += ["--target-size", self.random.choice(("60kB", "400kB", "30GB"))]
        options += ["-j", self.random.choice("12"), "--format", self.random.choice(FORMATS)]
        if self.run(["ingest", self.name, *options], WRITER_FAULTS) == 0:
            for path, content in contents(self.world.folder / self.name).items():
                self.world.possible[f"{self.name}/{path}"] = {content}

    def _write(self) -> list[str]:
        paths = []
        for number in self.random.sample(range(NAMES), self.random.randint(1, 15)):
            path = self.world.folder / self.name / f"folder-{number % 5}" / f"file-{number}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self.random.randbytes(self.random.choice(SIZES)))
            self._written += 1
            os.utime(path, (1.7e9 + self._written, 1.7e9 + self._written))
            paths.append(str(path.relative_to(self.world.folder)))
        return paths

    def _unlink(self) -> None:
        there = [path for path in self._packed() if (self.world.folder / path).exists()]
        for path in self.random.sample(there, min(3, len(there))):
            (self.world.folder / path).unlink()

    def _remove(self, path: str, *, restores: bool) -> None:
        """Remove a file, and restore it if the removal succeeds and `restores` is true."""
        before = self.world.possible[path]
        self._may_have(path, None)
        (self.world.folder / path).unlink(missing_ok=True)
        if self.run(["rm", path], REMOVAL_FAULTS) != 0:
            return
        self.world.possible[path] = {None}
        if restores:
            self.world.possible[path] = before | {None}
            if self.run(["undelete", path], REMOVAL_FAULTS) == 0:
                self.world.possible[path] = before

    def _may_have(self, path: str, content: Content) -> None:
        self.world.possible[path] = self.world.possible.get(path, {None}) | {content}


class Balloon(Worker):
    """Takes all space of the file system of the stores for a moment, or almost all."""

    def step(self) -> None:
        path = self.world.disk / "balloon"
        time.sleep(self.random.uniform(0.5, 3))
        with contextlib.suppress(OSError), path.open("wb") as file:
            status = os.statvfs(self.world.disk)
            left = self.random.choice((0, 0, 8192, 100_000))
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - left)
        time.sleep(self.random.uniform(0.2, 2.5))
        path.unlink(missing_ok=True)


def explore(folder: Path, *, seed: int, rounds: int, seconds: float, full_disk: bool = False) -> World:
    """Run rounds, and stop after the first one that finds anything.

    Args:
        folder: An empty folder.
        seed: Seed of the workers' choices. How the commands overlap is different in each run.
        rounds: Number of rounds.
        seconds: How long the workers begin commands in a round, in seconds.
        full_disk: True to have a file system in memory for home and stores, without space now and then.
    """
    with _disk(folder) if full_disk else contextlib.nullcontext(folder) as disk:
        world = World(folder, disk)
        workers: list[Worker] = [Writer(world, name, seed) for name in ("writer-1", "writer-2")]
        workers += [Caretaker(world, name, seed) for name in ("caretaker-1", "caretaker-2")]
        workers += [Balloon(world, "balloon", seed)] if full_disk else []
        try:
            world.run(["db", "upgrade"])
            for number in range(1, rounds + 1):
                _work(workers, seconds)
                world.check()
                outcome = "; ".join(world.found) or "nothing wrong"
                print(
                    f"round {number}: {world.codes.total()} commands, {len(world.possible)} paths: {outcome}",
                    flush=True,
                )
                if world.found:
                    break
        finally:
            world.run(["db", "stop"])
    return world


def _work(workers: list[Worker], seconds: float) -> None:
    until = time.monotonic() + seconds
    threads = [Thread(target=worker.work, args=(until,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.together", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20, help="how long a round begins commands")
    parser.add_argument("--full-disk", action="store_true", help="have no space left now and then; needs root")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cafcat-together-"))
    print(f"seed {options.seed}, in {folder}")
    world = explore(folder, **vars(options))
    killed = sum(count for (_, code), count in world.codes.items() if code < 0)
    print(f"{world.codes.total()} commands, {killed} ended by a signal, {len(world.found)} findings")
    if not world.found:
        shutil.rmtree(folder)
    return 1 if world.found else 0


if __name__ == "__main__":
    sys.exit(main())
