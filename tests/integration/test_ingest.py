"""Ingest, end to end: real files, real chunks, real catalog."""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
from psycopg import sql

import cafcat
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import CatalogUnavailable, Conflict, InvalidInput, NotFound, StoreFailed
from cafcat.model import MAX_CHUNK_BYTES, ChunkState, OnConflict, ProblemKind, RunState
from cafcat.operations.joining import join_store
from cafcat.stores.local.store import LocalStore
from cafcat.stores.local.upload import LocalUpload
from cafcat.support.checksums import crc32c
from cafcat.writing.chunk import OpenChunk
from cafcat.writing.limits import Limits
from cafcat.writing.sink import BlockSink
from tests.worlds.listeners import Following, Heard
from tests.worlds.open_files import open_files


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")
    ) as repository:
        yield repository


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder "tree" in the current folder, with all kinds of odd files."""
    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "tree"
    (tree / "sub" / "deeper").mkdir(parents=True)
    (tree / "empty").write_bytes(b"")
    (tree / "hello.txt").write_bytes(b"hello")
    (tree / "sub" / 'odd "name"\\ \n\t<&>').write_bytes(b"odd")
    (tree / "sub" / "ünïcödé 日本").write_bytes(b"unicode")
    (tree / "sub" / "deeper" / "large").write_bytes(random.randbytes(5_000_000))
    os.link(tree / "hello.txt", tree / "sub" / "hard link")
    (tree / "symlink").symlink_to("hello.txt")
    os.mkfifo(tree / "pipe")
    return tree


class Recorder(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.files = self.bytes = 0

    def advance(self, files: int, size_bytes: int) -> None:
        self.files += files
        self.bytes += size_bytes


def findings(repository: cafcat.Repository) -> list[str]:
    return repository.session.catalog.reports.findings()


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def catalogued(repository: cafcat.Repository) -> dict[str, bytes]:
    return {location.path: repository.read(location.path) for location in repository.list()}


def test_all_files_are_packed(repository: cafcat.Repository, tree: Path) -> None:
    recorder = Recorder()
    report = repository.with_progress(recorder).ingest(["tree"])
    expected = contents(tree)
    assert catalogued(repository) == expected
    assert (report.files_added, report.files_skipped, report.files_failed) == (len(expected), 2, 0)
    assert {problem.kind for problem in recorder.problems} == {ProblemKind.SYMLINK, ProblemKind.SPECIAL}
    assert (recorder.files, recorder.bytes) == (len(expected), sum(map(len, expected.values())))
    assert report.bytes_added == recorder.bytes
    assert findings(repository) == []


def test_a_row_and_the_span_are_enough_without_cafcat(
    repository: cafcat.Repository, tree: Path, database_url: str
) -> None:
    repository.ingest(["tree"])
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT file_path, start_byte, end_byte, crc32c, store, object_key, crc64nvme, size_bytes "
            "FROM file_locations JOIN chunks ON chunks.id = caf_file_id"
        ).fetchall()
    for path, start, end, checksum, store, key, _, size in rows:
        chunk = Path(store.removeprefix("file://")) / key
        command = ["dd", f"if={chunk}", "iflag=skip_bytes,count_bytes", f"skip={start}", f"count={end - start}"]
        data = subprocess.run(command, capture_output=True, check=True).stdout
        assert data == Path(path).read_bytes()
        assert crc32c(data) == checksum
        assert chunk.stat().st_size == size


@pytest.mark.parametrize("name", ["s3", "http", "https"])
def test_a_folder_may_be_called_like_the_beginning_of_a_url(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    (Path(name) / "file").write_bytes(b"content")
    assert repository.ingest([name]).files_added == 1
    assert repository.read(f"{name}/file") == b"content"
    assert repository.verify([name], level="source").ok == 1


def test_second_ingest_packs_only_changed_files(repository: cafcat.Repository, tree: Path) -> None:
    first = repository.ingest(["tree"])
    second = repository.ingest(["tree"])
    assert (second.files_unchanged, second.chunks_committed) == (first.files_added, 0)
    (tree / "hello.txt").write_bytes(b"changed")
    (tree / "new").write_bytes(b"new")
    third = repository.ingest(["tree"])
    # The hard link is the same file, so that both names have changed.
    assert (third.files_replaced, third.files_added, third.chunks_committed) == (2, 1, 1)
    assert catalogued(repository) == contents(tree)
    assert [old.reason for old in repository.history("tree/hello.txt")] == ["replaced"]
    assert [run.files_added for run in repository.runs()] == [1, 0, first.files_added]
    assert findings(repository) == []


def test_file_with_another_time_is_replaced(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    (tree / "empty").touch()
    os.utime(tree / "empty", ns=(0, 1_000_000_001_000))
    assert repository.ingest(["tree"]).files_replaced == 1
    assert repository.locate("tree/empty").modified_ns == 1_000_000_001_000


def test_small_target_size_gives_many_small_chunks(repository: cafcat.Repository, tree: Path) -> None:
    for number in range(300):
        (tree / f"file-{number:03}").write_bytes(random.randbytes(1000))
    report = repository.ingest(["tree"], target_size=20_000)
    sizes = sorted(chunk.size_bytes or 0 for chunk in repository.chunks())
    assert report.chunks_committed == len(sizes) > 15
    assert sizes[-1] > 5_000_000, "a file larger than the target gets a chunk of its own"
    assert sizes[-2] <= 20_000
    assert catalogued(repository) == contents(tree)
    assert findings(repository) == []


def test_number_of_files_in_a_chunk_is_limited(
    repository: cafcat.Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        (tree / f"f{number:02}").write_bytes(b"x")
    limits = Limits(target_bytes=1_000_000, max_files=10)
    monkeypatch.setattr("cafcat.operations.ingest.run.Limits", lambda **_: limits)
    repository.ingest(["tree"], include=["f*"])
    assert [chunk.file_count for chunk in repository.chunks()] == [10, 10, 5]


def test_file_larger_than_any_chunk_is_refused_and_the_rest_packed(
    repository: cafcat.Repository, tree: Path
) -> None:
    with (tree / "huge").open("wb") as file:
        file.truncate(MAX_CHUNK_BYTES)  # sparse: takes no space
    recorder = Recorder()
    report = repository.with_progress(recorder).ingest(["tree"])
    refused = [problem for problem in recorder.problems if problem.kind.is_failure]
    assert [(problem.path, problem.kind) for problem in refused] == [("tree/huge", ProblemKind.TOO_LARGE)]
    assert report.files_failed == 1
    assert report.files_added == len(contents_without(tree, "huge"))


def contents_without(tree: Path, *names: str) -> list[str]:
    files = (path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path) for path in files if path.name not in names]


def test_limits_count_index_and_footer(
    repository: cafcat.Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest file that fits into a chunk makes a chunk of the hard limit, or slightly less."""
    limits = Limits(target_bytes=50_000, hard_bytes=100_000)
    monkeypatch.setattr("cafcat.operations.ingest.run.Limits", lambda **_: limits)
    for size in range(99_700, 99_960, 7):
        (tree / f"just{size}").write_bytes(bytes(size))
    recorder = Recorder()
    repository.with_progress(recorder).ingest(["tree"], include=["just*"])
    sizes = [chunk.size_bytes or 0 for chunk in repository.chunks()]
    assert sizes
    assert recorder.problems, "some are over the limit"
    assert max(sizes) <= 100_000
    assert max(sizes) > 100_000 - 100, "the estimate is not far from the truth"


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("change", ["shrink", "grow", "vanish", "rewrite", "symlink", "fifo"])
def test_file_that_changes_during_the_ingest_fails_alone(
    repository: cafcat.Repository, tree: Path, size: int, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changes after it was opened, or is replaced before."""
    from cafcat.sources.local.files import FileOpener, OpenLocalFile

    victim = tree / "m-victim"
    victim.write_bytes(random.randbytes(size))
    (tree / "z-after").write_bytes(b"after")
    changes: dict[str, Callable[[], object]] = {
        "shrink": lambda: os.truncate(victim, size // 2),
        "grow": lambda: victim.write_bytes(victim.read_bytes() + b"more"),
        "vanish": victim.unlink,
        "rewrite": lambda: victim.write_bytes(random.randbytes(size)),
        "symlink": lambda: (victim.unlink(), victim.symlink_to("hello.txt")),
        "fifo": lambda: (victim.unlink(), os.mkfifo(victim)),
    }
    opening = OpenLocalFile.__init__

    def changing(self: OpenLocalFile, *arguments: object, **named: object) -> None:
        is_victim = getattr(arguments[0], "path", "") == "tree/m-victim"
        before = change in ("vanish", "symlink", "fifo")
        if is_victim and before:
            changes[change]()
        opening(self, *arguments, **named)  # type: ignore[arg-type]
        if is_victim and not before:
            changes[change]()

    recorder = Recorder()
    with monkeypatch.context() as patch:
        patch.setattr(FileOpener, "_read_small", lambda _, file: file)  # as if the file had changed before
        patch.setattr(OpenLocalFile, "__init__", changing)
        report = repository.with_progress(recorder).ingest(["tree"])
    failed = [problem for problem in recorder.problems if problem.kind.is_failure]
    assert [problem.path for problem in failed] == ["tree/m-victim"]
    assert report.files_failed == 1
    with pytest.raises(NotFound):
        repository.locate("tree/m-victim")
    for path, data in catalogued(repository).items():
        assert data == Path(path).read_bytes()
    assert repository.read("tree/z-after") == b"after"
    assert findings(repository) == []


@pytest.mark.parametrize("change", ["shrink", "grow", "rewrite", "replace", "same time"])
@pytest.mark.parametrize("call", ["open", "read"])
def test_a_small_file_that_changes_while_it_is_read_at_once_is_read_again(
    repository: cafcat.Repository, tree: Path, call: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changes before it is opened, or after it was read. Afterwards it is stable."""
    victim, other = tree / "m-victim", tree / "other"
    victim.write_bytes(b"before, and long")
    status = victim.stat()
    changes: dict[str, Callable[[], object]] = {
        "shrink": lambda: os.truncate(victim, 6),
        "grow": lambda: victim.write_bytes(b"after, and longer than before"),
        "rewrite": lambda: victim.write_bytes(b"after.., as long"),
        "replace": lambda: (other.write_bytes(b"another, as long"), other.rename(victim)),
        "same time": lambda: (
            victim.write_bytes(b"after.., as long"),
            os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns)),
        ),
    }
    descriptors: list[int] = []
    real_open, real_read = os.open, os.read

    def opening(path: str, flags: int, *rest: int, **named: int) -> int:
        is_victim = str(path).endswith("m-victim") and not descriptors
        if is_victim and call == "open":
            changes[change]()
        descriptor = real_open(path, flags, *rest, **named)
        if is_victim:
            descriptors.append(descriptor)
        return descriptor

    def reading(descriptor: int, size: int) -> bytes:
        data = real_read(descriptor, size)
        if descriptors == [descriptor] and call == "read":
            descriptors.append(-1)
            changes[change]()
        return data

    time.sleep(0.02)  # times of files have a resolution of a few milliseconds
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        patch.setattr(os, "read", reading)
        report = repository.ingest(["tree"], include=["m-victim"])
    assert (report.files_added, report.files_failed) == (1, 0)
    assert descriptors
    assert repository.read("tree/m-victim") == victim.read_bytes() != b"before, and long"
    assert repository.locate("tree/m-victim").modified_ns == victim.stat().st_mtime_ns // 1000 * 1000


def test_failed_files_are_events(repository: cafcat.Repository, tree: Path, database_url: str) -> None:
    (tree / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"x")
    report = repository.ingest(["tree"])
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT file_path, detail FROM events WHERE kind = 'file_failed' AND run_id = %s", [report.run]
        ).fetchall()
    assert len(rows) == report.files_failed == 1
    assert rows[0][0] == "tree/not-utf8-\\xff"


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.SKIP])
def test_repeated_path_is_decided_after_the_commit_of_its_chunk(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_conflict: OnConflict
) -> None:
    """Two tar files have a common path, and members in descending order."""
    monkeypatch.chdir(tmp_path)
    for name, content, time_of_it in (("b", b"b", 1), ("z", b"first", 1), ("m", b"m", 1)):
        Path(name).write_bytes(content)
        os.utime(name, (time_of_it, time_of_it))
    subprocess.run(["tar", "cf", "one.tar", "z", "b"], check=True)
    Path("z").write_bytes(b"the second, longer")
    subprocess.run(["tar", "cf", "two.tar", "m", "z"], check=True)
    report = repository.ingest(["one.tar", "two.tar"], on_conflict=on_conflict)
    replaces = on_conflict is OnConflict.REPLACE
    assert (report.files_added, report.files_replaced, report.files_skipped) == (3, replaces, not replaces)
    assert {file.path for file in repository.list()} == {"b", "m", "z"}
    assert repository.read("z") == (b"the second, longer" if replaces else b"first")
    assert findings(repository) == []


def test_last_file_of_a_repeated_path_counts(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open chunk has another file of the path, which is not committed yet."""
    monkeypatch.chdir(tmp_path)
    Path("z").write_bytes(b"first")
    subprocess.run(["tar", "cf", "one.tar", "z"], check=True)
    Path("z").write_bytes(b"the second, longer")
    subprocess.run(["tar", "cf", "two.tar", "z"], check=True)
    repository.ingest(["one.tar"])
    repository.ingest(["two.tar", "one.tar"])
    assert repository.read("z") == b"first"
    assert findings(repository) == []


@pytest.mark.parametrize("compress", [(), ("gzip", "-k", "one.tar")], ids=["plain", "gzip"])
def test_last_member_of_a_repeated_name_counts(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: tuple[str, ...]
) -> None:
    """The second ingest finds all files unchanged."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "z"):
        Path(name).write_bytes(b"first")
    subprocess.run(["tar", "cf", "one.tar", "z", "a"], check=True)
    Path("z").write_bytes(b"the second, longer")
    subprocess.run(["tar", "rf", "one.tar", "z"], check=True)
    if compress:
        subprocess.run(compress, check=True)
    source = "one.tar.gz" if compress else "one.tar"
    assert repository.ingest([source], dry_run=True).files_added == 2
    report = repository.ingest([source])
    assert (report.files_added, report.files_replaced, report.chunks_committed) == (2, 0, 1)
    assert repository.read("z") == b"the second, longer"
    report = repository.ingest([source])
    assert (report.files_unchanged, report.files_replaced, report.chunks_committed) == (2, 0, 0)
    assert repository.verify([source], level="source").ok == 1


def test_stopped_ingest_leaves_no_file_open(repository: cafcat.Repository, tree: Path) -> None:
    """A small file is packed, and the next, large file is open already."""
    recorder = Recorder()
    repository.with_progress(Following(progress=recorder, should_stop=lambda: recorder.files > 0)).ingest(
        ["tree"],
        include=["hello.txt", "large"],
    )
    assert recorder.files == 1
    assert open_files(tree) == []


def test_path_in_two_sources_is_decided_by_the_catalog(repository: cafcat.Repository, tree: Path) -> None:
    """An equal file is unchanged. Another file replaces the first one, and both versions are in the catalog."""
    report = repository.ingest(["tree", "tree", "./tree/"])
    assert (report.files_added, report.files_unchanged) == (6, 12)
    other = tree.parent / "other" / "tree"
    other.mkdir(parents=True)
    (other / "hello.txt").write_bytes(b"another hello")
    report = repository.ingest(["tree", "../" + tree.parent.name + "/other/tree"], prefix="p")
    assert report.files_failed == 0
    os.chdir(tree.parent / "other")
    report = repository.ingest(["tree"])
    assert (report.files_replaced, repository.read("tree/hello.txt")) == (1, b"another hello")
    assert findings(repository) == []


def test_a_list_in_no_order_with_repeats(repository: cafcat.Repository, tree: Path) -> None:
    names = ["tree/sub", "tree/hello.txt", "tree/empty", "tree/hello.txt", "tree", "tree/missing"]
    Path("list").write_text("\n".join(names))
    recorder = Recorder()
    report = repository.with_progress(recorder).ingest(files_from="list")
    assert catalogued(repository) == contents(tree)
    assert report.files_added == 6
    assert [problem.path for problem in recorder.problems if problem.kind.is_failure] == ["tree/missing"]
    assert findings(repository) == []


@pytest.mark.parametrize(
    ("on_conflict", "expected"), [("replace", (1, 0)), ("skip", (0, 1)), ("fail", None), ("fial", None)]
)
def test_options_with_fixed_values_may_be_texts(
    repository: cafcat.Repository, tmp_path: Path, on_conflict: Any, expected: tuple[int, int] | None
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    repository.ingest([tmp_path / "file"])
    (tmp_path / "file").write_bytes(b"new content")
    options: dict[str, Any] = {"on_conflict": on_conflict, "comparison": "checksum"}
    if expected is None:
        with pytest.raises(InvalidInput if on_conflict == "fial" else Conflict):
            repository.ingest([tmp_path / "file"], **options)
    else:
        report = repository.ingest([tmp_path / "file"], **options)
        assert (report.files_replaced, report.files_skipped) == expected


@pytest.mark.parametrize("on_conflict", list(OnConflict))
def test_repeated_file_is_unchanged_after_a_new_chunk(
    repository: cafcat.Repository, tree: Path, on_conflict: OnConflict
) -> None:
    for number in range(4):
        (tree / f"f{number}").write_bytes(b"x" * 1000)
    Path("list").write_text("tree/f1\ntree/f2\ntree/f3\ntree/f1\n")
    report = repository.ingest(files_from="list", target_size=1500, on_conflict=on_conflict)
    assert (report.files_added, report.files_unchanged, report.chunks_committed) == (3, 1, 3)


def test_cafcats_own_folders_are_not_ingested(database_url: str, tree: Path) -> None:
    """Otherwise each run would pack the chunks of the previous one."""
    with cafcat.open(
        database_url=database_url, home=tree / "home", store=str(tree / "sub" / "store")
    ) as repository:
        (tree / "home" / "postgres").mkdir(parents=True)
        (tree / "home" / "postgres" / "base").write_bytes(b"live")
        recorder = Recorder()
        assert repository.ingest(["tree"]).files_added == 6
        report = repository.with_progress(recorder).ingest(["tree", "tree/sub/store"])
        assert (report.files_added, report.files_failed) == (0, 0)
        own = {problem.path for problem in recorder.problems if problem.kind is ProblemKind.OWN}
        assert own == {"tree/home", "tree/sub/store"}


@pytest.mark.parametrize("exclude", [[], ["*.tmp"]])
def test_cafcats_own_files_are_not_ingested(database_url: str, tree: Path, exclude: list[str]) -> None:
    """The sealing key in the store would let its readers sign requests."""
    with cafcat.open(database_url=database_url, home=tree, store=str(tree / "chunks")) as repository:
        (tree / "seal.key").write_bytes(b"secret")
        (tree / "postgres.log").write_bytes(b"names")
        recorder = Recorder()
        report = repository.with_progress(recorder).ingest(["tree", "tree/seal.key"], exclude=exclude)
        assert report.files_added == 6
        own = {problem.path for problem in recorder.problems if problem.kind is ProblemKind.OWN}
        assert own == {"tree/chunks", "tree/seal.key", "tree/postgres.log"}
        assert repository.verify(["tree"], level="source", exclude=exclude).ok == 1


def test_a_pattern_may_have_bytes_that_are_no_utf8(repository: cafcat.Repository, tree: Path) -> None:
    (tree / os.fsdecode(b"bad-\xff")).write_bytes(b"x")
    assert repository.ingest(["tree"], exclude=[os.fsdecode(b"*\xff*")]).files_failed == 0


def test_missing_temporary_folder_is_reported_and_leaves_nothing(
    repository: cafcat.Repository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.catalog.files.mapping._MEMORY_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StoreFailed, match="TMPDIR"):
        repository.ingest(["tree"])
    assert {chunk.state for chunk in repository.chunks()} == {ChunkState.ABANDONED}
    store = tmp_path / "store"
    assert {path.parent for path in store.rglob("*") if path.is_file()} == {store / "catalogs"}


def test_bytes_that_the_catalog_may_point_to_are_never_removed(
    repository: cafcat.Repository, tree: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit succeeds and its answer is lost. Then the database answers only with errors, like a read-only one.

    The object must stay.
    """
    real = repository.session.catalog.commit._commit
    name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]))

    def read_only(value: str) -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("SET default_transaction_read_only = off")
            other.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(name, value))
            statement = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            while other.execute(statement).fetchall():
                time.sleep(0.01)

    def lost(*arguments: object) -> object:
        real(*arguments)  # type: ignore[arg-type]
        read_only("on")
        raise CatalogUnavailable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(repository.session.catalog.commit, "_commit", lost)
        with pytest.raises(cafcat.CafcatError):
            repository.ingest(["tree"])
    read_only("off")
    assert catalogued(repository) == contents(tree)


def test_on_conflict(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    (tree / "hello.txt").write_bytes(b"other")
    (tree / "a-new").write_bytes(b"new")
    report = repository.ingest(["tree"], on_conflict=OnConflict.SKIP)
    assert (report.files_added, report.files_skipped) == (1, 2 + 2)
    assert repository.read("tree/hello.txt") == b"hello"
    (tree / "b-new").write_bytes(b"new")
    with pytest.raises(Conflict) as raised:
        repository.ingest(["tree"], on_conflict=OnConflict.FAIL)
    assert raised.value.path == "tree/hello.txt"
    with pytest.raises(NotFound):
        repository.locate("tree/b-new")
    assert [(run.state, run.error) for run in repository.runs(2)] == [
        (RunState.FAILED, str(raised.value)),
        (RunState.FINISHED, None),
    ]
    assert {chunk.state for chunk in repository.chunks()} == {ChunkState.COMMITTED}, (
        "refused before a chunk was begun"
    )
    assert findings(repository) == []


def test_a_dry_run_counts_and_writes_nothing(repository: cafcat.Repository, tree: Path, tmp_path: Path) -> None:
    report = repository.ingest(["tree"], dry_run=True)
    assert (report.files_added, report.run, report.dry_run) == (6, None, True)
    assert repository.runs() == []
    assert list(repository.chunks()) == []
    assert not (tmp_path / "store").exists()
    repository.ingest(["tree"])
    (tree / "empty").write_bytes(b"no longer")
    report = repository.ingest(["tree"], dry_run=True)
    assert (report.files_replaced, report.files_unchanged) == (1, 5)


def test_prefix_and_patterns(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"], prefix="backup/2026/", include=["*.txt", "large"], exclude=["deeper/"])
    assert [location.path for location in repository.list()] == ["backup/2026/tree/hello.txt"]


def test_stopped_ingest_commits_packed_files_and_the_next_run_continues(
    repository: cafcat.Repository, tree: Path
) -> None:
    """Small files are packed in groups: the ingest ends after a group."""
    for number in range(600):
        (tree / f"f{number:03}").write_bytes(b"x")
    recorder = Recorder()
    report = repository.with_progress(
        Following(progress=recorder, should_stop=lambda: recorder.files >= 40)
    ).ingest(
        ["tree"],
    )
    assert report.interrupted
    assert 40 <= report.files_added < 600
    assert repository.runs(1)[0].state is RunState.INTERRUPTED
    rest = repository.ingest(["tree"])
    assert (rest.files_unchanged, rest.files_added) == (report.files_added, 606 - report.files_added)
    assert findings(repository) == []


def test_stopping_inside_a_large_file_gives_only_that_up(repository: cafcat.Repository, tree: Path) -> None:
    recorder = Recorder()
    report = repository.with_progress(
        Following(progress=recorder, should_stop=lambda: recorder.bytes > 2_000_000)
    ).ingest(
        ["tree"],
    )
    assert report.interrupted
    assert "tree/sub/deeper/large" not in catalogued(repository)
    assert "tree/hello.txt" in catalogued(repository)
    assert findings(repository) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_ends_the_run_and_leaves_nothing_behind(database_url: str, tree: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        with cafcat.open(database_url=database_url, home=tmp_path, store=str(small / "store")) as repository:
            with pytest.raises(StoreFailed, match="space"):
                repository.ingest(["tree"])
            assert [chunk.state for chunk in repository.chunks()] == [ChunkState.ABANDONED]
            assert {path.parent for path in small.rglob("*") if path.is_file()} == {small / "store" / "catalogs"}
            assert repository.runs(1)[0].state is RunState.FAILED
            assert repository.ingest(["tree"], exclude=["large"]).files_added == 5
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_lost_database_at_the_commit_leaves_a_chunk_to_adopt(
    repository: cafcat.Repository,
    tree: Path,
    database_url: str,
    postgres_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The object is durable, and its row has the state `writing`, so that recover can adopt the chunk."""
    name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]))
    real = repository.session.catalog.commit._commit

    def allow(connections: bool) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as other:
            other.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(name, connections))
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [name.as_string()[1:-1]],
            )

    def gone(*arguments: object) -> object:
        allow(False)
        return real(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(repository.session.catalog.commit, "_commit", gone)
        with pytest.raises(CatalogUnavailable):
            repository.ingest(["tree"])
    allow(True)
    [chunk] = repository.chunks()
    assert chunk.state is ChunkState.WRITING
    entries = {entry.path for entry in cafcat.inspect(tmp_path / "store" / chunk.object_key).entries}
    assert entries == set(contents(tree))
    assert repository.ingest(["tree"]).files_added == 6
    assert catalogued(repository) == contents(tree)


def test_interrupt_at_any_step_leaves_nothing(
    repository: cafcat.Repository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt is raised in each step that makes a chunk durable and commits it."""
    commit = repository.session.catalog.commit
    steps = [
        (LocalUpload, "write"),
        (LocalUpload, "commit"),
        (BlockSink, "finish"),
        (type(commit), "_commit"),
        (Mapping, "flush"),
        (LocalStore, "create"),
        (OpenChunk, "add_all"),
    ]
    join_store(repository.session, repository.session.stores[repository.settings.store])
    for owner, step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, interrupted)
            with pytest.raises((KeyboardInterrupt, StoreFailed)):
                repository.ingest(["tree"])
        store = tmp_path / "store"
        assert {path.parent for path in store.rglob("*") if path.is_file()} == {store / "catalogs"}, step
        assert {chunk.state for chunk in repository.chunks()} == {ChunkState.ABANDONED}, step
    assert repository.ingest(["tree"]).files_added == 6


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def test_two_concurrent_ingests_of_one_tree(database_url: str, tree: Path, tmp_path: Path) -> None:
    for number in range(200):
        (tree / f"f{number:03}").write_bytes(random.randbytes(50))
    failures: list[BaseException] = []

    def ingest() -> None:
        try:
            with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as mine:
                mine.ingest(["tree"], target_size=5_000)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ingest) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        assert catalogued(repository) == contents(tree)
        assert findings(repository) == []


def test_nothing_to_ingest_and_missing_sources(repository: cafcat.Repository, tree: Path) -> None:
    with pytest.raises(InvalidInput):
        repository.ingest([])
    with pytest.raises(InvalidInput, match=r"\['tree'\]"):
        repository.ingest("tree")
    with pytest.raises(NotFound):
        repository.ingest(["no-such-folder"])
    with pytest.raises(InvalidInput):
        repository.ingest(["tree"], target_size=0)
    with pytest.raises(InvalidInput):
        repository.ingest(["tree"], target_size=MAX_CHUNK_BYTES + 1)
    assert repository.runs() == []
