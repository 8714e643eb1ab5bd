"""What the rows share: options, data sets, repositories. All of it in one folder, which is removed afterwards."""

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
_ALL_TABLES = """
SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'
AND tablename NOT IN ('alembic_version', 'catalog_identity')
"""


class Home:
    """A repository of its own: an embedded database that is up, and a folder of chunks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunk_folder = folder / "chunks"
        self.settings = Settings.load(environ={}, home=str(folder))
        database = Database(self.settings)
        database.init()
        self.url = database.url()
        # A superuser: triggers rest while tables are emptied, and checkpoints are made.
        self.connection = EmbeddedServer(self.settings.home / "postgres").connect(SUPERUSER)

    def cafcat(self, *words: str | Path, cwd: Path | None = None) -> None:
        run(*CAFCAT, *words, cwd=cwd, environ=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        return {"CAFCAT_HOME": str(self.folder)}

    def one(self, statement: str) -> object:
        """The first column of the first row."""
        row = self.connection.execute(statement.encode()).fetchone()
        return row[0] if row else None

    def files(self) -> int:
        return int(str(self.one("SELECT count(*) FROM file_locations")))

    def chunks(self) -> list[Path]:
        return sorted(self.chunk_folder.glob("*.caf"))

    def empty(self) -> None:
        """As it was before the first ingest; nothing of it is left to be written by the database later."""
        tables = self.one(_ALL_TABLES)
        with self.connection.transaction():
            # A trigger keeps rows of chunks from being removed: this lets it rest.
            self.connection.execute("SET LOCAL session_replication_role = replica")
            self.connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE".encode())
        self.connection.execute("CHECKPOINT")
        shutil.rmtree(self.chunk_folder, ignore_errors=True)

    def stop(self) -> None:
        self.connection.close()
        Database(self.settings).stop()


class Bench:
    """Data sets and repositories are made when a row first asks for them. To be closed."""

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
        """(a)"""
        self.say(f"making (a): {self.files:,} files of 1 to 4 KiB")
        return small_files(self.folder / "small", self.files)

    @functools.cached_property
    def medium(self) -> DataSet:
        """(b)"""
        files = scaled(MEDIUM, self.scale)
        self.say(f"making (b): {files:,} files of 1 MiB")
        return equal_files(self.folder / "medium", files, MIB)

    @functools.cached_property
    def large(self) -> DataSet:
        """(c)"""
        files = scaled(LARGE, self.scale)
        self.say(f"making (c): {files:,} files of 64 MiB")
        return equal_files(self.folder / "large", files, LARGE_BYTES)

    @functools.cached_property
    def pages(self) -> DataSet:
        """(d)"""
        files = scaled(PAGES, self.scale)
        self.say(f"making (d): {files:,} files of 4 KiB")
        return equal_files(self.folder / "pages", files, 4 * KIB)

    @contextlib.contextmanager
    def joined(self, data: DataSet) -> Iterator[Path]:
        """One file of the same bytes, in the page cache."""
        path = concatenated(data, self.folder / f"{data.name}.bytes")
        read_all(iter([path]))
        try:
            yield path
        finally:
            path.unlink()

    def home(self, name: str = "empty") -> Home:
        """A repository by name, the same each time. "empty" is for those who empty it."""
        if name not in self._homes:
            self._homes[name] = Home(self.folder / f"home-{name}")
        return self._homes[name]

    def packed(self, data: DataSet, chunks: int = 1) -> Home:
        """A repository with one data set in it, in so many chunks, made once."""
        name = f"packed-{data.name}"
        if name not in self._homes:
            self.ingest(self.home(name), data, "--target-size", str(data.size_bytes * 6 // 5 // chunks))
        return self._homes[name]

    def ingest(self, home: Home, data: DataSet, *options: str) -> float:
        """Seconds of the whole command. Raises AssertionError if not every file is in the catalog."""
        command = ["ingest", "-q", *options, data.name]
        seconds = timed(lambda: home.cafcat(*command, cwd=data.folder.parent))
        assert home.files() == data.files, f"{home.files()} of {data.files} files are in the catalog"
        return seconds

    def ingest_anew(self, data: DataSet, *options: str, before: Callable[[], object] | None = None) -> float:
        """The same into an empty catalog, which is emptied again. `before` is called before the clock starts."""
        home = self.home()
        home.empty()
        if before:
            before()
        seconds = self.ingest(home, data, *options)
        home.empty()
        return seconds

    @functools.cached_property
    def ingest_has_jobs(self) -> bool:
        """Whether `cafcat ingest` can be told how many processes to use."""
        command = [*CAFCAT, "ingest", "--help"]
        done = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        return re.search(r"\s-j\b", done.stdout) is not None

    @functools.cached_property
    def can_write_directly(self) -> bool:
        """Whether dd can bypass the page cache in this folder."""
        probe = self.folder / "probe"
        command = ["dd", "if=/dev/zero", f"of={probe}", "oflag=direct", f"bs={_BLOCK_BYTES}", "count=1"]
        done = subprocess.run(command, capture_output=True)
        probe.unlink(missing_ok=True)
        return done.returncode == 0

    def say(self, line: str) -> None:
        """What is being done, beside the table."""
        print(line, file=sys.stderr, flush=True)


def needed_bytes(options: argparse.Namespace) -> int:
    """Most room that a run takes: data sets, the same as one file, and as a chunk or what a peer wrote; 500 bytes
    and as much of write-ahead log for each row; the servers themselves."""
    files = max(options.files, 1_000_000 if options.growth_million else 0)
    others = scaled(MEDIUM, options.scale) * MIB + scaled(LARGE, options.scale) * LARGE_BYTES
    return int(3 * files * (_BLOCK_BYTES + _BLOCK_BYTES // 2) + 3 * others + 1000 * options.rows + (1 << 30))


def check_room(folder: Path, options: argparse.Namespace) -> None:
    """Ends the program where the folder has too little room."""
    needed, free = needed_bytes(options), shutil.disk_usage(folder).free
    if free < needed:
        message = f"{folder} has {free / 1e9:.1f} GB free, up to {needed / 1e9:.1f} GB are needed"
        raise SystemExit(f"{message}: name another --folder, or ask for less by --scale, --files and --rows")


def forget_settings() -> None:
    """What the user has set for cafcat and PostgreSQL is not what is measured, nor compiling modules again and
    again."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in [name for name in os.environ if name.startswith(("CAFCAT_", "PG"))]:
        if not name.startswith("CAFCAT_TEST_"):
            del os.environ[name]
