"""What dead writers leave in catalog and store, in a folder and on S3: recover settles that, and nothing else."""

import base64
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

import cafcat
from cafcat.checksums import crc32c, crc64nvme
from cafcat.errors import CafcatError, InvalidInput, Locked, NotFound
from cafcat.formats.caf import CAF
from cafcat.maintenance import recover as recovering
from cafcat.maintenance.recover import Outcome, RecoverReport, SettledChunk
from cafcat.model import ChunkState, OnConflict
from cafcat.progress import Progress
from cafcat.stores.keys import is_chunk_key
from cafcat.testing.formats import ListSink
from cafcat.writing.chunk import ChunkPlace, OpenChunk
from tests.s3_server import S3Server
from tests.services import Databases

FILES = {"a/first": b"first", "a/second": bytes(range(256)) * 20, "b/empty": b"", "ü/日本": b"unicode"}
MODIFIED = 1_795_255_200_123_456_000


class Place(Protocol):
    """Where chunks are, seen beside the store."""

    url: str

    def objects(self) -> dict[str, bytes]: ...

    def write(self, key: str, data: bytes) -> None: ...

    def uploads(self) -> list[str]: ...

    def begin_upload(self, key: str) -> None: ...


class Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()

    def objects(self) -> dict[str, bytes]:
        files = self._files().items()
        return {name: data for name, data in files if not name.endswith(".partial") and is_chunk_key(name)}

    def write(self, key: str, data: bytes) -> None:
        (self.folder / key).write_bytes(data)

    def uploads(self) -> list[str]:
        return [name.removesuffix(".partial") for name in self._files() if name.endswith(".partial")]

    def begin_upload(self, key: str) -> None:
        self.write(f"{key}.partial", b"half")

    def _files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


class Bucket:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client(max_attempts=5)
        self.bucket = bucket
        self.url = f"s3://{bucket}/pre/fix"

    def objects(self) -> dict[str, bytes]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix="pre/fix/").get("Contents", [])
        keys = {item["Key"].removeprefix("pre/fix/"): item["Key"] for item in found}
        return {name: self._read(key) for name, key in keys.items() if is_chunk_key(name)}

    def _read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"pre/fix/{key}", Body=data)

    def uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["Key"].removeprefix("pre/fix/") for upload in found]

    def begin_upload(self, key: str) -> None:
        where = {"Bucket": self.bucket, "Key": f"pre/fix/{key}"}
        upload_id = self.client.create_multipart_upload(**where)["UploadId"]  # type: ignore[arg-type]
        self.client.upload_part(**where, UploadId=upload_id, PartNumber=1, Body=b"half")  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "store")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, s3_environment: None) -> Iterator[Bucket]:
    bucket = Bucket(s3_server, s3_bucket)
    yield bucket
    bucket.client.close()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


class Opener(Protocol):
    def __call__(self, place: Place) -> cafcat.Repository: ...


@pytest.fixture
def open_at(database_url: str, tmp_path: Path) -> Iterator[Opener]:
    """Repositories of the same catalog."""
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


def begin(repository: cafcat.Repository, files: Mapping[str, bytes], on_conflict: str = "replace") -> OpenChunk:
    """A chunk with these files, as an ingest writes it, that nobody has finished."""
    options = {"on_conflict": on_conflict}
    run = repository._catalog.runs.begin_run(sources=["tree"], options=options, version="0")
    store = repository._store_of(repository.settings.store)
    chunk = OpenChunk(ChunkPlace(repository._catalog, store, CAF, run, "here:1:test"))
    for path, content in files.items():
        chunk.add(path, content, MODIFIED)
    return chunk


def key_of(chunk: OpenChunk) -> str:
    return f"{chunk.uuid}.caf"


def die_half_way(chunk: OpenChunk) -> OpenChunk:
    """What was written up to now stays as it is."""
    chunk._sink.abort()
    chunk._mapping.close()
    descriptor = getattr(chunk._upload, "_descriptor", None)
    if descriptor is not None:
        os.close(descriptor)
    return chunk


def die_before_commit(chunk: OpenChunk) -> OpenChunk:
    """The object is durable, its mapping is not in the catalog."""
    chunk._make_durable(lambda: None)
    chunk._mapping.close()
    return chunk


def leave_whole(
    repository: cafcat.Repository, files: Mapping[str, bytes], on_conflict: str = "replace"
) -> OpenChunk:
    return die_before_commit(begin(repository, files, on_conflict))


def leave_half(repository: cafcat.Repository, files: Mapping[str, bytes]) -> OpenChunk:
    return die_half_way(begin(repository, files))


def commit(repository: cafcat.Repository, files: Mapping[str, bytes]) -> OpenChunk:
    chunk = begin(repository, files)
    chunk.all_new = False
    chunk.finish(OnConflict.REPLACE, lambda: None)
    return chunk


def sql(repository: cafcat.Repository, statement: str) -> list[tuple[Any, ...]]:
    assert repository.settings.database_url
    with psycopg.connect(repository.settings.database_url) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def end_leases(repository: cafcat.Repository) -> None:
    sql(repository, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")


def recover(repository: cafcat.Repository, **options: Any) -> RecoverReport:
    """Of all that is left now, whatever its leases say."""
    end_leases(repository)
    return repository.recover(**options)


def states(repository: cafcat.Repository) -> list[str]:
    return [row[0] for row in sql(repository, "SELECT state FROM chunks ORDER BY id")]


def counted(report: RecoverReport) -> dict[str, Any]:
    """What is not nothing in a report."""
    names = ("files_adopted", "files_skipped", "bytes_adopted")
    return {name: getattr(report, name) for name in report.__slots__ if getattr(report, name) and name not in names}


def check(repository: cafcat.Repository, place: Place) -> dict[str, bytes]:
    """By SQL and raw bytes: rows are true, and the store has the objects of committed chunks and nothing else.
    Returns the files of the catalog."""
    assert repository._catalog.reports.findings() == []
    objects = place.objects()
    chunks = sql(repository, "SELECT object_key, state, size_bytes, crc64nvme, deleted_at IS NULL FROM chunks")
    assert {row[1] for row in chunks} <= {"committed", "abandoned"}
    assert set(objects) == {key for key, state, *_ in chunks if state == "committed"}
    for key, state, size_bytes, checksum, is_there in chunks:
        assert is_there == (state == "committed"), key
        if is_there:
            assert len(objects[key]) == size_bytes
            assert base64.b64encode(crc64nvme(objects[key]).to_bytes(8)).decode() == checksum
    assert place.uploads() == []
    found = {}
    rows = sql(
        repository,
        "SELECT file_path, start_byte, end_byte, crc32c, object_key "
        "FROM file_locations JOIN chunks ON id = caf_file_id",
    )
    for path, start, end, checksum, key in rows:
        found[path] = objects[key][start:end]
        assert crc32c(found[path]) == checksum, path
    return found


# For each line on stdin a child that kills itself: `cafcat VERB`, with the number of the step after a method of the
# catalog was called first. A step is what makes something durable or visible; the child dies before it, which is
# after the one before. Answers with the exit code of the child.
KILLER = """
import os, signal, sys, traceback
import botocore.httpsession
import psycopg
import cafcat
from cafcat.catalog.chunks import Chunks
from cafcat.catalog.recovery import Recovery

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

def ingest(repository, number):
    arm(Chunks, "begin_chunk", number)
    repository.ingest(["tree"], prefix=f"run-{number:03}")

def recover(repository, number):
    arm(Recovery, "remains", number)
    repository.recover()

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


def killed_at_each_step(repository: cafcat.Repository, place: Place, folder: Path, verb: str) -> Iterator[None]:
    """Gives control after each child that was killed, until one lives."""
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
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            if code == 0:
                assert number > 10
                break
            assert code == -signal.SIGKILL
            wait_for_the_server(repository)
            yield


def wait_for_the_server(repository: cafcat.Repository) -> None:
    """Until it has done, or undone, what the killed process had asked."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle'"
    )
    while sql(repository, statement) != [(0,)]:
        pass


SLOW_ON_S3 = pytest.mark.parametrize(
    "place", ["folder", pytest.param("bucket", marks=pytest.mark.slow)], indirect=True
)


@SLOW_ON_S3
def test_an_ingest_is_killed_at_every_step(repository: cafcat.Repository, place: Place, tmp_path: Path) -> None:
    for path, content in FILES.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_bytes(content)
    whole: set[str] = set()
    half: set[str] = set()
    for _ in killed_at_each_step(repository, place, tmp_path, "ingest"):
        # The next ingest settles this before it begins: its writer is known to be dead, whatever its lease says.
        left = {key for (key,) in sql(repository, "SELECT object_key FROM chunks WHERE state = 'writing'")}
        whole |= left & set(place.objects())
        half |= left - whole
    assert recover(repository).failed == ()
    assert whole
    assert half
    states_of = dict(sql(repository, "SELECT object_key, state FROM chunks"))
    assert {states_of[key] for key in whole} == {"committed"}
    assert {states_of[key] for key in half} == {"abandoned"}
    found = check(repository, place)
    runs = {path.split("/")[0] for path in found}
    assert len(runs) == states(repository).count("committed") > len(whole)
    assert found == {f"{run}/tree/{path}": data for run in runs for path, data in FILES.items()}
    assert counted(repository.recover()) == {}


@SLOW_ON_S3
def test_a_recover_is_killed_at_every_step(repository: cafcat.Repository, place: Place, tmp_path: Path) -> None:
    """The next one settles what it left."""
    expected: dict[str, bytes] = {}

    def leave() -> None:
        number = len(expected)
        remains = leave_half(repository, {"remains": b"remains"})
        repository._catalog.chunks.abandon_chunk(remains._id, "interrupted")
        leave_half(repository, {"half": b"half"})
        expected[f"{number}"] = b"whole"
        leave_whole(repository, {f"{number}": b"whole"})
        end_leases(repository)

    leave()
    for _ in killed_at_each_step(repository, place, tmp_path, "recover"):
        assert recover(repository).failed == ()
        assert check(repository, place) == expected
        leave()
    assert check(repository, place) == expected


def test_a_whole_chunk_is_adopted_as_its_writer_would_have_committed_it(
    repository: cafcat.Repository, place: Place, databases: Databases, tmp_path: Path
) -> None:
    """Row by row; with dead bytes in the object, and names in no order."""
    described = (
        "SELECT size_bytes, data_bytes, index_start_byte, index_end_byte, file_count, live_file_count, live_bytes, "
        "crc64nvme, array_agg((file_path, start_byte, end_byte, crc32c, modified_at)::text ORDER BY file_path) "
        "FROM chunks AS c JOIN file_locations ON caf_file_id = c.id GROUP BY c.id"
    )

    def write(repository: cafcat.Repository) -> OpenChunk:
        chunk = begin(repository, FILES)
        given_up = chunk.open("a/given up", MODIFIED)
        given_up.write(b"dead" * 1000)
        given_up.abandon()
        chunk.add("Z", b"z", None)
        return chunk

    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "other")) as other,
    ):
        write(other).finish(OnConflict.REPLACE, lambda: None)
        expected = sql(other, described)
    left = die_before_commit(write(repository))
    settled: list[SettledChunk] = []
    report = recover(repository, on_settled=settled.append)
    assert sql(repository, described) == expected
    assert check(repository, place) == FILES | {"Z": b"z"}
    size_bytes = expected[0][0]
    assert settled == [SettledChunk(left.uuid, place.url, Outcome.ADOPTED, len(FILES) + 1, size_bytes)]
    assert report.files_adopted == len(FILES) + 1
    assert report.bytes_adopted == sum(map(len, FILES.values())) + 1
    assert repository.read("a/second") == FILES["a/second"]


def test_many_blocks_are_checked_and_the_lease_is_kept_meanwhile(
    repository: cafcat.Repository, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that is over after each block was renewed before the next one; no block is larger than 1 MiB."""
    monkeypatch.setattr(recovering, "_RENEW_SECONDS", 0)
    files = {f"{number:02}": os.urandom(700_001) for number in range(10)}
    files |= {f"{number:0100}": b"" for number in range(15_000)}  # an index of several blocks
    leave_whole(repository, files)
    live: list[bool] = []
    blocks: list[int] = []

    class Blocks(Progress):
        def advance(self, _: int, size_bytes: int) -> None:
            if size_bytes:
                blocks.append(size_bytes)
                live.append(sql(repository, "SELECT lease_expires_at > now() FROM chunks") == [(True,)])
                end_leases(repository)

    report = recover(repository, progress=Blocks())
    assert counted(report) == {"adopted": 1}
    assert len(blocks) > 8
    assert max(blocks) <= 1 << 20
    assert all(live)
    assert sql(repository, "SELECT lease_owner FROM chunks")[0][0].split(" [")[0].endswith(":recover")
    assert check(repository, place) == files


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a byte of a file": lambda data: flip(data, 100),
    "a byte of the index": lambda data: flip(data, data.index(b'"start_byte"') + 1),
    "a checksum in the index": lambda data: data.replace(b'"crc32c":0,', b'"crc32c":1,'),
    "a span in the index": lambda data: data.replace(b'"end_byte":5,', b'"end_byte":4,'),
    "the footer": lambda data: flip(data, len(data) - 4),
    "cut in the data": lambda data: data[:50],
    "cut in the index": lambda data: data[:-40],
    "a byte too many": lambda data: data + b"\0",
    "nothing": lambda data: data[:0],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_object_is_not_adopted(repository: cafcat.Repository, place: Place, damage: str) -> None:
    chunk = leave_whole(repository, FILES)
    leave_whole(repository, {"other": b"other"})
    data = place.objects()[key_of(chunk)]
    damaged = DAMAGE[damage](data)
    assert damaged != data
    place.write(key_of(chunk), damaged)
    settled: list[SettledChunk] = []
    report = recover(repository, on_settled=settled.append)
    assert counted(report) == {"adopted": 1, "abandoned": 1}
    assert settled[0].reason
    assert settled[0].reason in sql(repository, "SELECT detail FROM events WHERE kind = 'chunk_abandoned'")[0][0]
    assert check(repository, place) == {"other": b"other"}


def archive(files: list[tuple[str, bytes]]) -> bytes:
    sink = ListSink()
    writer = CAF.writer(sink)
    for path, content in files:
        writer.add(path, content, None)
    writer.finalize()
    return sink.data


def with_index(data: bytes, index: str) -> bytes:
    text = f'{{"format_version":"1.0","files":{{{index}}}}}'.encode()
    return data + text + len(text).to_bytes(4, "little")


FOREIGN = {
    "no checksum": with_index(b"x", '"a":{"start_byte":0,"end_byte":1}'),
    "shared bytes": with_index(
        b"xx",
        f'"a":{{"start_byte":0,"end_byte":2,"crc32c":{crc32c(b"xx")}}},'
        '"b":{"start_byte":1,"end_byte":2,"crc32c":0}',
    ),
    "a name with NUL": with_index(b"", '"a\\u0000":{"start_byte":0,"end_byte":0,"crc32c":0}'),
    "an empty name": with_index(b"", '"":{"start_byte":0,"end_byte":0,"crc32c":0}'),
    "a long name": with_index(b"", f'"{"é" * 1025}":{{"start_byte":0,"end_byte":0,"crc32c":0}}'),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_cafcat_does_not_write_is_not_adopted(local: cafcat.Repository, folder: Folder, what: str) -> None:
    chunk = leave_whole(local, FILES)
    folder.write(key_of(chunk), FOREIGN[what])
    assert counted(recover(local)) == {"abandoned": 1}
    assert check(local, folder) == {}


def test_of_a_name_that_comes_twice_the_last_counts(local: cafcat.Repository, folder: Folder) -> None:
    chunk = leave_whole(local, FILES)
    folder.write(key_of(chunk), archive([("twice", b"old"), ("once", b"once"), ("twice", b"new")]))
    assert counted(recover(local)) == {"adopted": 1}
    assert check(local, folder) == {"twice": b"new", "once": b"once"}


def reasons(repository: cafcat.Repository, path: str) -> list[tuple[str, str]]:
    return [(str(old.location.chunk), old.reason) for old in repository.history(path)]


def test_what_was_committed_after_the_dead_chunk_was_begun_stays(local: cafcat.Repository, folder: Folder) -> None:
    dead = leave_whole(local, {"kept": b"older", "new": b"new"})
    later = commit(local, {"kept": b"newer"})
    report = recover(local)
    assert (report.files_adopted, report.files_skipped, report.bytes_adopted) == (1, 1, 3)
    assert check(local, folder) == {"kept": b"newer", "new": b"new"}
    assert str(local.locate("kept").chunk) == str(later.uuid)
    assert reasons(local, "kept") == [(str(dead.uuid), "skipped")]


def test_what_was_committed_before_the_dead_chunk_was_begun_is_replaced(
    local: cafcat.Repository, folder: Folder
) -> None:
    before = commit(local, {"changed": b"older", "other": b"other"})
    leave_whole(local, {"changed": b"newer!", "new": b"new"})
    report = recover(local)
    assert (report.files_adopted, report.files_skipped, report.bytes_adopted) == (2, 0, 9)
    assert check(local, folder) == {"changed": b"newer!", "new": b"new", "other": b"other"}
    assert reasons(local, "changed") == [(str(before.uuid), "replaced")]


def test_both_at_once_and_two_dead_chunks(local: cafcat.Repository, folder: Folder) -> None:
    """Each path ends at the version of the chunk that was begun last, whatever the order of commits."""
    commit(local, {"a": b"1", "b": b"1", "c": b"1", "d": b"1"})
    leave_whole(local, {"a": b"2", "b": b"2", "c": b"2"})
    leave_whole(local, {"b": b"3", "c": b"3", "e": b"3"})
    commit(local, {"c": b"4"})
    report = recover(local)
    assert (report.adopted, report.files_adopted, report.files_skipped) == (2, 2 + 2, 1 + 1)
    assert check(local, folder) == {"a": b"2", "b": b"3", "c": b"4", "d": b"1", "e": b"3"}
    assert {reason for path in "abcde" for _, reason in reasons(local, path)} == {"replaced", "skipped"}


@pytest.mark.parametrize("on_conflict", ["skip", "fail"])
def test_a_run_that_was_to_replace_nothing_replaces_nothing_now(
    local: cafcat.Repository, folder: Folder, on_conflict: str
) -> None:
    """Another run had committed the path after this one looked."""
    commit(local, {"there": b"there"})
    leave_whole(local, {"new": b"new", "there": b"other"}, on_conflict)
    report = recover(local)
    assert (report.files_adopted, report.files_skipped) == (1, 1)
    assert check(local, folder) == {"there": b"there", "new": b"new"}


def test_recover_twice(repository: cafcat.Repository, place: Place) -> None:
    leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    assert place.uploads()
    assert counted(recover(repository)) == {"adopted": 1, "abandoned": 1}
    assert counted(recover(repository)) == {}
    assert check(repository, place) == FILES


def test_a_chunk_that_is_being_written_is_left_alone(repository: cafcat.Repository, place: Place) -> None:
    writing = begin(repository, FILES)
    report = repository.recover()
    leases = sql(
        repository, "SELECT to_char(max(lease_expires_at) AT TIME ZONE 'UTC', 'HH24:MI:SS.US') FROM chunks"
    )
    assert report.leases_end_at
    assert report.leases_end_at.endswith(f"T{leases[0][0]}Z")
    assert counted(report) == {"still_leased": 1, "leases_end_at": report.leases_end_at}
    assert states(repository) == ["writing"]
    writing.finish(OnConflict.REPLACE, lambda: None)
    assert check(repository, place) == FILES


def test_a_whole_chunk_proves_itself_before_its_lease_is_over(repository: cafcat.Repository, place: Place) -> None:
    whole = begin(repository, FILES)
    whole._make_durable(lambda: None)
    whole._mapping.close()
    assert repository.recover(dry_run=True).adopted == 1
    assert states(repository) == ["writing"]
    assert counted(repository.recover()) == {"adopted": 1}
    assert check(repository, place) == FILES


def test_a_damaged_chunk_with_a_lease_is_left_alone(repository: cafcat.Repository, place: Place) -> None:
    chunk = begin(repository, FILES)
    place.write(key_of(chunk), b"not an archive")
    assert counted(repository.recover()) == {"still_leased": 1} | left_to(repository)
    assert states(repository) == ["writing"]
    chunk._lease.end()
    die_half_way(chunk)


def left_to(repository: cafcat.Repository) -> dict[str, object]:
    return {"leases_end_at": repository.recover(dry_run=True).leases_end_at}


def test_recover_beside_writers(local: cafcat.Repository, folder: Folder, open_at: Opener) -> None:
    """An ingest with many chunks goes on while others are settled, again and again."""
    errors: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        try:
            other = open_at(folder)
            for number in range(30):
                commit(other, {f"{number}/{path}": data for path, data in FILES.items()})
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    leave_half(local, {"half": b"half"})
    leave_whole(local, {"whole": b"whole"})
    end_leases(local)
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert local.recover().failed == ()
    thread.join()
    assert errors == []
    assert len(check(local, folder)) == 30 * len(FILES) + 1


def test_two_recovers_at_once_settle_each_chunk_once(place: Place, open_at: Opener) -> None:
    first, second = open_at(place), open_at(place)
    for number in range(8):
        leave_whole(first, {f"{number}/{path}": data for path, data in FILES.items()})
        leave_half(first, {f"half {number}": b"half"})
    end_leases(first)
    reports: list[RecoverReport] = []
    settled: list[SettledChunk] = []
    barrier = threading.Barrier(2)

    def work(repository: cafcat.Repository) -> None:
        barrier.wait()
        reports.append(repository.recover(on_settled=settled.append))

    threads = [threading.Thread(target=work, args=[repository]) for repository in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.failed for report in reports] == [(), ()]
    assert sum(report.adopted for report in reports) == 8
    # What one has abandoned and not yet removed the other one may take for left behind, and remove, too.
    assert sum(report.abandoned for report in reports) == 8
    assert sorted(chunk.uuid for chunk in settled if chunk.outcome is not Outcome.CLEANED) == sorted(
        row[0] for row in sql(first, "SELECT uuid FROM chunks")
    )
    assert sql(first, "SELECT count(*) FROM events WHERE kind = 'chunk_committed'") == [(8,)]
    assert len(check(first, place)) == 8 * len(FILES)


def test_a_lease_is_taken_once_and_only_its_owner_can_move_it(local: cafcat.Repository) -> None:
    leave_whole(local, FILES)
    recovery = local._catalog.recovery
    end_leases(local)
    [found] = recovery.overdue(local._store_of(local.settings.store).url)
    assert recovery.take(found, "first", 60) == found._replace(owner="first")
    assert recovery.take(found, "second", 60) is None
    recovery.renew(found.id, "first", 60)
    with pytest.raises(Locked):
        recovery.renew(found.id, "second", 60)
    with pytest.raises(Locked):
        recovery.give_back(found.id, "second")
    assert recovery.take(found, "second", 60) is None
    recovery.give_back(found.id, "first")
    assert recovery.take(found, "second", 60) == found._replace(owner="second")


class Once(Progress):
    """Does something when the first block is read."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action: Callable[[], object] | None = action

    def advance(self, _files: int, _size_bytes: int) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()


def test_a_chunk_that_is_looked_at_is_not_looked_at_by_others(place: Place, open_at: Opener) -> None:
    first, second = open_at(place), open_at(place)
    leave_whole(first, FILES)
    reports: list[RecoverReport] = []
    assert recover(first, progress=Once(lambda: reports.append(second.recover()))).adopted == 1
    assert (reports[0].still_leased, reports[0].adopted, reports[0].abandoned) == (1, 0, 0)
    assert check(first, place) == FILES


@pytest.mark.parametrize("renew_seconds", [0, 3600])
def test_a_recover_that_was_taken_for_dead_changes_nothing(
    place: Place, open_at: Opener, monkeypatch: pytest.MonkeyPatch, renew_seconds: int
) -> None:
    """Whether it learns it when it renews its lease or when it commits."""
    monkeypatch.setattr(recovering, "_RENEW_SECONDS", renew_seconds)
    first, second = open_at(place), open_at(place)
    leave_whole(first, FILES)
    reports: list[RecoverReport] = []
    slow = recover(first, progress=Once(lambda: reports.append(recover(second))))
    assert counted(slow) == {}
    assert counted(reports[0]) == {"adopted": 1}
    assert check(first, place) == FILES


def test_a_writer_that_was_taken_for_dead_cannot_commit_what_was_abandoned(
    repository: cafcat.Repository, place: Place
) -> None:
    slow = begin(repository, FILES)
    assert counted(recover(repository)) == {"abandoned": 1}
    assert place.uploads() == []
    with pytest.raises(CafcatError):
        slow.finish(OnConflict.REPLACE, lambda: None)
    assert check(repository, place) == {}
    assert counted(recover(repository)) == {}


def test_a_writer_that_was_taken_for_dead_loses_nothing_of_what_was_adopted(
    repository: cafcat.Repository, place: Place
) -> None:
    slow = begin(repository, FILES)
    reports: list[RecoverReport] = []

    def checkpoint() -> None:
        if place.objects():
            reports.append(recover(repository))

    assert slow.finish(OnConflict.REPLACE, checkpoint).commit.added == len(FILES)
    assert counted(reports[0]) == {"adopted": 1}
    assert sql(repository, "SELECT count(*) FROM events WHERE kind = 'chunk_committed'") == [(1,)]
    assert check(repository, place) == FILES
    assert {location.path: repository.read(location.path) for location in repository.list()} == FILES


def test_a_writer_that_commits_in_the_last_moment_wins(repository: cafcat.Repository, place: Place) -> None:
    """While its chunk is looked at. The object is there before, so it would have been adopted."""
    slow = begin(repository, FILES)
    summary = slow._make_durable(lambda: None)

    def commit_now() -> None:
        with slow._mapping as mapping:
            repository._catalog.commit.commit_chunk(slow._id, summary, mapping, OnConflict.REPLACE, all_new=True)

    assert counted(recover(repository, progress=Once(commit_now))) == {}
    assert check(repository, place) == FILES


def test_a_writer_that_commits_after_its_object_was_missed_wins(
    repository: cafcat.Repository, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is removed before the row says that nothing can point to it."""
    slow = begin(repository, FILES)
    abandon = repository._catalog.chunks.abandon_chunk

    def late(chunk_id: int, reason: str) -> None:
        slow.finish(OnConflict.REPLACE, lambda: None)
        abandon(chunk_id, reason)

    end_leases(repository)
    with monkeypatch.context() as patch:
        patch.setattr(repository._catalog.chunks, "abandon_chunk", late)
        assert counted(repository.recover()) == {}
    assert check(repository, place) == FILES


def test_parts_of_an_upload_are_removed(open_at: Opener, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFCAT_UPLOAD_MEMORY", "16MB")
    repository = open_at(bucket)
    leave_half(repository, {f"{number:02}": os.urandom(1_000_000) for number in range(20)})
    [upload] = bucket.client.list_multipart_uploads(Bucket=bucket.bucket)["Uploads"]
    assert bucket.client.list_parts(Bucket=bucket.bucket, Key=upload["Key"], UploadId=upload["UploadId"])["Parts"]
    assert sql(repository, "SELECT upload_id FROM chunks") == [(upload["UploadId"],)]
    assert counted(recover(repository)) == {"abandoned": 1}
    assert check(repository, bucket) == {}


def test_the_remains_of_an_abandoned_chunk_are_removed(repository: cafcat.Repository, place: Place) -> None:
    """Its writer came as far as to say so, and died."""
    for chunk in (leave_half(repository, FILES), leave_whole(repository, {"whole": b"whole"})):
        repository._catalog.chunks.abandon_chunk(chunk._id, "interrupted")
    assert place.uploads()
    assert place.objects()
    settled: list[SettledChunk] = []
    assert counted(repository.recover(on_settled=settled.append)) == {"cleaned": 2}
    assert {chunk.outcome for chunk in settled} == {Outcome.CLEANED}
    assert check(repository, place) == {}
    assert counted(repository.recover()) == {}


def test_what_comes_late_to_settled_chunks_is_removed_and_nothing_else(
    repository: cafcat.Repository, place: Place
) -> None:
    """A request that was on its way when its writer died may begin an upload, or complete one, much later."""
    committed = commit(repository, FILES)
    abandoned = [leave_half(repository, {"half": b"half"}) for _ in range(2)]
    assert recover(repository).abandoned == 2
    place.begin_upload(key_of(committed))
    place.begin_upload(key_of(abandoned[0]))
    place.write(key_of(abandoned[1]), b"late")
    place.begin_upload("somebody else's")
    place.write("somebody else's too", b"bytes")
    live = begin(repository, {"live": b"live"})
    report = repository.recover()
    assert (report.uploads_removed, report.objects_removed) == (2, 1)
    assert (report.unknown_uploads, report.unknown_objects, report.still_leased) == (1, 1, 1)
    assert sorted(place.uploads()) == sorted([key_of(live), "somebody else's"])
    assert place.objects()["somebody else's too"] == b"bytes"
    live.finish(OnConflict.REPLACE, lambda: None)
    assert set(place.objects()) == {key_of(committed), key_of(live), "somebody else's too"}
    report = repository.recover()
    assert counted(report) == {"unknown_uploads": 1, "unknown_objects": 1}


def test_names_that_no_catalog_can_hold_are_left_alone(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    odd = os.fsdecode(b"odd-\xff.partial")
    (folder.folder / odd).write_bytes(b"x")
    assert counted(local.recover()) == {"unknown_uploads": 1}
    assert (folder.folder / odd).exists()


def test_a_dry_run_says_the_same_and_changes_nothing(repository: cafcat.Repository, place: Place) -> None:
    settled_before = leave_half(repository, {"before": b"before"})
    recover(repository)
    place.begin_upload(key_of(settled_before))
    remains = leave_half(repository, {"remains": b"remains"})
    repository._catalog.chunks.abandon_chunk(remains._id, "interrupted")
    leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    end_leases(repository)
    rows = "SELECT * FROM chunks ORDER BY id"
    before = (sql(repository, rows), place.objects(), sorted(place.uploads()))
    settled: list[SettledChunk] = []
    report = repository.recover(dry_run=True, on_settled=settled.append)
    assert (sql(repository, rows), place.objects(), sorted(place.uploads())) == before
    expected = {"adopted": 1, "abandoned": 1, "cleaned": 1, "uploads_removed": 1}
    assert counted(report) == expected | {"dry_run": True}
    assert report.bytes_adopted == sum(map(len, FILES.values()))
    done: list[SettledChunk] = []
    assert counted(repository.recover(on_settled=done.append)) == expected
    assert done == settled
    assert check(repository, place) == FILES


def test_interrupted_between_and_within_chunks(repository: cafcat.Repository, place: Place) -> None:
    """What was settled stays so; the chunk at hand can be taken by the next recover at once."""
    for number in range(3):
        leave_whole(repository, {f"{number}": b"whole"})
    settled: list[SettledChunk] = []
    report = recover(repository, on_settled=settled.append, should_stop=lambda: bool(settled))
    assert counted(report) == {"adopted": 1, "interrupted": True}
    asked = iter([False, False])

    def stop() -> bool:
        try:
            return next(asked)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        repository.recover(should_stop=stop)
    assert states(repository) == ["committed", "writing", "writing"]
    assert counted(repository.recover()) == {"adopted": 2}
    assert check(repository, place) == {"0": b"whole", "1": b"whole", "2": b"whole"}


def left_in(repository: cafcat.Repository, store: str) -> None:
    """A row as of a writer that died, in a store that cannot be asked."""
    statement = (
        "INSERT INTO chunks (uuid, format, store, object_key, lease_expires_at) "
        f"VALUES (gen_random_uuid(), 'caf', '{store}', 'key.caf', now() - interval '1s')"
    )
    sql(repository, statement)


@pytest.mark.parametrize("store", ["s3://cafcat-test-there-is-no-such-bucket", "unheard-of://store/x"])
def test_a_store_that_cannot_be_asked_costs_only_its_chunks(
    local: cafcat.Repository, folder: Folder, s3_environment: None, store: str
) -> None:
    left_in(local, store)
    leave_whole(local, FILES)
    report = recover(local)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert store in report.failed[0]
    assert "\n" not in report.failed[0]
    assert sql(local, f"SELECT state, deleted_at FROM chunks WHERE store = '{store}'") == [("writing", None)]


def test_a_store_that_refuses_us_costs_only_its_chunks_and_tells_no_secret(
    open_at: Opener, bucket: Bucket, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = open_at(bucket)
    chunk = leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    other = open_at(folder)
    leave_whole(other, {"other": b"other"})
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse-battery")
        report = recover(other)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert "SignatureDoesNotMatch" in report.failed[0]
    assert "correct-horse" not in report.failed[0]
    assert states(repository).count("writing") == 2
    assert set(bucket.objects()) == {key_of(chunk)}
    assert len(bucket.uploads()) == 1
    assert counted(recover(repository)) == {"adopted": 1, "abandoned": 1}


def test_a_store_without_the_chunks_that_the_catalog_has_there_is_not_believed(
    local: cafcat.Repository, folder: Folder, tmp_path: Path
) -> None:
    """The folder of a disk that is not mounted looks like this."""
    commit(local, {"committed": b"committed"})
    leave_whole(local, FILES)
    mounted = tmp_path / "mounted"
    folder.folder.rename(mounted)
    for _ in range(2):
        report = recover(local)
        assert (report.adopted, report.abandoned, len(report.failed)) == (0, 0, 1)
        assert "mounted" in report.failed[0]
        folder.folder.mkdir(exist_ok=True)
    assert states(local) == ["committed", "writing"]
    folder.folder.rmdir()
    mounted.rename(folder.folder)
    assert counted(recover(local)) == {"adopted": 1}
    assert check(local, folder) == FILES | {"committed": b"committed"}


def test_nothing_counts_as_removed_that_is_still_there(local: cafcat.Repository, folder: Folder) -> None:
    """The store does not let us remove it; later it does."""
    stuck = folder.folder / f"{key_of(leave_half(local, FILES))}.partial"
    leave_half(local, {"half": b"half"})
    stuck.unlink()
    stuck.mkdir()
    report = recover(local)
    assert (report.abandoned, len(report.failed)) == (2, 1)
    assert stuck.name in report.failed[0]
    assert sorted(sql(local, "SELECT state, deleted_at IS NULL FROM chunks")) == [
        ("abandoned", False),
        ("abandoned", True),
    ]
    assert len(local.recover().failed) == 1
    stuck.rmdir()
    assert counted(recover(local)) == {"cleaned": 1}
    assert check(local, folder) == {}


def test_a_chunk_of_a_later_version_is_left_for_that(local: cafcat.Repository, folder: Folder) -> None:
    """Neither adopted nor abandoned; its lease does not keep the next recover waiting."""
    chunk = leave_whole(local, FILES)
    leave_whole(local, {"other": b"other"})
    data = folder.objects()[key_of(chunk)]
    folder.write(key_of(chunk), data.replace(b'"format_version":"1.0"', b'"format_version":"9.0"'))
    report = recover(local)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert str(chunk.uuid) in report.failed[0]
    assert "9.0" in report.failed[0]
    folder.write(key_of(chunk), data)
    assert counted(local.recover()) == {"adopted": 1}
    assert check(local, folder) == FILES | {"other": b"other"}


def test_only_one_store(local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path) -> None:
    elsewhere = Folder(tmp_path / "elsewhere")
    leave_whole(open_at(elsewhere), {"elsewhere": b"elsewhere"})
    leave_whole(local, FILES)
    end_leases(local)
    assert counted(local.recover(store=str(elsewhere.folder))) == {"adopted": 1}
    assert states(local) == ["committed", "writing"]
    with pytest.raises(NotFound, match="no chunk in the store"):
        local.recover(store=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput):
        local.recover(store="")
    assert counted(local.recover()) == {"adopted": 1}


def test_stores_below_others_are_no_strangers(open_at: Opener, local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    below = open_at(Folder(folder.folder / "deeper"))
    commit(below, {"below": b"below"})
    leave_half(below, {"half": b"half"})
    report = local.recover()
    assert (report.unknown_objects, report.unknown_uploads) == (0, 0)


def test_after_recover_an_ingest_takes_what_was_lost_and_only_that(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(10):
        path = tmp_path / "tree" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * number)
        os.utime(path, ns=(MODIFIED, MODIFIED))
    leave_whole(local, {f"tree/{number}": b"x" * number for number in range(5)})
    leave_half(local, {f"tree/{number}": b"x" * number for number in range(5, 8)})
    recover(local)
    report = local.ingest(["tree"])
    assert (report.files_unchanged, report.files_added, report.files_replaced) == (5, 5, 0)
    assert check(local, folder) == {f"tree/{number}": b"x" * number for number in range(10)}
    with pytest.raises(NotFound):
        local.locate("tree/10")
    assert [chunk.state for chunk in local.chunks()].count(ChunkState.COMMITTED) == 2
