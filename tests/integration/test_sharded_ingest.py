"""Ingest with the workers of an executor: everything arrives once, whatever fails, and nothing is done twice."""

import gzip
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cafcat
import cafcat.operations.ingest.heartbeat
import cafcat.operations.ingest.shard_worker
import cafcat.scanning.batches
from cafcat.catalog.history.shards import MOST_ATTEMPTS, Shards
from cafcat.errors import AccessDenied, Conflict, InvalidInput, Unavailable
from cafcat.model import ProblemKind, RunState
from cafcat.operations.ingest.heartbeat import Heartbeat
from cafcat.repository import Repository
from tests.worlds.engines import Armed, Failing, Silent, Slow, Vanishing, process_pool
from tests.worlds.listeners import Following, Heard
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.web_server import WebServer, web_server  # noqa: F401 - a fixture

FOLDERS, FILES = 12, 40
TARGET = 40_000
"""Target size: each chunk has the files of several shards."""


def contents() -> dict[str, bytes]:
    return {
        f"d{folder:02}/{number:03}": b"%d %d " % (folder, number) * (number % 30)
        for folder in range(FOLDERS)
        for number in range(FILES)
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, data in contents().items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "tree"


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[Repository]:
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")
    ) as repository:
        yield repository


@pytest.fixture
def processes() -> Iterator[Executor]:
    with process_pool(2) as executor:
        yield executor


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as executor:
        yield executor


def check(repository: Repository, tree: Path, expected: dict[str, bytes] | None = None) -> None:
    """Check that the catalog has all files of the tree, each packed once."""
    prefix = str(tree)[1:]
    expected = contents() if expected is None else expected
    paths = [location.path for location in repository.list()]
    assert {path[len(prefix) + 1 :]: data for path, data in repository.read_many(paths)} == expected
    assert rows(repository, "SELECT count(*) FROM retired_locations") == [(0,)]


def rows(repository: Repository, query: str) -> list[tuple[Any, ...]]:
    return list(repository.query(query)[1])


def test_processes_pack_a_folder(repository: Repository, tree: Path, processes: Executor) -> None:
    report = repository.ingest([tree], executor=processes, target_size=TARGET)
    assert (report.files_added, report.files_seen, report.files_failed) == (FOLDERS * FILES, FOLDERS * FILES, 0)
    check(repository, tree)
    assert rows(repository, "SELECT DISTINCT state, attempts, owner FROM shards") == [("finished", 1, None)]
    assert rows(repository, "SELECT sum((report->>'files')::int)::int FROM shards") == [(FOLDERS * FILES,)]
    [run] = repository.runs()
    assert (run.state, run.files_added, run.chunks_committed) == (RunState.FINISHED, 480, report.chunks_committed)
    sizes = rows(repository, f"SELECT count(*) FILTER (WHERE size_bytes < {TARGET} * 0.9) FROM chunks")
    assert sizes[0][0] <= 2, "only the last chunk of each worker may be small"


def test_a_second_ingest_packs_what_changed(repository: Repository, tree: Path, threads: Executor) -> None:
    repository.ingest([tree], executor=threads)
    (tree / "d03" / "new").write_bytes(b"new")
    (tree / "d04" / "001").write_bytes(b"changed")
    report = repository.ingest([tree], executor=threads)
    assert (report.files_added, report.files_replaced, report.files_unchanged) == (1, 1, FOLDERS * FILES - 1)
    assert repository.read(f"{str(tree)[1:]}/d04/001") == b"changed"


@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.parametrize(
    ("moment", "after"),
    [
        ("take", True),
        ("commit", False),
        pytest.param("commit", True, marks=pytest.mark.slow),
        ("finish", True),
        pytest.param("finish", False, marks=pytest.mark.slow),
        pytest.param("take", False, marks=pytest.mark.slow),
    ],
)
def test_the_same_command_continues_after_a_killed_worker(
    repository: Repository, tree: Path, moment: str, after: bool
) -> None:
    with process_pool(2) as pool:
        armed = Armed(pool, moment, after=after)
        with pytest.raises(Unavailable, match="run the same command again"):
            repository.ingest([tree], executor=armed, share_password=True, target_size=TARGET)
    heard = Heard()
    with process_pool(2) as pool:
        repository.with_progress(heard).ingest([tree], executor=pool, target_size=TARGET)
    assert any("continuing an earlier ingest" in warning for warning in heard.warnings)
    check(repository, tree)
    assert rows(repository, "SELECT DISTINCT state FROM shards") == [("finished",)]
    assert rows(
        repository, "SELECT count(*) FROM shards WHERE planned_at > (SELECT min(planned_at) FROM shards)"
    ) == [(0,)], "the source is cut once"


def test_other_workers_continue_after_a_failed_call(repository: Repository, tree: Path) -> None:
    heard = Heard()
    report = repository.with_progress(heard).ingest(
        [tree], executor=Failing(2), share_password=True, target_size=TARGET
    )
    assert report.files_added == FOLDERS * FILES
    assert [warning for warning in heard.warnings if "a worker failed" in warning] == [
        "a worker failed, and another one continues: the store does not answer"
    ] * 2
    check(repository, tree)


def test_an_error_of_all_workers_ends_the_ingest(repository: Repository, tree: Path) -> None:
    executor = Failing(1, AccessDenied("the key is refused"))
    with pytest.raises(AccessDenied):
        repository.ingest([tree], executor=executor, share_password=True, target_size=TARGET)
    [run] = repository.runs()
    assert (run.state, rows(repository, "SELECT request FROM ingest_runs")) == (RunState.FAILED, [("stop",)])


def test_a_shard_that_fails_again_and_again_is_given_up(repository: Repository, tree: Path) -> None:
    tree.chmod(0o755)
    executor = Vanishing(ThreadPoolExecutor(1), tree)
    with pytest.raises(Unavailable, match=r"shards? failed too often: .*No such file"):
        repository.ingest([tree], executor=executor, share_password=True)
    assert rows(repository, "SELECT DISTINCT state, attempts FROM shards") == [("waiting", MOST_ATTEMPTS)]


def test_a_shard_of_a_lost_host_is_taken_when_its_lease_ends(
    repository: Repository, tree: Path, threads: Executor, database_url: str
) -> None:
    repository.ingest([tree], executor=threads, target_size=TARGET)
    repository.rm([], folders=[str(tree)[1:] + "/d05"])
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE shards SET state = 'running', owner = 'other:1:run 1 [0/0]', position = NULL, "
            "finished_at = NULL, lease_expires_at = now() + interval '3 s' WHERE id = 1"
        )
    begun = time.monotonic()
    repository.ingest([tree], executor=threads, target_size=TARGET)
    assert time.monotonic() - begun > 2
    [(state, attempts)] = rows(repository, "SELECT state, attempts FROM shards WHERE id = 1")
    assert (state, attempts) == ("finished", 1)


def test_a_worker_notices_that_it_lost_its_shard(
    repository: Repository, tree: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setattr(cafcat.operations.ingest.heartbeat, "RENEW_SECONDS", 0.05)
    repository.ingest([tree / "d00"], executor=threads)
    steal = "UPDATE shards SET state = 'running', owner = %s WHERE id = 1"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(steal, ["me"])
        heartbeat = Heartbeat(repository.session.settings, 1, "me")
        heartbeat.hold(1, {"files": 5})
        heartbeat.advance(2, 30)
        time.sleep(0.3)
        heartbeat.check()
        assert connection.execute("SELECT progress FROM shards WHERE id = 1").fetchone() == (
            {"files": 2, "bytes": 30},
        )
        connection.execute(steal, ["another"])
        time.sleep(0.3)
        with pytest.raises(Conflict, match="another worker has taken a shard"):
            heartbeat.check()
    assert heartbeat.end() == [1]


def test_calls_whose_results_are_lost_are_not_waited_for(
    repository: Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.operations.ingest.sharded._LATE_CALL_SECONDS", 0.1)
    report = repository.ingest([tree], executor=Silent(), share_password=True)
    assert report.files_added == FOLDERS * FILES
    check(repository, tree)


def test_stop_finishes_the_open_chunks(
    repository: Repository, tree: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Shards.take

    def take_slowly(self: Shards, *arguments: Any) -> Any:
        time.sleep(0.5)  # three workers take 32 shards in more than two looks of the coordinator
        return take(self, *arguments)

    monkeypatch.setattr(Shards, "take", take_slowly)
    asked = Following(should_stop=lambda: True)
    report = repository.with_progress(asked).ingest([tree], executor=threads, target_size=TARGET)
    assert report.interrupted
    assert repository.runs()[0].state is RunState.INTERRUPTED
    monkeypatch.undo()
    repository.ingest([tree], executor=threads, target_size=TARGET)
    check(repository, tree)


@pytest.mark.slow  # a pause ends up to five seconds late
def test_a_paused_run_waits(repository: Repository, tree: Path, threads: Executor, database_url: str) -> None:
    seen: list[Any] = []

    def pause_and_resume() -> None:
        with cafcat.open(database_url=database_url) as other:
            while not (running := [run.id for run in other.runs() if run.state is RunState.RUNNING]):
                time.sleep(0.01)
            other.pause_run(running[0])
            time.sleep(2.5)
            seen.extend(run.state for run in other.runs())
            other.resume_run(running[0])

    helper = threading.Thread(target=pause_and_resume)
    helper.start()
    report = repository.ingest([tree], executor=Slow(threads), share_password=True, target_size=TARGET)
    helper.join()
    assert (seen, report.interrupted) == ([RunState.RUNNING], False)
    check(repository, tree)


def test_a_long_shard_is_divided(
    repository: Repository, tree: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cafcat.operations.ingest.shard_worker, "_MOST_FILES", 10)
    monkeypatch.setattr(cafcat.scanning.batches, "BATCH_FILES", 10)
    repository.ingest([tree], executor=threads, target_size=TARGET)
    check(repository, tree)
    assert rows(repository, "SELECT sum((report->>'files')::int)::int FROM shards") == [(FOLDERS * FILES,)]
    assert rows(repository, "SELECT max((report->>'files')::int) FROM shards")[0][0] <= 20


def test_refuses_what_other_hosts_cannot_reach(
    repository: Repository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.parent)
    with cafcat.open(home=tmp_path / "embedded") as embedded, pytest.raises(InvalidInput, match="embedded"):
        embedded.ingest([tree], executor=Failing(0))
    with pytest.raises(InvalidInput, match="relative"):
        repository.ingest(["tree"], executor=Failing(0))
    with pytest.raises(InvalidInput, match="standard input"):
        repository.ingest([], files_from="-", executor=Failing(0))
    with pytest.raises(InvalidInput, match="standard input"), ThreadPoolExecutor(1) as local:
        repository.ingest(["-"], executor=local)
    with pytest.raises(InvalidInput, match="one host"):
        repository.ingest([tree], format="clp-s", executor=Failing(0))
    assert repository.runs() == []


def test_files_that_fail_are_reported(repository: Repository, tree: Path, threads: Executor) -> None:
    (tree / "d03" / ("x" * 200)).write_bytes(b"1")
    (tree / "d04" / os.fsdecode(b"\xff")).write_bytes(b"2")
    heard = Heard()
    report = repository.with_progress(heard).ingest([tree], executor=threads)
    assert (report.files_added, report.files_failed) == (FOLDERS * FILES + 1, 1)
    assert [(problem.kind, problem.message) for problem in heard.problems] == [
        (ProblemKind.NAME, "the name is not valid UTF-8: rename the file (convmv renames whole folders)")
    ]


def test_a_list_is_packed_by_ranges(repository: Repository, tree: Path, threads: Executor, tmp_path: Path) -> None:
    listing = tmp_path / "list"
    listing.write_text("".join(f"{tree}/{name}\n" for name in contents()))
    report = repository.ingest([], files_from=str(listing), executor=threads)
    assert report.files_added == FOLDERS * FILES
    check(repository, tree)
    assert rows(repository, "SELECT count(*) > 10 FROM shards") == [(True,)]


def test_a_list_that_was_written_anew_is_cut_anew(
    repository: Repository, tree: Path, threads: Executor, tmp_path: Path, database_url: str
) -> None:
    listing, names = tmp_path / "list", list(contents())
    listing.write_text("".join(f"{tree}/{name}\n" for name in names[:200]))
    asked = Following(should_stop=lambda: True)
    none = Failing(10**6)
    interrupted = repository.with_progress(asked).ingest(
        [], files_from=str(listing), executor=none, share_password=True
    )
    assert interrupted.interrupted
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE shards SET state = 'finished', finished_at = now() WHERE id % 2 = 0")
    listing.write_text("".join(f"{tree}/{name}\n" for name in reversed(names)))
    repository.ingest([], files_from=str(listing), executor=threads)
    check(repository, tree)


def test_a_list_with_two_urls_of_one_name_is_one_shard(
    repository: Repository,
    threads: Executor,
    tmp_path: Path,
    web_server: WebServer,  # noqa: F811
) -> None:
    web_server.write("f", b"content")
    listing = tmp_path / "list"
    listing.write_text("".join(f"{web_server.url('f')}?id={number}\n" for number in range(50)))
    heard = Heard()
    report = repository.with_progress(heard).ingest([], files_from=str(listing), executor=threads)
    assert (report.files_added, report.files_failed, len(heard.problems)) == (1, 49, 49)
    assert "another URL of the list has the same name" in heard.problems[0].message


def test_all_failures_are_reported(repository: Repository, threads: Executor, tmp_path: Path) -> None:
    listing = tmp_path / "list"
    listing.write_text("".join(f"/nothing/{number:05}\n" for number in range(3000)))
    heard = Heard()
    report = repository.with_progress(heard).ingest([], files_from=str(listing), executor=threads)
    assert report.files_failed == 3000
    assert sorted(problem.path for problem in heard.problems) == [f"nothing/{number:05}" for number in range(3000)]


@pytest.mark.usefixtures("s3_environment")
def test_a_bucket_is_packed_by_key_ranges(
    repository: Repository, threads: Executor, s3_server: S3Server, s3_bucket: str
) -> None:
    client = s3_server.client()
    expected = {name: data for name, data in contents().items() if name[-1] in "012"} | {
        "a": b"1",
        "d05": b"2",
        "z/": b"",
    }
    for key, data in expected.items():
        client.put_object(Bucket=s3_bucket, Key=key, Body=data)
    report = repository.ingest([f"s3://{s3_bucket}"], executor=threads, target_size=TARGET)
    assert report.files_added == len(expected)
    assert dict(repository.read_many(expected)) == expected
    assert rows(repository, "SELECT count(*) > 5, min(attempts), max(attempts) FROM shards") == [(True, 1, 1)]
    assert repository.ingest([f"s3://{s3_bucket}"], executor=threads).files_unchanged == len(expected)


@pytest.mark.usefixtures("s3_environment")
def test_an_inventory_is_packed_by_its_data_files(
    repository: Repository, threads: Executor, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    client = s3_server.client()
    expected = {name: data for name, data in contents().items() if name[-1] == "1"}
    files = []
    for number in range(6):
        lines = []
        for key in list(expected)[number::6]:
            etag = client.put_object(Bucket=s3_bucket, Key=key, Body=expected[key])["ETag"].strip('"')
            lines.append(f'"{s3_bucket}","{key}","{len(expected[key])}","2026-01-01T00:00:00.000Z","{etag}"\n')
        data = gzip.compress("".join(lines).encode())
        (tmp_path / f"{number}.csv.gz").write_bytes(data)
        files.append({"key": f"x/{number}.csv.gz", "size": len(data), "MD5checksum": hashlib.md5(data).hexdigest()})  # noqa: S324
    schema = "Bucket, Key, Size, LastModifiedDate, ETag"
    manifest = {"sourceBucket": s3_bucket, "fileFormat": "CSV", "fileSchema": schema, "files": files}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    inventory = str(tmp_path / "manifest.json")
    report = repository.ingest([f"s3://{s3_bucket}"], executor=threads, inventory=inventory)
    assert (report.files_added, report.files_failed) == (len(expected), 0)
    assert dict(repository.read_many(expected)) == expected
    positions = rows(repository, "SELECT through_position, position FROM shards ORDER BY id")
    assert positions == [(str(number), None) for number in range(1, 6)] + [(None, None)]
