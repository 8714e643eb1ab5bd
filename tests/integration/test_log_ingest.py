"""ingest --format clp-s: log files become archives, which are chunks like any other."""

import itertools
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import Conflict, InvalidInput, NotInstalled, Unsupported
from cafcat.formats.clp import CLP, program
from cafcat.formats.clp.metadata import ANNOTATION
from cafcat.model import OnConflict, VerifyLevel
from cafcat.reports import IngestReport
from cafcat.stores.base import StoredObject
from cafcat.support.temporary_folder import temporary_folder
from tests.worlds.archives.log_archives import clp_program, log_lines, searched_by_hand
from tests.worlds.catalog_world import Opener, live, sql
from tests.worlds.kills.killing import environment, run_until_killed
from tests.worlds.kills.meanwhile import InBackground, in_background, wait_for_a_waiting_statement
from tests.worlds.listeners import AfterFiles, Following, Heard, follow, problems
from tests.worlds.places import Bucket, Folder, Place
from tests.worlds.rebuild_world import worlds
from tests.worlds.servers.services import Databases

__all__ = ["clp_program"]

START = 1_767_225_600_000


def write_logs(folder: Path, files: int = 4, records: int = 20) -> dict[str, list[dict[str, Any]]]:
    """Write log files below a folder, each with the records of another hour."""
    logs = {}
    for n in range(files):
        name = f"app{n % 2}/day {n}.jsonl"
        logs[name] = [
            {"timestamp": START + n * 3_600_000 + i, "level": "ERROR" if i % 4 == 0 else "INFO", "n": n * 1000 + i}
            for i in range(records)
        ]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log_lines(logs[name]))
    return logs


def ingest(repository: cafcat.Repository, *sources: Path, **options: Any) -> IngestReport:
    options = {"format": "clp-s", "timestamp_key": "timestamp", "prefix": "logs"} | options
    return follow(repository, options).ingest([os.path.relpath(source) for source in sources], **options)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The typed paths begin the names."""
    monkeypatch.chdir(tmp_path)


def search(repository: cafcat.Repository, *arguments: Any, **options: Any) -> list[Any]:
    found = repository.search(*arguments, **options)
    records = [json.loads(record) for record, _ in found.records()]
    assert found.report.failed == []
    return sorted(records, key=lambda record: record["n"])


@pytest.fixture
def logs(tmp_path: Path, clp_program: Path) -> dict[str, list[dict[str, Any]]]:
    return write_logs(tmp_path / "src")


def all_of(logs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return sorted((record for records in logs.values() for record in records), key=lambda record: record["n"])


def test_log_files_become_an_archive(
    repository: cafcat.Repository, place: Place, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    report = ingest(repository, tmp_path / "src")
    sizes = {name: (tmp_path / "src" / name).stat().st_size for name in logs}
    assert (report.files_added, report.chunks_committed, report.bytes_added) == (4, 1, sum(sizes.values()))
    [chunk] = repository.chunks()
    assert (chunk.format, chunk.state, chunk.adopted_prefix, chunk.run) == ("clp-s", "committed", None, report.run)
    [key] = [key for key in place.objects() if not key.startswith(("journal/", "catalogs/"))]
    assert key == f"{chunk.uuid}.clp"
    units = list(repository.units("logs/src"))
    assert {unit.log_file: unit.source_bytes for unit in units} == {
        f"logs/src/{n}": size for n, size in sizes.items()
    }
    assert all(unit.modified_at for unit in units)
    assert search(repository, "n: *") == all_of(logs)
    assert search(repository, "n: *", "logs/src/app1/day 1.jsonl") == logs["app1/day 1.jsonl"]
    assert "/schema_tree" in {path.removeprefix(key) for path in live(repository)}
    section = repository.read(f"{key}/schema_tree")
    archive = StoredObject(repository.session.stores[repository.settings.store], key)
    assert section == b"".join(CLP.reader(archive).open(next(CLP.reader(archive).entries())))


def test_archives_are_grouped_by_size_and_searched_by_time(
    local: cafcat.Repository,
    clp_program: Path,
    folder: Folder,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
) -> None:
    size = max(path.stat().st_size for path in (tmp_path / "src").rglob("*.jsonl"))
    report = ingest(local, tmp_path / "src", target_size=2 * size)
    assert (report.files_added, report.chunks_committed) == (4, 2)
    archives = sorted(folder.folder.glob("*.clp"))
    by_hand = searched_by_hand(clp_program, archives, "level: ERROR")
    found = local.search("level: ERROR")
    assert sorted(record for record, _ in found.records()) == by_hand
    assert (found.report.archives, found.report.searched) == (2, 2)
    found = local.search("n: *", from_ms=START, to_ms=START + 3_600_000 - 1)
    assert [json.loads(record) for record, _ in found.records()] == logs["app0/day 0.jsonl"]
    assert found.report.searched == 1


def test_unchanged_log_files_are_skipped(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    ingest(local, tmp_path / "src")
    report = ingest(local, tmp_path / "src")
    assert (report.files_unchanged, report.files_added, report.chunks_committed) == (4, 0, 0)
    grown = tmp_path / "src" / "app0" / "day 0.jsonl"
    grown.write_bytes(grown.read_bytes() + b'{"n": 1}\n')
    (tmp_path / "src" / "new.jsonl").write_bytes(b'{"n": 5}\n')
    heard = Heard()
    report = ingest(local, tmp_path / "src", progress=heard)
    assert (report.files_unchanged, report.files_added, report.files_failed) == (3, 1, 1)
    [(path, kind, message)] = heard.problems
    assert (path, kind) == ("logs/src/app0/day 0.jsonl", "exists")
    assert "records in an archive cannot be replaced" in message
    assert ingest(local, tmp_path / "src", on_conflict=OnConflict.SKIP).files_skipped == 1
    with pytest.raises(Conflict):
        ingest(local, tmp_path / "src", on_conflict=OnConflict.FAIL)
    for chunk in local.chunks():
        local.rm(folders=[f"{chunk.uuid}.clp"])
    assert ingest(local, tmp_path / "src").files_added == 5
    assert len(search(local, "n: *")) == 4 * 20 + 2


def test_undelete_brings_no_log_file_back_twice(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    def let_go() -> str:
        ingest(local, tmp_path / "src")
        local.rm(folders=["."])
        return str(list(local.chunks())[-1].uuid)

    first, second = let_go(), let_go()
    heard = Heard()
    report = local.with_progress(heard).undelete(folders=["."])
    assert (report.files, report.files_taken, report.files_failed) == (7, 7, 0)
    message = f"archive {second} has the records of the log file 'logs/src/app0/day 0.jsonl' now"
    assert heard.problems[0] == (f"{first}.clp/0", "taken", message)
    assert {path.partition("/")[0] for path, *_ in heard.problems} == {f"{first}.clp"}
    assert search(local, "n: *") == all_of(logs)
    assert local.undelete([f"{first}.clp/0"]).files_taken == 1
    assert list(local.removed()) == []
    local.rm([f"{second}.clp/0"])  # the other sections are still live
    assert local.undelete(folders=[f"{first}.clp"]).files_taken == 7
    assert local.undelete([f"{second}.clp/0"]).files == 1
    local.rm(folders=["."])
    assert len(list(local.removed())) == 14
    assert local.undelete(folders=[f"{first}.clp"]).files == 7
    assert search(local, "n: *") == all_of(logs)
    assert [unit.state for unit in local.units()].count("committed") == len(logs)


def test_an_ingest_that_comes_to_its_commit_while_they_are_undeleted_gives_up(
    local: cafcat.Repository,
    open_at: Opener,
    folder: Folder,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
) -> None:
    ingest(local, tmp_path / "src")
    local.rm(folders=["."])
    locks = (
        "SELECT count(*) FROM pg_locks WHERE relation = 'file_locations'::regclass AND mode LIKE 'ShareRow%%'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    other = open_at(folder)
    ingesting: list[InBackground] = []

    def meanwhile() -> bool:
        if not ingesting and sql(other, locks) != [(0,)]:
            ingesting.append(in_background(lambda: ingest(open_at(folder), tmp_path / "src")))
            wait_for_a_waiting_statement(other)
        return False

    assert local.with_progress(Following(should_stop=meanwhile)).undelete(folders=["."]).files == 7
    with pytest.raises(Conflict, match="another archive has records of this log file"):
        ingesting[0].done()
    assert search(local, "n: *") == all_of(logs)


def test_undelete_restores_adopted_archives(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    """Adopted archives may have log files that other archives have."""
    ingest(local, tmp_path / "src")
    [own] = folder.folder.glob("*.clp")
    (tmp_path / "theirs.clp").write_bytes(own.read_bytes())
    local.adopt([tmp_path / "theirs.clp"])
    local.rm(folders=["theirs.clp"])
    assert local.undelete(folders=["theirs.clp"]).files == 7
    local.rm(folders=[own.name])
    assert local.undelete(folders=[own.name]).files == 7


def test_log_files_that_clp_s_refuses_fail_alone(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    for name in ("app0/bad.txt", "other.txt", "z.gz"):
        (tmp_path / "src" / name).write_bytes(b"no JSON\x00 at all\n")
    (tmp_path / "src" / "empty.jsonl").write_bytes(b"")
    (tmp_path / "src" / "odd\nname").write_bytes(b"{}\n")
    heard = Heard()
    report = ingest(local, tmp_path / "src", progress=heard)
    assert (report.files_added, report.files_failed, report.chunks_committed) == (5, 4, 1)
    names = {path.rpartition("src/")[2] for path, *_ in problems(heard)}
    assert names == {"app0/bad.txt", "other.txt", "z.gz", "odd\nname"}
    assert search(local, "n: *") == all_of(logs)


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\r\n" * 50_000])
def test_a_log_file_of_blank_lines_has_no_records(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path, content: bytes
) -> None:
    """clp-s itself accepts an empty log file, and no other without records."""
    (tmp_path / "x.jsonl").write_bytes(content)
    heard = Heard()
    report = ingest(local, tmp_path / "x.jsonl", progress=heard)
    assert (report.files_added, report.files_failed, report.bytes_added) == (1, 0, len(content))
    [unit] = local.units()
    assert (unit.log_file, unit.first_record, unit.end_record) == ("logs/x.jsonl", 0, 0)
    assert unit.source_bytes == len(content)
    assert ingest(local, tmp_path / "x.jsonl").files_unchanged == 1
    assert search(local, "n: *") == []


def test_a_record_with_an_odd_time_fails_its_log_file_alone(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    """clp-s has begun an archive when it meets the record, and leaves a folder behind."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "good").write_bytes(b'{"n": 1}\n')
    (tmp_path / "src" / "odd").write_bytes(b'{"at": "2026-11-23T00:00:00Z", "n": 2}\n{"at": "bla", "n": 3}\n')
    heard = Heard()
    report = ingest(local, tmp_path / "src", timestamp_key="at", progress=heard)
    assert (report.files_added, report.files_failed, report.chunks_committed) == (1, 1, 1)
    [(path, *_)] = problems(heard)
    assert path.endswith("src/odd")
    assert [record["n"] for record in search(local, "n: *")] == [1]


def test_source_with_only_refused_files(local: cafcat.Repository, clp_program: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"text")
    report = ingest(local, tmp_path / "x.txt")
    assert (report.files_failed, report.chunks_committed) == (1, 0)
    assert sql(local, "SELECT count(*) FROM chunks") == [(0,)]


def test_log_file_that_changes_is_left_for_the_next_run(
    local: cafcat.Repository,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer appends to the log file just when clp-s has finished."""
    compress = program.compress
    live_log = tmp_path / "src" / "app0" / "day 0.jsonl"

    def and_append(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(program, "compress", compress)
        finished = compress(*arguments, **options)
        with live_log.open("ab") as file:
            file.write(b'{"n": -1}\n')
        return finished

    monkeypatch.setattr(program, "compress", and_append)
    report = ingest(local, tmp_path / "src")
    assert (report.files_added, report.files_failed) == (3, 1)
    assert ingest(local, tmp_path / "src").files_added == 1
    assert len(search(local, "n: *")) == 4 * 20 + 1


def test_a_dry_run_changes_nothing(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    report = ingest(local, tmp_path / "src", dry_run=True)
    assert (report.files_added, report.chunks_committed) == (4, 0)
    assert sql(local, "SELECT count(*) FROM chunks") == [(0,)]


@pytest.mark.parametrize("target_size", [1, 1 << 20])
def test_a_dry_run_counts_a_log_file_of_two_sources_once(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]], target_size: int
) -> None:
    sources = [tmp_path / "src", tmp_path / "src" / "app0"]
    counts = []
    for dry_run in (True, False):
        report = ingest(local, *sources, dry_run=dry_run, target_size=target_size)
        counts.append((report.files_seen, report.files_added, report.files_unchanged, report.bytes_added))
    assert counts[0] == counts[1]
    assert counts[0][:3] == (6, 4, 2)


def test_a_dry_run_reports_a_log_file_that_changes_between_two_sources(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    def append() -> None:
        with (tmp_path / "src" / "app0" / "day 0.jsonl").open("ab") as file:
            file.write(b'{"n": -1}\n')

    sources = [tmp_path / "src", tmp_path / "src" / "app0"]
    options = {"dry_run": True, "target_size": 1, "progress": AfterFiles(1, append)}
    report = ingest(local, *sources, on_conflict=OnConflict.SKIP, **options)
    assert (report.files_added, report.files_unchanged, report.files_skipped) == (4, 1, 1)


def test_other_sources_are_refused(
    local: cafcat.Repository, bucket: Bucket, clp_program: Path, tmp_path: Path
) -> None:
    tarfile.open(tmp_path / "x.tar", "w").close()
    bucket.client.put_object(Bucket=bucket.bucket, Key="logs/x", Body=b"{}")
    for source in ("x.tar", f"s3://{bucket.bucket}/logs"):
        with pytest.raises(InvalidInput, match="only local files can be packed"):
            local.ingest([source], format="clp-s")
    with pytest.raises(InvalidInput, match="a timestamp key is for clp-s"):
        local.ingest([tmp_path], timestamp_key="x")
    assert sql(local, "SELECT count(*) FROM ingest_runs") == [(0,)]


def test_without_the_program_nothing_is_begun(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path / "src")
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install '\.\[clp\]'"):
        ingest(local, tmp_path / "src")
    assert sql(local, "SELECT count(*) FROM ingest_runs") == [(0,)]


def test_a_stop_leaves_whole_archives_and_no_temporary_files(
    local: cafcat.Repository,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    stops = [False]

    class Stopping(Heard):
        def chunk_committed(self, *_: object) -> None:
            stops[0] = True

    report = ingest(local, tmp_path / "src", target_size=1, progress=Stopping(), should_stop=lambda: stops[0])
    assert (report.interrupted, report.files_added, report.chunks_committed) == (True, 1, 1)
    assert list(temporary.iterdir()) == []
    report = ingest(local, tmp_path / "src")
    assert (report.files_unchanged, report.files_added) == (1, 3)
    assert search(local, "n: *") == all_of(logs)


def test_a_second_ctrl_c_leaves_nothing(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        if asked[0] > 6:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        ingest(local, tmp_path / "src", should_stop=stop)
    assert not list(folder.folder.glob("*.clp*"))
    assert sql(local, "SELECT count(*) FROM chunks WHERE state = 'writing'") == [(0,)]
    assert sql(local, "SELECT count(*) FROM ingestion_units") == [(0,)]


def test_verify_proves_every_byte(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    ingest(local, tmp_path / "src")
    [path] = folder.folder.glob("*.clp")

    def verdict(level: VerifyLevel) -> list[Any]:
        found: list[Any] = []
        local.with_progress(Following(on=found.append)).verify(level=level, restart=True)
        return found

    for level in (VerifyLevel.CATALOG, VerifyLevel.INDEX, VerifyLevel.DATA):
        assert {one.verdict for one in verdict(level)} == {"ok"}
    whole = path.read_bytes()
    for place in (20, 100, len(whole) - 3):  # in the header, the metadata, the last section
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert {one.verdict for one in verdict(VerifyLevel.DATA)} == {"damaged"}, place
    path.write_bytes(whole)


def test_rebuild_restores_archives_and_log_files(
    databases: Databases, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    with worlds(databases, tmp_path, str(tmp_path / "store")) as world:
        ingest(world.repository, tmp_path / "src", target_size=2000)
        world.repository.ingest([tmp_path / "src" / "app0"], prefix="files")
        world.assert_rebuilds(world.store)
        for key in world.journal():
            world.objects.delete(key)
        rebuilt, report = world.rebuilt(world.store)
        assert len(report.adopted) == len(list(world.repository.chunks()))
        mine = sorted(tuple(unit) for unit in map(_without_chunk, world.repository.units()))
        assert sorted(tuple(unit) for unit in map(_without_chunk, rebuilt.units())) == mine
        assert search(rebuilt, "n: *") == all_of(logs)
        assert ingest(rebuilt, tmp_path / "src").files_unchanged == 4


def _without_chunk(unit: Any) -> Any:
    return unit._replace(fields=json.dumps(unit.fields))


def test_copies_are_made_and_rebuilt_from(
    databases: Databases, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    with worlds(databases, tmp_path, str(tmp_path / "store")) as world:
        ingest(world.repository, tmp_path / "src")
        report = world.repository.copy(to=str(tmp_path / "second"))
        assert (report.copied, report.failed) == (1, ())
        rebuilt, _ = world.rebuilt(str(tmp_path / "second"), accept_loss=True)
        assert search(rebuilt, "n: *") == all_of(logs)


def test_prune_forgets_log_files(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    ingest(local, tmp_path / "src")
    local.rm(folders=["."])
    assert search(local, "n: *") == []
    assert local.prune(grace_seconds=0).chunks == 1
    assert not list(folder.folder.glob("*.clp"))
    assert list(local.units()) == []


def test_clp_s_reads_annotated_archives(
    local: cafcat.Repository,
    clp_program: Path,
    folder: Folder,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
) -> None:
    ingest(local, tmp_path / "src")
    [path] = folder.folder.glob("*.clp")
    store = local.session.stores[local.settings.store]
    assert ANNOTATION in {packet.kind for packet in CLP.reader(StoredObject(store, path.name)).packets}  # type: ignore[attr-defined]
    subprocess.run([clp_program, "x", path, tmp_path / "out"], check=True)
    lines = (tmp_path / "out" / "original").read_bytes().splitlines()
    assert sorted(map(json.loads, lines), key=lambda record: record["n"]) == all_of(logs)


KILLER = """
import sys
from tests.worlds.kills.killed_steps import Steps

steps = Steps(int(sys.argv[1]), after=True)
steps.count_files()
steps.count_statements()
from cafcat.__main__ import main
sys.argv = ["cafcat", "ingest", "-q", "--format", "clp-s", "--target-size", "2500", "--prefix", "logs", "src"]
main()
"""


def test_killed_ingest_neither_loses_nor_repeats_log_files(
    database_url: str, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    """A whole archive is adopted. Incomplete ones are removed."""
    store = Folder(tmp_path / "store")
    variables = environment(database_url, store.url, tmp_path / "home") | {"TMPDIR": str(tmp_path)}
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store.url) as repository:
        kills, found = 0, -1
        for step in itertools.count(12, 9):
            code = run_until_killed(KILLER, step, folder=tmp_path, variables=variables)
            kills += code == -signal.SIGKILL
            before, found = found, len(search(repository, "n: *"))
            assert before <= found
            if code == 0:
                break
            assert code == -signal.SIGKILL
        assert kills >= 3
        assert search(repository, "n: *") == all_of(logs)
        assert ingest(repository, tmp_path / "src").files_unchanged == 4
        states = dict(sql(repository, "SELECT object_key, state FROM chunks"))
        objects = {key for key in store.everything() if not key.startswith(("journal/", "catalogs/"))}
        assert objects == {key for key, state in states.items() if state == "committed"}
        assert sql(repository, "SELECT count(*) FROM chunks WHERE state = 'writing'") == [(0,)]


def leave_whole(repository: cafcat.Repository, source: Path) -> None:
    """Run an ingest that dies when the object of its archive is durable."""
    store = repository.session.stores[repository.settings.store]
    variables = environment(str(repository.settings.database_url), store.url, source.parent / "home")
    variables["TMPDIR"] = str(source.parent)
    killer = KILLER.replace("int(sys.argv[1])", "0").replace(
        "from cafcat.__main__ import main",
        "import os; from cafcat.catalog.chunks.commit import Commit\n"
        "Commit.commit_chunk = lambda *a, **k: os.kill(os.getpid(), 9)\nfrom cafcat.__main__ import main",
    )
    assert run_until_killed(killer, 0, folder=source.parent, variables=variables) == -signal.SIGKILL
    assert sql(repository, "SELECT state FROM chunks WHERE state = 'writing'") == [("writing",)]


def test_recover_adopts_a_whole_archive(
    local: cafcat.Repository, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    leave_whole(local, tmp_path / "src")
    report = local.recover()
    assert (report.adopted, report.abandoned, report.failed) == (1, 0, ())
    found = len(search(local, "n: *"))
    assert found > 0
    assert {unit.source_bytes is None for unit in local.units()} == {False}
    assert ingest(local, tmp_path / "src").files_unchanged == found // 20
    assert search(local, "n: *") == all_of(logs)


def test_recover_gives_up_an_archive_whose_log_files_another_run_took(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    leave_whole(local, tmp_path / "src")
    sql(local, "UPDATE chunks SET lease_owner = 'elsewhere:1:run 1'")
    [late] = folder.folder.glob("*.clp")
    kept = late.read_bytes()
    late.unlink()  # so that the next run does not pack it
    assert ingest(local, tmp_path / "src").files_added == 4
    late.write_bytes(kept)
    sql(local, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    report = local.recover()
    assert (report.adopted, report.abandoned) == (0, 1)
    assert not late.exists()
    assert search(local, "n: *") == all_of(logs)


def test_repack_and_repair_leave_archives_of_logs_alone(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, logs: dict[str, list[dict[str, Any]]]
) -> None:
    ingest(local, tmp_path / "src", target_size=2000)
    [first, *_] = chunks = list(local.chunks())
    local.rm(folders=[f"{first.uuid}.clp/0"])
    for options in ({"max_unused": 0.0}, {"small": 1 << 20}, {"format": "caf"}):
        assert follow(local, options).repack(**options).chunks == 0
    with pytest.raises(Unsupported, match="only be repacked into another format"):
        local.repack(chunks=[str(first.uuid)])
    heard = Heard()
    report = local.with_progress(heard).repair(chunks=[str(first.uuid)], from_copies=True)
    assert (report.chunks, report.chunks_written) == (0, 0)
    assert "which cannot be repaired" in heard.warnings[0]
    assert [chunk.state for chunk in local.chunks()] == ["committed"] * len(chunks)
    assert local.repack(chunks=[str(first.uuid)], format="caf").chunks_retired == 1


def test_one_of_two_runs_with_equal_log_files_gives_up(
    open_at: Opener,
    folder: Folder,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = open_at(folder), open_at(folder)
    compress = program.compress

    def while_another_runs(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(program, "compress", compress)
        assert ingest(second, tmp_path / "src").files_added == 4
        return compress(*arguments, **options)

    monkeypatch.setattr(program, "compress", while_another_runs)
    with pytest.raises(Conflict, match="another archive has records of this log file"):
        ingest(first, tmp_path / "src")
    assert search(first, "n: *") == all_of(logs)
    assert len(list(folder.folder.glob("*.clp"))) == 1
    assert ingest(first, tmp_path / "src").files_unchanged == 4


def test_where_clp_s_cannot_work_no_log_file_is_blamed(
    local: cafcat.Repository,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = tmp_path / "clp-s"
    broken.write_text("#!/bin/sh\necho 'T [error] no room' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(program, "program_path", lambda: broken)
    heard = Heard()
    with pytest.raises(program.ProgramFailed, match="cannot make an archive of a single record: no room"):
        ingest(local, tmp_path / "src", progress=heard)
    assert heard.problems == []


def test_next_run_removes_temporary_files_of_a_killed_one(
    local: cafcat.Repository,
    tmp_path: Path,
    logs: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leave_whole(local, tmp_path / "src")
    [left] = tmp_path.glob("cafcat-logs-*")
    young, other = tmp_path / "cafcat-logs-young", tmp_path / "other"
    young.mkdir()
    other.mkdir()
    for folder in (left, other):
        os.utime(folder, (0, 0))
    with temporary_folder("cafcat-logs-", "logs") as used:
        assert not left.exists()
        os.utime(used, (0, 0))
        ingest(local, tmp_path / "src")
        assert used.exists()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} >= {"cafcat-logs-young", "other", "src"}
    assert not used.exists()
