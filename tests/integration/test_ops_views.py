"""The views of cafcat_ops tell the truth after every kind of change."""

import random
import re
from itertools import combinations
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.named_queries import named_queries
from cafcat.errors import InvalidInput
from cafcat.model import OnConflict
from cafcat.progress import Progress
from tests.worlds.catalog_world import begin, commit, sql
from tests.worlds.places import Folder
from tests.worlds.servers.services import Databases

OLD = {"a/one": b"1", "a/b/two": b"22", "top": b"333"}


def files_of_run(repository: cafcat.Repository, run: int) -> set[str]:
    return {path for (path,) in sql(repository, "SELECT file_path FROM cafcat_ops.files_of_run(%s)", run)}


def run_of(repository: cafcat.Repository, path: str) -> int | None:
    [(run,)] = sql(repository, "SELECT run_id FROM cafcat_ops.files WHERE file_path = %s", path)
    return None if run is None else int(run)


def ends(repository: cafcat.Repository, path: str) -> list[tuple[object, ...]]:
    """Return how each earlier version ended, by which run, and whether it is known by whom."""
    statement = "SELECT ended_by, ended_by_run_id, ended_by_actor LIKE '%%@%%' FROM cafcat_ops.file_history "
    where = "WHERE file_path = %s AND current_until IS NOT NULL ORDER BY current_since"
    return sql(repository, statement + where, path)


def versions(repository: cafcat.Repository, path: str) -> list[tuple[object, ...]]:
    statement = "SELECT size_bytes, run_id, ended_by FROM cafcat_ops.file_history WHERE file_path = %s ORDER BY "
    return sql(repository, statement + "current_since", path)


def growth(repository: cafcat.Repository) -> tuple[int, int]:
    [(files, size)] = sql(repository, "SELECT sum(files), sum(bytes) FROM cafcat_ops.growth_by_day")
    return int(files), int(size)


def test_files_keep_their_run_and_their_time_through_repack_and_undelete(local: cafcat.Repository) -> None:
    commit(local, OLD)
    commit(local, {"a/one": b"1111", "new": b"5"})
    since = dict(sql(local, "SELECT file_path, current_since FROM cafcat_ops.files"))
    assert files_of_run(local, 1) == {"a/b/two", "top"}
    local.repack(max_unused=0.0, small=1 << 20)
    assert files_of_run(local, 1) == {"a/b/two", "top"}
    assert files_of_run(local, 2) == {"a/one", "new"}
    assert dict(sql(local, "SELECT file_path, current_since FROM cafcat_ops.files")) == since
    local.rm(["top"])
    assert files_of_run(local, 1) == {"a/b/two"}
    local.undelete(["top"])
    assert run_of(local, "top") == 1
    [(moved,)] = sql(local, "SELECT current_since FROM cafcat_ops.files WHERE file_path = 'top'")
    assert moved > since["top"]


def test_history_has_each_version_once(local: cafcat.Repository) -> None:
    commit(local, OLD)
    commit(local, {"a/one": b"1111"})
    local.repack(max_unused=0.0, small=1 << 20)
    local.rm(["a/one"])
    assert versions(local, "a/one") == [(1, 1, "replaced"), (4, 2, "removed")]
    [(ended, began)] = sql(
        local,
        "SELECT o.current_until, n.current_since FROM cafcat_ops.file_history AS o "
        "JOIN cafcat_ops.file_history AS n "
        "USING (file_path) WHERE file_path = 'a/one' AND o.run_id = 1 AND n.run_id = 2",
    )
    assert ended == began


def test_history_has_who_ended_a_version(local: cafcat.Repository, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in "abc":
        (tree / name).write_bytes(b"1")
    local.ingest([str(tree)], prefix="t")
    (tree / "a").write_bytes(b"22")
    (tree / "b").unlink()
    report = local.ingest([str(tree)], prefix="t", delete=True)
    [folder] = {path.rpartition("/")[0] for path in (location.path for location in local.list())}
    local.rm([f"{folder}/c"])
    assert ends(local, f"{folder}/a") == [("replaced", report.run, True)]
    assert ends(local, f"{folder}/b") == [("removed", report.run, True)]
    assert ends(local, f"{folder}/c") == [("removed", None, True)]
    removals = sql(local, named_queries()["removals"].text([]))
    assert [row[3] for row in removals] == [None, report.run]
    assert sql(local, "SELECT actor LIKE '%%@%%' FROM cafcat_ops.runs") == [(True,), (True,)]


def test_a_run_that_packs_nothing_has_an_actor(local: cafcat.Repository, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for added in (1, 0):
        assert local.ingest([str(tmp_path / "a")]).files_added == added
    rows = sql(local, "SELECT files_added, actor LIKE '%%@%%' FROM cafcat_ops.runs ORDER BY run_id")
    assert rows == [(1, True), (0, True)]


def test_growth_counts_no_moves_and_subtracts_removals(local: cafcat.Repository) -> None:
    commit(local, OLD)
    assert growth(local) == (3, 6)
    commit(local, {"a/one": b"1111"})
    assert growth(local) == (3, 9)
    local.repack(max_unused=0.0, small=1 << 20)
    assert growth(local) == (3, 9)
    local.rm(folders=["a"])
    assert growth(local) == (1, 3)
    local.undelete(folders=["a"])
    assert growth(local) == (3, 9)
    [(total,)] = sql(local, "SELECT files FROM cafcat_ops.folders WHERE depth = 0")
    assert total == 3


def test_changes_between_two_runs(local: cafcat.Repository) -> None:
    def ended(run: int) -> None:
        sql(local, "UPDATE ingest_runs SET finished_at = clock_timestamp(), state = 'finished' WHERE id = %s", run)

    commit(local, OLD | {"gone": b"x"})
    ended(1)
    commit(local, {"a/one": b"1111", "new": b"5", "twice": b"a"})
    local.rm(["gone"])
    ended(2)
    commit(local, {"twice": b"bb", "a/b/two": b"22"})
    local.rm(["new"])
    ended(3)
    local.repack(max_unused=0.0, small=1 << 20)
    assert [tuple(change) for change in local.changes_between(1, 2)] == [
        ("replaced", "a/one", 1, 4, 2),
        ("removed", "gone", 1, None, None),
        ("added", "new", None, 1, 2),
        ("added", "twice", None, 1, 2),
    ]
    assert [tuple(change) for change in local.changes_between(1, 3)] == [
        ("replaced", "a/one", 1, 4, 2),
        ("removed", "gone", 1, None, None),
        ("added", "twice", None, 2, 3),
    ]
    assert list(local.changes_between(3, 3)) == []
    with pytest.raises(InvalidInput, match=r"run 1 is not the later one: run 3 ended later; .* diff 1 3`"):
        local.changes_between(3, 1)


def test_a_removal_that_was_taken_back_is_no_change(local: cafcat.Repository) -> None:
    """Unless only the removal, or only the return, is between the two runs."""

    def ended(run: int) -> None:
        sql(local, "UPDATE ingest_runs SET finished_at = clock_timestamp(), state = 'finished' WHERE id = %s", run)

    def changes(first: int, last: int) -> list[tuple[str, str]]:
        return [(change.change, change.path) for change in local.changes_between(first, last)]

    commit(local, OLD)
    ended(1)
    for _ in range(2):
        local.rm(["top"])
        local.undelete(["top"])
    local.rm(["a/one"])
    commit(local, {"new": b"1"})
    ended(2)
    local.undelete(["a/one"])
    commit(local, {"newer": b"1"})
    ended(3)
    assert changes(1, 2) == [("removed", "a/one"), ("added", "new")]
    assert changes(2, 3) == [("added", "a/one"), ("added", "newer")]
    assert changes(1, 3) == [("added", "new"), ("added", "newer")]
    periods = sql(
        local,
        "SELECT current_since < current_until, ended_by, current_since - lag(current_until) OVER w > interval '0' "
        "FROM cafcat_ops.file_history WHERE file_path = 'top' WINDOW w AS (ORDER BY current_since) ORDER BY 1, 3",
    )
    assert periods == [(True, "removed", True), (True, "removed", None), (None, None, True)]
    local.repack(max_unused=0.0, small=1 << 20)
    assert changes(1, 3) == [("added", "new"), ("added", "newer")]


@pytest.mark.parametrize("seed", range(4))
def test_changes_between_any_two_runs_are_the_difference_of_the_files(local: cafcat.Repository, seed: int) -> None:
    """Whatever came after the later run: removals, returns of removed files, repacks."""
    chance = random.Random(seed)
    files: dict[str, bytes] = {}
    states: list[dict[str, bytes]] = []
    for run in range(1, 6):
        new = {path: chance.randbytes(chance.randint(2, 9)) for path in chance.sample("abcdef", 3)}
        commit(local, new)
        removed = sorted(chance.sample(sorted(files | new), 2))
        local.rm(removed)
        returned = [path for path in removed if chance.random() < 0.5]
        local.undelete(returned)
        files = {path: data for path, data in (files | new).items() if path not in removed or path in returned}
        sql(local, "UPDATE ingest_runs SET finished_at = clock_timestamp(), state = 'finished' WHERE id = %s", run)
        states.append(files)
        again = chance.choice(sorted(files))
        local.rm([again])
        local.undelete([again])
        if chance.random() < 0.5:
            local.repack(max_unused=0.0, small=1 << 20)
    for (first, old), (last, new) in combinations(enumerate(states, 1), 2):
        changed = {path for path in old | new if old.get(path) != new.get(path)}
        sizes = {path: tuple(len(s[path]) if path in s else None for s in (old, new)) for path in changed}
        found = {change.path: (change.old_bytes, change.new_bytes) for change in local.changes_between(first, last)}
        assert found == sizes, (first, last)


def test_lost_with_a_chunk_and_what_has_one_copy(local: cafcat.Repository, folder: Folder) -> None:
    chunk = commit(local, OLD)
    lost = "SELECT file_path FROM cafcat_ops.lost_with(%s) ORDER BY 1"
    assert sql(local, lost, chunk) == [("a/b/two",), ("a/one",), ("top",)]
    assert [str(row[0]) for row in sql(local, "SELECT chunk FROM cafcat_ops.single_copy")] == [chunk]
    local.copy(to=f"{folder.url}-copies")
    assert sql(local, lost, chunk) == []
    assert sql(local, "SELECT chunk FROM cafcat_ops.single_copy") == []
    [(copies,)] = sql(local, "SELECT copies FROM cafcat_ops.chunk_health")
    assert copies == 1


def test_a_copy_that_is_known_to_be_broken_is_no_copy(
    local: cafcat.Repository, folder: Folder, tmp_path: Path
) -> None:
    uuid = commit(local, OLD)
    second = tmp_path / "second"
    local.copy(to=str(second))
    lost = "SELECT count(*) FROM cafcat_ops.lost_with(%s)"
    single = "SELECT chunk::text, is_adopted FROM cafcat_ops.single_copy"
    copies = "SELECT copies FROM cafcat_ops.chunk_health"
    places = named_queries()["where-is"].text(["top"])
    of_store = named_queries()["lost-with-store"].text([str(folder.url)])
    of_copies = named_queries()["lost-with-store"].text([second.as_uri()])
    assert (sql(local, lost, uuid), sql(local, single), sql(local, copies)) == ([(0,)], [], [(1,)])
    [copy] = second.glob("*.caf")
    kept = copy.read_bytes()
    copy.unlink()
    local.verify()
    assert (sql(local, lost, uuid), sql(local, copies)) == ([(3,)], [(0,)])
    assert sql(local, single) == [(str(uuid), False)]
    assert [row[-1] for row in sql(local, places)] == [False, True]
    assert len(sql(local, of_store)) == 3
    assert local.session.catalog.totals.read().without_copy == 1
    copy.write_bytes(kept)
    local.verify()
    assert (sql(local, lost, uuid), sql(local, copies), sql(local, of_store)) == ([(0,)], [(1,)], [])
    assert sql(local, of_copies) == []
    local.session.stores[folder.url].delete(f"{uuid}.caf")
    local.verify()
    assert len(sql(local, of_copies)) == 3


def test_health_has_the_last_check(local: cafcat.Repository, folder: Folder) -> None:
    chunk = commit(local, OLD)
    health = "SELECT last_level, last_verdict, last_whole_at IS NOT NULL, is_readable FROM cafcat_ops.chunk_health"
    assert sql(local, health) == [(None, None, False, None)]
    assert len(sql(local, "SELECT chunk FROM cafcat_ops.unverified")) == 1
    local.verify(level="data")
    assert sql(local, health) == [("data", "ok", True, True)]
    assert sql(local, "SELECT chunk FROM cafcat_ops.unverified") == []
    folder.write(f"{chunk}.caf", bytes(len(folder.objects()[f"{chunk}.caf"])))
    local.verify(level="data")
    assert sql(local, health) == [("data", "damaged", True, False)]


def test_who_did_what_is_recorded(local: cafcat.Repository) -> None:
    commit(local, OLD)
    local.rm(["top"], dry_run=True)
    local.rm(["top"])
    local.undelete(iter(["top"]))
    local.rm(f"no/{number}" for number in range(30))
    local.rename_store(local.stores()[0].url, "main")
    rows = sql(local, "SELECT detail, options, actor LIKE '%%@%%' FROM events WHERE kind = 'command' ORDER BY id")
    assert [row[0] for row in rows] == ["rm", "undelete", "rm", "store rename"]
    assert rows[0][1] == rows[1][1] == {"paths": ["top"]}
    assert rows[2][1] == {"paths": [*(f"no/{number}" for number in range(20)), "and 10 more"]}
    assert all(row[2] for row in rows)


def test_a_rebuild_restores_runs_and_times(local: cafcat.Repository, folder: Folder, databases: Databases) -> None:
    first = commit(local, OLD | {"gone": b"x"})
    commit(local, {"a/one": b"1111", "new": b"5"})
    local.rm(["gone"])
    local.repack(max_unused=0.0, small=1 << 20)
    commit(local, {"later": b"later"})
    local.rm(["top"])
    local.undelete(["top"])
    local.prune(grace_seconds=0)
    [(state,)] = sql(local, "SELECT state FROM chunks WHERE uuid = %s", first)
    assert state == "deleted"
    files = "SELECT file_path, run_id, current_since FROM cafcat_ops.files ORDER BY 1"
    runs = "SELECT id, started_at, host, cafcat_version FROM ingest_runs ORDER BY id"
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=local.settings.home, store=folder.url) as other,
    ):
        other.rebuild()
        assert sql(other, files) == sql(local, files)
        assert sql(other, runs) == sql(local, runs)
        assert {run.state for run in other.runs()} == {"rebuilt"}
        assert files_of_run(other, 2) == {"a/one", "new"}
        assert growth(other) == (5, sum(len(content) for content in (b"1111", b"22", b"333", b"5", b"later")))
        with other.writer() as writer:
            writer.add("after", b"")
        assert max(run.id for run in other.runs()) == len(sql(local, runs)) + 1


def test_folders_of_odd_names_are_counted_alike_by_every_way(local: cafcat.Repository) -> None:
    """A new chunk counts its folders in Python, all other changes in SQL; db check compares them."""
    names = [
        "/lead",
        "a//b",
        "a/b/c",
        "a/b",
        "a/\n/x",
        "ü/é/日本",
        "%s/{0}/\\1",
        "_/%",
        "a.b/c",
        "A/b",
        "x/" * 1000 + "y",  # a regular expression of PostgreSQL takes at most 255 repetitions
    ]
    chunk = begin(local, {name: name.encode() for name in sorted(names, key=str.encode)})
    chunk.finish(OnConflict.REPLACE, Progress())
    assert local.session.catalog.reports.findings() == []
    commit(local, dict.fromkeys(names[:6], b"new") | {"b/c": b""})
    local.rm(names[3:8])
    local.undelete(names[4:6])
    assert local.session.catalog.reports.findings() == []
    local.session.catalog.folders.fold()
    assert sql(local, "SELECT count(*) FROM folder_deltas") == [(0,)]
    assert local.session.catalog.reports.findings() == []
    assert [total.path for total in local.folder_totals("a")] == ["a/\n/", "a//", "a/b/"]
    local.rm(folders=["."])
    assert list(local.folder_totals("", 50)) == []
    assert sql(local, "SELECT count(*) FROM folder_totals") == [(0,)]


def test_damage_stays_known_until_a_check_of_the_same_level(local: cafcat.Repository, folder: Folder) -> None:
    """A check of the index cannot see that the bytes of a file are wrong."""
    chunk = commit(local, OLD)
    path = Path(folder.folder) / f"{chunk}.caf"
    whole = path.read_bytes()
    path.chmod(0o600)
    at = local.locate("a/one").start_byte
    path.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    assert local.verify(level="data").damaged == 1
    assert local.verify(level="index").ok == 1
    health = "SELECT last_level, last_verdict, is_readable FROM cafcat_ops.chunk_health"
    damaged = named_queries()["damaged"].text([])
    files = named_queries()["damaged-files"].text([])
    assert sql(local, health) == [("data", "damaged", False)]
    assert [row[6] for row in sql(local, damaged)] == ["a/one"]
    assert [row[0] for row in sql(local, files)] == ["a/one"]
    path.write_bytes(whole)
    assert local.verify(level="data").ok == 1
    assert sql(local, health) == [("data", "ok", True)]
    assert sql(local, damaged) == sql(local, files) == []


def test_a_run_whose_process_died_has_its_counts(local: cafcat.Repository) -> None:
    commit(local, OLD)
    chunk = begin(local, {"a/one": b"other", "new": b"1"}, all_new=False)
    chunk.finish(OnConflict.REPLACE, Progress())
    run = local.runs(1)[0].id
    owner = re.sub(r"/\d+\]$", "/1]", owner_name("ingest"))  # a process with this number that began earlier
    sql(local, "UPDATE ingest_runs SET owner = %s, state = 'running', finished_at = NULL WHERE id = %s", owner, run)
    local.rm(["a/one", "new"])  # after the end of the run
    assert local.session.catalog.runs.fail_dead_runs() == 1
    last_commit = "SELECT max(committed_at) FROM chunks WHERE run_id = %s"
    assert sql(local, "SELECT finished_at FROM cafcat_ops.runs WHERE run_id = %s", run) == sql(
        local, last_commit, run
    )
    found = local.runs(1)[0]
    assert (found.files_added, found.files_replaced, found.bytes_added, found.chunks_committed) == (1, 1, 6, 1)
    assert found.state == "failed"
    late = begin(local, {"late": b"123"}, all_new=False)
    sql(local, "UPDATE chunks SET run_id = %s WHERE state = 'writing'", run)
    late.finish(OnConflict.REPLACE, Progress())
    found = local.runs(2)[1]
    assert found.id == run
    assert (found.files_added, found.files_replaced, found.bytes_added, found.chunks_committed) == (2, 1, 9, 2)
