"""`cafcat mount`: programs of others read the files; damage and outages are errors, never other bytes."""

import errno
import mmap
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

import cafcat as package
from tests.e2e.conftest import Cafcat, write_tree
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import commit
from tests.worlds.mounts import Mount, libfuse_version, mounted, needs_fuse
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

pytestmark = needs_fuse

LARGE = random.Random(8).randbytes(3_000_000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Cafcat]:
    """The command with a tree of some hundred real files, and a snapshot of it. Its tests must not write."""
    with databases.fresh(databases.template()) as url:
        cafcat = Cafcat(tmp_path_factory.mktemp("filled"), url)
        write_tree(cafcat.folder)
        own = Path(package.__file__).parent
        shutil.copytree(own, cafcat.folder / "tree" / "package", ignore=shutil.ignore_patterns("__pycache__"))
        (cafcat.folder / "tree" / "large").write_bytes(LARGE)
        cafcat("ingest", "tree")
        cafcat("snapshot", "-o", "taken")
        yield cafcat


@pytest.fixture(scope="module", params=["catalog", "snapshot"])
def mount(request: pytest.FixtureRequest, filled: Cafcat) -> Iterator[Mount]:
    """The tree, mounted from the catalog, or from a snapshot without access to the database."""
    if request.param == "catalog":
        with mounted(filled, filled.folder / "catalog") as mount:
            yield mount
    else:
        elsewhere = ("--database-url", "postgresql:///nowhere")
        with mounted(filled, filled.folder / "snapshot", "--snapshot", "taken", *elsewhere) as mount:
            yield mount


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done
    return done.stdout


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def test_diff_finds_no_difference(filled: Cafcat, mount: Mount) -> None:
    assert run("diff", "-r", filled.folder / "tree", mount.folder / "tree") == ""


def test_find_lists_the_same_names_types_and_sizes(filled: Cafcat, mount: Mount) -> None:
    print_files = ("-type", "f", "-printf", "%P %s %T@\\0", ",", "-type", "d", "-printf", "%P/\\0")

    def found(tree: Path) -> list[str]:
        return sorted(run("find", tree, *print_files).replace("0 ", " ").split("\0"))

    assert len(found(mount.folder / "tree")) > 400
    assert [line[:-8] for line in found(mount.folder / "tree")] == [
        line[:-8] for line in found(filled.folder / "tree")
    ]


def test_rsync_finds_nothing_to_do(filled: Cafcat, mount: Mount) -> None:
    needs("rsync")
    for one, other in ((filled.folder, mount.folder), (mount.folder, filled.folder)):
        assert run("rsync", "-ain", "--omit-dir-times", f"{one}/tree/", f"{other}/tree/") == ""


def test_copies_and_searches_of_the_tree(filled: Cafcat, mount: Mount, tmp_path: Path) -> None:
    run("cp", "-r", mount.folder / "tree", tmp_path / "copy")
    assert run("diff", "-r", filled.folder / "tree", tmp_path / "copy") == ""
    (tmp_path / "all").mkdir()
    run("tar", "-cf", tmp_path / "all.tar", "-C", mount.folder, "tree")
    run("tar", "-xf", tmp_path / "all.tar", "-C", tmp_path / "all")
    assert run("diff", "-r", filled.folder / "tree", tmp_path / "all" / "tree") == ""
    for word in ("def register", "import numpy"):
        expected = run("sh", "-c", f"cd '{filled.folder}' && grep -rc '{word}' tree | sort")
        assert run("sh", "-c", f"cd '{mount.folder}' && grep -rc '{word}' tree | sort") == expected


def test_attributes_are_those_of_the_original(filled: Cafcat, mount: Mount) -> None:
    for path in (filled.folder / "tree").rglob("*"):
        seen, expected = (mount.folder / path.relative_to(filled.folder)).stat(), path.stat()
        assert (seen.st_uid, seen.st_gid) == (os.getuid(), os.getgid())
        if path.is_file():
            assert (seen.st_size, seen.st_mtime_ns // 1000) == (expected.st_size, expected.st_mtime_ns // 1000)
    assert os.statvfs(mount.folder).f_namemax == 255


def test_ranges_and_mapped_memory(mount: Mount) -> None:
    with (mount.folder / "tree" / "large").open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[1_500_000:1_500_100] == LARGE[1_500_000:1_500_100]
            assert mapped[:] == LARGE
        places = random.Random(1)
        for _ in range(100):
            start = places.randrange(len(LARGE))
            assert os.pread(file.fileno(), 4096, start) == LARGE[start : start + 4096]
        assert os.pread(file.fileno(), 10, len(LARGE) + 5) == b""


def test_writes_and_missing_names_fail(mount: Mount) -> None:
    attempts = {
        "tree/large": (errno.EROFS, lambda path: path.write_bytes(b"x")),
        "new": (errno.EROFS, lambda path: path.touch()),
        "tree/a.txt": (errno.EROFS, lambda path: path.unlink()),
        "folder": (errno.EROFS, lambda path: path.mkdir()),
        "tree/nothing": (errno.ENOENT, lambda path: path.read_bytes()),
        "tree/a.txt/b": (errno.ENOTDIR, lambda path: path.read_bytes()),
        "tree/\udcff": (errno.ENOENT, lambda path: path.read_bytes()),
        "tree/" + "x" * 300: (errno.ENAMETOOLONG, lambda path: path.read_bytes()),
        "tree/" + "x" * 3000: (errno.ENAMETOOLONG, lambda path: path.read_bytes()),
        "tree": (errno.EISDIR, lambda path: path.read_bytes()),
    }
    for name, (expected, attempt) in attempts.items():
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
            attempt(mount.folder / name)
        assert caught.value.errno == expected, name


def test_damaged_files_are_errors(cafcat: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    contents = {"bad": b"bad" * 1000, "good": b"good" * 1000, "large": LARGE}
    for name, content in contents.items():
        (tmp_path / "tree" / name).write_bytes(content)
    cafcat("ingest", "tree")
    for name in ("bad", "large"):
        place = cafcat("locate", f"tree/{name}", "--json").document
        flip(Path(place["object"]), place["start_byte"] + 1500)
    log = tmp_path / "log"
    with mounted(cafcat, tmp_path / "mnt", "--log", log) as mount:
        for name in ("bad", "large", "large"):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
                (mount.folder / "tree" / name).read_bytes()
            assert caught.value.errno == errno.EIO
            assert f"'/tree/{name}'" in log.read_text()
        assert (mount.folder / "tree" / "good").read_bytes() == contents["good"]
        [line] = [line for line in log.read_text().splitlines() if "'/tree/bad'" in line]
        assert "the file's bytes are damaged" in line


def test_the_database_stops_and_comes_back(cafcat: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"content")
    cafcat("ingest", "tree")
    url = str(cafcat.database_url)
    with psycopg.connect(url) as own:
        name = own.info.dbname
    with (
        mounted(cafcat, tmp_path / "mnt") as mount,
        psycopg.connect(url, dbname="postgres", autocommit=True) as server,
        (mount.folder / "tree" / "a").open("rb") as opened,
    ):
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
                (mount.folder / "tree" / "never seen").read_bytes()
            assert caught.value.errno == errno.EIO
            assert opened.read() == b"content"  # an open file needs no database
        finally:
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        assert (mount.folder / "tree" / "a").read_bytes() == b"content"
        assert os.listdir(mount.folder / "tree") == ["a"]
    assert "cannot look up '/tree/never seen'" in mount.errors


def test_new_versions_appear_and_open_files_keep_theirs(cafcat: Cafcat, tmp_path: Path) -> None:
    file = tmp_path / "tree" / "a"
    file.parent.mkdir()
    old, new = b"o" * 2_000_000, b"new" * 1_000_000
    file.write_bytes(old)
    cafcat("ingest", "tree")
    with mounted(cafcat, tmp_path / "mnt") as mount:
        seen = mount.folder / "tree" / "a"
        with seen.open("rb") as opened:
            start = opened.read(1000)
            file.write_bytes(new)
            os.utime(file, ns=(5, 5))
            file.with_name("b").write_bytes(b"more")
            cafcat("ingest", "tree")
            wait_until(lambda: os.listdir(mount.folder / "tree") == ["a", "b"])  # the catalog is seen as it is now
            assert start + opened.read() == seen.read_bytes() == old
            assert seen.stat().st_size == len(old)
        wait_until(lambda: seen.stat().st_size == len(new))
        assert seen.read_bytes() == new


@pytest.mark.slow
def test_a_file_is_never_cut_at_the_size_of_another_version(cafcat: Cafcat, tmp_path: Path) -> None:
    """The operating system caches sizes, while the mount already has the next version."""
    file = tmp_path / "tree" / "a"
    file.parent.mkdir()
    contents = [bytes([number]) * 1000 * (1 + number * 7 % 5) for number in range(4)]
    file.write_bytes(contents[0])
    cafcat("ingest", "tree")
    seen = set()
    with mounted(cafcat, tmp_path / "mnt") as mount:
        for number, content in enumerate(contents):
            file.write_bytes(content)
            os.utime(file, (number, number))
            cafcat("ingest", "tree")
            deadline = time.monotonic() + PATIENCE_SECONDS
            while content not in seen and time.monotonic() < deadline:
                found = (mount.folder / "tree" / "a").read_bytes()
                assert found in contents, (number, len(found), found[:1])
                seen.add(found)
    assert seen == set(contents)


def test_a_chunk_that_was_pruned_since_the_snapshot_needs_a_new_one(cafcat: Cafcat, tmp_path: Path) -> None:
    file = tmp_path / "tree" / "a"
    file.parent.mkdir()
    file.write_bytes(b"old")
    cafcat("ingest", "tree")
    cafcat("snapshot", "-o", "taken")
    file.write_bytes(b"newer")
    cafcat("ingest", "tree")
    cafcat("prune", "--grace", "0", "--yes")
    with (
        mounted(cafcat, tmp_path / "mnt", "--snapshot", "taken") as mount,
        pytest.raises(OSError, match="Input/output error"),
    ):
        (mount.folder / "tree" / "a").read_bytes()
    assert "if it was pruned or repacked since, make a new snapshot" in mount.errors
    assert "repair" not in mount.errors


@pytest.mark.skipif(libfuse_version() < 3, reason="libfuse 2 lists without attributes")
def test_a_listing_has_attributes(filled: Cafcat, tmp_path: Path) -> None:
    """The operating system needs no further answer: the mount is stopped meanwhile."""
    tree = filled.folder / "tree"
    with mounted(filled, tmp_path / "mnt", "--snapshot", "taken") as mount:
        names = sorted(os.listdir(mount.folder / "tree"))
        assert names == sorted(os.listdir(tree))
        mount.process.send_signal(signal.SIGSTOP)
        try:
            listed = run("stat", "-c", "%n %s %A", *(mount.folder / "tree" / name for name in names))
        finally:
            mount.process.send_signal(signal.SIGCONT)
        files = [name for name in names if (tree / name).is_file()]
        assert set(files) < set(names)
        for name in files:
            assert f"/tree/{name} {(tree / name).stat().st_size} -rw" in listed
        assert listed.count(" 0 drwx") == len(names) - len(files)


def test_names_that_no_folder_can_have_are_left_out(cafcat: Cafcat, tmp_path: Path) -> None:
    paths = ["both", "both/file", "a//b", "./c", "d/../e", "/f", "g/", "h" * 300, "i" * 255, "é" * 127]
    with package.open(database_url=cafcat.database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        commit(repository, {path: path.encode() for path in paths})
    with mounted(cafcat, tmp_path / "mnt") as mount:
        assert set(os.listdir(mount.folder)) == {"both", "a", "d", "g", "i" * 255, "é" * 127}
        found = {str(path.relative_to(mount.folder)) for path in mount.folder.rglob("*") if path.is_file()}
        assert found == {"both/file", "i" * 255, "é" * 127}
        assert (mount.folder / "both" / "file").read_text() == "both/file"
        assert os.listdir(mount.folder / "a") == os.listdir(mount.folder / "g") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_unmount(filled: Cafcat, tmp_path: Path, number: int) -> None:
    with mounted(filled, tmp_path / "mnt") as mount:
        file = os.open(mount.folder / "tree" / "large", os.O_RDONLY)
        assert os.read(file, 10) == LARGE[:10]
        mount.end(number)
        with suppress(OSError):  # the file system of the open file is gone
            os.close(file)
    assert mount.errors == ""


def test_in_the_background(filled: Cafcat, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    found = filled("mount", "mnt", "--background", "--json", cwd=tmp_path).document
    try:
        assert (found["mounted"], found["snapshot"]) == (str(folder), None)
        assert (folder / "tree" / "large").read_bytes() == LARGE
    finally:
        os.kill(found["pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.ismount(folder))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing",), 2, "make the folder first"),
        (("tree",), 1, "the folder is not empty"),
        (("tree/a.txt",), 2, "Not a directory"),
        (("empty", "--snapshot", "missing"), 4, "there is no such snapshot"),
        (("empty", "--snapshot", "tree/a.txt"), 2, "not a snapshot"),
        (("empty", "--database-url", "postgresql://127.0.0.1:1/x"), 10, "127.0.0.1"),
        (("empty", "--log", "missing/log"), 1, "the log cannot be written"),
    ],
)
@pytest.mark.parametrize("background", [(), ("-b",)], ids=["foreground", "background"])
def test_what_cannot_be_mounted(
    filled: Cafcat, arguments: tuple[str, ...], code: int, message: str, background: tuple[str, ...]
) -> None:
    (filled.folder / "empty").mkdir(exist_ok=True)
    assert message in filled("mount", *arguments, *background, code=code).err
