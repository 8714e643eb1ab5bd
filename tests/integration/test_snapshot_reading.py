"""Reading from a snapshot: bytes and errors equal those of the catalog, which is not used."""

import gc
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotFound, StoreFailed, Unavailable
from cafcat.formats.registry import by_name
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.snapshots import cached_chunks
from cafcat.stores.local.files import LocalFile
from tests.worlds.archives.damage import flip
from tests.worlds.archives.written_formats import TREE, WRITTEN, byte_of, make_tree
from tests.worlds.catalog_world import Opener, begin, commit
from tests.worlds.open_files import open_files
from tests.worlds.places import Folder, Place

FILES = {f"tree/n{number:03}": b"%d" % number * number for number in range(200)} | {"empty": b"", "large": b""}
FILES["large"] = random.Random(5).randbytes(3_000_000)


@pytest.fixture
def taken(repository: cafcat.Repository, tmp_path: Path) -> Iterator[cafcat.Snapshot]:
    """A snapshot of a catalog with FILES in one chunk. The snapshot has no access to that catalog."""
    commit(repository, FILES)
    repository.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        yield snapshot


@pytest.fixture
def by_folder(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> Iterator[cafcat.Snapshot]:
    """A snapshot of a catalog with FILES in one chunk in a folder."""
    commit(local, FILES)
    local.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        yield snapshot


def open_snapshot(path: Path, warn: Callable[[str], object] | None = None) -> cafcat.Snapshot:
    return cafcat.Snapshot(path, warn=warn, home=path.parent / "elsewhere", database_url="postgresql:///nowhere")


def chunk_of(folder: Folder) -> Path:
    [chunk] = folder.folder.glob("*.caf")
    return chunk


def never(*_: object) -> bytes:
    pytest.fail("this should have been read the short way")


def test_all_files_are_read(taken: cafcat.Snapshot) -> None:
    for _ in range(2):
        assert {path: taken.read(path) for path in FILES} == FILES
    assert dict(taken.read_many(FILES)) == FILES
    assert list(taken.paths()) == sorted(FILES)
    assert len(taken) == taken.info.files == len(FILES)
    assert taken.info.size_bytes == sum(map(len, FILES.values()))


def test_locations_and_names_equal_those_of_the_catalog(
    taken: cafcat.Snapshot, repository: cafcat.Repository
) -> None:
    for path in FILES:
        assert taken.locate(path) == repository.locate(path)
    for typed in ("tree/n007", "./tree/n007", "/tree/n007", "//./tree/n007"):
        assert taken.read(typed) == repository.read(typed) == FILES["tree/n007"]
        assert typed in taken


@pytest.mark.parametrize("path", ["tree", "tree/", "nothing", "tree/n", "", "a\0b", "\udcff", "x\udcff/y"])
def test_errors_for_missing_files_equal_those_of_the_catalog(
    taken: cafcat.Snapshot, repository: cafcat.Repository, path: str
) -> None:
    with pytest.raises((NotFound, InvalidInput)) as expected:
        repository.read(path)
    with pytest.raises(type(expected.value)) as raised:
        taken.read(path)
    if isinstance(expected.value, NotFound):
        assert (raised.value.path, raised.value.message) == (expected.value.path, expected.value.message)
    assert path not in taken
    [(name, error)] = taken.read_many([path])
    assert (name, type(error)) == (path, type(expected.value))


def test_error_for_a_missing_file_has_the_time_of_the_snapshot(taken: cafcat.Snapshot) -> None:
    for attempt in (lambda: taken.read("later"), lambda: taken.locate("later")):
        with pytest.raises(NotFound) as raised:
            attempt()
        assert raised.value.hint == f"the snapshot was made at {taken.info.made_at}"
    for attempt in (lambda: taken.read("tree"), lambda: taken.open("tree")):
        with pytest.raises(NotFound, match=r"a folder of the catalog, not a file .*; use list or paths"):
            attempt()
    assert str(taken.locate_many(["tree"])["tree"]).endswith("; use list or paths")


def test_hint_for_a_moved_store_names_a_new_snapshot(
    by_folder: cafcat.Snapshot, folder: Folder, tmp_path: Path
) -> None:
    folder.folder.rename(tmp_path / "moved")
    attempts: list[Callable[[], object]] = [
        lambda: by_folder.read("tree/n150"),
        lambda: list(by_folder.read_many(["tree/n150"])),
        lambda: by_folder.open("tree/n150").read(),
    ]
    for attempt in attempts:
        with pytest.raises(Unavailable, match="cannot find the store") as raised:
            attempt()
        assert raised.value.hint == "is its disk mounted? If the store was moved, make a new snapshot"


def test_other_things_are_no_paths(taken: cafcat.Snapshot) -> None:
    for thing in (None, 7, b"tree/n007", Path("tree/n007")):
        assert thing not in taken
    with pytest.raises(InvalidInput, match="list of names"):
        next(taken.read_many("tree/n007"))


def test_ranges_equal_those_of_the_catalog(taken: cafcat.Snapshot, repository: cafcat.Repository) -> None:
    for start, end in [(0, 5), (7, None), (7, 100), (0, 0), (-5, None), (-10_000, None), (0, 10**15), (3, 4)]:
        assert taken.read("tree/n123", start, end) == repository.read("tree/n123", start, end)
    for start, end in [(10_000, None), (5, 4)]:
        with pytest.raises(InvalidInput):
            taken.read("tree/n123", start, end)
    assert dict(taken.read_many(["tree/n123"], -5)) == {"tree/n123": FILES["tree/n123"][-5:]}


def test_a_file_of_a_folder_is_read_the_short_way_but_for_the_first(
    by_folder: cafcat.Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_folder.read("tree/n001")
    monkeypatch.setattr(by_folder, "_read_by_location", never)
    monkeypatch.setattr(cached_chunks, "_TRUSTED_SECONDS", 10**9)
    for path, content in FILES.items():
        assert by_folder.read(path) == content


def test_large_chunk_numbers_are_not_confused(local: cafcat.Repository, tmp_path: Path) -> None:
    """A chunk has a very large number, and a row has the checksum of the same bytes of another chunk."""
    commit(local, {"first": b"of the first"})
    commit(local, {"other": b"of the other"})
    local.snapshot(tmp_path / "taken")
    with closing(sqlite3.connect(tmp_path / "taken", isolation_level=None)) as connection:
        [(first, other)] = connection.execute("SELECT min(chunk), max(chunk) FROM files").fetchall()
        high = first + (1 << 24)
        connection.execute("UPDATE chunks SET id = ? WHERE id = ?", (high, other))
        connection.execute("UPDATE files SET chunk = ? WHERE chunk = ?", (high, other))
        connection.execute("UPDATE files SET crc32c = (SELECT min(crc32c) FROM files WHERE chunk = ?)", (first,))
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert snapshot.read("first") == b"of the first"
        with pytest.raises(Corrupt):
            snapshot.read("other")


@pytest.mark.parametrize("path", ["tree/n150", "large"])
def test_a_damaged_file_is_never_given_out(by_folder: cafcat.Snapshot, folder: Folder, path: str) -> None:
    location = by_folder.locate(path)
    for reads in (0, 1):
        for _ in range(reads):
            assert by_folder.read(path) == FILES[path]
        flip(chunk_of(folder), location.end_byte - 1)
        with pytest.raises(Corrupt, match="CRC-32C") as raised:
            by_folder.read(path)
        error = raised.value
        assert (error.path, error.chunk, error.byte) == (path, str(location.chunk), location.start_byte)
        repair = f"run cafcat repair --chunk {location.chunk}, with --from-source SRC if you have the original"
        assert error.hint == f"make a new snapshot; if the file is damaged there, too, {repair}"
        assert isinstance(dict(by_folder.read_many([path]))[path], Corrupt)
        assert by_folder.read("tree/n149") == FILES["tree/n149"]
        flip(chunk_of(folder), location.end_byte - 1)


def test_a_chunk_that_was_cut_is_damaged(by_folder: cafcat.Snapshot, folder: Folder) -> None:
    os.truncate(chunk_of(folder), by_folder.locate("tree/n150").end_byte - 1)
    with pytest.raises(Corrupt):
        by_folder.read("tree/n150")
    assert by_folder.read("tree/n149") == FILES["tree/n149"]


def test_pruned_files_are_not_found_and_the_hint_names_a_new_snapshot(
    taken: cafcat.Snapshot, repository: cafcat.Repository, tmp_path: Path
) -> None:
    """Files that are only removed from the catalog, or replaced, stay readable."""
    assert taken.read("tree/n150") == FILES["tree/n150"]
    commit(repository, {"tree/n150": b"new"})
    repository.rm(folders=["tree"])
    repository.rm(["empty", "large"])
    assert taken.read("tree/n150") == FILES["tree/n150"]
    with open_snapshot(tmp_path / "taken") as again:
        assert again.read("tree/n150") == FILES["tree/n150"]
    repository.prune(grace_seconds=0)
    with open_snapshot(tmp_path / "taken") as later:
        with pytest.raises(NotFound, match="is missing") as raised:
            later.read("tree/n150")
        assert raised.value.path == "tree/n150"
        assert raised.value.hint == "if it was pruned or repacked since, make a new snapshot"
        for path, error in later.read_many(["tree/n150", "large"]):
            assert isinstance(error, NotFound), path
            assert "make a new snapshot" in str(error)


def test_open_chunk_is_closed_after_its_removal(
    by_folder: cafcat.Snapshot, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_chunks, "_TRUSTED_SECONDS", 0)
    by_folder.read("tree/n150")
    chunk = chunk_of(folder)
    assert open_files(folder.folder) == [chunk.name]
    chunk.unlink()
    with pytest.raises(NotFound):
        by_folder.read("tree/n150")
    gc.collect()
    assert open_files(folder.folder) == []


def test_replaced_chunk_is_opened_again(
    by_folder: cafcat.Snapshot, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_chunks, "_TRUSTED_SECONDS", 10**9)
    shutil.copy(chunk_of(folder), tmp_path / "backup")
    location = by_folder.locate("tree/n150")
    flip(chunk_of(folder), location.start_byte)
    with pytest.raises(Corrupt):
        by_folder.read("tree/n150")
    os.replace(tmp_path / "backup", chunk_of(folder))
    for _ in range(2):
        assert by_folder.read("tree/n150") == FILES["tree/n150"]
        monkeypatch.setattr(by_folder, "_read_by_location", never)


def test_copies_in_the_snapshot_are_read(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    commit(local, FILES)
    local.copy(to=Folder(tmp_path / "second").url)
    local.snapshot(tmp_path / "taken")
    chunk_of(folder).unlink()
    warned: list[str] = []
    with open_snapshot(tmp_path / "taken", warned.append) as snapshot:
        assert snapshot.read("tree/n150") == FILES["tree/n150"]
        assert snapshot.read("large") == FILES["large"]
        assert dict(snapshot.read_many(FILES)) == FILES
    assert len(warned) == 1
    assert "read from its copy" in warned[0]


def test_few_files_of_many_chunks_are_open(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_chunks, "_MOST_FILES", 3)
    files = {f"f{number}": b"%d" % number for number in range(9)}
    for path, content in files.items():
        commit(local, {path: content})
    local.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        for _ in range(2):
            assert {path: snapshot.read(path) for path in files} == files
        assert len(open_files(folder.folder)) == 3

    monkeypatch.setattr(cached_chunks, "_IDLE_SECONDS", -100)
    with open_snapshot(tmp_path / "taken") as snapshot:
        for path in ("f1", "f2", "f3"):
            snapshot.read(path)
        [name] = open_files(folder.folder)
        assert name.endswith(snapshot.locate("f3").object_key)


def test_close_closes_files_and_later_reads_open_them_again(by_folder: cafcat.Snapshot, tmp_path: Path) -> None:
    def ours() -> set[str]:
        gc.collect()
        return {name for name in open_files(tmp_path) if "home" not in name}

    for _ in range(2):
        assert by_folder.read("tree/n150") == FILES["tree/n150"]
        assert len(ours()) == 2
        by_folder.close()
        by_folder.close()
        assert not ours()
    with by_folder:
        assert by_folder.read("tree/n150") == FILES["tree/n150"]
    assert not ours()


def read_all(snapshot: cafcat.Snapshot, seed: int) -> bool:
    paths = random.Random(seed).sample(list(FILES), len(FILES))
    return all(snapshot.read(path) == FILES[path] for path in paths)


def test_threads_share_a_snapshot(by_folder: cafcat.Snapshot, tmp_path: Path) -> None:
    def opened() -> list[str]:
        """Return each open file, once per descriptor."""
        gc.collect()
        return open_files(tmp_path)

    by_folder.read("tree/n001")
    before = opened()
    start = threading.Barrier(4)

    def reading(seed: int) -> bool:
        start.wait()
        return all(read_all(by_folder, seed + turn) for turn in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(reading, range(4)))
    assert opened() == before


def test_thread_may_close_a_snapshot_while_others_read(by_folder: cafcat.Snapshot) -> None:
    done = threading.Event()

    def close() -> None:
        while not done.is_set():
            by_folder.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        assert all(read_all(by_folder, seed) for seed in range(10))
    finally:
        done.set()
        closing.join()


def test_a_signal_handler_may_read_while_another_read_is_under_way(by_folder: cafcat.Snapshot) -> None:
    """The handler interrupts any step of the other read. The next signal is requested when one was handled.

    Otherwise slow handlers would interrupt each other without end.
    """
    wrong: list[str] = []
    turns = 0
    over = False

    def reads(*_: object) -> None:
        nonlocal turns
        turns += 1
        path = f"tree/n{turns % 200:03}"
        if by_folder.read(path) != FILES[path]:
            wrong.append(path)
        if not over:
            signal.setitimer(signal.ITIMER_REAL, 0.0002)

    before = signal.signal(signal.SIGALRM, reads)
    signal.setitimer(signal.ITIMER_REAL, 0.0002)
    try:
        assert all(read_all(by_folder, seed) for seed in range(20))
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert turns
    assert wrong == []


def in_a_fork(call: Callable[[], bool]) -> int:
    """Run a function in a forked child. Return 0 if it returned True. A child that hangs is ended by a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if call() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_process_opens_its_own_files(by_folder: cafcat.Snapshot, folder: Folder) -> None:
    assert read_all(by_folder, 1)
    connection = by_folder._rows.execute.__self__  # type: ignore[attr-defined]

    def in_the_child() -> bool:
        return read_all(by_folder, 2) and by_folder._rows.execute.__self__ is not connection  # type: ignore[attr-defined]

    assert [in_a_fork(in_the_child) for _ in range(3)] == [0, 0, 0]
    assert by_folder._rows.execute.__self__ is connection  # type: ignore[attr-defined]
    assert read_all(by_folder, 3)


def test_forks_of_a_bucket(taken: cafcat.Snapshot) -> None:
    """Clients of a bucket have threads, which a fork does not copy."""
    some = {path: FILES[path] for path in ("tree/n150", "large", "empty")}
    assert {path: taken.read(path) for path in some} == some
    assert in_a_fork(lambda: {path: taken.read(path) for path in some} == some) == 0
    assert in_a_fork(lambda: dict(taken.read_many(some)) == some) == 0


def test_other_processes_get_it_by_pickle(by_folder: cafcat.Snapshot) -> None:
    by_folder.read("tree/n150")
    again = pickle.loads(pickle.dumps(by_folder))  # noqa: S301
    assert (again.info, again.read("tree/n150")) == (by_folder.info, FILES["tree/n150"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(by_folder.read, ["tree/n150"]) == FILES["tree/n150"]


def test_new_snapshot_of_the_same_name_is_not_read(
    by_folder: cafcat.Snapshot, local: cafcat.Repository, tmp_path: Path
) -> None:
    """Threads that begin to read later must not get another snapshot than earlier threads."""
    assert by_folder.read("tree/n150") == FILES["tree/n150"]
    commit(local, {"later": b"later", "tree/n150": b"new"})
    local.snapshot(tmp_path / "taken", overwrite=True)
    assert by_folder.read("tree/n150") == FILES["tree/n150"]
    assert "later" not in by_folder
    with ThreadPoolExecutor(1) as pool, pytest.raises(Conflict, match="open the snapshot again"):
        pool.submit(by_folder.read, "tree/n150").result()
    with open_snapshot(tmp_path / "taken") as anew:
        assert (anew.read("later"), anew.read("tree/n150")) == (b"later", b"new")


def test_error_of_the_store_is_raised(by_folder: cafcat.Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> LocalFile:
        raise StoreFailed("Input/output error")

    monkeypatch.setattr("cafcat.stores.local.store.LocalFile", broken)
    with pytest.raises(StoreFailed, match="Input/output error") as raised:
        by_folder.read("tree/n150")
    assert raised.value.path == "tree/n150"


def header(**values: int) -> bytes:
    """Return an SQLite database of 4096 bytes with these fields in its header."""
    offsets = {"pages": 28, "version": 60, "application": 68}
    data = bytearray(b"SQLite format 3\0".ljust(4096, b"\0"))
    data[16:18] = (4096).to_bytes(2)
    for name, value in ({"pages": 1, "version": 1, "application": 0x63616673} | values).items():
        data[offsets[name] : offsets[name] + 4] = value.to_bytes(4)
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", InvalidInput, "not a snapshot"),
        (b"text\n", InvalidInput, "not a snapshot"),
        (b"x" * 5000, InvalidInput, "not a snapshot"),
        (header(application=7), InvalidInput, "not a snapshot"),
        (
            header(version=3),
            cafcat.errors.Unsupported,
            "has version 3, this cafcat reads 1 and 2.*make a new snapshot",
        ),
        (header(pages=2), Corrupt, "the snapshot has 4096 bytes instead of 8192"),
        (header(), Corrupt, "the snapshot is damaged"),
    ],
)
def test_another_file_is_an_error_in_one_line(
    tmp_path: Path, content: bytes, error: type[CafcatError], words: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(error, match=words) as raised:
        open_snapshot(tmp_path / "file")
    assert "\n" not in str(raised.value)
    assert str(tmp_path / "file") in str(raised.value)
    gc.collect()
    assert "file" not in open_files(tmp_path)


def test_no_file_and_a_folder_are_errors_too(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such snapshot"):
        open_snapshot(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="not a snapshot"):
        open_snapshot(tmp_path)
    with pytest.raises(InvalidInput, match="settings or overrides"):
        cafcat.Snapshot(tmp_path, cafcat.Settings.load(), home=tmp_path)


def test_a_damaged_snapshot_gives_no_wrong_bytes(by_folder: cafcat.Snapshot, tmp_path: Path) -> None:
    """Every flipped byte gives the right bytes, or an error of cafcat's own."""
    source = (tmp_path / "taken").read_bytes()
    chance = random.Random(9)
    for _ in range(150):
        data = bytearray(source)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (tmp_path / "flipped").write_bytes(data)
        try:
            with open_snapshot(tmp_path / "flipped") as flipped:
                for path in ("tree/n003", "tree/n150", "empty"):
                    assert flipped.read(path) == FILES[path]
                for path, content in flipped.read_many(list(FILES)):
                    assert content == FILES[path] or isinstance(content, CafcatError)
        except CafcatError:
            pass


def test_damaged_name_is_not_confused_with_its_neighbour(by_folder: cafcat.Snapshot, tmp_path: Path) -> None:
    """SQLite searches for the first name that is not smaller, which may be a misplaced one."""
    source = (tmp_path / "taken").read_bytes()
    for number in range(140, 160):
        name = b"tree/n%03d" % number
        damaged = name.replace(b"/", b"~")
        (tmp_path / "flipped").write_bytes(source.replace(name, damaged))
        with open_snapshot(tmp_path / "flipped") as flipped:
            assert flipped.read("tree/n001") == FILES["tree/n001"]  # opens the chunk
            for path in (f"tree/n{further:03}" for further in range(number + 1, number + 16)):
                with suppress(NotFound, Corrupt):
                    assert flipped.read(path) == FILES[path]
                with suppress(NotFound, Corrupt):
                    assert flipped.read(path, 0, 3) == FILES[path][:3]
                with suppress(Corrupt):
                    [(_, content)] = flipped.read_many([path])
                    assert content == FILES[path] or isinstance(content, NotFound)


def test_a_folder_whose_name_has_signs_of_a_url(local: cafcat.Repository, tmp_path: Path) -> None:
    commit(local, {"a": b"a"})
    for name in ("with space", "per%20cent", "what?", "hash#", "ü", os.fsdecode(b"raw\xff"), "-o"):
        (tmp_path / name).mkdir()
        local.snapshot(tmp_path / name / name)
        with open_snapshot(tmp_path / name / name) as snapshot:
            assert snapshot.read("a") == b"a"


def test_snapshot_of_several_stores(open_at: Opener, place: Place, tmp_path: Path) -> None:
    first, second = open_at(place), open_at(Folder(tmp_path / "second"))
    commit(first, {"a": b"in the first"})
    commit(second, {"b": b"in the second"})
    first.snapshot(tmp_path / "taken")
    with open_snapshot(tmp_path / "taken") as snapshot:
        assert dict(snapshot.read_many(["a", "b"])) == {"a": b"in the first", "b": b"in the second"}
        assert (snapshot.read("a"), snapshot.read("b")) == (b"in the first", b"in the second")
        assert snapshot.is_local == isinstance(place, Folder)


# Files with a decoding


@pytest.fixture(params=WRITTEN)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_chunks_of_every_format_are_read(
    repository: cafcat.Repository, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path)
    repository.ingest(["tree"], format=name, target_size=3_000_000)
    report = repository.snapshot(tmp_path / "taken")
    assert (report.files, report.bytes) == (len(TREE), sum(map(len, TREE.values())))
    with open_snapshot(tmp_path / "taken") as snapshot:
        for _ in range(2):
            assert {path: snapshot.read(path) for path in TREE} == TREE
        assert dict(snapshot.read_many(TREE)) == TREE
        for path, content in TREE.items():
            assert snapshot.locate(path) == repository.locate(path)
            assert content[:1] == snapshot.read(path, 0, 1)
            assert content[-5:] == snapshot.read(path, -5)


def test_damage_is_found_in_every_format_and_a_copy_read(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, name: str
) -> None:
    begin(local, FILES, archive_format=by_name(name)).finish(OnConflict.REPLACE, Progress())
    local.snapshot(tmp_path / "without")
    local.copy(to=str(tmp_path / "copies"))
    local.snapshot(tmp_path / "taken")
    for path in ("tree/n150", "large"):
        location = local.locate(path)
        file = Path(local.object_of(location))
        flip(file, byte_of(file.read_bytes(), location.start_byte, location.end_byte, FILES[path][-20:]))
    with open_snapshot(tmp_path / "without") as snapshot:
        for path in ("tree/n150", "large"):
            with pytest.raises(Corrupt) as raised:
                snapshot.read(path)
            assert raised.value.path == path
        assert snapshot.read("tree/n149") == FILES["tree/n149"]
    with open_snapshot(tmp_path / "taken", warn=lambda _: None) as snapshot:
        assert {path: snapshot.read(path) for path in FILES} == FILES


def test_a_snapshot_of_version_1_is_read(by_folder: cafcat.Snapshot, tmp_path: Path) -> None:
    """The table of files has fewer columns in version 1."""
    shutil.copy(tmp_path / "taken", tmp_path / "old")
    with closing(sqlite3.connect(tmp_path / "old", isolation_level=None)) as connection:
        for column in ("content_bytes", "decoding"):
            connection.execute(f"ALTER TABLE files DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
    with open_snapshot(tmp_path / "old") as snapshot:
        for _ in range(2):
            assert {path: snapshot.read(path) for path in FILES} == FILES
        assert dict(snapshot.read_many(FILES)) == FILES
        assert snapshot.locate("large") == by_folder.locate("large")
        assert sorted(FILES, key=str.encode) == list(snapshot.paths())
        assert snapshot.info == by_folder.info
