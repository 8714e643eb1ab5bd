"""rclone and rsync compare a tree of real files with its mount, and with `cafcat serve` over HTTP and S3.

CAFCAT_TEST_REAL_FILES is the number of files, 300 by default. With `-s`, each test prints its time.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.file_server import s3_side, serving
from tests.worlds.memory import disk_folder
from tests.worlds.mounts import mounted, needs_fuse
from tests.worlds.real_tree import copy_real_files
from tests.worlds.servers.s3_gateway import program
from tests.worlds.servers.services import Databases

pytest.importorskip("uvicorn")

pytestmark = [pytest.mark.slow, needs_fuse]

COUNT = int(os.environ.get("CAFCAT_TEST_REAL_FILES", "300"))
SECONDS = 3600
"""How long one program may run: fifty thousand files take minutes."""
DOORS = ["mount", "http", "s3"]


@dataclass
class Doors:
    """A tree, and where programs find its packed files.

    Attributes:
        tree: the original.
        sources: rclone's name of the packed tree, by door; that of the mount is a folder.
        environment: variables for rclone.
    """

    tree: Path
    sources: dict[str, str]
    environment: dict[str, str]
    files: int = field(init=False)

    def __post_init__(self) -> None:
        self.files = sum(len(names) for _, _, names in os.walk(self.tree))

    def run(self, *command: str | Path, code: int = 0) -> str:
        """Run a program, which must end with this code, and return all that it prints."""
        name, *arguments = command
        path = program(str(name))
        if path is None:
            pytest.skip(f"{name} is not installed: see the extra test-clients, and CAFCAT_TEST_PROGRAMS")
        began = time.monotonic()
        done = subprocess.run(
            [path, *arguments], env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        print(f"{time.monotonic() - began:.1f} s: {' '.join(map(str, command))}")
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def doors(databases: Databases) -> Iterator[Doors]:
    with ExitStack() as cleanup:
        url = cleanup.enter_context(databases.fresh(databases.template()))
        temporary = tempfile.TemporaryDirectory(prefix="cafcat-tests-", dir=disk_folder())
        cafcat = Cafcat(Path(cleanup.enter_context(temporary)), url)
        copy_real_files(cafcat.folder / "tree", COUNT)
        summary = cafcat("ingest", "tree", "--json").documents[-1]["summary"]
        mount = cleanup.enter_context(mounted(cafcat, cafcat.folder / "mnt"))
        server = cleanup.enter_context(
            serving(cafcat, cafcat.folder / "log", "--s3-port", "0", "--public", "tree", "--workers", "2")
        )
        s3 = f":s3,provider=Other,force_path_style=true,region=us-east-1,endpoint='{s3_side(server).url}':tree"
        sources = {"mount": f"{mount.folder}/tree", "http": f":http,url='{server.url}/files/tree/':", "s3": s3}
        doors = Doors(cafcat.folder / "tree", sources, environment(cafcat.folder))
        assert summary["files_added"] == doors.files
        yield doors


def environment(home: Path) -> dict[str, str]:
    """Return variables for rclone, without configuration of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
    many = {"RCLONE_CHECKERS": "16", "RCLONE_TRANSFERS": "16"}
    return kept | many | {"HOME": str(home), "RCLONE_CONFIG": os.devnull, "NO_PROXY": "127.0.0.1"}


@pytest.mark.parametrize("door", DOORS)
def test_rclone_check_finds_no_difference(doors: Doors, door: str) -> None:
    """All bytes are compared: by MD5 over the mount, by downloads where the server has no MD5."""
    options = [] if door == "mount" else ["--download"]
    printed = doors.run("rclone", "check", *options, doors.tree, doors.sources[door])
    assert "0 differences found" in printed
    assert f"{doors.files} matching files" in printed


@pytest.mark.parametrize("door", DOORS)
def test_rclone_check_finds_a_changed_byte(doors: Doors, door: str) -> None:
    options = [] if door == "mount" else ["--download"]
    with changed_byte(doors.tree) as path:
        printed = doors.run("rclone", "check", *options, doors.tree, doors.sources[door], code=1)
    assert "1 differences found" in printed
    assert str(path.relative_to(doors.tree)) in printed


@contextmanager
def changed_byte(tree: Path) -> Iterator[Path]:
    """Change a byte of a file, but neither size nor time, until the `with` block ends."""
    path = max(tree.rglob("*.py"))
    content, times = path.read_bytes(), path.stat()
    try:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        yield path
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("door", DOORS)
def test_rclone_copy_makes_the_same_tree(doors: Doors, door: str) -> None:
    copy = doors.tree.with_name("copy")
    try:
        doors.run("rclone", "copy", "--no-check-dest", doors.sources[door], copy)
        assert doors.run("diff", "-r", doors.tree, copy) == ""
        assert times(copy, door) == times(doors.tree, door)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def times(tree: Path, door: str) -> dict[Path, int]:
    """Return the modification times of all files: in seconds, if HTTP shows them, else in microseconds."""
    unit = 10**9 if door == "http" else 1000
    return {path.relative_to(tree): path.stat().st_mtime_ns // unit for path in tree.rglob("*") if path.is_file()}


RSYNC = ("rsync", "-n", "-rt", "--checksum", "--itemize-changes", "--omit-dir-times")


@pytest.mark.parametrize("backward", [False, True], ids=["to the mount", "from the mount"])
def test_rsync_finds_nothing_to_do(doors: Doors, backward: bool) -> None:
    trees = [f"{doors.tree}/", f"{doors.sources['mount']}/"]
    if backward:
        trees.reverse()
    assert doors.run(*RSYNC, *trees) == ""


def test_rsync_finds_a_changed_byte(doors: Doors) -> None:
    with changed_byte(doors.tree) as path:
        [line] = doors.run(*RSYNC, f"{doors.tree}/", f"{doors.sources['mount']}/").splitlines()
    assert line.endswith(f" {path.relative_to(doors.tree)}")
