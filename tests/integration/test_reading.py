"""Reading: one query and one range read, checked bytes, trees that stay in their folder."""

import itertools
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.catalog.connection import PgConnection
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound
from cafcat.model import Folder, Location, ProblemKind
from cafcat.stores.local.store import LocalStore
from tests.worlds.archives.damage import flip
from tests.worlds.open_files import open_files

CONTENT = random.Random(1)
LARGE = CONTENT.randbytes(9_000_000)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "empty").write_bytes(b"")
    (tree / "hello").write_bytes(b"hello, world")
    (tree / "sub" / "large").write_bytes(LARGE)
    for number in range(50):
        (tree / "sub" / f"n{number:02}").write_bytes(b"%d" % number * number)
    os.utime(tree / "hello", ns=(0, 1_234_567_890_123_456_000))
    return tree


@pytest.fixture
def repository(database_url: str, source: Path, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        repository.ingest(["tree"])
        yield repository


@pytest.fixture
def chunk(repository: cafcat.Repository, tmp_path: Path) -> Path:
    [chunk] = (tmp_path / "store").glob("*.caf")
    return chunk


def test_get_is_one_query_and_one_range_read(
    database_url: str, repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq's trace of a new connection lists the messages that are sent."""
    reads: list[tuple[int, int]] = []
    read = LocalStore.read

    def counted(self: LocalStore, key: str, start: int, end: int) -> bytes:
        reads.append((start, end))
        return read(self, key, start, end)

    monkeypatch.setattr(LocalStore, "read", counted)
    with (
        cafcat.open(database_url=database_url, home=tmp_path, store=repository.settings.store) as fresh,
        (tmp_path / "trace").open("wb+") as trace,
        fresh.session.catalog._connection.statement(check=False) as connection,
    ):
        connection.pgconn.trace(trace.fileno())
        location = fresh.get("tree/hello", tmp_path / "out")
        connection.pgconn.untrace()
        sent = [line.split("\t")[3] for line in Path(trace.name).read_text().splitlines() if "\tF\t" in line]
    assert [kind for kind in sent if kind in ("Execute", "Query")] == ["Execute"]
    assert reads == [(location.start_byte, location.end_byte)]


def sent_by(connection: PgConnection, call: Callable[[], object], trace: Path) -> list[str]:
    """Return the kinds of messages that the client sends, from libpq's trace."""
    with trace.open("wb+") as file:
        connection.pgconn.trace(file.fileno())
        try:
            call()
        finally:
            connection.pgconn.untrace()
    return [line.split("\t")[3] for line in trace.read_text().splitlines() if line.split("\t")[1] == "F"]


def prepared_on(connection: PgConnection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT statement FROM pg_prepared_statements")]


ONE_ROUND_TRIP = ["Bind", "Describe", "Execute", "Sync"]


def test_look_up_on_an_open_connection_is_one_round_trip(repository: cafcat.Repository, tmp_path: Path) -> None:
    with repository.session.catalog._connection.statement() as connection:
        for _ in range(2):
            assert repository.read("tree/hello") == b"hello, world"
            assert dict(repository.read_many(["tree/hello"])) == {"tree/hello": b"hello, world"}
        trace = tmp_path / "trace"
        assert sent_by(connection, lambda: repository.read("tree/hello"), trace) == ONE_ROUND_TRIP
        assert sent_by(connection, lambda: dict(repository.read_many(["tree/hello"])), trace) == ONE_ROUND_TRIP
        assert len(prepared_on(connection)) == 2


def test_a_setting_keeps_all_from_being_prepared(
    database_url: str, repository: cafcat.Repository, tmp_path: Path
) -> None:
    store = repository.settings.store
    with (
        cafcat.open(database_url=database_url, home=tmp_path, store=store, prepared_statements=False) as plain,
        plain.session.catalog._connection.statement() as connection,
    ):
        for _ in range(3):
            assert plain.read("tree/hello") == b"hello, world"
        assert sent_by(connection, lambda: plain.read("tree/hello"), tmp_path / "trace") == [
            "Parse",
            *ONE_ROUND_TRIP,
        ]
        assert prepared_on(connection) == []


RETYPED = "DROP SCHEMA cafcat_ops CASCADE; ALTER TABLE chunks ALTER format TYPE varchar"


@pytest.mark.parametrize("lost", ["DEALLOCATE ALL", RETYPED])
def test_lost_or_outdated_prepared_statement_is_replaced(
    repository: cafcat.Repository, tmp_path: Path, lost: str
) -> None:
    """This happens behind a pooler that gives each transaction another connection to the server."""
    with repository.session.catalog._connection.statement() as connection:
        for _ in range(2):
            repository.read("tree/hello")
        connection.pgconn.exec_(lost.encode())
        for _ in range(2):
            assert repository.read("tree/hello") == b"hello, world"
        assert sent_by(connection, lambda: repository.locate("tree/hello"), tmp_path / "trace")[0] == "Parse"


def test_plans_are_renewed_every_minute_and_few_are_open(
    repository: cafcat.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the plan for an empty table would stay, on a server that collects no statistics."""
    with repository.session.catalog._connection.statement() as connection:
        seen: set[str] = set()
        clock = itertools.count(time.monotonic(), 61)
        for now in itertools.islice(clock, 6):
            monkeypatch.setattr("time.monotonic", partial(float, now))
            for _ in range(2):
                repository.read("tree/hello")
            seen |= set(prepared_on(connection))
        assert len(seen) >= 5
        assert len(prepared_on(connection)) <= 4


def test_look_ups_of_several_threads_do_not_mix(repository: cafcat.Repository) -> None:
    paths = [f"tree/sub/n{number:02}" for number in range(50)]
    expected = {path: b"%d" % number * number for number, path in enumerate(paths)}
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert dict(zip(paths, pool.map(repository.read, paths), strict=True)) == expected


def test_close_closes_files_and_later_reads_open_them_again(repository: cafcat.Repository, chunk: Path) -> None:
    for _ in range(2):
        assert repository.read("tree/hello") == b"hello, world"
        assert open_files(chunk.parent) == [chunk.name]
        repository.close()
        assert open_files(chunk.parent) == []


@pytest.mark.parametrize("path", [Path("tree/a"), b"tree/a", 3])
def test_a_path_that_is_no_text(repository: cafcat.Repository, tmp_path: Path, path: Any) -> None:
    repository.snapshot(tmp_path / "taken")
    with cafcat.Snapshot(tmp_path / "taken") as snapshot:
        for reader in (repository, snapshot):
            with pytest.raises(InvalidInput, match=f"a path must be a text, not {type(path).__name__}"):
                reader.read(path)
            results = dict(reader.read_many([path, "nothing"]))
            assert {type(result) for result in results.values()} == {InvalidInput, NotFound}


CALLS: dict[str, Callable[[cafcat.Repository, Any, Path], object]] = {
    "get_into": lambda repository, path, output: list(repository.get_into([path], output)),
    "get_into parents": lambda repository, path, output: list(repository.get_into([path], output, parents=True)),
    "extract": lambda repository, path, output: repository.extract(path, output),
    "extract several": lambda repository, path, output: repository.extract([path], output),
    "extract paths": lambda repository, path, output: repository.extract("", output, paths=[path]),
    "export": lambda repository, path, output: repository.export([path], output.with_suffix(".tar")),
    "expand": lambda repository, path, _: list(repository.expand([path])),
    "glob": lambda repository, path, _: list(repository.glob(path)),
    "rm": lambda repository, path, _: repository.rm(["tree/hello", path]),
    "rm folders": lambda repository, path, _: repository.rm(folders=[path]),
    "undelete": lambda repository, path, _: repository.undelete([path]),
    "removed": lambda repository, path, _: list(repository.removed(path)),
    "history": lambda repository, path, _: repository.history(path),
    "list": lambda repository, path, _: list(repository.list(path)),
    "list_folder": lambda repository, path, _: list(repository.list_folder(path)),
    "walk": lambda repository, path, _: list(repository.walk(path)),
    "folder_total": lambda repository, path, _: repository.folder_total(path),
    "has_logs": lambda repository, path, _: repository.has_logs(path),
    "snapshot": lambda repository, path, output: repository.snapshot(output, path),
    "verify": lambda repository, path, _: repository.verify(prefix=path),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_method_refuses_a_path_that_is_no_text(
    repository: cafcat.Repository, tmp_path: Path, call: str
) -> None:
    for path, hint in [
        (repository.locate("tree/hello"), "path.path"),
        (b"tree/hello", "os.fsdecode(path)"),
        (Path("tree/hello"), "str(path)"),
    ]:
        with pytest.raises(InvalidInput, match=f"^a path must be a text, not {type(path).__name__}") as raised:
            CALLS[call](repository, path, tmp_path / "output")
        assert raised.value.hint == f"pass {hint}"
    assert not (tmp_path / "output").exists()
    assert "tree/hello" in repository


@pytest.mark.parametrize("option", ["newer_ns", "older_ns", "min_size", "max_size"])
def test_find_refuses_a_condition_that_is_no_number(repository: cafcat.Repository, option: str) -> None:
    conditions: dict[str, Any] = {option: "5kB"}
    for find in (repository.find, repository.find_paths):
        with pytest.raises(InvalidInput, match=f"^{option} must be a number of .*, not '5kB'"):
            list(find("tree", **conditions))
    assert [found.path for found in repository.find("tree", max_size=12.5, newer_ns=1e9, name="hello")]  # type: ignore[arg-type]


def test_ranges(repository: cafcat.Repository) -> None:
    for start, end in [(0, 5), (7, None), (7, 100), (0, 0), (11, 12), (-5, None), (-100, None), (0, 10**15)]:
        expected = b"hello, world"[start:end]
        assert repository.read("tree/hello", start, end) == expected
        assert b"".join(repository.stream("tree/hello", start, end)) == expected
    assert repository.read("tree/sub/large", 1_000_000, 5_000_001) == LARGE[1_000_000:5_000_001]
    assert repository.read("tree/empty") == b""
    for start, end in [(12, None), (13, 14), (5, 4)]:
        with pytest.raises(InvalidInput):
            repository.read("tree/hello", start, end)
    with pytest.raises(InvalidInput, match="the end of a range must be at least 0, not -1; the file has 12 bytes"):
        repository.read("tree/hello", -3, -1)


def test_get_restores_the_time_and_overwrites_nothing(repository: cafcat.Repository, tmp_path: Path) -> None:
    output = tmp_path / "out"
    repository.get("tree/hello", output)
    assert output.read_bytes() == b"hello, world"
    assert output.stat().st_mtime_ns == 1_234_567_890_123_456_000
    with pytest.raises(Conflict, match=r"already .*\(--force, in Python overwrite=True\)$"):
        repository.get("tree/empty", output)
    assert output.read_bytes() == b"hello, world"
    repository.get("tree/hello", output, 7, overwrite=True)
    assert output.read_bytes() == b"world"


def test_overwriting_replaces_a_link_and_does_not_write_through_it(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "out").symlink_to("precious")
    repository.get("tree/hello", tmp_path / "out", overwrite=True)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("path", ["tree/hello", "tree/sub/large"])
def test_a_damaged_file_is_never_given_out(
    repository: cafcat.Repository, chunk: Path, tmp_path: Path, path: str
) -> None:
    location = repository.locate(path)
    flip(chunk, location.end_byte - 1)
    for attempt in (
        lambda: repository.read(path),
        lambda: list(repository.stream(path)),
        lambda: repository.get(path, tmp_path / "out"),
    ):
        with pytest.raises(Corrupt, match="CRC-32C") as raised:
            attempt()
        error = raised.value
        assert (error.path, error.chunk, error.byte) == (path, str(location.chunk), location.start_byte)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".cafcat*"))


def test_a_chunk_that_was_cut_or_is_gone(repository: cafcat.Repository, chunk: Path) -> None:
    os.truncate(chunk, repository.locate("tree/sub/large").end_byte - 1)
    with pytest.raises(Corrupt):
        repository.read("tree/sub/large")
    assert repository.read("tree/hello") == b"hello, world"
    chunk.unlink()
    with pytest.raises(Corrupt, match="is missing") as raised:
        repository.read("tree/hello")
    assert raised.value.path == "tree/hello"


def test_extract_gives_the_tree_back(repository: cafcat.Repository, source: Path, tmp_path: Path) -> None:
    report = repository.extract("tree", tmp_path / "out")
    restored = {
        path.relative_to(tmp_path / "out"): path for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    originals = {path.relative_to(tmp_path): path for path in source.rglob("*") if path.is_file()}
    assert restored.keys() == originals.keys()
    for name, path in restored.items():
        assert path.read_bytes() == originals[name].read_bytes()
        assert path.stat().st_mtime_ns // 1000 == originals[name].stat().st_mtime_ns // 1000
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~current_umask()
    assert (report.files, report.files_failed) == (len(originals), 0)
    assert report.bytes == sum(path.stat().st_size for path in originals.values())


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_extract_of_one_file_of_everything_and_of_nothing(repository: cafcat.Repository, tmp_path: Path) -> None:
    assert repository.extract("tree/hello", tmp_path / "one").files == 1
    assert (tmp_path / "one" / "tree" / "hello").read_bytes() == b"hello, world"
    for everything in ("", ".", "./"):
        folder = tmp_path / f"all{len(everything)}"
        assert repository.extract(everything, folder).files == 53
    for nothing in ("tre", "tree/hello/", "tree/sub/n", "../tree"):
        with pytest.raises(NotFound):
            repository.extract(nothing, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_extract_overwrites_only_with_the_option(repository: cafcat.Repository, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "tree").mkdir(parents=True)
    (out / "tree" / "hello").write_bytes(b"mine")
    report = repository.extract("tree", out)
    assert [(problem.path, problem.kind) for problem in report.failed] == [("tree/hello", ProblemKind.EXISTS)]
    assert (out / "tree" / "hello").read_bytes() == b"mine"
    assert report.files == 52
    report = repository.extract("tree", out, overwrite=True)
    assert (report.files, report.files_failed) == (53, 0)
    assert (out / "tree" / "hello").read_bytes() == b"hello, world"


def test_extract_never_leaves_its_folder(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names come from the catalog, where only an adopted archive could have put them."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    out.mkdir()
    (out / "tree").symlink_to(outside)
    report = repository.extract("tree", out)
    assert (report.files, report.files_failed) == (0, 53)
    hello = repository.locate("tree/hello")
    hostile = ["../up", "/abs", "a/../../up", "a//b", "./dot", "", "dir/", "nul\0name", ".."]
    page = [hello._replace(path=path) for path in hostile]
    monkeypatch.setattr(repository.session.catalog.files, "pages_in", lambda *_, **__: iter([page]))
    report = repository.extract("", tmp_path / "out2")
    assert (report.files, report.files_failed) == (0, len(hostile))
    assert list(outside.iterdir()) == []
    assert list((tmp_path / "out2").rglob("*")) == []
    assert not (tmp_path / "up").exists()


def test_extract_writes_all_files_but_a_damaged_one(
    repository: cafcat.Repository, chunk: Path, tmp_path: Path
) -> None:
    flip(chunk, repository.locate("tree/sub/n33").start_byte)
    flip(chunk, repository.locate("tree/sub/large").start_byte + 4_000_000)
    report = repository.extract("tree", tmp_path / "out")
    assert {problem.path for problem in report.failed} == {"tree/sub/n33", "tree/sub/large"}
    assert {problem.kind for problem in report.failed} == {ProblemKind.CORRUPT}
    assert report.files == 51
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert len(names) == 51
    assert "n33" not in names


def test_missing_chunk_affects_only_its_files(database_url: str, source: Path, tmp_path: Path) -> None:
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        repository.ingest(["tree"], target_size=1000)
        lost = repository.locate("tree/sub/n40")
        Path(repository.object_of(lost)).unlink()
        there = [place for place in repository.list() if place.chunk != lost.chunk]
        report = repository.extract("", tmp_path / "out")
    assert (report.files, report.files_failed) == (len(there), 53 - len(there))
    assert {problem.kind for problem in report.failed} == {ProblemKind.CORRUPT}


def test_name_that_the_disk_cannot_store_fails_alone(repository: cafcat.Repository, tmp_path: Path) -> None:
    repository.ingest(["tree/hello"], prefix="x" * 300)
    report = repository.extract("", tmp_path / "out")
    assert (report.files, report.files_failed) == (53, 1)


def test_devices_are_written_to_and_not_replaced(repository: cafcat.Repository, tmp_path: Path) -> None:
    repository.get("tree/hello", "/dev/null", overwrite=True)
    assert Path("/dev/null").is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    repository.get("tree/hello", pipe)
    assert os.read(reader, 100) == b"hello, world"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(Conflict):
        repository.get("tree/hello", tmp_path, overwrite=True)


def test_a_folder_is_called_one(repository: cafcat.Repository) -> None:
    with pytest.raises(NotFound, match="folder"):
        repository.read("tree/sub")
    assert repository.read("/tree/hello") == b"hello, world"


def test_a_cut_chunk_still_gives_the_files_before_the_cut(
    repository: cafcat.Repository, chunk: Path, tmp_path: Path
) -> None:
    os.truncate(chunk, repository.locate("tree/sub/n20").start_byte + 3)
    report = repository.extract("tree", tmp_path / "out")
    assert report.files_failed == 30
    assert (tmp_path / "out" / "tree" / "sub" / "n19").exists()


def test_listing(repository: cafcat.Repository) -> None:
    def level(prefix: str) -> list[str]:
        return [item.path for item in repository.list_folder(prefix)]

    assert level("") == level(".") == ["tree/"]
    assert level("tree") == level("tree/") == level("./tree") == ["tree/empty", "tree/hello", "tree/sub/"]
    assert level("tree/hello") == ["tree/hello"]
    assert level("tree/hello/") == []
    assert level("nothing") == []
    assert isinstance(next(iter(repository.list_folder())), Folder)
    everything = list(repository.list())
    assert [location.path for location in everything] == sorted(location.path for location in everything)
    assert len(list(repository.list("tree/sub"))) == 51
    assert all(isinstance(location, Location) for location in everything)


def test_methods_take_the_uuid_of_a_chunk(repository: cafcat.Repository, tmp_path: Path) -> None:
    [chunk] = repository.chunks()
    assert repository.chunk(chunk.uuid) == chunk == repository.chunk(str(chunk.uuid))
    assert [*repository.chunk_files(chunk.uuid)] == [*repository.list()]
    assert repository.verify(chunks=[chunk.uuid]).ok == 1
    assert repository.repair(chunks=[chunk.uuid], dry_run=True).files_lost == 0
    assert repository.repack(chunks=[chunk.uuid], dry_run=True).chunks == 1
    assert repository.copy([chunk.uuid], to=str(tmp_path / "copies")).copied == 1


def test_find(repository: cafcat.Repository) -> None:
    def found(**conditions: object) -> list[str]:
        return [location.path.removeprefix("tree/") for location in repository.find("tree", **conditions)]  # type: ignore[arg-type]

    assert found(name="n0[1-3]") == ["sub/n01", "sub/n02", "sub/n03"]
    assert found(name="h*") == ["hello"]
    assert found(name="hell?") == ["hello"]
    assert found(min_size=9_000_000) == ["sub/large"]
    assert found(max_size=0) == ["empty", "sub/n00"]
    assert found(older_ns=1_300_000_000_000_000_000) == ["hello"]
    assert "hello" not in found(newer_ns=1_300_000_000_000_000_000)
    assert [location.path for location in repository.find("tree/hello", name="x")] == []


def test_a_dot_slash_is_forgiven(repository: cafcat.Repository) -> None:
    assert repository.read("./tree/hello") == b"hello, world"


def test_inspect_needs_no_catalog(repository: cafcat.Repository, chunk: Path) -> None:
    inspection = cafcat.inspect(chunk)
    entries = {entry.path: entry for entry in inspection.entries}
    assert (inspection.format, inspection.object, inspection.size_bytes) == (
        "caf",
        str(chunk),
        chunk.stat().st_size,
    )
    for location in repository.list():
        entry = entries[location.path]
        assert (entry.start_byte, entry.end_byte, entry.crc32c) == location[1:4]
        assert (entry.modified_ns or 0) // 1000 == (location.modified_ns or 0) // 1000
