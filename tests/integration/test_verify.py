"""verify: its findings, its selection of objects, and interrupted runs; on real folders, buckets and Postgres."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.rows import ChunkRow
from cafcat.catalog.chunks.verification import CheckResult, CheckTarget, TargetKey, VerifyScope
from cafcat.catalog.database_url import DatabaseUrl
from cafcat.errors import Corrupt, InvalidInput, NotFound, Unavailable
from cafcat.events import ObjectChecked
from cafcat.formats.caf.format import CAF
from cafcat.model import Finding, FindingKind, OnConflict, Verdict, VerifyLevel
from cafcat.operations.chosen_stores import store_to_write
from cafcat.operations.index_section import IndexSection
from cafcat.operations.joining import join_store
from cafcat.operations.verify import index_check as check_index
from cafcat.operations.verify.chunk_check import check_target
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.report import VerifyReport
from cafcat.progress import Progress
from cafcat.testing.formats import pack
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import sql
from tests.worlds.listeners import Following
from tests.worlds.normal_user import as_normal_user
from tests.worlds.servers.s3_server import S3Server

INDEX, DATA = VerifyLevel.INDEX, VerifyLevel.DATA
MODIFIED = 1_795_255_200_123_456_789
FILES = {"a/first": b"first", "a/second": bytes(range(256)) + b"!", "b/empty": b"", "ü/日本": b"unicode"}


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=tmp_path / "store") as repository:
        yield repository


def begin(repository: cafcat.Repository) -> OpenChunk:
    run = repository.session.catalog.runs.begin_run(sources=["tree"], options={}, version="0")
    store = store_to_write(repository.session)
    repository.session.catalog.stores.register(store.url)
    return OpenChunk(ChunkTarget(repository.session.catalog, store, CAF, run, "here:1:test"))


def finish(chunk: OpenChunk) -> str:
    """Finish a chunk, and return its uuid."""
    chunk.all_new = False
    return chunk.finish(OnConflict.REPLACE, Progress()).uuid


def commit(repository: cafcat.Repository, files: dict[str, bytes]) -> str:
    chunk = begin(repository)
    for path, content in files.items():
        chunk.add(path, content, MODIFIED)
    return finish(chunk)


def file_of(repository: cafcat.Repository, uuid: str) -> Path:
    return Path(repository.settings.store) / f"{uuid}.caf"


def targets(repository: cafcat.Repository) -> list[CheckTarget]:
    verification = repository.session.catalog.verification
    run = verification.begin(DATA, {"test": True}, restart=False)
    return verification.targets(run.id, VerifyScope(DATA), TargetKey(0, 0))


def check(repository: cafcat.Repository, target: CheckTarget, level: VerifyLevel = DATA) -> CheckResult:
    result = check_target(repository.session, target, level)
    assert result is not None
    return result


def verify(
    repository: cafcat.Repository, sources: list[str] | None = None, **options: Any
) -> tuple[VerifyReport, list[ObjectChecked]]:
    checked: list[ObjectChecked] = []
    report = repository.with_progress(Following(on=checked.append)).verify(sources or [], **options)
    return report, checked


def found(checked: list[ObjectChecked]) -> list[tuple[str, str | None]]:
    """Return kinds and paths of all findings."""
    return [(str(finding.kind), finding.path) for one in checked for finding in one.findings]


def verdicts(report: VerifyReport) -> dict[str, int]:
    return {verdict: getattr(report, verdict) for verdict in Verdict if getattr(report, verdict)}


# Findings


@pytest.fixture
def with_gap(repository: cafcat.Repository) -> CheckTarget:
    """A chunk with small files, an empty one, an abandoned one, and a retired one."""
    chunk = begin(repository)
    chunk.add("a/first", b"first", MODIFIED)
    given_up = chunk.open("a/given up", MODIFIED)
    given_up.write(b"dead bytes")
    given_up.abandon()
    chunk.add("b/empty", b"", MODIFIED)
    chunk.add("b/old", b"old content", MODIFIED)
    chunk.add("ü/日本", b"unicode", None)
    finish(chunk)
    commit(repository, {"b/old": b"newer"})
    return targets(repository)[0]


def spans(repository: cafcat.Repository, target: CheckTarget) -> list[tuple[int, int, str]]:
    rows = "SELECT start_byte, end_byte, file_path FROM {} WHERE caf_file_id = %s"
    both = " UNION ALL ".join(map(rows.format, ("file_locations", "retired_locations")))
    return [row for row in sql(repository, both, target.chunk_id, target.chunk_id) if row[0] < row[1]]


@pytest.mark.parametrize("index_known", [True, False])
def test_every_flipped_byte_is_found_and_named(
    repository: cafcat.Repository, with_gap: CheckTarget, index_known: bool
) -> None:
    """Each byte of the object is flipped in turn.

    Without a recorded checksum of the index, damage there cannot be distinguished from damage in a gap, unless the
    index itself is invalid.
    """
    target = with_gap if index_known else with_gap._replace(index_crc32c=None)
    file = file_of(repository, str(target.uuid))
    files = spans(repository, target)
    assert check(repository, target).verdict is Verdict.OK
    kinds = set()
    for byte in range(target.size_bytes):
        flip(file, byte, bits=1 << byte % 8)
        result = check(repository, target)
        flip(file, byte, bits=1 << byte % 8)
        in_files = [path for start, end, path in files if start <= byte < end]
        assert result.verdict is Verdict.DAMAGED, byte
        if in_files:
            assert [(finding.kind, finding.path) for finding in result.findings] == [("file", *in_files)]
        elif byte < target.index_start_byte:
            [finding] = result.findings
            assert (finding.kind, finding.start_byte, finding.end_byte) == ("gap", 5, 15)
        elif index_known:
            [finding] = result.findings
            assert (finding.kind, finding.start_byte) == ("index", target.index_start_byte)
        else:
            assert {finding.kind for finding in result.findings} <= {"index", "gap"}
        kinds |= {finding.kind for finding in result.findings}
    assert kinds == {"file", "gap", "index"}
    assert check(repository, target).verdict is Verdict.OK


def test_every_flipped_byte_of_the_index_is_found_at_level_index(
    repository: cafcat.Repository, with_gap: CheckTarget
) -> None:
    file = file_of(repository, str(with_gap.uuid))
    for byte in range(with_gap.index_start_byte - 3, with_gap.size_bytes):
        flip(file, byte)
        result = check(repository, with_gap, INDEX)
        flip(file, byte)
        expected = ["index"] if byte >= with_gap.index_start_byte else []
        assert [finding.kind for finding in result.findings] == expected, byte


def test_damage_of_several_kinds_at_once(repository: cafcat.Repository, with_gap: CheckTarget) -> None:
    file = file_of(repository, str(with_gap.uuid))
    for byte in (0, 16, with_gap.size_bytes - 1):
        flip(file, byte)
    result = check(repository, with_gap)
    assert [(finding.kind, finding.path) for finding in result.findings] == [
        ("index", None),
        ("file", "a/first"),
        ("file", "b/old"),
    ]
    assert result.findings[2].detail.endswith("; no live file needs them")


def test_files_across_blocks(repository: cafcat.Repository) -> None:
    """Blocks have 1 MiB. Files end before, at and after their ends."""
    size = 1 << 20
    sizes = [size - 1, 1, 0, size, 3, size * 2 + 5, size - 9, 0, 7]
    commit(repository, {f"f{n}": random.Random(n).randbytes(size) for n, size in enumerate(sizes)})
    [target] = targets(repository)
    assert check(repository, target).verdict is Verdict.OK
    for start, end, path in spans(repository, target):
        for byte in {start, end - 1}:
            flip(file_of(repository, str(target.uuid)), byte)
            assert [finding.path for finding in check(repository, target).findings] == [path]
            flip(file_of(repository, str(target.uuid)), byte)


def test_an_object_that_is_too_short_or_too_long(repository: cafcat.Repository, with_gap: CheckTarget) -> None:
    file = file_of(repository, str(with_gap.uuid))
    whole = file.read_bytes()
    file.write_bytes(whole[: with_gap.index_start_byte - 1])
    kinds = [(finding.kind, finding.path) for finding in check(repository, with_gap).findings]
    assert kinds == [("size", "ü/日本")]
    assert {finding.kind for finding in check(repository, with_gap, INDEX).findings} == {"size"}
    file.write_bytes(whole[:-1])
    kinds = [(finding.kind, finding.path) for finding in check(repository, with_gap).findings]
    assert kinds == [("size", None)]
    file.write_bytes(whole + b"!")
    for level in (INDEX, DATA):
        assert [finding.kind for finding in check(repository, with_gap, level).findings] == ["size"]
    file.write_bytes(b"")
    [finding] = check(repository, with_gap).findings
    assert (finding.kind, finding.file_count, finding.is_live) == ("size", 3, True)


def test_a_truncated_chunk_is_one_finding_with_a_count_and_ten_names(repository: cafcat.Repository) -> None:
    uuid = commit(repository, {f"f{n:02}": b"content" for n in range(40)})
    commit(repository, {"f30": b"newer"})
    os.truncate(file_of(repository, uuid), 7 * 15)
    for level in ("index", "data"):
        report, [cut, _] = verify(repository, level=level)
        assert verdicts(report) == {"ok": 1, "damaged": 1}
        [finding] = cut.findings
        assert (finding.kind, finding.path, finding.file_count, finding.start_byte) == ("size", "f15", 25, 105)
        names = ", ".join(f"f{n}" for n in range(15, 25))
        assert f"25 files cut off, 24 of them live: {names} and 15 more" in finding.detail
        assert "its index is cut off" in finding.detail
    rows = sql(repository, "SELECT file_path, file_count, is_live FROM findings")
    assert rows == [("f15", 25, True)] * 2


def test_damage_without_live_files_gives_the_verdict_ok(repository: cafcat.Repository) -> None:
    """Thus verify succeeds after a repair, before the old chunk is pruned a week later."""
    uuid = commit(repository, FILES)
    path = next(iter(FILES))
    start = sql(repository, "SELECT start_byte FROM file_locations WHERE file_path = %s", path)[0][0]
    flip(file_of(repository, uuid), start)
    commit(repository, {path: b"newer"})
    report, [checked, _] = verify(repository, level="data")
    assert (verdicts(report), report.unneeded, report.findings) == ({"ok": 1}, 1, 1)
    assert [(finding.path, finding.is_live) for finding in checked.findings] == [(path, False)]
    assert sql(repository, "SELECT verdict FROM verifications ORDER BY id") == [("damaged",), ("ok",)]


@pytest.mark.parametrize("fault", ["flipped", "missing"])
def test_verify_succeeds_after_a_repair(repository: cafcat.Repository, tmp_path: Path, fault: str) -> None:
    join_store(repository.session, repository.session.stores[repository.settings.store])
    uuid = commit(repository, FILES)
    repository.copy([uuid], to=str(tmp_path / "copies"))
    if fault == "missing":
        file_of(repository, uuid).unlink()
    else:
        flip(file_of(repository, uuid), 0)
    assert set(verdicts(verify(repository, level="data")[0])) == {
        "ok",
        "missing" if fault == "missing" else "damaged",
    }
    repository.repair(from_copies=True)
    report, _ = verify(repository, level="data")
    assert (verdicts(report), report.unneeded) == ({"ok": 2}, 1)


def test_an_object_that_is_missing(repository: cafcat.Repository) -> None:
    uuid = commit(repository, FILES)
    file_of(repository, uuid).unlink()
    report, [checked] = verify(repository)
    assert verdicts(report) == {"missing": 1}
    assert [(finding.kind, finding.file_count) for finding in checked.findings] == [("missing", len(FILES))]
    shutil.rmtree(repository.settings.store)
    assert verdicts(verify(repository, level="data")[0]) == {"unreadable": 1}


def test_a_store_that_does_not_answer_is_no_damage(repository: cafcat.Repository) -> None:
    commit(repository, FILES)
    sql(repository, "UPDATE stores SET url = 'unheard-of://store'")
    [target] = targets(repository)
    result = check(repository, target)
    assert (result.verdict, result.findings[0].kind) == (Verdict.UNREADABLE, FindingKind.UNREADABLE)


def test_the_history_of_verifies_has_stores_that_are_out_of_reach(repository: cafcat.Repository) -> None:
    commit(repository, FILES)
    folder = Path(repository.settings.store)
    folder.rename(folder.with_name("away"))
    for _ in range(2):  # the first one is finished: the second one does not go on
        assert verify(repository)[0].unreadable == 1
    assert sql(repository, "SELECT id, scope FROM verify_runs ORDER BY 1") == [
        (number, {"out_of_reach": [folder.as_uri()]}) for number in (1, 2)
    ]


class _Then(Progress):
    """Calls a function once, when the check has read this many bytes."""

    def __init__(self, size_bytes: int, function: Callable[[], object]) -> None:
        self._left_bytes = size_bytes
        self._function = function

    def advance(self, files: int, size_bytes: int) -> None:
        before, self._left_bytes = self._left_bytes, self._left_bytes - size_bytes
        if before > 0 >= self._left_bytes:
            self._function()


def test_an_object_that_becomes_shorter_during_the_check_is_damaged(repository: cafcat.Repository) -> None:
    file = file_of(repository, commit(repository, FILES))
    [target] = targets(repository)
    cut = _Then(1, lambda: os.truncate(file, 100))  # after the index was read
    result = check(repository.with_progress(cut), target)
    assert [(finding.kind, finding.path) for finding in result.findings] == [("file", "a/first")]
    assert "these bytes cannot be read" in result.findings[0].detail
    assert result.verdict is Verdict.DAMAGED


def test_an_object_that_is_deleted_during_the_check_is_missing(repository: cafcat.Repository) -> None:
    file = file_of(repository, commit(repository, FILES))
    [target] = targets(repository)
    result = check(repository.with_progress(_Then(1, file.unlink)), target)
    assert (result.verdict, [finding.kind for finding in result.findings]) == (Verdict.MISSING, ["missing"])


@pytest.mark.parametrize("is_damaged", [True, False])
def test_damage_stays_damage_if_the_store_fails_after_it_was_found(
    repository: cafcat.Repository, tmp_path: Path, is_damaged: bool
) -> None:
    """The file of an adopted archive is read for its data, and then for its index."""
    archive = tmp_path / "adopted.caf"
    data, _, _ = pack(CAF, [(path, content, None) for path, content in FILES.items()])
    archive.write_bytes(data)
    repository.adopt([archive])
    if is_damaged:
        flip(archive, 3)

    [target] = targets(repository)
    with ExitStack() as stack:

        def refuse() -> None:
            archive.chmod(0)
            stack.enter_context(as_normal_user())

        result = check(repository.with_progress(_Then(1, refuse)), target)
    kinds = [finding.kind for finding in result.findings]
    if is_damaged:
        assert (result.verdict, kinds) == (Verdict.DAMAGED, ["file", "unreadable"])
    else:
        assert (result.verdict, kinds) == (Verdict.UNREADABLE, ["unreadable"])
    assert result.is_conclusive is is_damaged


def test_an_object_that_this_user_may_not_read_has_no_result(repository: cafcat.Repository, tmp_path: Path) -> None:
    """Otherwise `repair` of another user would pack the files of undamaged chunks again."""
    commit(repository, FILES)
    [target] = targets(repository)
    path = Path(repository.session.stores[target.store].locate(target.object_key))
    path.chmod(0)
    with as_normal_user():
        result = check(repository, target)
    assert (result.verdict, result.is_conclusive) == (Verdict.UNREADABLE, False)
    path.chmod(0o644)
    assert check(repository, target).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE file_locations SET crc32c = crc32c # 1 WHERE file_path = 'a/first'", ["a/first"]),
        ("UPDATE file_locations SET end_byte = end_byte - 1 WHERE file_path = 'a/first'", ["a/first"]),
        ("UPDATE file_locations SET file_path = 'a/furst' WHERE file_path = 'a/first'", ["a/first", "a/furst"]),
        ("UPDATE file_locations SET modified_at = NULL WHERE file_path = 'b/empty'", ["b/empty"]),
        ("UPDATE file_locations SET modified_at = modified_at + '1us' WHERE file_path = 'ü/日本'", ["ü/日本"]),
        ("DELETE FROM file_locations WHERE file_path = 'ü/日本'", ["ü/日本"]),
        ("INSERT INTO file_locations VALUES (1, 0, 0, 0, NULL, 'new')", ["new"]),
    ],
)
def test_wrong_rows_are_named(repository: cafcat.Repository, statement: str, expected: list[str]) -> None:
    """The object is whole, and the catalog is wrong."""
    commit(repository, FILES)
    sql(repository, statement)
    [target] = targets(repository)
    for level in (INDEX, DATA):
        result = check(repository, target, level)
        assert {finding.kind for finding in result.findings} == {"mapping"}
        assert sorted({str(finding.path) for finding in result.findings}) == expected


def test_rows_that_share_bytes(repository: cafcat.Repository) -> None:
    commit(repository, {"a": b"0123456789", "b": b"abc"})
    sql(repository, "UPDATE file_locations SET start_byte = 5 WHERE file_path = 'b'")
    [target] = targets(repository)
    details = [(finding.path, finding.kind) for finding in check(repository, target).findings]
    assert details == [("b", "mapping")] * 3  # differs from the index, shares bytes, and has another checksum
    assert any("share bytes" in message for message in repository.session.catalog.reports.findings())


def test_findings_are_a_thousand_of_each_kind_at_most_and_the_rest_is_counted(
    repository: cafcat.Repository,
) -> None:
    uuid = commit(repository, {f"f{n:05}": b"content" for n in range(2500)})
    file = file_of(repository, uuid)
    file.write_bytes(bytes(file.stat().st_size))
    [target] = targets(repository)
    findings = check(repository, target).findings
    assert [finding.kind for finding in findings] == ["index", *["file"] * 1001]
    assert findings[-1] == Finding(FindingKind.FILE, "and 1,500 more of this kind", file_count=1500)


def test_an_index_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the index may be unrelated to that of the rows, as for empty files of a tar.

    That is no problem, but other problems are still found.
    """
    names = [f"e{n}" for n in range(200)]
    random.Random(1).shuffle(names)
    data, _, finished = pack(CAF, [(name, b"", None) for name in names])
    rows = [ChunkRow(name, 0, 0, 0, None, True) for name in sorted(names)]
    for pending in (10, 1000):
        monkeypatch.setattr(check_index, "_PENDING", pending)
        moved = [rows[0]._replace(end_byte=1), *rows[1:]]
        for changed, names in (
            (rows, []),
            (rows[:-1], [rows[-1].path]),
            ([*rows[1:], rows[1]], [rows[0].path, rows[1].path]),
            (moved, [rows[0].path]),
        ):
            findings = Findings()
            with IndexSection("test", finished.index_start_byte, [data]) as section:
                check_index.compare(CAF.reader(section).entries(), changed, findings, Progress())
            assert sorted(str(finding.path) for finding in findings.listed()) == names


def test_missing_row_at_the_beginning_is_named(repository: cafcat.Repository) -> None:
    """The rows that follow still match the index."""
    commit(repository, {f"f{n:05}": b"content" for n in range(3000)})
    sql(repository, "DELETE FROM file_locations WHERE file_path = 'f00001'")
    [target] = targets(repository)
    assert [finding.path for finding in check(repository, target, INDEX).findings] == ["f00001"]


def test_retired_chunks_and_copies_are_verified(repository: cafcat.Repository, tmp_path: Path) -> None:
    first = commit(repository, FILES)
    commit(repository, FILES)
    assert sql(repository, "SELECT state FROM chunks ORDER BY id") == [("retired",), ("committed",)]
    copies = tmp_path / "copies"
    copies.mkdir()
    shutil.copy(file_of(repository, first), copies / "copy.caf")
    sql(repository, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", copies.as_uri())
    sql(
        repository,
        "INSERT INTO chunk_copies (chunk_id, store, object_key, state, committed_at) "
        "VALUES (1, %s, 'copy.caf', 'committed', now())",
        copies.as_uri(),
    )
    report, checked = verify(repository, level="data")
    assert verdicts(report) == {"ok": 3}
    assert [one.is_copy for one in checked] == [False, True, False]
    flip(copies / "copy.caf", 0)
    flip(file_of(repository, first), 6)
    report, checked = verify(repository, level="data")
    assert (verdicts(report), report.unneeded) == ({"ok": 1}, 2)
    assert found(checked) == [("file", "a/second"), ("file", "a/first")]
    assert verdicts(verify(repository, level="data", store=str(copies))[0]) == {}
    rows = sql(repository, "SELECT chunk_id, copy_id, verdict FROM verifications WHERE run_id = 2 ORDER BY id")
    assert rows == [(1, None, "damaged"), (1, 1, "damaged"), (2, None, "ok")]
    assert [chunk.id for chunk in repository.session.catalog.verification.damaged()] == [1]


def test_chunk_that_is_deleted_meanwhile_is_no_damage(repository: cafcat.Repository) -> None:
    uuids = [commit(repository, {f"f{n}": b"content"}) for n in range(3)]
    gone: list[str] = []

    def delete(_: ObjectChecked) -> None:
        for uuid in uuids[1:]:
            sql(repository, "UPDATE chunks SET state = 'deleted', retired_at = now() WHERE uuid = %s", uuid)
            sql(repository, "DELETE FROM file_locations WHERE file_path <> 'f0'")
            file_of(repository, uuid).unlink(missing_ok=True)
            gone.append(uuid)

    report = repository.with_progress(Following(on=delete)).verify(level="data")
    assert (verdicts(report), report.gone) == ({"ok": 1}, 2)
    assert sql(repository, "SELECT chunk_id FROM verifications") == [(1,)]
    assert report.interrupted is False


# Selection of objects


def test_the_history_is_in_sql(repository: cafcat.Repository) -> None:
    uuid = commit(repository, FILES)
    flip(file_of(repository, uuid), 0)
    report, _ = verify(repository, level="data")
    size_bytes = file_of(repository, uuid).stat().st_size
    assert (report.files_checked, report.bytes_read, report.findings) == (len(FILES), size_bytes, 1)
    columns = "level, verdict, files_checked, bytes_read, finding_count, finished_at >= started_at"
    assert sql(repository, f"SELECT {columns} FROM verifications") == [
        ("data", "damaged", len(FILES), size_bytes, 1, True)
    ]
    columns = "kind, file_path, start_byte, end_byte"
    assert sql(repository, f"SELECT {columns} FROM findings") == [("file", "a/first", 0, 5)]
    assert sql(repository, "SELECT finished_at IS NOT NULL, level FROM verify_runs") == [(True, "data")]
    [finding] = repository.session.catalog.verification.findings(1)
    assert (finding.kind, finding.path) == (FindingKind.FILE, "a/first")


def test_options_that_select_chunks(repository: cafcat.Repository) -> None:
    uuids = [commit(repository, {f"t{n}/f": b"1", f"t{n}/x/y": b"2"}) for n in range(3)]

    def which(**options: Any) -> list[int]:
        return [uuids.index(str(one.chunk)) for one in verify(repository, **options)[1]]

    assert which() == [0, 1, 2]
    assert which(chunks=[uuids[2][:8], uuids[0]]) == [0, 2]
    assert which(prefix="t1") == which(prefix="t1/") == which(prefix="t1/x") == which(prefix="t1/f") == [1]
    for prefix in ("t", "t1/x/y/z"):
        with pytest.raises(NotFound, match="no such file or folder"):
            which(prefix=prefix)
    assert which(store=repository.settings.store) == [0, 1, 2]
    with pytest.raises(NotFound):
        which(chunks=["00000000"])
    for wrong in (
        {"sample": 0.0},
        {"sample": 1.1},
        {"sources": ["x"]},
        {"level": "source"},
        {"level": "catalog", "prefix": "a"},
        {"level": "catalog", "sample": 0.5},
        {"jobs": 0},
    ):
        with pytest.raises(InvalidInput):
            verify(repository, **wrong)


def test_a_file_that_was_replaced_still_leads_to_its_chunk(repository: cafcat.Repository) -> None:
    commit(repository, {"a/f": b"1", "b/f": b"1"})
    commit(repository, {"a/f": b"2"})
    assert len(verify(repository, prefix="a")[1]) == 2
    assert len(verify(repository, prefix="b")[1]) == 1


def test_older_than(repository: cafcat.Repository) -> None:
    uuids = [commit(repository, {f"f{n}": b"content"}) for n in range(2)]

    def which(level: str, days: int = 90) -> list[int]:
        checked = verify(repository, level=level, older_than=days * 86_400)[1]
        return [uuids.index(str(one.chunk)) for one in checked]

    assert which("index") == [0, 1]
    assert which("index") == []
    assert which("data") == [0, 1], "an index that is right says nothing about the data"
    sql(repository, "DELETE FROM verifications WHERE level = 'index'")
    assert which("index") == [], "who looks at the data looks at the index, too"
    sql(repository, "UPDATE verifications SET finished_at = now() - interval '10 days' WHERE chunk_id = 2")
    assert which("index", 9) == [1]
    flip(file_of(repository, uuids[0]), 0)
    verify(repository, level="data")
    assert which("index") == [0], "a damaged chunk is not checked again"
    assert which("data") == [0]


def test_a_sample(repository: cafcat.Repository) -> None:
    for n in range(10):
        commit(repository, {f"f{n}": b"content"})

    def which(sample: float, **options: Any) -> set[str]:
        return {str(one.chunk) for one in verify(repository, sample=sample, **options)[1]}

    assert [len(which(sample)) for sample in (0.01, 0.1, 0.25, 0.5, 1)] == [1, 1, 3, 5, 10]
    samples = [frozenset(which(0.3)) for _ in range(10)]
    assert len(set(samples)) > 1, "each run draws anew"


def interrupted_after(repository: cafcat.Repository, objects: int, **options: Any) -> list[str]:
    """Stop when this number of objects is checked, and return their chunks."""
    checked: list[str] = []
    report = repository.with_progress(
        Following(on=lambda one: checked.append(str(one.chunk)), should_stop=lambda: len(checked) >= objects)
    ).verify(
        **options,
    )
    assert report.interrupted
    assert len(checked) == objects
    return checked


@pytest.mark.parametrize("options", [{}, {"level": "data", "sample": 0.6}, {"older_than": 1}])
def test_interrupted_verify_is_resumed(repository: cafcat.Repository, options: dict[str, Any]) -> None:
    for n in range(10):
        commit(repository, {f"f{n}": b"content"})
    first = interrupted_after(repository, 2, **options)
    commit(repository, {"later": b"content"})
    other, _ = verify(repository, level="catalog")
    assert not other.resumed
    second = interrupted_after(repository, 1, **options)
    report, checked = verify(repository, **options)
    third = [str(one.chunk) for one in checked]
    assert report.resumed
    expected = 6 if "sample" in options else 10
    assert len({*first, *second, *third}) == len(first + second + third) == expected
    assert verdicts(report) == {"ok": expected}, "the report is that of the whole run"
    again, _ = verify(repository, **options)
    assert not again.resumed


def test_restart(repository: cafcat.Repository) -> None:
    for n in range(3):
        commit(repository, {f"f{n}": b"content"})
    interrupted_after(repository, 1)
    interrupted_after(repository, 1, restart=True)
    report, checked = verify(repository)
    assert (report.resumed, len(checked)) == (True, 2)
    report, checked = verify(repository)
    assert (report.resumed, len(checked)) == (False, 3), "an abandoned run was resumed"


PROGRAM = """
import os, signal, sys, cafcat
from pathlib import Path
folder = Path(sys.argv[2])
with cafcat.open(database_url=sys.argv[1], home=folder / "home", store=folder / "store") as repository:
    class KillAfterTwo(cafcat.Progress):
        checked = 0
        def emit(self, event):
            self.checked += 1
            if self.checked == 2:
                os.kill(os.getpid(), signal.SIGKILL)
    repository.with_progress(KillAfterTwo()).verify(level="data", jobs=int(sys.argv[3]))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_verify_is_resumed(repository: cafcat.Repository, tmp_path: Path, jobs: int) -> None:
    for n in range(5):
        commit(repository, {f"f{n}": b"content"})
    assert repository.settings.database_url
    arguments = [sys.executable, "-c", PROGRAM, repository.settings.database_url, str(tmp_path), str(jobs)]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert sql(repository, "SELECT count(*) FROM verifications") == [(2,)]
    report, checked = verify(repository, level="data")
    assert (report.resumed, len(checked), report.ok) == (True, 3, 5)
    assert sql(repository, "SELECT count(DISTINCT chunk_id) FROM verifications") == [(5,)]


def test_when_should_stop_raises_the_chunk_at_hand_is_dropped(repository: cafcat.Repository) -> None:
    for n in range(3):
        commit(repository, {f"f{n}": b"content" * 1000})

    def stop() -> bool:
        if len(checked) == 1:
            raise KeyboardInterrupt
        return False

    for jobs in (1, 2):
        checked: list[ObjectChecked] = []
        with pytest.raises(KeyboardInterrupt):
            repository.with_progress(Following(on=checked.append, should_stop=stop)).verify(
                level="data",
                jobs=jobs,
            )
    assert children() == []
    assert sql(repository, "SELECT count(*) FROM verifications") == [(2,)]
    report, _ = verify(repository, level="data")
    assert (report.resumed, report.ok) == (True, 3)


def test_without_another_connection(repository: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may take no further connection."""
    for n in range(3):
        commit(repository, {f"{n}": b"content"})
    nowhere = Catalog(DatabaseUrl("postgresql://127.0.0.1:1/none"))
    monkeypatch.setattr(Catalog, "_copy", lambda _: nowhere)
    report, _ = verify(repository, level="data")
    assert report.ok == 3
    monkeypatch.setattr("cafcat.operations.verify.run._WORTH_WORKERS_FILES", 0)
    monkeypatch.setattr("cafcat.operations.verify.worker.check_in_workers", None)  # is not called
    assert verify(repository, level="data")[0].ok == 3


# Other processes


def children() -> list[int]:
    """Return the worker processes of this process that are running."""
    own = str(os.getpid())
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split() if folder.name.isdigit() else []
            command = (folder / "cmdline").read_text(errors="replace") if fields else ""
            if fields and fields[1] == own and fields[0] != "Z" and "verify.worker" in command:
                found.append(int(folder.name))
    return found


def test_several_processes_have_the_findings_of_one(repository: cafcat.Repository) -> None:
    uuids = [commit(repository, {f"f{n}/{m}": bytes([m]) * 2000 for m in range(50)}) for n in range(5)]
    flip(file_of(repository, uuids[1]), 0)
    file_of(repository, uuids[3]).unlink()
    results = []
    for jobs in (1, 2, 8):
        report, checked = verify(repository, level="data", jobs=jobs)
        checked.sort(key=lambda one: uuids.index(str(one.chunk)))
        results.append((verdicts(report), report.bytes_read, report.files_checked, checked))
    assert results[0] == results[1] == results[2]
    assert results[0][0] == {"ok": 3, "damaged": 1, "missing": 1}
    assert children() == []


def test_dead_worker_is_reported_and_the_next_verify_continues(repository: cafcat.Repository) -> None:
    for n in range(4):
        commit(repository, {f"f{n}": b"content"})
    killed = []

    def stop() -> bool:
        for process in children():
            os.kill(process, signal.SIGKILL)
            killed.append(process)
        return False

    with pytest.raises(Unavailable, match="died"):
        repository.with_progress(Following(should_stop=stop)).verify(level="data", jobs=2)
    assert killed
    assert children() == []
    report, _ = verify(repository, level="data")
    assert (report.resumed, report.ok) == (True, 4)


# Chunks with a damaged verdict


def test_damaged_chunks_for_repair(repository: cafcat.Repository) -> None:
    uuids = [commit(repository, {f"f{n}": b"content"}) for n in range(3)]

    def damaged() -> list[tuple[str, str, str]]:
        return [
            (str(one.uuid), one.level, one.verdict) for one in repository.session.catalog.verification.damaged()
        ]

    verify(repository, level="data")
    assert damaged() == []
    flip(file_of(repository, uuids[0]), 0)
    moved = file_of(repository, uuids[1]).rename(Path(repository.settings.store) / "moved")
    verify(repository, level="data")
    assert damaged() == [(uuids[0], "data", "damaged"), (uuids[1], "data", "missing")]
    moved.rename(file_of(repository, uuids[1]))
    verify(repository)
    assert damaged() == [(uuids[0], "data", "damaged")], "its index is right: that says nothing about its data"
    chunk = repository.chunk(uuids[2])
    assert repository.session.catalog.verification.damaged([chunk.uuid]) == []
    flip(file_of(repository, uuids[0]), 0)
    verify(repository, level="data")
    assert damaged() == []


# Level catalog


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chunks SET live_file_count = live_file_count + 1",
        "UPDATE chunks SET state = 'retired', retired_at = now()",
        "UPDATE chunks SET retired_at = now()",
        "UPDATE chunks SET state = 'deleted'",
        "UPDATE chunks SET file_count = file_count + 1",
        "UPDATE file_locations SET start_byte = 0 WHERE file_path = 'a/second'",
        "UPDATE file_locations SET caf_file_id = 77 WHERE file_path = 'a/first'",
        "UPDATE file_locations SET end_byte = 100000 WHERE file_path = 'ü/日本'",
        "INSERT INTO retired_locations (caf_file_id, start_byte, end_byte, crc32c, file_path, reason) "
        "SELECT caf_file_id, start_byte, end_byte, crc32c, file_path, 'removed' FROM file_locations LIMIT 1",
        "INSERT INTO retired_locations (caf_file_id, start_byte, end_byte, crc32c, file_path, reason) "
        "VALUES (77, 0, 0, 0, 'x', 'removed')",
        "DELETE FROM journal",
        "UPDATE journal SET unwritten = '{x}', happened_at = now() - interval '1 hour'",
        "INSERT INTO chunk_copies (chunk_id, store, object_key, lease_expires_at) "
        "VALUES (1, 'x', 'y', now() - interval '1s')",
        "INSERT INTO chunk_copies (chunk_id, store, object_key, state) VALUES (1, 'x', 'y', 'abandoned')",
        "INSERT INTO backups (store, object_key, state) VALUES ('x', 'y', 'abandoned')",
        "INSERT INTO chunks (uuid, format, store, object_key, lease_expires_at) "
        "VALUES (gen_random_uuid(), 'caf', 'x', 'y', now() - interval '1s')",
    ],
)
def test_level_catalog(repository: cafcat.Repository, statement: str) -> None:
    commit(repository, FILES)
    sql(repository, "INSERT INTO stores (url) VALUES ('x')")
    report, [checked] = verify(repository, level="catalog")
    assert verdicts(report) == {"ok": 1}
    sql(repository, statement)
    report, [checked] = verify(repository, level="catalog")
    assert verdicts(report) == {"damaged": 1}
    assert {finding.kind for finding in checked.findings} == {"catalog"}
    assert [finding.detail for finding in checked.findings] == repository.session.catalog.reports.findings()
    assert sql(repository, "SELECT chunk_id, level, verdict FROM verifications ORDER BY id") == [
        (None, "catalog", "ok"),
        (None, "catalog", "damaged"),
    ]


def test_copies_of_chunks_that_are_gone(repository: cafcat.Repository) -> None:
    commit(repository, {"f": b"1"})
    commit(repository, {"f": b"2"})
    sql(repository, "INSERT INTO stores (url) VALUES ('x')")
    sql(
        repository,
        "INSERT INTO chunk_copies (chunk_id, store, object_key, state) VALUES (1, 'x', 'y', 'committed')",
    )
    assert repository.session.catalog.reports.findings() == []
    sql(repository, "UPDATE chunks SET state = 'deleted' WHERE id = 1")
    [message] = repository.session.catalog.reports.findings()
    assert "copies" in message


# Level source


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tree"
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "large").write_bytes(b"large" * 500_000)
    return folder


def ways_to_change(tree: Path) -> dict[str, tuple[Callable[[], object], list[tuple[str, str]]]]:
    first = tree / "a" / "first"

    def rot() -> None:
        status = first.stat()
        first.write_bytes(b"furst")
        os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))

    def link() -> None:
        first.unlink()
        first.symlink_to("second")

    def unreadable() -> None:
        shutil.rmtree(tree / "a")
        (tree / "a").symlink_to(tree / "b")

    return {
        "nothing": (lambda: None, []),
        "a new file": (lambda: (tree / "a" / "new").write_bytes(b"new"), [("unpacked", "tree/a/new")]),
        "rot": (rot, [("source", "tree/a/first")]),
        "size": (lambda: first.write_bytes(b"firsts"), [("source", "tree/a/first")]),
        "a large file": (lambda: flip(tree / "large", 2_000_000), [("source", "tree/large")]),
        "gone": (first.unlink, [("absent", "tree/a/first")]),
        "the last one gone": ((tree / "ü" / "日本").unlink, [("absent", "tree/ü/日本")]),
        "a link": (link, [("absent", "tree/a/first")]),
        "a folder gone": (unreadable, [("absent", "tree/a/first"), ("absent", "tree/a/second")]),
    }


@pytest.mark.parametrize("way", ways_to_change(Path()))
def test_level_source(repository: cafcat.Repository, tree: Path, way: str) -> None:
    repository.ingest(["tree"])
    commit(repository, {"tree2/other": b"not of this source", "tre": b"neither"})
    change, expected = ways_to_change(tree)[way]
    change()
    report, [checked] = verify(repository, ["tree"], level="source")
    assert found([checked]) == expected
    is_damaged = any(kind == "source" for kind, _ in expected)
    assert verdicts(report) == ({"damaged": 1} if is_damaged else {"ok": 1})
    assert report.absent == sum(kind == "absent" for kind, _ in expected)
    assert (report.unreadable_files, report.equal) == (0, checked.files - is_damaged)
    assert sql(repository, "SELECT chunk_id, level FROM verifications") == [(None, "source")]
    assert sql(repository, "SELECT file_path FROM findings ORDER BY 1") == [(path,) for _, path in expected]


def test_a_file_of_a_source_that_cannot_be_read_is_not_counted(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    tree.parent.chmod(0o755)
    (tree / "a" / "first").chmod(0)
    with as_normal_user():
        report, [checked] = verify(repository, ["tree"], level="source")
    assert found([checked]) == [("unreadable", "tree/a/first")]
    assert (report.unreadable, report.files_checked, checked.files) == (1, len(FILES), len(FILES))
    assert (report.unreadable_files, report.equal) == (1, len(FILES))


def test_names_in_sources_equal_those_of_ingest(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"], prefix="below/this")
    (tree / "a" / "first").write_bytes(b"furst")
    assert {kind for kind, _ in found(verify(repository, ["tree"], level="source")[1])} == {"unpacked"}
    checked = verify(repository, ["tree"], level="source", prefix="below/this")[1]
    assert found(checked) == [("source", "below/this/tree/a/first")]
    assert found(verify(repository, ["./tree/"], level="source", prefix="/below/this")[1]) == found(checked)
    with pytest.raises(NotFound):
        verify(repository, ["elsewhere"], level="source")


def test_a_tar_as_source(repository: cafcat.Repository, tree: Path) -> None:
    with tarfile.open("t.tar", "w") as archive:
        archive.add("tree")
    repository.ingest(["t.tar"])
    assert verdicts(verify(repository, ["t.tar"], level="source")[0]) == {"ok": 1}
    (tree / "a" / "first").write_bytes(b"furst")
    (tree / "a" / "second").unlink()
    with tarfile.open("t.tar", "w") as archive:
        archive.add("tree")
    assert found(verify(repository, ["t.tar"], level="source")[1]) == [("source", "tree/a/first")]


def test_interrupted_run_is_resumed_at_the_current_source(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    checked: list[ObjectChecked] = []
    sources = ["tree/a", "tree/b", "tree"]

    def stop() -> bool:
        return len(checked) == 1

    for expected in (1, 2):
        report = repository.with_progress(
            Following(on=checked.append, should_stop=stop if expected == 1 else None)
        ).verify(
            sources,
            level="source",
        )
        assert report.interrupted is (expected == 1)
    assert [one.object for one in checked] == sources
    assert (report.resumed, report.ok) == (True, 3)


# Buckets


def test_on_s3(
    database_url: str, tmp_path: Path, s3_server: S3Server, s3_bucket: str, s3_environment: None
) -> None:
    client = s3_server.client(max_attempts=5)
    url = f"s3://{s3_bucket}/chunks"
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=url) as repository:
        large = random.Random(1).randbytes(3 << 20)
        uuids = [commit(repository, FILES | {"large": large}), commit(repository, {"x": b"x", "y": b""})]
        for jobs in (1, 2):
            for level in ("index", "data"):
                assert verdicts(verify(repository, level=level, jobs=jobs)[0]) == {"ok": 2}
        key = f"chunks/{uuids[0]}.caf"
        data = bytearray(client.get_object(Bucket=s3_bucket, Key=key)["Body"].read())
        data[2_000_000] ^= 1
        client.put_object(Bucket=s3_bucket, Key=key, Body=bytes(data))
        report, checked = verify(repository, level="data")
        assert (verdicts(report), found(checked)) == ({"ok": 1, "damaged": 1}, [("file", "large")])
        with pytest.raises(Corrupt):
            repository.read("large")
        client.put_object(Bucket=s3_bucket, Key=key, Body=bytes(data[:1_000_000]))
        assert verdicts(verify(repository)[0]) == {"ok": 1, "damaged": 1}
        client.delete_object(Bucket=s3_bucket, Key=key)
        assert verdicts(verify(repository, level="data")[0]) == {"ok": 1, "missing": 1}
        client.close()


def test_a_bucket_as_source(
    repository: cafcat.Repository, s3_server: S3Server, s3_bucket: str, s3_environment: None
) -> None:
    client = s3_server.client(max_attempts=5)
    for key in ("in/a", "in/b", "in/c", "out/d"):
        client.put_object(Bucket=s3_bucket, Key=key, Body=key.encode())
    repository.ingest([f"s3://{s3_bucket}"])
    url = f"s3://{s3_bucket}/in"
    assert verdicts(verify(repository, [url], level="source")[0]) == {"ok": 1}
    client.put_object(Bucket=s3_bucket, Key="in/a", Body=b"IN/A")
    client.delete_object(Bucket=s3_bucket, Key="in/b")
    client.delete_object(Bucket=s3_bucket, Key="out/d")
    checked = verify(repository, [url], level="source")[1]
    assert found(checked) == [("absent", "in/b"), ("source", "in/a")]
    client.close()
