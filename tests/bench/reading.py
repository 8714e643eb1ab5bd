"""Files of 4 KiB in random order, one by one, through each door of cafcat, against the tree and archives of it.

Each round reads other files, in the same order in each way, so that no cache of a door helps. All chunks, archives
and files are in the page cache.
"""

import contextlib
import http.client
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import fsspec

import cafcat
from tests.bench.archives import make_tar, make_zip, open_tar, open_zip
from tests.bench.bench import CAFCAT, Bench, Home
from tests.bench.data import read_all
from tests.bench.programs import Missing, find, provide_programs
from tests.bench.sample import FILES, Files
from tests.bench.servers import cafcat_server
from tests.bench.table import Row, Target, figure, pair_ratios
from tests.bench.timing import timed
from tests.worlds.mounts import mounted
from tests.worlds.waiting import wait_until

__all__ = ["ROWS"]

ReadAll = Callable[[Sequence[str]], object]
"""Reads the files with these paths of the catalog."""
TREE, ZIP, RATARMOUNT, RATARMOUNT_MOUNT = (
    "open().read() of the tree",
    "python zipfile",
    "ratarmount (its library)",
    "ratarmount (mounted)",
)
READ, READ_MANY, SNAPSHOT = "Repository.read", "read_many", "Snapshot.read"
FSSPEC, FSSPEC_SNAPSHOT, MOUNT, HTTP = (
    "fsspec cat_file",
    "fsspec cat_file, snapshot=",
    "cafcat mount",
    "cafcat serve, http.client",
)
OURS = (READ, READ_MANY, SNAPSHOT, FSSPEC, FSSPEC_SNAPSHOT, MOUNT, HTTP)
PAIRS = (
    *((way, TREE) for way in OURS),
    *((way, peer) for peer in (ZIP, RATARMOUNT) for way in (READ, SNAPSHOT)),
    (MOUNT, RATARMOUNT_MOUNT),
)


def reading(bench: Bench) -> Iterator[Row]:
    """Rows for each door against the tree, and for some doors against zip and ratarmount."""
    provide_programs(bench, "ratarmount")
    files = Files(bench, FILES * (bench.rounds + 1))
    count = len(files.paths) // (bench.rounds + 1)
    read_all(files.data.paths())
    with contextlib.ExitStack() as opened:
        ways = Ways(bench, files, opened)
        rates: dict[str, list[float]] = {name: [] for name in ways.found}
        for turn in range(bench.rounds + 1):
            paths = files.paths[turn * count : (turn + 1) * count]
            for name, way in ways.found.items():
                rate = count / timed(lambda way=way, paths=paths: way(paths))  # type: ignore[misc]
                if turn:
                    rates[name].append(rate)
    for ours, theirs in PAIRS:
        yield _row(count, rates, ways.missing, ours, theirs)


ROWS = (reading,)


def _row(count: int, rates: Mapping[str, list[float]], missing: Mapping[str, str], ours: str, theirs: str) -> Row:
    work = f"{count:,} files of 4 KiB at random by {ours}, files/s"
    row = Row(f"reading {ours} {theirs}", work, theirs, Target(None, at_least=True))
    lacks = [missing[name] for name in (ours, theirs) if name in missing]
    if lacks:
        return row._replace(missing=lacks[0])
    absolute = f"{figure(rates[ours], 'files/s')}; {theirs} {figure(rates[theirs], 'files/s')}"
    return row._replace(ratios=pair_ratios(rates[ours], rates[theirs]), absolute=absolute)


class Ways:
    """All ways to read the files.

    Attributes:
        found: the ways by name.
        missing: why a way is missing, by name.
    """

    def __init__(self, bench: Bench, files: Files, opened: contextlib.ExitStack) -> None:
        self._bench, self._files, self._opened = bench, files, opened
        self.found: dict[str, ReadAll] = {TREE: _one_by_one(lambda path: _read(f"{files.root}/{path}"))}
        self.missing: dict[str, str] = {}
        self._add_python()
        self._add_doors()
        self._add_archives()

    def _add_python(self) -> None:
        repository = self._opened.enter_context(cafcat.open(self._files.home.settings))
        output = self._bench.folder / "reading.cafs"
        repository.snapshot(output)
        snapshot = self._opened.enter_context(cafcat.Snapshot(output, self._files.home.settings))
        home = str(self._files.home.folder)
        catalog = fsspec.filesystem("cafcat", home=home)
        of_snapshot = fsspec.filesystem("cafcat", home=home, snapshot=str(output))
        self.found |= {
            READ: _one_by_one(repository.read),
            READ_MANY: lambda paths: _count(repository.read_many(paths), len(paths)),
            SNAPSHOT: _one_by_one(snapshot.read),
            FSSPEC: _one_by_one(catalog.cat_file),
            FSSPEC_SNAPSHOT: _one_by_one(of_snapshot.cat_file),
        }

    def _add_doors(self) -> None:
        url = self._opened.enter_context(cafcat_server(self._files.home)).http.url
        self.found[HTTP] = lambda paths: _get_all(url, paths)
        self._add_mount(MOUNT, lambda place: mounted(Starter(self._files.home), place))

    def _add_archives(self) -> None:
        self.found[ZIP] = _one_by_one(open_zip(self._bench, make_zip(self._bench, self._files.data)))
        tar = make_tar(self._bench, self._files.data)
        try:
            self.found[RATARMOUNT] = _one_by_one(open_tar(self._bench, tar))
        except ModuleNotFoundError as error:
            self.missing[RATARMOUNT] = f"missing: pip install {error.name}, or --install-peers"
        self._add_mount(RATARMOUNT_MOUNT, lambda place: _ratarmount(tar, place))

    def _add_mount(self, name: str, mount: Callable[[Path], contextlib.AbstractContextManager[object]]) -> None:
        place = self._bench.folder / f"mount-{len(self.found)}"
        try:
            if not os.access("/dev/fuse", os.R_OK | os.W_OK):
                raise Missing("this machine has no /dev/fuse")
            self._opened.enter_context(mount(place))
        except Missing as error:
            self.missing[name] = str(error)
        else:
            self.found[name] = _one_by_one(lambda path: _read(f"{place}/{path}"))


class Starter(NamedTuple):
    """Starts commands of cafcat for a home."""

    home: Home

    def popen(self, *arguments: str | Path) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*CAFCAT, *arguments],
            env=os.environ | self.home.environ,
            stdout=pipe,
            stderr=pipe,
            stdin=subprocess.DEVNULL,
        )


@contextlib.contextmanager
def _ratarmount(archive: Path, place: Path) -> Iterator[None]:
    """Mount a tar meanwhile. Raises Missing if ratarmount is not installed."""
    program = find("ratarmount")
    place.mkdir()
    with subprocess.Popen([program, "--foreground", archive, place], stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: os.path.ismount(place))
            yield
        finally:
            subprocess.run([program, "--unmount", place], check=False, stdout=subprocess.DEVNULL)
            process.wait()


def _one_by_one(read: Callable[[str], bytes]) -> ReadAll:
    def read_each(paths: Sequence[str]) -> None:
        for path in paths:
            read(path)

    return read_each


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _count(outcomes: Iterator[tuple[str, object]], count: int) -> None:
    assert sum(isinstance(content, bytes) for _, content in outcomes) == count


def _get_all(url: str, paths: Sequence[str]) -> None:
    """Read files through one connection."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    for path in paths:
        connection.request("GET", f"/files/{path}")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()
