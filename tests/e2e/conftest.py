"""The real command, as a process with its own home, store and database."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.worlds.commands import Command, command_line
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

CLI_PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
SECRET = "correct-horse"  # noqa: S105


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def document(self) -> Any:
        (only,) = self.documents
        return only

    @property
    def error(self) -> dict[str, Any]:
        """The only error in the JSON lines of stderr."""
        (only,) = [document["error"] for document in map(json.loads, self.err.splitlines()) if "error" in document]
        return dict(only)


@dataclass
class Cafcat:
    """Runs `python -m cafcat` in its own folder."""

    folder: Path
    database_url: str | None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAFCAT_")}
        own = {"CAFCAT_HOME": str(self.folder / "home"), "CAFCAT_STORE": str(self.folder / "store")}
        url = {"CAFCAT_DATABASE_URL": self.database_url} if self.database_url is not None else {}
        return kept | own | url | self.extra

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line that runs cafcat in a new interpreter."""
        return command_line(*arguments)

    def __call__(
        self, *arguments: str | Path, code: int = 0, stdin: bytes = b"", cwd: Path | None = None
    ) -> Result:
        """Run a command that must end with `code`. All lines that it prints on stderr must be cafcat's own."""
        result = self.unchecked(*arguments, stdin=stdin, cwd=cwd)
        assert result.code == code, result
        assert "Traceback" not in result.err
        for line in result.err.splitlines():
            assert line.startswith(("cafcat: ", "{")), result.err
        return result

    def unchecked(self, *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None) -> Result:
        """Run a command that may end in any way."""
        with Command(arguments, cwd=cwd or self.folder, env=self.environment) as process:
            try:
                out, errors = process.communicate(stdin, timeout=PATIENCE_SECONDS)
            except BaseException:
                process.kill()
                raise
        return Result(process.returncode, out, errors.decode())

    def popen(self, *arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a command in a new interpreter. Do not wait for its end."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            **options,
        )


@pytest.fixture
def cafcat(tmp_path: Path, database_url: str) -> Cafcat:
    """The command with an empty catalog."""
    return Cafcat(tmp_path, database_url)


WAITING_LOCKS = (
    "SELECT 1 FROM pg_locks WHERE NOT granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Query for locks of this database that are waited for. Tests share a server, and tables of copied databases have
the same oids."""


def interrupted(
    cafcat: Cafcat, *arguments: str | Path, presses: int = 1, mode: str = "SHARE"
) -> tuple[Result, list[str]]:
    """Send SIGINT to a command that waits for a lock on the files of the catalog, and release the lock.

    A command that only reads waits in the mode ACCESS EXCLUSIVE.

    Returns:
        The result, and the line that the command printed after each signal while it waited.
    """
    assert cafcat.database_url
    waiting = WAITING_LOCKS
    with psycopg.connect(cafcat.database_url) as holder, psycopg.connect(cafcat.database_url) as other:
        other.autocommit = True
        holder.execute(f"LOCK TABLE file_locations IN {mode} MODE".encode())
        process = cafcat.popen(*arguments)
        wait_until(lambda: other.execute(waiting).fetchone())
        lines = [_line_after_sigint(process) for _ in range(presses)]
        holder.rollback()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    rest = [line for line in errors.decode().splitlines(keepends=True) if _WAITS not in line]
    return Result(process.returncode, out, "".join(rest)), lines


_WAITS = "waiting for a lock of the catalog"


def _line_after_sigint(process: "subprocess.Popen[bytes]") -> str:
    process.send_signal(signal.SIGINT)
    assert process.stderr
    while _WAITS in (line := process.stderr.readline().decode()):
        pass  # on a slow machine it has waited long enough to print a message
    return line


def documented_keys(verb: str) -> set[str]:
    """Return the keys of a verb in the table of docs/cli.md."""
    row = next(line for line in CLI_PAGE.read_text().splitlines() if line.startswith(f"| `{verb}` |"))
    return set(re.findall(r"`(\w+)`", row))


BIG = bytes(range(251)) * 12_000
TREE = {
    "tree/a.txt": b"first file\n",
    "tree/b.bin": bytes(range(256)),
    "tree/empty": b"",
    "tree/big.dat": BIG,
    "tree/folder/c.txt": b"c" * 2000,
    "tree/folder/deep/d.TXT": b"d",
    "tree/odd/new\nline": b"newline",
    "tree/odd/-dash": b"dash",
    'tree/odd/quote\'s "name"': b"quotes",
    "tree/odd/日本 é": b"unicode",
    "tree/odd/back\\slash": b"backslash",
    "tree/odd/100%_x*?[a]": b"patterns",
    "tree/odd/\x1b[31mred": b"escape",
}
MODIFIED = 1_795_255_200
"""2026-11-21T10:00:00Z. Every file is a second older than the one before."""


def write_tree(folder: Path) -> None:
    for number, (path, content) in enumerate(TREE.items()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=((MODIFIED + number) * 10**9 + 123_456_000,) * 2)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Cafcat]:
    """The command with TREE ingested. Tests that share it must not write."""
    with databases.fresh(databases.template()) as url:
        cafcat = Cafcat(tmp_path_factory.mktemp("filled"), url)
        write_tree(cafcat.folder)
        cafcat("ingest", "tree")
        yield cafcat
