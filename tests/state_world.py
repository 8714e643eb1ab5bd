"""What the state machine of custody acts on: a catalog, a folder of chunks, processes that are killed.

`Raw` looks at all of it with nothing of cafcat's own code but the checksum. Operations that may be killed run in
processes that a server forks, which has imported everything: that takes some hundredths of a second.
"""

import json
import multiprocessing as mp
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import cafcat
from cafcat.checksums import crc32c
from cafcat.errors import CafcatError
from cafcat.model import OnConflict
from tests.killed_steps import Steps

__all__ = [
    "Batch",
    "Child",
    "Line",
    "Raw",
    "backup",
    "copy",
    "empty",
    "objects_in",
    "prune",
    "rebuild_and_compare",
    "recover",
    "remove",
    "repack",
    "restore_and_compare",
    "start",
    "undelete",
    "verify",
    "without_journal",
]

CHILD_SECONDS = 120


class Batch(NamedTuple):
    """Files to ingest from a folder of their own, and how."""

    folder: Path
    files: Mapping[str, bytes]
    target_size: int = 10**9
    on_conflict: OnConflict = OnConflict.REPLACE

    def ingest(self, repository: cafcat.Repository) -> None:
        with chdir(self.folder):
            repository.ingest(["t"], target_size=self.target_size, on_conflict=self.on_conflict)


class Child:
    """A process at work."""

    def __init__(self, process: Any, answer: Any) -> None:
        self._process = process
        self._answer = answer

    def wait(self) -> str | None:
        """What went wrong; None if nothing did, "killed" if it was."""
        self._process.join(CHILD_SECONDS)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        said = self._answer.recv() if code == 0 and self._answer.poll() else f"it ended with {code}"
        self._answer.close()
        self._process.close()
        return "killed" if code == -signal.SIGKILL else said or None


def start(settings: Mapping[str, Any], act: Callable[[cafcat.Repository], object], countdown: int = 0) -> Child:
    """Runs `act` in a process of its own, which is killed before or after a call that makes something durable or
    visible (a step of killed_steps.py), if countdown is not 0."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tests.state_world", "cafcat.ingest.run", "cafcat.maintenance.recover"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(settings, act, countdown, sender))
    process.start()
    sender.close()
    return Child(process, receiver)


def _child(
    settings: Mapping[str, Any], act: Callable[[cafcat.Repository], object], countdown: int, sender: Any
) -> None:
    said = ""
    steps = Steps(countdown, after=True)
    if countdown:
        steps.count_files()
        steps.count_statements()
    try:
        with cafcat.open(**settings) as repository:
            act(repository)
    except CafcatError as error:
        said = f"{type(error).__name__}: {error}"
    steps.end()
    sender.send(said)
    sender.close()


def empty(database_url: str) -> None:
    """Takes all rows out of a catalog, which otherwise keeps some for ever: much faster than a new one."""
    with psycopg.connect(database_url) as sql:
        names = sql.execute(
            "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables "
            "WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        ).fetchone()
        assert names is not None
        sql.execute("ALTER TABLE chunks DISABLE TRIGGER USER")
        sql.execute(f"TRUNCATE {names[0]} RESTART IDENTITY".encode())
        sql.execute("ALTER TABLE chunks ENABLE TRIGGER USER")


class Line(NamedTuple):
    """A line of the journal. chunk and key: of what it says was committed; keeps: its run was told to keep what is
    there."""

    kind: str
    chunk: int | None
    key: str | None
    keeps: bool


class Raw:
    """Catalog and store as SQL and bytes. seen: the last line of the journal that was given."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.sql = psycopg.connect(database_url, autocommit=True)
        self.folder = folder
        self.seen = 0

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        return self.sql.execute(statement.encode(), parameters).fetchall()

    def live(self) -> dict[str, bytes]:
        """Every path of the catalog with the bytes that it points to: they are there, and have that checksum."""
        rows = self.rows(
            "SELECT file_path, start_byte, end_byte, crc32c, state, object_key "
            "FROM file_locations LEFT JOIN chunks ON chunks.id = caf_file_id"
        )
        objects = {key: (self.folder / key).read_bytes() for key in {row[-1] for row in rows}}
        found = {}
        for path, start_byte, end_byte, checksum, state, key in rows:
            assert state == "committed", f"{path} is in a chunk that is {state}"
            content = objects[key][start_byte:end_byte]
            assert len(content) == end_byte - start_byte, f"{path} ends beyond its chunk"
            assert crc32c(content) == checksum, f"{path} has another checksum"
            found[path] = content
        return found

    def places(self) -> dict[str, int]:
        """The chunk of every path."""
        return dict(self.rows("SELECT file_path, caf_file_id FROM file_locations"))

    def new_lines(self) -> list[Line]:
        """Lines of the journal that were not given before, in order."""
        rows = self.rows(
            "SELECT j.id, j.kind, j.chunk_id, c.object_key, "
            "coalesce(r.options->>'on_conflict', 'replace') <> 'replace' "
            "FROM journal AS j LEFT JOIN chunks AS c ON c.id = j.chunk_id "
            "LEFT JOIN ingest_runs AS r ON r.id = c.run_id WHERE j.id > %s ORDER BY j.id",
            self.seen,
        )
        self.seen = max([self.seen, *(row[0] for row in rows)])
        return [Line(*row[1:]) for row in rows]

    def states(self) -> dict[int, str]:
        return dict(self.rows("SELECT id, state FROM chunks"))

    def writing(self) -> dict[int, bool]:
        """Chunks that are not settled, and whether their object is there: it gets its name when it is whole."""
        rows = self.rows("SELECT id, object_key FROM chunks WHERE state = 'writing'")
        return {chunk: (self.folder / key).exists() for chunk, key in rows}

    def entries(self, key: str) -> dict[str, bytes]:
        """Files of an object by its own index."""
        data = (self.folder / key).read_bytes()
        size = int.from_bytes(data[-4:], "little")
        files = json.loads(data[-4 - size : -4])["files"]
        return {path: data[entry["start_byte"] : entry["end_byte"]] for path, entry in files.items()}

    def copied(self) -> list[str]:
        """Keys of the chunks that have files, and a copy."""
        rows = self.rows(
            "SELECT c.object_key FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id "
            "WHERE c.state = 'committed' AND k.state = 'committed' ORDER BY 1"
        )
        return [row[0] for row in rows]

    def named(self, condition: str) -> set[str]:
        """What the catalog says that the store has, by a condition on the rows of objects."""
        rows = self.rows(
            f"SELECT object_key FROM chunks AS o WHERE {condition} "
            f"UNION SELECT object_key FROM backups AS o WHERE {condition} "
            "UNION SELECT 'journal/' || lpad(j.id::text, 20, '0') || '-' || j.uuid || '.jsonl' FROM journal AS j "
            f"LEFT JOIN chunks AS o ON o.id = j.chunk_id WHERE o.id IS NULL OR {condition}"
        )
        return {row[0] for row in rows}

    def named_copies(self, condition: str) -> set[str]:
        """The same of the store of copies, without the journal."""
        return {row[0] for row in self.rows(f"SELECT object_key FROM chunk_copies AS o WHERE {condition}")}


def objects_in(folder: Path) -> set[str]:
    """Names of all files of a store."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def without_journal(names: Collection[str]) -> set[str]:
    return {name for name in names if not name.startswith("journal/")}


def recover(repository: cafcat.Repository) -> None:
    report = repository.recover()
    assert not report.failed, report.failed


def remove(repository: cafcat.Repository, paths: Collection[str], folders: Collection[str] = ()) -> None:
    repository.custody.remove(paths, folders=list(folders))


def undelete(repository: cafcat.Repository, paths: Collection[str]) -> None:
    repository.custody.undelete(paths)


def prune(repository: cafcat.Repository) -> None:
    report = repository.custody.prune(grace_seconds=0)
    assert not report.failed, report.failed


def repack(repository: cafcat.Repository, target_size: int) -> None:
    """Every chunk that has anything dead, and every small one."""
    report = repository.custody.repack(max_unused=0.0, small=target_size, target_size=target_size)
    assert not report.failed, report.failed
    assert not report.files_damaged


def copy(repository: cafcat.Repository, to: str) -> None:
    report = repository.custody.copy(to=to)
    assert not report.failed, report.failed


def backup(repository: cafcat.Repository, keep: int) -> None:
    repository.custody.backup(keep=keep)


def verify(repository: cafcat.Repository, level: str) -> int:
    """The number of objects that are not as they should be."""
    report = repository.custody.verify(level=level, jobs=1)
    return report.damaged + report.missing + report.unreadable


def rebuild_and_compare(repository: cafcat.Repository, database_url: str, stores: Collection[str]) -> None:
    """Into an empty catalog, from stores alone."""
    settings = {"database_url": database_url, "home": repository.settings.home, "store": repository.settings.store}
    with cafcat.open(**settings) as other:
        report = other.custody.rebuild(list(stores))
        assert report.written
        assert not report.damages, report.damages
        _compare(repository, database_url)


def restore_and_compare(repository: cafcat.Repository, database_url: str) -> None:
    """The newest backup into an empty catalog."""
    settings = {"database_url": database_url, "home": repository.settings.home, "store": repository.settings.store}
    with cafcat.open(**settings) as other:
        other.custody.restore()
        _compare(repository, database_url)


def _compare(repository: cafcat.Repository, database_url: str) -> None:
    differences: list[Any] = []
    report = repository.custody.compare(database_url, on_difference=differences.append)
    assert report.equal, differences
