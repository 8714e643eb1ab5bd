"""Options, data sets and repositories that the rows share, in one temporary folder."""

import argparse
import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings
from tests.bench.data import (
    KIB,
    LARGE,
    MEDIUM,
    MIB,
    PAGES,
    DataSet,
    concatenated,
    equal_files,
    read_all,
    scaled,
    small_files,
)
from tests.bench.timing import run, timed

CAFCAT = (sys.executable, "-m", "cafcat")
LARGE_BYTES = 64 * MIB
KEPT_CHUNKS = 4
_BLOCK_BYTES = 4096
DOORS = ("serving", "streams", "seaweed", "batches", "reading", "epochs")
"""The subjects about the ways to read packed files."""
_DOOR_BYTES = 11 * 10**9
"""Space for the files of streams and batches at full scale, as files and as chunks."""
_ALL_TABLES = """
SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'
AND tablename NOT IN ('alembic_version', 'catalog_identity')
"""


class Home:
    """A repository with its own running embedded database and its own folder of chunks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunk_folder = folder / "chunks"
        self.settings = Settings.load(environ={}, home=str(folder))
        database = Database(self.settings)
        database.init()
        self.url = database.url()
        # A superuser can disable triggers while tables are emptied, and make checkpoints.
        self.connection = EmbeddedServer(self.settings.home / "postgres").connect(SUPERUSER)

    def cafcat(self, *words: str | Path, cwd: Path | None = None) -> None:
        run(*CAFCAT, *words, cwd=cwd, environ=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        return {"CAFCAT_HOME": str(self.folder)}

    def one(self, statement: str) -> object:
        """Return the first column of the first row."""
        row = self.connection.execute(statement.encode()).fetchone()
        return row[0] if row else None

    def files(self) -> int:
        return int(str(self.one("SELECT count(*) FROM file_locations")))

    def chunks(self) -> list[Path]:
        return sorted(self.chunk_folder.glob("*.caf"))

    def empty(self) -> None:
        """Empty the catalog and the store. A checkpoint leaves the database nothing to write later."""
        tables = self.one(_ALL_TABLES)
        with self.connection.transaction():
            # A trigger prevents the removal of rows of chunks: this disables it.
            self.connection.execute("SET LOCAL session_replication_role = replica")
            self.connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE".encode())
        self.connection.execute("CHECKPOINT")
        shutil.rmtree(self.chunk_folder, ignore_errors=True)

    def stop(self) -> None:
        self.connection.close()
        Database(self.settings).stop()


class Bench:
    """The options of a run, and its data sets and repositories, which are made at their first use."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.rounds: int = options.rounds
        self.rows: int = options.rows
        self.files: int = options.files
        self.scale: float = options.scale
        self.million: bool = options.growth_million
        self.install_peers: bool = options.install_peers
        self._homes: dict[str, Home] = {}

    def close(self) -> None:
        for home in self._homes.values():
            home.stop()

    @functools.cached_property
    def small(self) -> DataSet:
        """The data set (a)."""
        self.say(f"making (a): {self.files:,} files of 1 to 4 KiB")
        return small_files(self.folder / "small", self.files)

    @functools.cached_property
    def medium(self) -> DataSet:
        """The data set (b)."""
        files = scaled(MEDIUM, self.scale)
        self.say(f"making (b): {files:,} files of 1 MiB")
        return equal_files(self.folder / "medium", files, MIB)

    @functools.cached_property
    def large(self) -> DataSet:
        """The data set (c)."""
        files = scaled(LARGE, self.scale)
        self.say(f"making (c): {files:,} files of 64 MiB")
        return equal_files(self.folder / "large", files, LARGE_BYTES)

    @functools.cached_property
    def pages(self) -> DataSet:
        """The data set (d)."""
        files = scaled(PAGES, self.scale)
        self.say(f"making (d): {files:,} files of 4 KiB")
        return equal_files(self.folder / "pages", files, 4 * KIB)

    @contextlib.contextmanager
    def joined(self, data: DataSet) -> Iterator[Path]:
        """Yield one file with the bytes of all files of a data set, in the page cache."""
        path = concatenated(data, self.folder / f"{data.name}.bytes")
        read_all(iter([path]))
        try:
            yield path
        finally:
            path.unlink()

    def home(self, name: str = "empty") -> Home:
        """Return the repository of this name. "empty" is for functions that empty it."""
        if name not in self._homes:
            self._homes[name] = Home(self.folder / f"home-{name}")
        return self._homes[name]

    def packed(self, data: DataSet, chunks: int = 1) -> Home:
        """Return a repository with one data set in about so many chunks, made at its first use."""
        name = f"packed-{data.name}"
        if name not in self._homes:
            self.ingest(self.home(name), data, "--target-size", str(data.size_bytes * 6 // 5 // chunks))
        return self._homes[name]

    def ingest(self, home: Home, data: DataSet, *options: str) -> float:
        """Return the seconds of an ingest command. Raises AssertionError if a file is missing from the catalog."""
        command = ["ingest", "-q", *options, data.name]
        seconds = timed(lambda: home.cafcat(*command, cwd=data.folder.parent))
        assert home.files() == data.files, f"{home.files()} of {data.files} files are in the catalog"
        return seconds

    def ingest_anew(self, data: DataSet, *options: str, before: Callable[[], object] | None = None) -> float:
        """Return the seconds of an ingest into an empty catalog, which is emptied again afterwards.

        before: called before the clock starts.
        """
        home = self.home()
        home.empty()
        if before:
            before()
        seconds = self.ingest(home, data, *options)
        home.empty()
        return seconds

    @functools.cached_property
    def ingest_has_jobs(self) -> bool:
        """True if `cafcat ingest` has an option for the number of processes."""
        command = [*CAFCAT, "ingest", "--help"]
        done = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        return re.search(r"\s-j\b", done.stdout) is not None

    @functools.cached_property
    def can_write_directly(self) -> bool:
        """True if dd can bypass the page cache in this folder."""
        probe = self.folder / "probe"
        command = ["dd", "if=/dev/zero", f"of={probe}", "oflag=direct", f"bs={_BLOCK_BYTES}", "count=1"]
        done = subprocess.run(command, capture_output=True)
        probe.unlink(missing_ok=True)
        return done.returncode == 0

    def say(self, line: str) -> None:
        """Print a line about the progress to stderr, beside the table."""
        print(line, file=sys.stderr, flush=True)


def needed_bytes(options: argparse.Namespace) -> int:
    """Return the largest space that a run needs.

    Each data set exists three times: as files, as one file, and as a chunk or a peer's archive. A row of the
    catalog takes 500 bytes, and as much in the write-ahead log. The servers need space, too.
    """
    files = max(options.files, 1_000_000 if options.growth_million else 0)
    others = scaled(MEDIUM, options.scale) * MIB + scaled(LARGE, options.scale) * LARGE_BYTES
    small = 3 * files * (_BLOCK_BYTES + _BLOCK_BYTES // 2)
    return small + 3 * others + _door_bytes(options) + 1000 * options.rows + (1 << 30)


def _door_bytes(options: argparse.Namespace) -> int:
    """Return the space for the subjects that need more: (d) exists nine times, in homes, archives and SeaweedFS."""
    subjects = None if options.only is None else {name.partition(".")[0] for name in options.only}
    if subjects is not None and subjects.isdisjoint(DOORS):
        return 0
    pages = 9 * scaled(PAGES, options.scale) * (_BLOCK_BYTES + 1024)
    return pages + int(_DOOR_BYTES * min(1, options.scale))


def check_room(folder: Path, options: argparse.Namespace) -> None:
    """Exit if the folder has too little space."""
    needed, free = needed_bytes(options), shutil.disk_usage(folder).free
    if free < needed:
        message = f"{folder} has {free / 1e9:.1f} GB free, up to {needed / 1e9:.1f} GB are needed"
        raise SystemExit(f"{message}: name another --folder, or reduce --scale, --files and --rows")


def forget_settings() -> None:
    """Remove the user's settings of cafcat and PostgreSQL, and let Python store compiled modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in [name for name in os.environ if name.startswith(("CAFCAT_", "PG"))]:
        if not name.startswith("CAFCAT_TEST_"):
            del os.environ[name]
