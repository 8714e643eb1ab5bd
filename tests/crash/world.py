"""A catalog with its stores and sources, which can be put back into a saved state; commands that can be killed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from cafcat.embedded.roles import SUPERUSER
from tests.crash.checker import Damaged, Seen, look
from tests.crash.places import Place
from tests.crash.team import Victim
from tests.worlds.memory import in_memory
from tests.worlds.servers.services import Databases, temporary_server

__all__ = ["Outcome", "State", "World", "Zygote", "fast_databases", "zygote"]

PROJECT = Path(__file__).parents[2]
_GIVE_UP_SECONDS = 30


class Outcome(NamedTuple):
    """The outcome of a command.

    Attributes:
        code: exit code; -9 if it was killed.
        output: of stdout and stderr.
        label: the boundary at which a process was killed; None if no process was.
        passed: boundaries that the victim passed.
        left: processes that were still running long after the command had ended.
    """

    code: int
    output: str
    label: str | None
    passed: tuple[str, ...]
    left: tuple[int, ...]


class State(NamedTuple):
    """A saved state: a database to copy, the contents of the stores, and the folder of outputs."""

    database: str
    objects: Mapping[str, dict[str, bytes]]
    uploads: Mapping[str, list[str]]
    outputs: Mapping[str, bytes]


class Zygote:
    """The process that forks a child for each command (zygote.py)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert self._read() == "ready\n"

    def run(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._read()))

    def _read(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the zygote is gone"
        return line


@contextlib.contextmanager
def zygote() -> Iterator[Zygote]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.crash.zygote"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Zygote(process)
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0


@contextlib.contextmanager
def fast_databases() -> Iterator[Databases]:
    """Yield databases on a Postgres server whose files are in memory, if possible."""
    with (
        in_memory(),
        temporary_server() as server,
        contextlib.closing(Databases(server.conninfo("postgres", SUPERUSER))) as databases,
    ):
        yield databases


@dataclass
class World:
    """A catalog with its stores.

    Attributes:
        places: the store, and a second one.
        environment: variables that point cafcat to the stores.
        outside: the place with third-party archives.
    """

    folder: Path
    databases: Databases
    places: list[Place]
    zygote: Zygote
    environment: dict[str, str] = field(default_factory=dict)
    name: str = ""
    templates: list[str] = field(default_factory=list)
    damaged: Damaged = frozenset()
    outside: Place | None = None

    @property
    def database_url(self) -> str:
        return self.databases.url(self.name)

    @property
    def everywhere(self) -> list[Place]:
        return [*self.places, *filter(None, [self.outside])]

    @property
    def output_folder(self) -> Path:
        """The folder for files that commands write."""
        return self.folder / "out"

    def outputs(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.output_folder.iterdir()}

    def begin(self) -> None:
        """Start with an empty catalog and empty stores."""
        self.damaged = frozenset()
        self.restore(State(self.databases.template(), {}, {}, {}))

    def save(self) -> State:
        """Return the present state. The world must be restored before it is used again."""
        objects = {place.url: place.objects() for place in self.everywhere}
        uploads = {place.url: place.uploads() for place in self.everywhere}
        self._wait_for_the_server()
        self.templates.append(self.name)
        self.name = ""
        return State(self.templates[-1], objects, uploads, self.outputs())

    def restore(self, state: State) -> None:
        if self.name:
            self.databases.drop(self.name)
        self.name = self.databases.create(state.database)
        for place in self.everywhere:
            place.put(state.objects.get(place.url, {}), state.uploads.get(place.url, []))
        for folder in (self.output_folder, self._temporary_folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(exist_ok=True)
        for name, data in state.outputs.items():
            (self.output_folder / name).write_bytes(data)

    @property
    def _temporary_folder(self) -> Path:
        return self.folder / "temporary"

    def close(self) -> None:
        for name in [*self.templates, *filter(None, [self.name])]:
            self.databases.drop(name)
        self.templates.clear()
        self.name = ""

    def cafcat(
        self,
        *arguments: str,
        code: int | None = 0,
        kill_at: int | None = None,
        kill_before: Sequence[str] = (),
        victim: Victim | None = None,
    ) -> Outcome:
        """Run a command. It must end with `code`, unless that is None.

        victim: the command is an ingest by a team; this process of the team is counted and killed.
        """
        output = self.folder / "output"
        output.write_text("")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAFCAT_")}
        own = {
            "CAFCAT_HOME": str(self.folder / "home"),
            "CAFCAT_STORE": self.places[0].url,
            "CAFCAT_DATABASE_URL": self.database_url,
            "TMPDIR": str(self._temporary_folder),
        }
        order = {
            "arguments": arguments,
            "environment": kept | self.environment | own,
            "folder": str(self.folder),
            "output": str(output),
            "kill_at": kill_at,
            "kill_before": kill_before,
            "victim": victim,
        }
        answer = self.zygote.run(order)
        passed, left = tuple(answer["passed"]), tuple(answer["left"])
        outcome = Outcome(answer["code"], output.read_text(), answer["label"], passed, left)
        assert code in (None, outcome.code), (arguments, outcome)
        return outcome

    def killed(self, *arguments: str, before: str, after: Sequence[str] = ()) -> None:
        """Run a command that is killed before a boundary.

        Args:
            arguments: of the command.
            before: beginning of the boundary's label.
            after: beginnings of labels that must have passed earlier, in this order.
        """
        outcome = self.cafcat(*arguments, code=-9, kill_before=[*after, before])
        assert (outcome.label or "").startswith(f"before {before}")
        self.settle()

    def settle(self) -> None:
        """Wait until the servers have finished the requests of dead clients."""
        for place in self.places:
            place.settle()
        self._wait_for_the_server()

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def look(self) -> Seen:
        return look(self.database_url, self.everywhere, self.outside.url if self.outside else "")

    def _wait_for_the_server(self) -> None:
        statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        with psycopg.connect(self.databases.conninfo, autocommit=True) as connection:
            while connection.execute(statement, [self.name]).fetchall()[0][0]:
                assert time.monotonic() < deadline, "Postgres keeps a connection of a dead client"
                time.sleep(0.002)
