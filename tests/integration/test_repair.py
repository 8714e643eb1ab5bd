"""repair: right bytes from any place, wrong bytes from none; lost files are named."""

import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import InvalidInput, NotFound, Unavailable
from cafcat.events import Event
from cafcat.model import FileProblem, SourceFile
from cafcat.operations.repair import run as repairing
from cafcat.operations.repair.options import RepairOptions
from cafcat.operations.repair.report import RepairReport
from cafcat.operations.repair.run import Repair
from cafcat.operations.rewriting import Rewriter, chunk_target
from cafcat.sources.local.directory import DirectorySource
from cafcat.writing.limits import Limits
from tests.worlds.catalog_world import Opener, commit, sql, state_of
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.listeners import AfterFiles, Following, Heard, follow, problems
from tests.worlds.places import Folder, Place
from tests.worlds.removal_world import check
from tests.worlds.servers.s3_server import S3Server

CONTENT = random.Random(1)
LARGE = CONTENT.randbytes(2_500_000)
FILES = {f"tree/{number:02}": CONTENT.randbytes(1000 + number) for number in range(20)} | {
    "tree/large": LARGE,
    "tree/empty": b"",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FILES in a folder "tree" in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree").mkdir()
    for path, content in FILES.items():
        Path(path).write_bytes(content)
    return tmp_path / "tree"


def ingested(repository: cafcat.Repository) -> str:
    """Ingest the tree into a chunk, and return its uuid."""
    repository.ingest(["tree"])
    [(chunk,)] = sql(repository, "SELECT uuid::text FROM chunks WHERE state = 'committed'")
    return str(chunk)


def write(repository: cafcat.Repository, place: Place, chunk: str, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a chunk's object without cafcat."""
    key = f"{chunk}.caf"
    place.write(key, change(place.everything()[key]))


def flipped(content: bytes, at: int = -1) -> Callable[[bytes], bytes]:
    """Return a function that flips a byte of a file in an archive."""

    def flip(data: bytes) -> bytes:
        place = data.index(content) + at % len(content)
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return flip


def repair(repository: cafcat.Repository, chunk: str, **options: Any) -> RepairReport:
    return follow(repository, options).repair(chunks=[chunk], **options)


def counts(report: RepairReport) -> tuple[int, int, int, int]:
    """Return the numbers of files kept, from a copy, from a source, and lost."""
    return report.files_kept, report.files_from_copy, report.files_from_source, report.files_lost


def rows(repository: cafcat.Repository) -> list[tuple[Any, ...]]:
    return sql(
        repository,
        "SELECT file_path, end_byte - start_byte, crc32c, modified_at, source_etag FROM file_locations ORDER BY 1",
    )


@pytest.mark.parametrize("path", ["tree/07", "tree/large"])
def test_flipped_byte_is_repaired_from_the_source(
    repository: cafcat.Repository, place: Place, tree: Path, path: str
) -> None:
    chunk = ingested(repository)
    before = rows(repository)
    write(repository, place, chunk, flipped(FILES[path]))
    heard = Heard()
    report = repair(repository, chunk, sources=["tree"], progress=heard)
    assert counts(report) == (len(FILES) - 1, 0, 1, 0)
    assert (report.chunks, report.chunks_mended, report.chunks_written) == (1, 1, 1)
    assert (report.files, report.bytes) == (len(FILES), sum(map(len, FILES.values())))
    assert heard.problems == []
    assert rows(repository) == before
    assert state_of(repository, chunk) == "retired"
    repository.session.stores[place.url].delete(f"{chunk}.caf")
    assert {name: repository.read(name) for name in FILES} == FILES
    assert sql(repository, "SELECT DISTINCT reason FROM retired_locations") == [("moved",)]


def copied(repository: cafcat.Repository, tmp_path: Path) -> Folder:
    copies = Folder(tmp_path / "copies")
    assert repository.copy(to=copies.url).copied == 1
    return copies


@pytest.mark.parametrize("path", ["tree/07", "tree/large"])
def test_flipped_byte_is_repaired_from_a_copy(
    repository: cafcat.Repository, place: Place, tree: Path, tmp_path: Path, path: str
) -> None:
    chunk = ingested(repository)
    copied(repository, tmp_path)
    write(repository, place, chunk, flipped(FILES[path], 0))
    report = repair(repository, chunk, from_copies=True)
    assert counts(report) == (len(FILES) - 1, 1, 0, 0)
    assert state_of(repository, chunk) == "retired"
    new = {location.chunk for location in map(repository.locate, FILES)}
    assert len(new) == 1
    assert repository.copy(to=place.url).copied == 0
    assert {name: repository.read(name) for name in FILES} == FILES


@pytest.mark.parametrize("path", ["tree/07", "tree/large"])
def test_damaged_files_are_repaired_from_the_chunk_that_had_them_before(
    local: cafcat.Repository, folder: Folder, tree: Path, tmp_path: Path, path: str
) -> None:
    """The first repair writes a chunk without a copy. This chunk is damaged before the next `cafcat copy`."""
    chunk = ingested(local)
    copied(local, tmp_path)
    write(local, folder, chunk, flipped(FILES["tree/01"]))
    repair(local, chunk)
    second = str(local.locate(path).chunk)
    write(local, folder, second, flipped(FILES["tree/01"]))
    write(local, folder, second, flipped(FILES[path]))
    for dry_run in (True, False):
        report = repair(local, second, dry_run=dry_run)
        assert counts(report) == (len(FILES) - 2, 0, 0, 0)
        assert report.files_from_former == 2
    assert report.copies_in == [(tmp_path / "copies").as_uri()]
    assert {name: local.read(name) for name in FILES} == FILES
    assert state_of(local, second) == "retired"


def test_a_former_chunk_with_another_content_is_no_help(
    local: cafcat.Repository, folder: Folder, tree: Path, tmp_path: Path
) -> None:
    chunk = ingested(local)
    copied(local, tmp_path)
    write(local, folder, chunk, flipped(FILES["tree/01"]))
    repair(local, chunk)
    second = commit(local, {"tree/01": b"newer"})
    write(local, folder, second, flipped(b"newer"))
    assert counts(repair(local, second)) == (0, 0, 0, 1)


def test_copies_are_tried_until_one_is_right(
    local: cafcat.Repository, folder: Folder, tree: Path, tmp_path: Path
) -> None:
    chunk = ingested(local)
    places = [Folder(tmp_path / name) for name in ("first", "second", "third")]
    for further in places:
        local.copy(to=further.url)
    write(local, folder, chunk, lambda data: flipped(FILES["tree/01"])(flipped(FILES["tree/02"])(data)))
    write(local, places[0], chunk, flipped(FILES["tree/01"]))
    (places[1].folder / f"{chunk}.caf").unlink()
    report = repair(local, chunk, from_copies=True)
    assert counts(report) == (len(FILES) - 2, 2, 0, 0)
    assert {name: local.read(name) for name in FILES} == FILES


def test_a_chunk_that_is_missing(repository: cafcat.Repository, place: Place, tree: Path, tmp_path: Path) -> None:
    """Files that are damaged in the copy are read from the source."""
    chunk = ingested(repository)
    copies = copied(repository, tmp_path)
    write(repository, copies, chunk, flipped(FILES["tree/03"]))
    repository.session.stores[place.url].delete(f"{chunk}.caf")
    heard = Heard()
    assert counts(repair(repository, chunk, from_copies=True, dry_run=True)) == (1, len(FILES) - 2, 0, 1)
    assert counts(repair(repository, chunk, sources=["tree"], dry_run=True)) == (1, 0, len(FILES) - 1, 0)
    report = repair(repository, chunk, from_copies=True, sources=["tree"], progress=heard)
    assert counts(report) == (1, len(FILES) - 2, 1, 0)
    assert heard.problems == []
    assert len(heard.warnings) == 1
    assert f"chunk {chunk} cannot be read" in heard.warnings[0]
    assert {name: repository.read(name) for name in FILES} == FILES


def test_an_empty_file_is_never_lost(local: cafcat.Repository, folder: Folder, tree: Path) -> None:
    chunk = ingested(local)
    (folder.folder / f"{chunk}.caf").unlink()
    (folder.folder / "another object").touch()
    assert local.read("tree/empty") == b""
    assert counts(repair(local, chunk, dry_run=True)) == (1, 0, 0, len(FILES) - 1)
    assert counts(repair(local, chunk)) == (1, 0, 0, len(FILES) - 1)
    assert local.locate("tree/empty").chunk != chunk


@pytest.mark.parametrize("cut_at", [0, 5000, 20_000])
def test_a_chunk_that_is_cut(repository: cafcat.Repository, place: Place, tree: Path, cut_at: int) -> None:
    chunk = ingested(repository)
    write(repository, place, chunk, lambda data: data[:cut_at])
    report = repair(repository, chunk, sources=["tree"])
    assert report.files_kept + report.files_from_source == len(FILES)
    assert (report.files_kept > 1) == (cut_at > 0)
    assert report.chunks_mended == 1
    assert {name: repository.read(name) for name in FILES} == FILES


@pytest.mark.parametrize("what", [b'"start_byte"', b'{"format_version"'])
def test_damaged_index_is_repaired_by_moving_the_files(
    local: cafcat.Repository, folder: Folder, tree: Path, what: bytes
) -> None:
    chunk = ingested(local)
    write(local, folder, chunk, flipped(what, 1))
    report = repair(local, chunk, from_copies=True)
    assert counts(report) == (len(FILES), 0, 0, 0)
    assert state_of(local, chunk) == "retired"
    new = {str(location.chunk) for location in map(local.locate, FILES)}
    assert set(local.verify(level="data", chunks=list(new)).__slots__)
    assert local.session.catalog.verification.damaged() == []


def test_lost_files_stay_and_are_named(repository: cafcat.Repository, place: Place, tree: Path) -> None:
    chunk = ingested(repository)
    lost = {
        "tree/03": b"short",
        "tree/04": bytes(len(FILES["tree/04"])),
        "tree/05": None,
        "tree/large": LARGE[:-1] + b"x",
    }
    assert lost["tree/large"] != LARGE
    for path, content in lost.items():
        write(repository, place, chunk, flipped(FILES[path]))
        Path(path).unlink()
        if content is not None:
            Path(path).write_bytes(content)
    heard, dry = Heard(), Heard()
    assert counts(repair(repository, chunk, sources=["tree"], dry_run=True, progress=dry)) == (
        len(FILES) - 4,
        0,
        0,
        4,
    )
    report = repair(repository, chunk, sources=["tree"], progress=heard)
    assert counts(report) == (len(FILES) - 4, 0, 0, 4)
    assert (report.chunks_mended, report.chunks_written) == (0, 1)
    assert problems(heard) == problems(dry) == {(path, "corrupt") for path in lost}
    messages = {problem.path: problem.message for problem in heard.problems}
    assert "5 bytes instead of 1003" in messages["tree/03"]
    assert "its source does not have the right bytes: its bytes are damaged: CRC-32C" in messages["tree/04"]
    assert "no copy or source that was read has the right bytes" in messages["tree/05"]
    assert state_of(repository, chunk) == "committed"
    stayed = {path for path in FILES if str(repository.locate(path).chunk) == chunk}
    assert stayed == set(lost)
    for path in set(FILES) - stayed:
        assert repository.read(path) == FILES[path]
    # The damage is found later.
    for path in lost:
        Path(path).write_bytes(FILES[path])
    again = repair(repository, chunk, sources=["tree"])
    assert counts(again) == (0, 0, 4, 0)
    assert state_of(repository, chunk) == "retired"
    assert {name: repository.read(name) for name in FILES} == FILES


def test_no_chunk_is_written_if_no_file_can_be_repaired(
    local: cafcat.Repository, folder: Folder, tree: Path
) -> None:
    Path("tree/empty").unlink()  # a file without bytes could be repaired
    chunk = ingested(local)
    (folder.folder / f"{chunk}.caf").unlink()
    for path in FILES.keys() - {"tree/empty"}:
        Path(path).unlink()
    before = sql(local, "SELECT count(*) FROM chunks")
    report = repair(local, chunk, sources=["tree"])
    assert counts(report) == (0, 0, 0, len(FILES) - 1)
    assert sql(local, "SELECT count(*) FROM chunks") == before


def test_a_dry_run_changes_nothing(repository: cafcat.Repository, place: Place, tree: Path) -> None:
    chunk = ingested(repository)
    write(repository, place, chunk, flipped(FILES["tree/07"]))
    before = place.everything()
    report = repair(repository, chunk, sources=["tree"], dry_run=True)
    assert counts(report) == (len(FILES) - 1, 0, 1, 0)
    assert (report.chunks_mended, report.chunks_written) == (1, 0)
    assert place.everything() == before
    assert state_of(repository, chunk) == "committed"


def test_damage_found_by_verify_is_repaired(local: cafcat.Repository, folder: Folder, tree: Path) -> None:
    other = commit(local, {"other": b"whole"})
    local.ingest(["tree"])
    chunk = str(local.locate("tree/07").chunk)
    assert local.repair(sources=["tree"]).chunks == 0
    write(local, folder, chunk, flipped(FILES["tree/07"]))
    assert local.verify(level="data").damaged == 1
    report = local.repair(sources=["tree"])
    assert (report.chunks, report.chunks_mended) == (1, 1)
    assert state_of(local, other) == "committed"
    assert local.repair(sources=["tree"]).chunks == 0
    local.prune(grace_seconds=0)
    assert check(local, folder) == FILES | {"other": b"whole"}
    verified = local.verify(level="data")
    assert (verified.ok, verified.damaged) == (2, 0)


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_resumed_verify_checks_repaired_chunks_again(
    local: cafcat.Repository, folder: Folder, tree: Path, is_pruned: bool
) -> None:
    local.ingest(["tree"])
    chunk = str(local.locate("tree/07").chunk)
    write(local, folder, chunk, flipped(FILES["tree/07"]))
    commit(local, {"other": b"whole"})
    checked: list[Event] = []
    once = Following(on=checked.append, should_stop=lambda: bool(checked))
    interrupted = local.with_progress(once).verify(level="data")
    assert (interrupted.interrupted, interrupted.damaged) == (True, 1)
    assert local.repair(sources=["tree"]).chunks_mended == 1
    if is_pruned:
        local.prune(grace_seconds=0)
    report = local.verify(level="data")
    assert (report.resumed, report.ok, report.damaged, report.unneeded) == (True, 1, 0, 1)


def test_several_damaged_chunks_go_into_one(local: cafcat.Repository, folder: Folder, tree: Path) -> None:
    local.ingest(["tree"], target_size=8000)
    chunks = [chunk for (chunk,) in sql(local, "SELECT uuid::text FROM chunks ORDER BY id")]
    assert len(chunks) > 3
    for chunk in chunks:
        (folder.folder / f"{chunk}.caf").unlink()
    report = local.repair(chunks=chunks, sources=["tree"])
    assert (report.chunks, report.chunks_mended, report.chunks_written) == (len(chunks), len(chunks), 1)
    assert {name: local.read(name) for name in FILES} == FILES


def test_many_damaged_files_are_repaired_in_groups(
    local: cafcat.Repository, folder: Folder, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources are then read several times, which standard input does not allow."""
    monkeypatch.setattr(repairing, "MAX_FILES", 10)
    local.ingest(["tree"], target_size=5000)
    chunks = [chunk for (chunk,) in sql(local, "SELECT uuid::text FROM chunks ORDER BY id")]
    for chunk in chunks:
        (folder.folder / f"{chunk}.caf").unlink()
    with tarfile.open("tree.tar", "w") as archive:
        archive.add("tree")
    with open("tree.tar") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(InvalidInput, match="only once"):
            local.repair(chunks=chunks, sources=["-"])
    report = local.repair(chunks=chunks, sources=["tree"])
    assert report.chunks_mended == len(chunks)
    assert report.chunks_written > 1
    assert {name: local.read(name) for name in FILES} == FILES


def test_new_chunks_go_to_the_store_of_the_repository(
    local: cafcat.Repository, folder: Folder, tree: Path, open_at: Opener, tmp_path: Path
) -> None:
    chunk = ingested(local)
    second = Folder(tmp_path / "second")
    folder.folder.rename(tmp_path / "burnt down")
    report = repair(open_at(second), chunk, sources=["tree"], target_size=8000)
    assert report.chunks_written > 1
    assert not folder.folder.exists()
    assert {location.store for location in map(local.locate, FILES)} == {second.url}


def test_names_in_sources_equal_those_of_the_ingest(local: cafcat.Repository, folder: Folder, tree: Path) -> None:
    local.ingest(["tree"], prefix="a/b")
    chunk = str(local.locate("a/b/tree/07").chunk)
    write(local, folder, chunk, flipped(FILES["tree/07"]))
    assert counts(repair(local, chunk, sources=["tree"]))[2:] == (0, 1)
    chunk = str(local.locate("a/b/tree/07").chunk)
    assert counts(repair(local, chunk, sources=["tree"], prefix="a/b"))[2:] == (1, 0)
    assert local.read("a/b/tree/07") == FILES["tree/07"]


def test_second_source_supplies_files_that_the_first_lacks(
    local: cafcat.Repository, folder: Folder, tree: Path, tmp_path: Path
) -> None:
    chunk = ingested(local)
    other = tmp_path / "elsewhere"
    (tmp_path / "tree").rename(other)
    tree.mkdir()
    (tree / "07").write_bytes(b"wrong")
    (tree / "08").write_bytes(FILES["tree/08"])
    for path in ("tree/07", "tree/08"):
        write(local, folder, chunk, flipped(FILES[path]))
    with tarfile.open("tree.tar", "w") as archive:
        archive.add(other, "tree")
    report = repair(local, chunk, sources=["tree", "tree.tar"])
    assert counts(report) == (len(FILES) - 2, 0, 2, 0)
    assert {name: local.read(name) for name in FILES} == FILES


def test_repair_from_a_bucket(
    local: cafcat.Repository, folder: Folder, s3_server: S3Server, s3_bucket: str, s3_environment: None
) -> None:
    """Keys are the names, and the catalog keeps the entity tags."""
    client = s3_server.client(max_attempts=5)
    for path, content in FILES.items():
        client.put_object(Bucket=s3_bucket, Key=path, Body=content)
    local.ingest([f"s3://{s3_bucket}/tree"])
    before = rows(local)
    chunk = str(local.locate("tree/07").chunk)
    write(local, folder, chunk, lambda data: flipped(FILES["tree/07"])(flipped(LARGE)(data)))
    assert counts(repair(local, chunk, sources=[f"s3://{s3_bucket}/tree"])) == (len(FILES) - 2, 0, 2, 0)
    assert rows(local) == before
    assert local.ingest([f"s3://{s3_bucket}/tree"]).files_unchanged == len(FILES)
    assert {name: local.read(name) for name in FILES} == FILES
    client.close()


def test_concurrent_replacements_are_kept(
    repository: cafcat.Repository, place: Place, tree: Path, open_at: Opener
) -> None:
    chunk = ingested(repository)
    other = open_at(place)
    write(repository, place, chunk, flipped(FILES["tree/07"]))

    def replace() -> None:
        commit(other, {"tree/01": b"newer", "tree/07": b"newer", "tree/19": b"newer"})
        other.rm(["tree/02"])

    report = repair(repository, chunk, sources=["tree"], progress=AfterFiles(5, replace))
    assert (report.files_lost, report.chunks_mended) == (0, 1)
    assert report.files_changed >= 3
    repository.prune(grace_seconds=0)
    assert check(repository, place) == {path: content for path, content in FILES.items() if path != "tree/02"} | {
        "tree/01": b"newer",
        "tree/07": b"newer",
        "tree/19": b"newer",
    }


def test_failing_source_loses_only_later_files(local: cafcat.Repository, folder: Folder, tree: Path) -> None:
    class Breaks(DirectorySource):
        def files(self) -> Iterator[SourceFile | FileProblem]:
            for item in super().files():
                if item.path == "tree/07":
                    raise Unavailable("the source is gone")
                yield item

        def column_batches(self) -> None:
            """Let `files` list them."""

    chunk = ingested(local)
    write(local, folder, chunk, lambda data: flipped(FILES["tree/03"])(flipped(FILES["tree/07"])(data)))
    place = chunk_target(local.session.catalog, local.session.stores[folder.url], "repair")
    rewriter = Rewriter(local.session, place, Limits(1_000_000_000))
    mending = Repair(local.session, RepairOptions(), rewriter, [Breaks("tree")])
    with pytest.raises(Unavailable, match="the source is gone"):
        mending.run(mending.damaged([chunk]))
    assert mending.report.files_from_source == 1
    assert {path for path in FILES if str(local.locate(path).chunk) == chunk} == {"tree/07"}


def test_invalid_arguments_are_refused(local: cafcat.Repository, tree: Path) -> None:
    chunk = ingested(local)
    with pytest.raises(NotFound):
        local.repair(chunks=["0" * 8], from_copies=True)
    with pytest.raises(NotFound):
        local.repair(sources=["nowhere"])
    with pytest.raises(InvalidInput):
        local.repair(chunks=[chunk], from_copies=True, target_size=0)


@pytest.mark.parametrize("after", [0, 3, len(FILES) - 1])
def test_stopped_repair_commits_packed_files(
    local: cafcat.Repository, folder: Folder, tree: Path, after: int
) -> None:
    chunk = ingested(local)
    write(local, folder, chunk, flipped(FILES["tree/07"]))
    taken: list[int] = []

    class Counted(Heard):
        def advance(self, files: int, _: int) -> None:
            taken.extend([1] * files)

    heard = Counted()
    report = repair(local, chunk, sources=["tree"], progress=heard, should_stop=lambda: len(taken) >= after)
    assert report.interrupted
    assert heard.problems == []
    assert len([path for path in FILES if str(local.locate(path).chunk) != chunk]) == after
    assert repair(local, chunk, sources=["tree"]).chunks_mended == 1
    assert {name: local.read(name) for name in FILES} == FILES


@pytest.mark.slow  # `make test` has samples of it: tests/crash/test_crash.py
def test_a_repair_is_killed_at_every_step(
    repository: cafcat.Repository, place: Place, tree: Path, tmp_path: Path
) -> None:
    """The file is either damaged or repaired after each kill."""
    (tree / "large").unlink()
    expected = {path: content for path, content in FILES.items() if path != "tree/large"}
    repository.ingest(["tree"])
    outcomes = set()

    def chunk() -> str:
        [(found,)] = sql(
            repository, "SELECT DISTINCT uuid::text FROM file_locations JOIN chunks ON id = caf_file_id"
        )
        return str(found)

    def prepare(_: int) -> None:
        write(repository, place, chunk(), flipped(FILES["tree/07"]))

    for number in killed_at_each_step(repository, place.url, tmp_path, "repair", prepare=prepare):
        damaged = chunk()
        report = repository.recover()
        assert report.failed == ()
        assert repository.session.catalog.reports.findings() == []
        left = "SELECT count(*) FROM chunks WHERE state = 'writing' OR (state = 'abandoned' AND deleted_at IS NULL)"
        assert sql(repository, left) == [(0,)]
        mended = chunk() != damaged or report.adopted == 0
        outcomes.add((report.adopted, state_of(repository, damaged)))
        assert mended, number
        if state_of(repository, damaged) == "committed":
            right = FILES["tree/07"]
            wrong = right[:-1] + bytes([right[-1] ^ 1])
            write(repository, place, damaged, lambda data, w=wrong, r=right: data.replace(w, r))  # type: ignore[misc]
        assert {path: repository.read(path) for path in expected} == expected, number
    assert (1, "retired") in outcomes
    assert (0, "committed") in outcomes
