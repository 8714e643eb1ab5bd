"""A power cut leaves files that cafcat writes for users whole or absent. After success all files are durable."""

import json
import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.power_cut import Point, Tree

TEMPORARY = re.compile(r"\.cafcat-[0-9a-f]{16}\.partial|.*\.partial")
FILES = {f"tree/{number % 5}/{number}.dat": b"%d\n" % number * (number % 50) for number in range(40)}
SEVERAL_BATCHES = {"_FEW_FILES": 4, "_MOST_DESCRIPTORS": 16}
"""Limits of durable_files with which 40 files are synced in more than two batches."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@dataclass
class Machine:
    """A watched folder, and the catalog of its files."""

    folder: Path
    database_url: str
    is_poor: bool = False
    """True if the file system has neither unnamed files (O_TMPFILE) nor syncfs."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAFCAT_")}
        own = {"CAFCAT_HOME": str(self.root / "home"), "CAFCAT_DATABASE_URL": self.database_url}
        return kept | own | {"PYTHONPATH": str(Path(__file__).parents[2])}

    def run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "cafcat", *arguments]
        subprocess.run(command, cwd=self.root, env=self.environment(), check=True, capture_output=True)

    def record(self, *arguments: str, unsynced: tuple[str, ...] = (), **limits: int) -> "Recorded":
        """Run a command that must succeed, and return the recorded points."""
        before = self.tree()
        points, printed = self.folder / "points", self.folder / "printed"
        order = {
            "arguments": arguments,
            "root": str(self.root),
            "unsynced": unsynced,
            "limits": limits,
            "is_poor": self.is_poor,
            "points": str(points),
        }
        command = [sys.executable, "-u", "-m", "tests.crash.power_cut", json.dumps(order)]
        with printed.open("wb") as output:
            subprocess.run(command, cwd=self.root, env=self.environment(), check=True, stdout=output)
        found = [Point(*point) for point in pickle.loads(points.read_bytes())]  # noqa: S301
        return Recorded(before, self.tree(), found, printed.read_bytes())

    def tree(self) -> Tree:
        paths = sorted(self.root.rglob("*"))
        return {str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes() for path in paths}


@dataclass
class Recorded:
    """A command that has succeeded: the files before and after, and all states that a power cut could leave."""

    before: Tree
    after: Tree
    points: list[Point]
    printed: bytes

    def problems(self) -> list[str]:
        found = [
            f"before {point.before}: {problem}"
            for point in self.points
            for tree in (point.least, point.names)
            for problem in self._wrong(tree)
        ]
        lost = {path for path, content in self.after.items() if self.points[-1].least.get(path, b"?") != content}
        return found + [f"after success {path} is lost" for path in sorted(lost)]

    def _wrong(self, tree: Tree) -> list[str]:
        return [
            f"{path} has {len(content or b'')} bytes , which are neither its old nor its new ones"
            for path, content in tree.items()
            if not TEMPORARY.fullmatch(path.rsplit("/", 1)[-1])
            and content != self.after.get(path, b"?")
            and content != self.before.get(path, b"?")
        ]

    def new(self) -> set[str]:
        """Return the files that are new or changed."""
        return {path for path, content in self.after.items() if content != self.before.get(path, b"?")}


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Machine:
    made = Machine(tmp_path, database_url, is_poor=getattr(request, "param", "rich") == "poor")
    for path, content in FILES.items():
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).write_bytes(content)
    return made


@pytest.fixture
def packed(machine: Machine) -> Machine:
    machine.run("ingest", "-q", "tree")
    return machine


on_both = pytest.mark.parametrize("machine", ["rich", "poor"], indirect=True)
"""Runs with unnamed files and syncfs, and without either."""


def as_extracted(folder: str) -> set[str]:
    return {f"{folder}/{path}" for path in FILES}


@on_both
@pytest.mark.parametrize("limits", [{}, SEVERAL_BATCHES], ids=["one batch", "several batches"])
def test_extract(packed: Machine, limits: dict[str, int]) -> None:
    recorded = packed.record("extract", "-q", "-C", "new/out", **limits)
    assert recorded.problems() == []
    assert recorded.new() >= as_extracted("new/out")
    assert not any(TEMPORARY.fullmatch(path.rsplit("/", 1)[-1]) for path in recorded.after)


@on_both
def test_extract_over_other_files(packed: Machine) -> None:
    """Each file has its old or its new content."""
    for number, path in enumerate(FILES):
        if number % 3:
            (packed.root / "out" / path).parent.mkdir(parents=True, exist_ok=True)
            (packed.root / "out" / path).write_bytes(b"older")
    recorded = packed.record("extract", "-q", "--force", "-C", "out", **SEVERAL_BATCHES)
    assert recorded.problems() == []
    assert recorded.new() >= as_extracted("out")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_get_one_file(packed: Machine, force: list[str]) -> None:
    """The file is durable although its folder was made shortly before, and not synced."""
    path = "tree/3/8.dat"
    (packed.root / "new/out").mkdir(parents=True)
    if force:
        (packed.root / "new/out/8.dat").write_bytes(b"older")
    unsynced = ("new",)
    recorded = packed.record("get", path, *force, "-o", "new/out", unsynced=unsynced)
    assert recorded.problems() == []
    assert recorded.new() == {"new/out/8.dat"}


def test_get_without_a_name(packed: Machine) -> None:
    recorded = packed.record("get", "tree/3/8.dat")
    assert recorded.problems() == []
    assert recorded.new() == {"8.dat"}


@on_both
@pytest.mark.parametrize("limits", [{}, SEVERAL_BATCHES], ids=["one batch", "several batches"])
def test_get_many_files(packed: Machine, limits: dict[str, int]) -> None:
    """Each file is durable before its JSON document is printed."""
    (packed.root / "out").mkdir()
    recorded = packed.record("get", "--json", *FILES, "-o", "out", **limits)
    assert recorded.problems() == []
    for point in recorded.points:
        for line in recorded.printed[: point.printed].splitlines():
            output = os.path.relpath(json.loads(line)["output"], packed.root)
            assert point.least.get(output, b"?") == recorded.after[output], point.before
    assert len(recorded.printed.splitlines()) == len(recorded.new()) == len(FILES)


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_snapshot(packed: Machine, force: list[str]) -> None:
    (packed.root / "new").mkdir()
    if force:
        (packed.root / "new/s.cafs").write_bytes(b"older")
    recorded = packed.record("snapshot", "-q", *force, "-o", "new/s.cafs", unsynced=("new",))
    assert recorded.problems() == []
    assert recorded.new() == {"new/s.cafs"}


@pytest.mark.parametrize("name", ["all.car", "all.caf"])
def test_export_and_convert(packed: Machine, name: str) -> None:
    recorded = packed.record("export", "-q", "-o", name)
    assert recorded.problems() == []
    assert recorded.new() == {name}
    recorded = packed.record("convert", "-q", name, "again.cio")
    assert recorded.problems() == []
    assert recorded.new() == {"again.cio"}


@on_both
def test_export_over_another(packed: Machine) -> None:
    (packed.root / "all.caf").write_bytes(b"older")
    recorded = packed.record("export", "-q", "--overwrite", "-o", "all.caf")
    assert recorded.problems() == []
    assert recorded.new() == {"all.caf"}


def test_backup(packed: Machine) -> None:
    recorded = packed.record("backup", "-q")
    assert recorded.problems() == []
    assert len([path for path in recorded.new() if path.startswith("home/chunks/backups/")]) == 1


@pytest.mark.parametrize("made", [(), ("home",), ("home", "home/chunks")], ids=["nothing", "home", "store"])
def test_ingest_into_a_new_home(machine: Machine, made: tuple[str, ...]) -> None:
    """The chunk is durable although another process made home and store shortly before, and did not sync them."""
    for name in made:
        (machine.root / name).mkdir()
    recorded = machine.record("ingest", "-q", "tree", unsynced=made[:1])
    assert recorded.problems() == []
    assert len([path for path in recorded.new() if path.endswith(".caf")]) == 1


def test_problems_include_empty_and_lost_files(packed: Machine) -> None:
    recorded = packed.record("extract", "-q", "-C", "out")
    last = recorded.points[-1]
    path = next(path for path, content in last.least.items() if path.startswith("out/") and content)
    without = {name: content for name, content in last.least.items() if name != path}
    for tree, words in ({**last.least, path: b""}, "0 bytes"), (without, f"{path} is lost"):
        bad = Recorded(recorded.before, recorded.after, [*recorded.points, last._replace(least=tree)], b"")
        assert any(words in problem for problem in bad.problems())
