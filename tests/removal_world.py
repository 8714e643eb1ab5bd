"""Catalog and stores for the tests of rm, undelete and prune: what is in them, seen by SQL and raw bytes, and what
a rebuild of the stores alone would have to find."""

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
import pytest

import cafcat
from cafcat.checksums import crc32c, crc64nvme
from cafcat.formats.caf import CAF
from cafcat.model import FileProblem, OnConflict
from cafcat.progress import Progress
from cafcat.writing.chunk import ChunkPlace, OpenChunk
from tests.s3_server import S3Server

__all__ = [
    "Bucket",
    "Folder",
    "Heard",
    "InBackground",
    "Opener",
    "Place",
    "bucket",
    "check",
    "commit",
    "folder",
    "in_background",
    "killed_at_each_step",
    "live",
    "local",
    "open_at",
    "place",
    "problems",
    "rebuilt",
    "repository",
    "sql",
    "state_of",
    "wait_for_a_waiting_statement",
]

MODIFIED = 1_795_255_200_123_456_000


class Place(Protocol):
    """A store, seen beside cafcat."""

    url: str

    def everything(self) -> dict[str, bytes]: ...


class Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()

    def everything(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


class Bucket:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client(max_attempts=5)
        self.bucket = bucket
        self.url = f"s3://{bucket}/pre/fix"

    def everything(self) -> dict[str, bytes]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix="pre/fix/").get("Contents", [])
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        half = {f"{upload['Key'].removeprefix('pre/fix/')}.partial": b"" for upload in uploads}
        return half | {item["Key"].removeprefix("pre/fix/"): self._read(item["Key"]) for item in found}

    def _read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "store")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, s3_environment: None) -> Iterator[Bucket]:
    bucket = Bucket(s3_server, s3_bucket)
    yield bucket
    bucket.client.close()


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


class Opener(Protocol):
    def __call__(self, place: Place) -> cafcat.Repository: ...


@pytest.fixture
def open_at(database_url: str, tmp_path: Path) -> Iterator[Opener]:
    """Repositories of the same catalog, each with a connection of its own."""
    with contextlib.ExitStack() as opened:

        def open_at(place: Place) -> cafcat.Repository:
            repository = cafcat.open(database_url=database_url, home=tmp_path / "home", store=place.url)
            return opened.enter_context(repository)

        yield open_at


@pytest.fixture
def repository(open_at: Opener, place: Place) -> cafcat.Repository:
    return open_at(place)


@pytest.fixture
def local(open_at: Opener, folder: Folder) -> cafcat.Repository:
    return open_at(folder)


def commit(
    repository: cafcat.Repository, files: Mapping[str, bytes], on_conflict: OnConflict = OnConflict.REPLACE
) -> str:
    """A chunk with these files, as an ingest commits it. Returns its uuid."""
    run = repository._catalog.runs.begin_run(sources=["tree"], options={"on_conflict": on_conflict}, version="0")
    store = repository._store_of(repository.settings.store)
    chunk = OpenChunk(ChunkPlace(repository._catalog, store, CAF, run, "here:1:test"))
    for path, content in files.items():
        chunk.add(path, content, MODIFIED)
    chunk.all_new = False
    chunk.finish(on_conflict, lambda: None)
    return str(chunk.uuid)


def sql(repository: cafcat.Repository, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(str(repository.settings.database_url)) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def state_of(repository: cafcat.Repository, chunk: str) -> str:
    [(state,)] = sql(repository, "SELECT state FROM chunks WHERE uuid = %s", chunk)
    return str(state)


def live(repository: cafcat.Repository) -> set[str]:
    """All paths of the catalog."""
    return {row[0] for row in sql(repository, "SELECT file_path FROM file_locations")}


class Heard(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.problems: list[FileProblem] = []
        self.warnings: list[str] = []

    def problem(self, problem: FileProblem) -> None:
        self.problems.append(problem)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def problems(heard: Heard) -> set[tuple[str, str]]:
    """Path and kind of each."""
    return {(problem.path, problem.kind.value) for problem in heard.problems}


def check(repository: cafcat.Repository, *places: Place) -> dict[str, bytes]:
    """Every row is true, the counters are exact, the stores have what the catalog says and nothing else, and tell a
    rebuild the same. Returns the files of the catalog."""
    assert repository._catalog.reports.findings() == []
    found: dict[str, bytes] = {}
    objects: dict[tuple[str, str], bytes] = {}
    for place in places:
        objects |= {(place.url, key): data for key, data in place.everything().items()}
    rows = sql(
        repository,
        "SELECT file_path, start_byte, end_byte, crc32c, store, object_key, state "
        "FROM file_locations JOIN chunks ON id = caf_file_id",
    )
    for path, start, end, checksum, store, key, state in rows:
        assert state == "committed", path
        found[path] = objects[store, key][start:end]
        assert crc32c(found[path]) == checksum, path
    _check_chunks(repository, objects)
    located = sql(
        repository, "SELECT file_path, uuid::text, start_byte FROM file_locations JOIN chunks ON id = caf_file_id"
    )
    assert rebuilt(*places) == {path: (chunk, start) for path, chunk, start in located}
    return found


def _check_chunks(repository: cafcat.Repository, objects: Mapping[tuple[str, str], bytes]) -> None:
    statement = (
        "SELECT store, object_key, state, crc64nvme, deleted_at IS NULL, file_count, live_file_count, "
        "(SELECT count(*) FROM file_locations WHERE caf_file_id = c.id), "
        "(SELECT count(*) FROM retired_locations WHERE caf_file_id = c.id), retired_at IS NULL FROM chunks AS c"
    )
    expected = set()
    for store, key, state, checksum, is_there, files, counted, alive, retired, never in sql(repository, statement):
        assert state in ("committed", "retired", "deleted")
        assert is_there == (state != "deleted"), key
        assert (counted, alive + retired) == (alive, files), key
        assert (alive > 0) == (state == "committed") == never, key
        if is_there:
            assert base64.b64encode(crc64nvme(objects[store, key]).to_bytes(8)).decode() == checksum
            expected.add((store, key))
    copies = sql(repository, "SELECT store, object_key FROM chunk_copies WHERE deleted_at IS NULL")
    assert {key for key in objects if not key[1].startswith("journal/")} == expected | set(copies)
    assert sql(repository, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    assert sql(repository, "SELECT count(*) FROM journal_files") == [(0,)]


class Event(NamedTuple):
    """What a store says that a path is from now on: chunk and first byte, or nothing."""

    sequence: int
    where: tuple[str, int] | None


def rebuilt(*places: Place) -> dict[str, tuple[str, int]]:
    """Chunk and first byte of each path by what stores say: of all that happened to it, the last counts."""
    events: dict[str, Event] = {}
    for place in places:
        objects = place.everything()
        for key, data in objects.items():
            if key.startswith("journal/"):
                for path, event in _told(objects, data):
                    events[path] = max(event, events.get(path, event), key=lambda event: event.sequence)
    return {path: event.where for path, event in events.items() if event.where is not None}


def _told(objects: Mapping[str, bytes], line: bytes) -> Iterator[tuple[str, Event]]:
    head, *files, foot = map(json.loads, line.splitlines())
    assert foot == {"files": len(files), "crc32c": crc32c(line[: line.rindex(b"\n", 0, -1) + 1])}
    sequence = head["sequence"]
    if head["kind"] == "remove":
        yield from ((file["path"], Event(sequence, None)) for file in files)
    elif head["kind"] == "restore":
        yield from ((file["path"], Event(sequence, (file["chunk"], file["start_byte"]))) for file in files)
    elif head["chunk"]["object_key"] in objects:
        skipped = {file["path"] for file in files}
        for path, entry in _index(objects[head["chunk"]["object_key"]]).items():
            if path not in skipped:
                yield path, Event(sequence, (head["chunk"]["uuid"], entry["start_byte"]))


def _index(archive: bytes) -> dict[str, Any]:
    size = int.from_bytes(archive[-4:], "little")
    found: dict[str, Any] = json.loads(archive[-4 - size : -4])["files"]
    return found


# For each line on stdin a child that kills itself: the verb with the number of the step, counted from the first
# call of a method of the catalog. A step is what makes something durable or visible; the child dies before it,
# which is after the one before. Answers with the exit code of the child.
KILLER = """
import os, signal, sys, traceback
import botocore.httpsession
import psycopg
import cafcat
from cafcat.catalog.pruning import Pruning
from cafcat.catalog.removal import Removal

countdown = 0

def step():
    global countdown
    countdown -= 1
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(function):
    def wrapper(*arguments, **named):
        step()
        return function(*arguments, **named)
    return wrapper

def arm(first, name, number):
    method = getattr(first, name)
    def begin(*arguments, **named):
        global countdown
        countdown = number
        setattr(first, name, method)
        return method(*arguments, **named)
    setattr(first, name, begin)
    for name in ("fsync", "link", "unlink", "write", "replace"):
        setattr(os, name, counted(getattr(os, name)))
    for name in ("execute", "transaction"):
        setattr(psycopg.Connection, name, counted(getattr(psycopg.Connection, name)))
    psycopg.Transaction.__exit__ = counted(psycopg.Transaction.__exit__)
    psycopg.Copy.write = counted(psycopg.Copy.write)
    botocore.httpsession.URLLib3Session.send = counted(botocore.httpsession.URLLib3Session.send)

def remove(repository, number):
    arm(Removal, "remove", number)
    repository.custody.remove([f"{number}/gone"], folders=[f"{number}/alone"])

def undelete(repository, number):
    arm(Removal, "restore", number)
    repository.custody.undelete([f"{number}/gone"], folders=[f"{number}/alone"])

def prune(repository, number):
    arm(Pruning, "prunable", number)
    assert repository.custody.prune(grace_seconds=0).failed == ()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            with cafcat.open() as repository:
                globals()[sys.argv[1]](repository, int(line))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def killed_at_each_step(
    repository: cafcat.Repository, place: Place, folder: Path, verb: str, prepare: Callable[[int], None]
) -> Iterator[int]:
    """Prepares for each number, runs the verb and kills it at that step, and gives control; until one lives."""
    environment = {
        "CAFCAT_DATABASE_URL": str(repository.settings.database_url),
        "CAFCAT_STORE": place.url,
        "CAFCAT_HOME": str(folder / "home"),
    }
    command = [sys.executable, "-c", KILLER, verb]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for number in itertools.count(1):
            prepare(number)
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            if code == 0:
                assert number > 10
                break
            assert code == -signal.SIGKILL
            _wait_for_the_server(repository)
            yield number


def _wait_for_the_server(repository: cafcat.Repository) -> None:
    """Until it has done, or undone, what the killed process had asked."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle'"
    )
    while sql(repository, statement) != [(0,)]:
        pass


def wait_for_a_waiting_statement(
    repository: cafcat.Repository, or_until: Callable[[], bool] = lambda: False
) -> None:
    """Until somebody waits for a lock that somebody else has; or something else happened."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 30
    while sql(repository, statement) == [(0,)] and not or_until():
        assert time.monotonic() < deadline


class InBackground(threading.Thread):
    """Something done meanwhile; `done` waits for it, and gives what it returned or raises what it raised."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._act = act
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._act()
        except BaseException as error:
            self._error = error

    def done(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


def in_background(act: Callable[[], Any]) -> InBackground:
    thread = InBackground(act)
    thread.start()
    return thread
