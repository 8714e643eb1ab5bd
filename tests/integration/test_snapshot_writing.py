"""Writing a snapshot: its contents, and a whole snapshot or none."""

import contextlib
import itertools
import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog import repeatable_read
from cafcat.errors import Conflict, InvalidInput, NotFound, OutputFailed
from cafcat.model import MAX_PATH_BYTES
from cafcat.support.paths import folder_of
from tests.worlds.catalog_world import MODIFIED, commit, sql
from tests.worlds.listeners import Listener
from tests.worlds.places import Folder

ODD = [
    "a",
    "a/b",
    "a/b/c",
    "a-b",
    "a.b",
    "a0",
    "a/\n",
    "a/~",
    "a/\U0001f600",
    "new\nline",
    "tab\t'quote\" back\\slash",
    "%_?*[x]",
    "-dash",
    " ",
    "é",
    "e\u0301",
    "Z",
    "z",
    "\x01",
    "\x7f",
    "\uffff",
    "\U0001f600",
    "\U0010ffff/below",
    "a//b",
    "../up",
    "x" * MAX_PATH_BYTES,
]
"""Names that compare differently by bytes, by UTF-16, and by the rules of a language."""


@pytest.fixture
def repository(local: cafcat.Repository) -> cafcat.Repository:
    return local


def open_snapshot(path: Path) -> cafcat.Snapshot:
    return cafcat.Snapshot(path, home=path.parent)


def paths_of(repository: cafcat.Repository, prefix: str, output: Path) -> list[str]:
    report = repository.snapshot(output, prefix, overwrite=True)
    with open_snapshot(output) as snapshot:
        paths = list(snapshot.paths())
        assert (report.files, len(snapshot)) == (len(paths), len(paths))
        assert report.prefix == snapshot.info.prefix == folder_of(prefix)[:-1]
    return paths


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"home", "store"}


def test_names_of_every_kind_in_the_order_of_their_bytes(repository: cafcat.Repository, tmp_path: Path) -> None:
    files = {name: name.encode() * 3 for name in ODD}
    commit(repository, files)
    repository.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert list(snapshot.paths()) == sorted(ODD, key=str.encode)
        assert list(snapshot.paths()) == [location.path for location in repository.list()]
        for name in ODD:
            assert snapshot.read(name) == repository.read(name) == files[name]
            assert snapshot.locate(name) == repository.locate(name)
        assert dict(snapshot.read_many(ODD)) == files


def test_prefix_is_recorded_in_one_spelling(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {"a/b": b""})
    for typed, recorded in [(".", ""), ("/", ""), ("./", ""), ("a", "a"), ("/a/", "a"), ("./a/b", "a/b")]:
        assert repository.snapshot(tmp_path / "taken", typed, overwrite=True).prefix == recorded
        with open_snapshot(tmp_path / "taken") as snapshot:
            assert snapshot.info.prefix == recorded


@pytest.mark.parametrize(
    "prefix", ["", ".", "./", "/", "a", "a/", "./a", "/a/", "a/b", "a/b/", "a/b/c", "a-b", "a//", "\U0010ffff", "é"]
)
def test_prefix_selects_the_same_files_as_in_other_verbs(
    repository: cafcat.Repository, tmp_path: Path, prefix: str
) -> None:
    commit(repository, dict.fromkeys(ODD, b""))
    expected = [location.path for location in repository.list(prefix)]
    assert expected
    assert paths_of(repository, prefix, tmp_path / "taken") == expected
    repository.snapshot(tmp_path / "all")
    with open_snapshot(tmp_path / "all") as snapshot:
        assert list(snapshot.paths(prefix)) == expected


NAMES = st.text(
    st.one_of(st.sampled_from("/.ab0-"), st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.sets(NAMES, min_size=1, max_size=30), prefixes=st.lists(NAMES, max_size=3), pages=st.integers(1, 7))
def test_any_names_and_prefixes(
    repository: cafcat.Repository, tmp_path: Path, names: set[str], prefixes: list[str], pages: int
) -> None:
    """Pages have at most seven rows here, in place of a thousand."""
    with psycopg.connect(str(repository.settings.database_url), autocommit=True) as connection:
        connection.execute("TRUNCATE file_locations")
    commit(repository, {name: b"x" * len(name) for name in names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeatable_read, "_PAGE_ROWS", pages)
        for prefix in ["", *prefixes, *itertools.islice(sorted(names), 2)]:
            expected = [location.path for location in repository.list(prefix)]
            if expected or prefix == "":
                assert paths_of(repository, prefix, tmp_path / "taken") == expected
            with open_snapshot(tmp_path / "taken") as snapshot:
                assert all(snapshot.read(path) == b"x" * len(path) for path in expected)


def test_a_listing_of_several_pages(repository: cafcat.Repository, tmp_path: Path) -> None:
    names = [f"tree/{number:05}" for number in range(2500)]
    commit(repository, dict.fromkeys(names, b""))
    repository.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert list(snapshot.paths("tree")) == names
        assert list(snapshot.paths()) == names


def test_tables_equal_the_catalog(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {"not/taken": b"elsewhere"})
    chunks = [commit(repository, {"tree/a": b"a", "tree/c": b"ccc"}), commit(repository, {"tree/b": b"bb"})]
    commit(repository, {"tree/none": b""}, modified_ns=None)
    repository.copy(to=Folder(tmp_path / "second").url)
    report = repository.snapshot(tmp_path / "taken", "tree")
    with contextlib.closing(sqlite3.connect(tmp_path / "taken")) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x63616673,)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        files = connection.execute("SELECT * FROM files").fetchall()
        held = connection.execute("SELECT * FROM chunks ORDER BY id").fetchall()
        copies = connection.execute("SELECT * FROM copies ORDER BY chunk").fetchall()
        [info] = connection.execute("SELECT * FROM snapshot").fetchall()
    expected = sql(
        repository,
        "SELECT file_path, caf_file_id, start_byte, end_byte, crc32c, "
        "(extract(epoch FROM modified_at) * 1000000)::bigint, content_bytes, decoding "
        "FROM file_locations WHERE file_path LIKE 'tree/%%' ORDER BY 1",
    )
    assert files == expected
    assert [row[5] for row in files] == [MODIFIED // 1000] * 3 + [None]
    assert held == sql(
        repository,
        "SELECT id, uuid::text, format, store, object_key, size_bytes, crc64nvme "
        "FROM chunks WHERE id > 1 ORDER BY id",
    )
    assert {row[1] for row in held} > set(chunks)
    assert copies == sql(
        repository, "SELECT chunk_id, store, object_key FROM chunk_copies WHERE chunk_id > 1 ORDER BY chunk_id"
    )
    assert len(copies) == 3
    [last] = sql(repository, "SELECT id, uuid::text FROM journal ORDER BY id DESC LIMIT 1")
    assert info == (report.made_at, "tree", 4, 6, *last, cafcat.__version__)
    size_bytes = (tmp_path / "taken").stat().st_size
    assert (report.files, report.bytes, report.chunks, report.size_bytes) == (4, 6, 3, size_bytes)


def test_an_empty_catalog_has_a_snapshot_too(repository: cafcat.Repository, tmp_path: Path) -> None:
    report = repository.snapshot(tmp_path / "taken")
    assert (report.files, report.bytes, report.chunks) == (0, 0, 0)
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert (len(snapshot), list(snapshot.paths()), snapshot.info.journal_uuid) == (0, [], None)
        with pytest.raises(NotFound):
            snapshot.read("a")


@pytest.mark.parametrize("prefix", ["nothing", "tre", "tree/a/", "tree/a/b"])
def test_missing_prefix_is_refused_and_leaves_nothing(
    repository: cafcat.Repository, tmp_path: Path, prefix: str
) -> None:
    commit(repository, {"tree/a": b"a"})
    with pytest.raises(NotFound, match="no such file or folder"):
        repository.snapshot(tmp_path / "taken", prefix)
    assert left_in(tmp_path) == set()


def test_existing_output_is_replaced_only_with_overwrite(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {"a": b"a"})
    (tmp_path / "taken").write_bytes(b"precious")
    (tmp_path / "link").symlink_to("taken")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for output in ("taken", "link", "folder"):
        with pytest.raises(Conflict, match="of that name"):
            repository.snapshot(tmp_path / output)
    with pytest.raises(Conflict):
        repository.snapshot(tmp_path / "folder", overwrite=True)
    with pytest.raises(InvalidInput, match="device"):
        repository.snapshot(tmp_path / "pipe", overwrite=True)
    with pytest.raises(OutputFailed):
        repository.snapshot(tmp_path / "missing" / "taken")
    repository.snapshot(tmp_path / "link", overwrite=True)
    assert (tmp_path / "taken").read_bytes() == b"precious"
    assert not (tmp_path / "link").is_symlink()
    repository.snapshot(tmp_path / "taken", overwrite=True)
    assert left_in(tmp_path) == {"taken", "link", "folder", "pipe"}
    assert (tmp_path / "pipe").is_fifo()
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert snapshot.read("a") == b"a"


class Meanwhile(Listener):
    """Calls a function after the first page."""

    def __init__(self, something: Any) -> None:
        self._something = something
        self.begun: list[tuple[str, int | None, int | None]] = []
        self.files = self.bytes = self.ended = 0

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self.begun.append((verb, files, size_bytes))

    def advance(self, files: int, size_bytes: int) -> None:
        if not self.files:
            self._something()
        self.files += files
        self.bytes += size_bytes

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def pages_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeatable_read, "_PAGE_ROWS", 10)


def test_snapshot_is_consistent_during_commits(
    repository: cafcat.Repository, tmp_path: Path, pages_of_ten: None
) -> None:
    files = {f"tree/{number:03}": b"%d" % number for number in range(100)}
    commit(repository, files)

    def change() -> None:
        commit(repository, {"tree/050": b"changed", "tree/0505": b"new", "zzz": b"new"})
        repository.rm(["tree/060"])
        repository.copy(to=Folder(tmp_path / "second").url)

    progress = Meanwhile(change)
    repository.with_progress(progress).snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert {path: snapshot.read(path) for path in snapshot.paths()} == files
    with contextlib.closing(sqlite3.connect(tmp_path / "taken")) as connection:
        assert connection.execute("SELECT * FROM copies").fetchall() == []
    assert progress.begun == [("snapshot", 100, sum(map(len, files.values())))]
    assert (progress.files, progress.bytes) == (100, sum(map(len, files.values())))
    assert progress.ended


@pytest.mark.parametrize("output_was_there", [False, True])
def test_interrupted_snapshot_keeps_the_old_output(
    repository: cafcat.Repository, tmp_path: Path, pages_of_ten: None, output_was_there: bool
) -> None:
    commit(repository, {f"tree/{number:03}": b"" for number in range(100)})
    before = {"taken": b"before"} if output_was_there else {}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    seen: list[set[str]] = []

    def interrupt() -> None:
        seen.append(left_in(tmp_path) - before.keys())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repository.with_progress(Meanwhile(interrupt)).snapshot(tmp_path / "taken", overwrite=True)
    assert [len(names) for names in seen] == [1]
    assert seen[0] != {"taken"}
    assert {name: (tmp_path / name).read_bytes() for name in left_in(tmp_path)} == before


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_reported_and_leaves_nothing(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {f"tree/{number:05}": b"" for number in range(3000)})
    with pytest.raises(OutputFailed, match="cannot be written") as raised, files_of_at_most(20_000):
        repository.snapshot(tmp_path / "taken")
    assert raised.value.path == str(tmp_path / "taken")
    assert left_in(tmp_path) == set()


def test_mode_of_the_file_obeys_the_umask(repository: cafcat.Repository, tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        repository.snapshot(tmp_path / "taken")
    finally:
        os.umask(mask)
    assert (tmp_path / "taken").stat().st_mode & 0o777 == 0o640
