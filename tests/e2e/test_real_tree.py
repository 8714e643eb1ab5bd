"""The main task on a real tree, the Python installation that runs the tests, with the real commands.

`make test` packs a part of it, `make test-all` the whole, into one chunk and into many.
"""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PREFIX = Path(sys.base_prefix)


class Cafcat:
    """The command, in one working folder."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self._environment = os.environ | {
            "CAFCAT_DATABASE_URL": database_url,
            "CAFCAT_HOME": str(folder / "home"),
            "CAFCAT_STORE": str(folder / "store"),
        }

    def __call__(self, *arguments: str, cwd: Path | None = None) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "cafcat", *arguments, "--json", "-q"]
        done = subprocess.run(
            command, cwd=cwd or self._folder, env=self._environment, capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ingest(self, *arguments: str, cwd: Path) -> dict[str, int]:
        return self("ingest", *arguments, cwd=cwd)[-1]["summary"]  # type: ignore[return-value]


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A temporary folder. The slow tests have gigabytes of files."""
    if request.node.get_closest_marker("slow"):
        return Path(request.getfixturevalue("disk_path"))
    return tmp_path


@pytest.fixture
def run(tmp_path: Path, database_url: str) -> Cafcat:
    return Cafcat(tmp_path, database_url)


def not_packed(tree: Path) -> set[str]:
    """Return the files that cafcat does not pack, as `diff -r` names them: links, special files, empty folders."""
    lines = set()
    for folder, folders, files in os.walk(tree, topdown=True):
        for name in list(folders):
            path = Path(folder) / name
            if path.is_symlink() or not any(file.is_file() and not file.is_symlink() for file in path.rglob("*")):
                lines.add(f"Only in {folder}: {name}")
                folders.remove(name)
        for name in files:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                lines.add(f"Only in {folder}: {name}")
    return lines


def differences(tree: Path, restored: Path) -> set[str]:
    diff = subprocess.run(
        ["diff", "-r", "--no-dereference", str(tree), str(restored)], capture_output=True, text=True
    )
    assert diff.returncode in (0, 1), diff.stderr
    return set(diff.stdout.splitlines())


def goes_in_and_comes_back(run: Cafcat, tree: Path, tmp_path: Path, *options: str) -> None:
    count = sum(path.is_file() and not path.is_symlink() for path in tree.rglob("*"))
    first = run.ingest(tree.name, *options, cwd=tree.parent)
    assert (first["files_added"], first["files_failed"]) == (count, 0)
    second = run.ingest(tree.name, *options, cwd=tree.parent)
    assert (second["files_unchanged"], second["chunks_committed"]) == (count, 0)
    run("extract", tree.name, "-C", str(tmp_path / "restored"))
    assert differences(tree, tmp_path / "restored" / tree.name) == not_packed(tree)
    assert run("db", "check")[-1]["findings"] == []


def copy_of(tree: Path, target: Path) -> Path:
    shutil.copytree(tree, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "site-packages"))
    return target


def test_part_of_the_tree_in_many_chunks_and_ten_touched_files(run: Cafcat, tmp_path: Path) -> None:
    tree = copy_of(Path(os.__file__).parent, tmp_path / "library")
    (tree / os.fsdecode(b"odd \n name\t\\")).write_bytes(b"odd")
    os.link(tree / "os.py", tree / "hard-link.py")
    (tree / "a-link").symlink_to("os.py")
    (tree / "an-empty-folder").mkdir()
    goes_in_and_comes_back(run, tree, tmp_path, "--target-size", "2MB")
    assert len(run("chunks", "ls")) > 5
    files = sorted(path for path in tree.rglob("*.py") if not path.is_symlink() and path.stat().st_nlink == 1)
    for path in random.Random(1).sample(files, 10):
        os.utime(path)
    touched = run.ingest(tree.name, cwd=tree.parent)
    assert (touched["files_replaced"], touched["files_added"], touched["chunks_committed"]) == (10, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [["-j", "1"], ["-j", "2", "--target-size", "20MB"]],
    ids=["one chunk", "many chunks, two processes"],
)
def test_whole_tree(run: Cafcat, tmp_path: Path, options: list[str]) -> None:
    goes_in_and_comes_back(run, PREFIX, tmp_path, *options)


@pytest.mark.slow
def test_following_links_gives_the_tree_that_diff_compares(run: Cafcat, tmp_path: Path) -> None:
    """Only folders without files are missing."""
    run.ingest(PREFIX.name, "--follow-symlinks", cwd=PREFIX.parent)
    run("extract", PREFIX.name, "-C", str(tmp_path / "restored"))
    diff = subprocess.run(
        ["diff", "-r", str(PREFIX), str(tmp_path / "restored" / PREFIX.name)], capture_output=True, text=True
    )
    only = [line for line in diff.stdout.splitlines() if line not in not_packed(PREFIX)]
    assert only == []


PEAK = """
import atexit, re, resource, sys
def say():
    own = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
    print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
atexit.register(say)
from cafcat.__main__ import main
sys.argv = ["cafcat", *sys.argv[1:]]
main()
"""


def peak_memory_bytes(folder: Path, database_url: str, *arguments: str) -> int:
    """Return the peak memory of the largest process of a command, as the kernel measures it.

    The result of wait4 for the process itself would include memory of this process.
    """
    environment = os.environ | {"CAFCAT_DATABASE_URL": database_url, "CAFCAT_STORE": str(folder / "store")}
    command = [sys.executable, "-c", PEAK, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return int(done.stdout) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_memory_stays_below_150_mb_and_does_not_grow_with_the_catalog(
    tmp_path: Path, database_url: str, jobs: str
) -> None:
    """The peak is measured with 300,000 files, and again with these in the catalog."""
    for name in ("first", "second"):
        for folder in range(300):
            place = tmp_path / name / f"{folder:03}"
            place.mkdir(parents=True)
            for number in range(1000):
                (place / f"file-with-a-name-of-some-length-{number:05}.data").write_bytes(b"x" * (number % 100))
    peaks = [
        peak_memory_bytes(tmp_path, database_url, "ingest", "-q", name, "-j", jobs)
        for name in ("first", "second", "first")
    ]
    print(f"peak memory in MB: {[peak // 1_000_000 for peak in peaks]}")
    assert max(peaks) <= 150_000_000
    assert peaks[1] <= peaks[0] * 1.1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [0, 10])
def test_memory_of_an_export_does_not_grow_with_the_number_of_files(
    tmp_path: Path, database_url: str, size: int
) -> None:
    with tarfile.open(tmp_path / "files.tar", "w") as tar:
        for number in range(300_000):
            member = tarfile.TarInfo(f"{number // 1000:03}/{number:06}")
            member.size = size
            tar.addfile(member, io.BytesIO(b"x" * size))
    peak_memory_bytes(tmp_path, database_url, "ingest", "-q", "files.tar")
    peaks = [
        peak_memory_bytes(tmp_path, database_url, "export", "-q", prefix, "-o", f"{prefix}.caf")
        for prefix in ("000", ".")
    ]
    print(f"peak memory in MB: {[peak // 1_000_000 for peak in peaks]}")
    assert peaks[1] <= peaks[0] + 30_000_000
