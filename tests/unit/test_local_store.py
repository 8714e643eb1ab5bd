"""The local store: its files on disk, and its errors if the disk fails."""

import errno
import fcntl
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotFound, StoreFailed
from cafcat.stores.base import ObjectInfo
from cafcat.stores.local.files import LocalFile
from cafcat.stores.local.store import LocalStore
from cafcat.stores.local.upload import LocalUpload
from tests.worlds.normal_user import as_normal_user
from tests.worlds.open_files import open_files

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chunks"


@pytest.fixture
def store(folder: Path) -> LocalStore:
    return LocalStore(folder)


def put(store: LocalStore, key: str, data: bytes = b"data") -> None:
    upload = store.create(key)
    upload.write(data)
    upload.commit()


def aligned(size_bytes: int) -> memoryview:
    """Return page-aligned memory in which every page has other bytes."""
    block = memoryview(mmap.mmap(-1, size_bytes))
    block[:] = memoryview(array("Q", range(0, size_bytes, 8))).cast("B")
    return block


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


# ---- files on the disk ----


def test_commit_leaves_only_the_object_with_the_mode_of_the_umask(store: LocalStore, folder: Path) -> None:
    before = os.umask(0o027)
    try:
        upload = store.create("a/b/chunk.caf")
        upload.write(b"data")
        (half,) = (folder / "a/b").iterdir()
        assert half.name == "chunk.caf.partial"
        assert half.stat().st_mode & 0o777 == 0o600
        upload.commit()
    finally:
        os.umask(before)
    (whole,) = (folder / "a/b").iterdir()
    assert whole.name == "chunk.caf"
    assert whole.stat().st_mode & 0o777 == 0o640
    assert whole.stat().st_nlink == 1
    assert (folder / "a").stat().st_mode & 0o777 == 0o750


def test_everything_is_synced_before_commit_returns(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before it gets its name, its folder afterwards, and all folders above at the beginning."""
    folder.mkdir()
    log: list[str] = []
    fsync, link = os.fsync, os.link

    def logged_fsync(descriptor: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), folder)
        log.append("sync above" if set(path) <= {".", "/"} and path != "." else f"sync {path}")
        fsync(descriptor)

    def logged_link(*paths: str) -> None:
        log.append("link")
        link(*paths)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "link", logged_link)
    put(store, "a/b/chunk.caf")
    above = log.count("sync above")
    last = ["sync a/b/chunk.caf.partial", "link", "sync a/b"]
    assert above >= 1
    assert log == ["sync a", "sync .", *["sync above"] * above, *last]
    log.clear()
    put(store, "a/b/chunk2.caf")
    assert log == [step.replace("chunk", "chunk2") for step in last]


def test_folders_that_another_process_made_are_synced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process may die before it syncs them, and the chunk depends on them."""
    (folder / "a/b").mkdir(parents=True)
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), fsync(file)))
    put(LocalStore(folder), "a/b/chunk.caf")
    device = folder.stat().st_dev
    above = [path for path in [folder / "a", folder, *folder.parents] if path.stat().st_dev == device]
    assert synced[: len(above)] == [path.stat().st_ino for path in above]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_private_store_is_closed_to_others_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        private, named = LocalStore(tmp_path / "home/chunks", is_private=True), LocalStore(tmp_path / "named")
        for store in (private, named):
            put(store, "journal/record.jsonl")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").rglob("*")}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert modes == {"chunks": 0o700, "journal": 0o700, "record.jsonl": 0o600}
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "named").rglob("*")}
    assert modes == {"journal": 0o777 & ~mask, "record.jsonl": 0o666 & ~mask}


def test_an_upload_that_died_is_not_listed_and_can_be_discarded(store: LocalStore, folder: Path) -> None:
    put(store, "whole.caf")
    (folder / "died.caf.partial").write_bytes(b"half")
    assert list(store.list()) == [ObjectInfo("whole.caf", 4)]
    with pytest.raises(Conflict, match="died"):
        store.create("died.caf")
    for _ in range(2):
        store.discard("died.caf")
        store.discard("whole.caf")
        store.discard("nowhere/at/all.caf")
    assert [path.name for path in folder.iterdir()] == ["whole.caf"]


def test_temporary_names_are_no_keys(store: LocalStore) -> None:
    with pytest.raises(InvalidInput):
        store.create("chunk.caf.partial")


def test_other_files_are_not_listed(store: LocalStore, folder: Path) -> None:
    put(store, "sub/chunk.caf")
    os.mkfifo(folder / "fifo")
    (folder / os.fsdecode(b"\xff")).touch()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "moved.caf").symlink_to("sub/chunk.caf")
    assert [info.key for info in store.list()] == ["moved.caf", "sub/chunk.caf"]
    with pytest.raises(NotFound):
        store.read("fifo", 0, 0)


def test_a_symlink_in_the_way_is_not_written_through(store: LocalStore, folder: Path) -> None:
    folder.mkdir()
    (folder / "chunk.caf").symlink_to("../outside")
    (folder / "other.caf.partial").symlink_to("../outside")
    for key in ("chunk.caf", "other.caf"):
        with pytest.raises(Conflict):
            store.create(key)
    assert not (folder / "../outside").exists()


def test_one_of_many_commits_of_one_key_wins(tmp_path: Path) -> None:
    """The temporary files differ, as those of processes on two machines do."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    uploads = []
    for n in range(6):
        upload = LocalUpload(str(folder / f"chunk{n}"), str(folder), f"chunk{n}")
        upload.write(bytes([n]) * 100_000)
        upload._path = str(folder / "chunk.caf")
        uploads.append(upload)
    outcomes: list[int | None] = []
    ready = threading.Barrier(len(uploads))

    def commit(n: int) -> None:
        ready.wait()
        try:
            uploads[n].commit()
            outcomes.append(n)
        except Conflict:
            uploads[n].abort()
            outcomes.append(None)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(len(uploads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [n for n in outcomes if n is not None]
    assert len(outcomes) == len(uploads)
    assert [path.name for path in folder.iterdir()] == ["chunk.caf"]
    assert (folder / "chunk.caf").read_bytes() == bytes([winner]) * 100_000


# ---- files that stay open ----


def test_read_file_is_open_until_close(store: LocalStore, folder: Path) -> None:
    put(store, "chunk.caf")
    for _ in range(3):
        assert store.read("chunk.caf", 1, 3) == b"at"
        assert open_files(folder) == ["chunk.caf"]
    for _ in range(2):
        store.close()
        assert open_files(folder) == []
    assert store.read("chunk.caf", 1, 3) == b"at"
    del store
    assert open_files(folder) == ["chunk.caf"]  # the fixture still has a reference


def test_few_files_stay_open(store: LocalStore, folder: Path) -> None:
    for n in range(70):
        put(store, f"{n:02}", b"%02d" % n)
        assert store.read(f"{n:02}", 0, 2) == b"%02d" % n
        assert store.read("00", 0, 2) == b"00"
    kept = open_files(folder)
    assert len(kept) == 64
    assert {"00", "69"} <= set(kept)
    assert "01" not in kept


def test_a_file_that_is_not_read_for_a_minute_is_closed(store: LocalStore, folder: Path) -> None:
    for key in ("old", "new"):
        put(store, key)
        store.read(key, 0, 1)
    store._cache._files["old"].used -= 61
    store._cache._cleaned_at -= 61
    store.read("new", 0, 1)
    assert open_files(folder) == ["new"]


def test_deleted_object_is_closed(store: LocalStore, folder: Path) -> None:
    put(store, "chunk.caf")
    store.read("chunk.caf", 0, 1)
    store.delete("chunk.caf")
    assert open_files(folder) == []


def replace(file: Path, data: bytes) -> None:
    other = file.with_name("other")
    other.write_bytes(data)
    other.replace(file)


def link_away(file: Path) -> None:
    file.with_name("kept").hardlink_to(file)
    file.unlink()


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda file: file.unlink(), NotFound),
        (link_away, NotFound),
        (lambda file: file.rename(file.with_name("elsewhere")), NotFound),
        (lambda file: file.parent.rename(file.parent.with_name("unmounted")), NotFound),
        (lambda file: (file.unlink(), os.mkfifo(file)), NotFound),
        (lambda file: os.truncate(file, 3), Corrupt),
        (lambda file: replace(file, b"new!"), b"new!"),
        (lambda file: replace(file, b"cut"), Corrupt),
        (lambda file: file.write_bytes(b"data, and more"), b"data"),
        (lambda file: file.write_bytes(b"flip"), b"flip"),
    ],
    ids=[
        "removed",
        "linked away",
        "moved",
        "folder moved",
        "a pipe",
        "cut",
        "replaced",
        "replaced by less",
        "longer",
        "flipped",
    ],
)
def test_changes_of_an_object_are_visible_to_later_reads(
    store: LocalStore, folder: Path, change: Callable[[Path], object], outcome: bytes | type[CafcatError]
) -> None:
    put(store, "chunk.caf")
    assert store.read("chunk.caf", 0, 4) == b"data"
    change(folder / "chunk.caf")
    for _ in range(2):
        if isinstance(outcome, bytes):
            assert store.read("chunk.caf", 0, 4) == outcome
        else:
            with pytest.raises(outcome):
                store.read("chunk.caf", 0, 4)
    assert not [name for name in open_files(folder.parent) if "deleted" in name or "elsewhere" in name]


def test_an_object_is_not_read_when_it_may_not_be_any_more(public_folder: Path) -> None:
    store = LocalStore(public_folder)
    put(store, "chunk.caf")
    for path in (public_folder / "chunk.caf", public_folder):
        (public_folder / "chunk.caf").chmod(0o644)
        with as_normal_user():
            assert store.read("chunk.caf", 0, 4) == b"data"
        path.chmod(0)
        try:
            with as_normal_user(), pytest.raises(StoreFailed, match="Permission denied"):
                store.read("chunk.caf", 0, 4)
        finally:
            path.chmod(0o755)


def test_closed_descriptors_are_never_read(store: LocalStore) -> None:
    """Threads read while others close files. The number of a closed descriptor may belong to another file."""
    contents = {f"{n}": bytes([n]) * 5000 for n in range(8)}
    for key, content in contents.items():
        put(store, key, content)
    wrong: list[object] = []

    def read() -> None:
        for n in range(4000):
            key = str(n % 8)
            try:
                if (data := store.read(key, 100, 4100)) != contents[key][100:4100]:
                    wrong.append((key, data[:1]))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        store.close()
    assert wrong == []


# ---- file systems that are different ----


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def _no_hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: str) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("_no_hard_links")
def test_without_hard_links_objects_still_never_replace_another(store: LocalStore, folder: Path) -> None:
    put(store, "first.caf")
    assert (folder / "first.caf").read_bytes() == b"data"
    upload = store.create("second.caf")
    upload.write(b"ours")
    (folder / "second.caf").write_bytes(b"theirs")
    with pytest.raises(Conflict):
        upload.commit()
    upload.abort()
    assert (folder / "second.caf").read_bytes() == b"theirs"
    assert sorted(path.name for path in folder.iterdir()) == ["first.caf", "second.caf"]


@pytest.mark.usefixtures("_no_hard_links")
def test_without_hard_links_a_failed_commit_leaves_no_name(store: LocalStore, folder: Path) -> None:
    upload = store.create("chunk.caf")
    (folder / "chunk.caf.partial").unlink()
    with pytest.raises(StoreFailed):
        upload.commit()
    assert list(folder.iterdir()) == []


def test_commit_succeeds_if_the_answer_of_link_was_lost(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may link, lose the answer, repeat the call, and report that the name exists."""
    link = os.link

    def link_twice(*paths: str) -> None:
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", link_twice)
    put(store, "chunk.caf")
    assert [path.name for path in folder.iterdir()] == ["chunk.caf"]


def test_a_folder_that_cannot_be_synced_by_its_file_system_is_no_failure(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    put(store, "chunk.caf")
    assert store.read("chunk.caf", 0, 4) == b"data"


def test_a_file_system_without_modes_is_no_failure(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    put(store, "chunk.caf")
    assert store.read("chunk.caf", 0, 4) == b"data"


# ---- direct writing ----

BLOCK = aligned(4 * MIB)
"""Shared by tests that do not change it."""


def is_direct(upload: LocalUpload) -> bool:
    return bool(fcntl.fcntl(upload._descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def goes_direct(folder: Path) -> bool:
    """Return True if the file system of a folder supports O_DIRECT for a page-aligned block."""
    try:
        descriptor = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return False
    try:
        return os.write(descriptor, BLOCK[:4096]) == 4096
    except OSError:
        return False
    finally:
        os.close(descriptor)
        (folder / "probe").unlink()


def test_aligned_blocks_are_written_direct_and_the_tail_buffered(
    store: LocalStore, folder: Path, tmp_path: Path
) -> None:
    if not goes_direct(tmp_path):
        pytest.skip("the file system of the temporary folder refuses O_DIRECT")
    upload = store.create("chunk.caf")
    upload.write(BLOCK)
    upload.write(BLOCK[4096 : 3 * 4096])
    assert is_direct(upload)
    upload.write(BLOCK[:12345])
    assert not is_direct(upload)
    upload.write(BLOCK)
    upload.commit()
    expected = bytes(BLOCK) + BLOCK[4096 : 3 * 4096] + BLOCK[:12345] + BLOCK
    assert (folder / "chunk.caf").read_bytes() == expected


PATTERNS = {
    "aligned": [(0, 4 * MIB), (0, 4 * MIB)],
    "odd tail": [(0, 4 * MIB), (0, 1)],
    "memory not aligned": [(0, 4 * MIB), (8, 4 * MIB - 4088), (0, 4096)],
    "memory aligned to 512": [(512, 4096), (0, 4096)],
    "length not whole": [(0, 1000), (0, 4096), (0, 4 * MIB)],
    "empty between": [(0, 4096), (0, 0), (0, 4096)],
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_any_memory_is_written_as_it_is(
    store: LocalStore, folder: Path, pattern: list[tuple[int, int]], kind: type
) -> None:
    upload = store.create("chunk.caf")
    expected = b""
    for start, end in pattern:
        expected += BLOCK[start:end]
        upload.write(kind(BLOCK[start:end]))
    upload.commit()
    assert (folder / "chunk.caf").read_bytes() == expected


@pytest.mark.parametrize("most", [1000, 4096, 5000])
def test_short_writes_are_continued(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:most]))
    put(store, "chunk.caf", BLOCK[: 5 * 4096])  # type: ignore[arg-type]
    assert (folder / "chunk.caf").read_bytes() == BLOCK[: 5 * 4096]


# ---- failures ----


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let writes beyond this size fail as on a full disk. Python ignores the signal by default."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_after_a_failed_write_everything_fails_and_nothing_is_left(store: LocalStore, folder: Path) -> None:
    with file_size_limit(MIB):
        upload = store.create("chunk.caf")
        upload.write(b"x" * 1000)
        with pytest.raises(StoreFailed, match=r"File too large.*; .*ulimit") as first:
            upload.write(b"x" * 2 * MIB)
    assert "\n" not in str(first.value)
    for call in (lambda: upload.write(b"y"), lambda: upload.write(b""), upload.commit):
        with pytest.raises(StoreFailed, match=r"an earlier write to .* failed: .*File too large"):
            call()
    upload.abort()
    assert list(folder.iterdir()) == []


def test_interrupted_write_breaks_the_upload(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may arrive between the kernel's write and its count in the upload."""
    upload = store.create("chunk.caf")
    write = os.write

    def write_and_interrupt(descriptor: int, data: bytes) -> int:
        write(descriptor, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", write_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        upload.write(b"data")
    monkeypatch.undo()
    with pytest.raises(StoreFailed, match="interrupted"):
        upload.write(b"more")
    with pytest.raises(StoreFailed, match="interrupted"):
        upload.commit()
    upload.abort()
    assert list(folder.iterdir()) == []


FULL_DISK = """
import sys
from pathlib import Path
from cafcat.errors import StoreFailed
from cafcat.stores.local.store import LocalStore
store = LocalStore(Path(sys.argv[1]))
upload = store.create("chunk.caf")
try:
    for _ in range(4):
        upload.write(bytes(1 << 19))
except StoreFailed as error:
    print(error)
    upload.abort()
print(list(store.list()), [path.name for path in Path(sys.argv[1]).iterdir()])
"""


def test_full_disk_is_reported_in_one_line(tmp_path: Path) -> None:
    """The disk is a file system of 1 MiB in memory, which is visible only to this test.

    Such a file system does not support O_DIRECT before Linux 6.6.
    """
    mount = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh", str(tmp_path)]
    if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are refused here")
    run = subprocess.run([*command, sys.executable, FULL_DISK], capture_output=True, check=True, text=True)
    said, left, *rest = run.stdout.splitlines()
    assert said.startswith(f"cannot write {tmp_path}/chunk.caf.partial: No space left on device; free space in")
    assert left == "[] []"
    assert rest == []


def test_a_folder_that_may_not_be_written_is_named(public_folder: Path) -> None:
    store = LocalStore(public_folder / "chunks")
    put(store, "sub/chunk.caf")
    for locked in ("chunks/sub", "chunks"):
        (public_folder / locked).chmod(0o500)
    with as_normal_user():
        for key in ("chunk.caf", "sub/other.caf", "new/chunk.caf"):
            with pytest.raises(StoreFailed, match=r"Permission denied; check who may .* in .*/chunks$"):
                store.create(key)
        with pytest.raises(StoreFailed, match=r"Permission denied; check who may .* in .*/chunks$"):
            LocalStore(public_folder / "chunks" / "new" / "store").create("chunk.caf")
        with pytest.raises(StoreFailed, match="cannot remove"):
            store.delete("sub/chunk.caf")
    (public_folder / "chunks").chmod(0)
    with as_normal_user(), pytest.raises(StoreFailed, match="cannot list"):
        list(store.list())


def test_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for store in (LocalStore(tmp_path / "file"), LocalStore(tmp_path / "file" / "sub")):
        with pytest.raises(StoreFailed, match="cannot create"):
            store.create("chunk.caf")


def test_folder_that_vanishes_during_an_upload_is_reported(store: LocalStore, folder: Path) -> None:
    upload = store.create("chunk.caf")
    upload.write(b"data")
    folder.rename(folder.with_name("moved"))
    with pytest.raises(StoreFailed, match=r"was .* moved, removed or unmounted"):
        upload.commit()
    upload.abort()


def test_an_object_that_may_not_be_read_is_no_missing_object(public_folder: Path) -> None:
    (public_folder / "chunk.caf").touch(mode=0)
    store = LocalStore(public_folder)
    with as_normal_user(), pytest.raises(StoreFailed, match="Permission denied"):
        store.read("chunk.caf", 0, 1)


def test_an_object_truncated_while_it_is_streamed_is_corrupt(store: LocalStore, folder: Path) -> None:
    put(store, "chunk.caf", bytes(3 * MIB))
    blocks = store.stream("chunk.caf", 0, 3 * MIB)
    next(blocks)
    os.truncate(folder / "chunk.caf", MIB + 10)
    with pytest.raises(Corrupt) as caught:
        list(blocks)
    assert caught.value.byte == MIB + 10


def test_reading_keeps_no_descriptor(store: LocalStore, folder: Path) -> None:
    put(store, "chunk.caf", bytes(3 * MIB))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        store.read("chunk.caf", 0, 10)
        store.stat("chunk.caf")
        list(store.stream("chunk.caf", 0, 3 * MIB))
        with pytest.raises(NotFound):
            store.read("nothing", 0, 1)
        with pytest.raises(Corrupt):
            store.read("chunk.caf", 0, 10 * MIB)
    upload = store.create("other.caf")
    upload.abort()
    assert len(os.listdir("/proc/self/fd")) == before


# ---- any local file as an archive ----


def test_any_file_can_be_read_as_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "file.caf"
    path.write_bytes(b"0123456789")
    with LocalFile(str(path)) as archive:
        assert archive.name == str(path)
        assert archive.size_bytes == 10
        assert archive.read_at(2, 5) == b"234"
        assert archive.read_at(10, 10) == b""
        with pytest.raises(Corrupt) as caught:
            archive.read_at(0, 11)
    assert caught.value.byte == 10


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing", NotFound),
        ("file/below", NotFound),
        (".", InvalidInput),
        ("fifo", InvalidInput),
        ("\0", InvalidInput),
        ("round", InvalidInput),
        ("/dev/null", InvalidInput),
    ],
)
def test_paths_that_are_no_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("file").touch()
    Path("round").symlink_to("round")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(error):
        LocalFile(name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_unreadable_file_is_reported(public_folder: Path) -> None:
    (public_folder / "file").touch(mode=0)
    with as_normal_user(), pytest.raises(StoreFailed, match="Permission denied"):
        LocalFile(str(public_folder / "file"))
