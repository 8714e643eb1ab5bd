"""The objects that the state machine of custody acts on: a catalog, a folder of chunks, killed processes.

`Raw` reads catalog and store without cafcat's own code, except for the checksum: it parses archives with the code
of the crash campaign. Operations that may be killed run in processes that are forked from a server, which has
imported everything. Starting such a process takes some hundredths of a second.
"""

import multiprocessing as mp
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

import psycopg

import cafcat
from cafcat.archives.making import new_archive
from cafcat.errors import CafcatError
from cafcat.formats import registry
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.reading.outputs import Output
from cafcat.stores.keys import is_probe_key
from cafcat.support.checksums import crc32c
from tests.crash import archives
from tests.worlds.archives.log_archives import SECTIONS, container
from tests.worlds.kills.killed_steps import Steps
from tests.worlds.listeners import Following, follow

__all__ = [
    "LOGS",
    "Archive",
    "Batch",
    "Child",
    "Raw",
    "Record",
    "adopt",
    "backup",
    "copy",
    "empty",
    "make_archive",
    "objects_in",
    "prune",
    "rebuild",
    "rebuild_and_compare",
    "recover",
    "remove",
    "repack",
    "restore_and_compare",
    "rewrite",
    "start",
    "undelete",
    "verify",
    "without_journal",
    "without_probes",
]

CHILD_SECONDS = 120
LOGS = "clp-s"
"""A format that cafcat does not write by itself. The files of such an archive are its sections, always the same."""


class Batch(NamedTuple):
    """Files to ingest from a folder of their own, with the options of the ingest."""

    folder: Path
    files: Mapping[str, bytes]
    format: str
    target_size: int = 10**9
    on_conflict: OnConflict = OnConflict.REPLACE

    def ingest(self, repository: cafcat.Repository) -> None:
        options = {"format": self.format, "target_size": self.target_size, "on_conflict": self.on_conflict}
        with chdir(self.folder):
            follow(repository, options).ingest(["t"], **options)


class Archive(NamedTuple):
    """A third-party archive. files: contents by path in the catalog. made: bytes and time when it was written."""

    path: Path
    prefix: str
    files: Mapping[str, bytes]
    made: tuple[bytes, int]

    @property
    def now(self) -> tuple[bytes, int]:
        """Return its present bytes and modification time."""
        return self.path.read_bytes(), self.path.stat().st_mtime_ns


def make_archive(path: Path, archive_format: str, prefix: str, files: Mapping[str, bytes]) -> Archive:
    """Write an archive into a new folder. prefix: begins all its paths in the catalog."""
    path.parent.mkdir(parents=True)
    if archive_format == LOGS:
        path.write_bytes(container())
        paths = {f"{prefix}/{path.name}{section}": content for section, content in SECTIONS.items()}
    else:
        target = registry.by_name(archive_format)
        with new_archive(Output(path), target, progress=Progress()) as made:
            for name, content in files.items():
                made.add(name, len(content), None, iter([content]))
        paths = {f"{prefix}/{name}": content for name, content in files.items()}
    archive = Archive(path, prefix, paths, (b"", 0))
    return archive._replace(made=archive.now)


class Child:
    """A running child process."""

    def __init__(self, process: Any, answer: Any) -> None:
        self._process = process
        self._answer = answer

    def wait(self) -> str | None:
        """Wait for the process. Return None if it succeeded, "killed" if it was killed, else the error."""
        self._process.join(CHILD_SECONDS)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        failure = self._answer.recv() if code == 0 and self._answer.poll() else f"it ended with {code}"
        self._answer.close()
        self._process.close()
        return "killed" if code == -signal.SIGKILL else failure or None


_NEEDED = (
    "cafcat.formats.car.writer",
    "cafcat.formats.chunkio.writer",
    "cafcat.formats.databundle.writer",
    "cafcat.operations.ingest.run",
    "cafcat.operations.adopt.run",
    "cafcat.operations.recover.run",
)


def start(settings: Mapping[str, Any], act: Callable[[cafcat.Repository], object], countdown: int = 0) -> Child:
    """Run `act` in a child process.

    Args:
        settings: of the repository.
        act: the operation.
        countdown: kill the process before or after this step (see killed_steps.py); 0 kills it never.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tests.worlds.state_world", *_NEEDED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(settings, act, countdown, sender))
    process.start()
    sender.close()
    return Child(process, receiver)


def _child(
    settings: Mapping[str, Any], act: Callable[[cafcat.Repository], object], countdown: int, sender: Any
) -> None:
    failure = ""
    steps = Steps(countdown, after=True)
    if countdown:
        steps.count_files()
        steps.count_statements()
    try:
        with cafcat.open(**settings) as repository:
            act(repository)
    except CafcatError as error:
        failure = f"{type(error).__name__}: {error}"
    steps.end()
    sender.send(failure)
    sender.close()


def empty(database_url: str) -> None:
    """Remove all rows from a catalog, which is much faster than making a new one."""
    with psycopg.connect(database_url) as sql:
        names = sql.execute(
            "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables "
            "WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'catalog_identity')"
        ).fetchone()
        assert names is not None
        sql.execute("ALTER TABLE chunks DISABLE TRIGGER USER")
        sql.execute(f"TRUNCATE {names[0]} RESTART IDENTITY".encode())
        sql.execute("ALTER TABLE chunks ENABLE TRIGGER USER")


class Record(NamedTuple):
    """A journal record.

    Attributes:
        kind: commit, remove or restore.
        chunk: id of the committed chunk.
        key: key of the committed chunk.
        keeps: its run kept existing files.
    """

    kind: str
    chunk: int | None
    key: str | None
    keeps: bool


class Raw:
    """Catalog and store as SQL and bytes. seen: id of the last journal record that was returned."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.sql = psycopg.connect(database_url, autocommit=True)
        self.folder = folder
        self.seen = 0

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        return self.sql.execute(statement.encode(), parameters).fetchall()

    def live(self) -> dict[str, bytes]:
        """Return the content of every path of the catalog, after checking its checksum."""
        rows = self.rows(
            "SELECT file_path, start_byte, end_byte, crc32c, decoding, state, store, object_key, format "
            "FROM file_locations LEFT JOIN chunks ON chunks.id = caf_file_id"
        )
        objects = {(store, key): _object(store, key) for *_, store, key, _ in rows}
        found = {}
        for path, start_byte, end_byte, checksum, decoding, state, store, key, kind in rows:
            assert state == "committed", f"{path} is in a chunk that is {state}"
            data = objects[store, key]
            assert end_byte <= len(data), f"{path} ends beyond its chunk"
            found[path] = archives.content(kind, data, start_byte, end_byte, decoding)
            assert crc32c(found[path]) == checksum, f"{path} has another checksum"
        return found

    def close(self) -> None:
        self.sql.close()

    def own_places(self) -> dict[str, tuple[Any, int]]:
        """Return chunk and first byte of every path in cafcat's own chunks."""
        rows = self.rows(
            "SELECT file_path, uuid, start_byte FROM file_locations JOIN chunks ON chunks.id = caf_file_id "
            "WHERE adopted_prefix IS NULL"
        )
        return {path: (uuid, start_byte) for path, uuid, start_byte in rows}

    def places(self) -> dict[str, int]:
        """Return the chunk of every path."""
        return dict(self.rows("SELECT file_path, caf_file_id FROM file_locations"))

    def new_records(self) -> list[Record]:
        """Return the journal records that were not returned before, in order."""
        rows = self.rows(
            "SELECT j.id, j.kind, j.chunk_id, c.object_key, "
            "coalesce(r.options->>'on_conflict', 'replace') <> 'replace' "
            "FROM journal AS j LEFT JOIN chunks AS c ON c.id = j.chunk_id "
            "LEFT JOIN ingest_runs AS r ON r.id = c.run_id WHERE j.id > %s ORDER BY j.id",
            self.seen,
        )
        self.seen = max([self.seen, *(row[0] for row in rows)])
        return [Record(*row[1:]) for row in rows]

    def states(self) -> dict[int, str]:
        return dict(self.rows("SELECT id, state FROM chunks"))

    def writing(self) -> dict[int, bool]:
        """Return the chunks in state `writing`; True if the object exists, which means that it is whole."""
        rows = self.rows("SELECT id, object_key FROM chunks WHERE state = 'writing'")
        return {chunk: (self.folder / key).exists() for chunk, key in rows}

    def entries(self, chunk: int) -> dict[str, bytes]:
        """Return the files of a chunk by the index in its object, which must equal the rows of the catalog."""
        [(store, key, kind)] = self.rows("SELECT store, object_key, format FROM chunks WHERE id = %s", chunk)
        columns = "file_path, start_byte, end_byte, crc32c, decoding"
        rows = self.rows(
            f"SELECT {columns} FROM file_locations WHERE caf_file_id = %s "
            f"UNION ALL SELECT {columns} FROM retired_locations WHERE caf_file_id = %s",
            chunk,
            chunk,
        )
        data = _object(store, key)
        listed = archives.parse(kind, data)[2]
        assert sorted(row[:4] for row in rows) == sorted((e.path, e.start, e.end, e.crc32c) for e in listed)
        return {path: archives.content(kind, data, start, end, how) for path, start, end, _, how in rows}

    def formats(self) -> set[str]:
        """Return the formats of cafcat's own chunks that have live files."""
        statement = "SELECT DISTINCT format FROM chunks WHERE state = 'committed' AND adopted_prefix IS NULL"
        return {row[0] for row in self.rows(statement)}

    def own_chunks(self) -> int:
        """Return the number of cafcat's own chunks that have live files."""
        statement = "SELECT count(*) FROM chunks WHERE state = 'committed' AND adopted_prefix IS NULL"
        return int(self.rows(statement)[0][0])

    def adopted(self, path: Path) -> list[int]:
        """Return the chunks of an adopted archive that were not let go."""
        statement = (
            "SELECT id FROM chunks WHERE store = %s AND object_key = %s AND adopted_prefix IS NOT NULL "
            "AND state <> 'deleted'"
        )
        return [row[0] for row in self.rows(statement, path.parent.as_uri(), path.name)]

    def adopted_and_live(self) -> list[str]:
        """Return the uuids of adopted archives that have live files."""
        statement = "SELECT uuid FROM chunks WHERE adopted_prefix IS NOT NULL AND state = 'committed' ORDER BY id"
        return [str(row[0]) for row in self.rows(statement)]

    def copied(self) -> list[str]:
        """Return the keys of the chunks that have live files and a copy."""
        rows = self.rows(
            "SELECT c.object_key FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id "
            "WHERE c.state = 'committed' AND k.state = 'committed' ORDER BY 1"
        )
        return [row[0] for row in rows]

    def named(self, condition: str) -> set[str]:
        """Return the keys that the store should have. condition: on the rows of objects."""
        rows = self.rows(
            f"SELECT object_key FROM chunks AS o WHERE adopted_prefix IS NULL AND ({condition}) "
            f"UNION SELECT object_key FROM backups AS o WHERE {condition} "
            "UNION SELECT 'journal/' || lpad(j.id::text, 20, '0') || '-' || j.uuid || '.jsonl' FROM journal AS j "
            f"LEFT JOIN chunks AS o ON o.id = j.chunk_id WHERE o.id IS NULL OR {condition}"
        )
        return {row[0] for row in rows}

    def early_records(self) -> set[str]:
        """Return the journal records that are older than all of cafcat's own existing chunks.

        Such a record may concern files in third-party archives. It may be missing from the store, because no chunk
        was in any store when it was made.
        """
        rows = self.rows(
            "SELECT 'journal/' || lpad(j.id::text, 20, '0') || '-' || j.uuid || '.jsonl' FROM journal AS j "
            "WHERE j.chunk_id IS NULL AND NOT EXISTS (SELECT FROM journal AS k JOIN chunks AS c "
            "ON c.id = k.chunk_id WHERE k.id < j.id AND c.state IN ('committed', 'retired'))"
        )
        return {row[0] for row in rows}

    def named_copies(self, condition: str) -> set[str]:
        """Return the keys that the store of copies should have, without the journal."""
        return {row[0] for row in self.rows(f"SELECT object_key FROM chunk_copies AS o WHERE {condition}")}


def _object(store: str, key: str) -> bytes:
    return (Path(url2pathname(urlsplit(store).path)) / key).read_bytes()


def objects_in(folder: Path) -> set[str]:
    """Return the names of all files of a store except its markers."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith("catalogs/")}


def without_probes(names: Collection[str]) -> set[str]:
    """Leave out probe objects. A command that was killed may leave one, which the next `recover` removes."""
    return {name for name in names if not is_probe_key(name.removesuffix(".partial"))}


def without_journal(names: Collection[str]) -> set[str]:
    return {name for name in names if not name.startswith("journal/")}


def recover(repository: cafcat.Repository) -> None:
    report = repository.recover()
    assert not report.failed, report.failed


def remove(repository: cafcat.Repository, paths: Collection[str], folders: Collection[str] = ()) -> None:
    repository.rm(paths, folders=list(folders))


def undelete(repository: cafcat.Repository, paths: Collection[str]) -> None:
    repository.undelete(paths)


def prune(repository: cafcat.Repository) -> None:
    report = repository.prune(grace_seconds=0)
    assert not report.failed, report.failed


def adopt(repository: cafcat.Repository, archive: Archive, on_conflict: OnConflict, refused: bool) -> None:
    """Adopt an archive. refused: the adoption must fail."""
    report = repository.adopt([archive.path], prefix=archive.prefix, on_conflict=on_conflict)
    assert bool(report.failed) == refused, report.failed
    assert report.archives == (not refused)
    assert not report.files_failed


def repack(repository: cafcat.Repository, target_size: int, archive_format: str | None = None) -> None:
    """Repack chunks with dead bytes, small chunks, and, if a format is given, chunks of other formats."""
    report = repository.repack(max_unused=0.0, small=target_size, target_size=target_size, format=archive_format)
    assert not report.failed, report.failed
    assert not report.files_damaged


def rewrite(repository: cafcat.Repository, chunk: str, archive_format: str) -> None:
    """Rewrite the files of one chunk into new chunks."""
    report = repository.repack(chunks=[chunk], format=archive_format)
    assert (report.chunks, report.chunks_retired, report.failed, report.files_damaged) == (1, 1, [], 0)


def copy(repository: cafcat.Repository, to: str) -> None:
    report = repository.copy(to=to)
    assert not report.failed, report.failed


def backup(repository: cafcat.Repository, keep: int) -> None:
    repository.backup(keep=keep)


def verify(repository: cafcat.Repository, level: str) -> int:
    """Verify, and return the number of damaged, missing or unreadable objects, even if no live file needs them."""
    report = repository.verify(level=level, jobs=1)
    return report.damaged + report.missing + report.unreadable + report.unneeded


def rebuild_and_compare(repository: cafcat.Repository, database_url: str, stores: Collection[str]) -> None:
    """Rebuild an empty catalog from stores alone, and compare it with this one."""
    rebuild(repository, database_url, stores)
    _compare(repository, database_url)


def rebuild(repository: cafcat.Repository, database_url: str, stores: Collection[str]) -> None:
    """Rebuild an empty catalog from stores alone."""
    settings = {"database_url": database_url, "home": repository.settings.home, "store": repository.settings.store}
    with cafcat.open(**settings) as other:
        report = other.rebuild(list(stores))
        assert report.written
        assert not report.damages, report.damages


def restore_and_compare(repository: cafcat.Repository, database_url: str) -> None:
    """Restore the newest backup into an empty catalog, and compare it with this one."""
    settings = {"database_url": database_url, "home": repository.settings.home, "store": repository.settings.store}
    with cafcat.open(**settings) as other:
        other.restore()
        _compare(repository, database_url)


def _compare(repository: cafcat.Repository, database_url: str) -> None:
    differences: list[Any] = []
    report = repository.with_progress(Following(on=differences.append)).compare(database_url)
    assert report.equal, differences
