"""--include and --exclude: the patterns of gitignore."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cafcat.errors import InvalidInput
from cafcat.sources.filter import PathFilter
from cafcat.sources.kind import SourceContext
from cafcat.sources.lists.name_list import NameListSource
from cafcat.sources.local.directory import DirectorySource

FILES = [
    "a.py",
    "a.txt",
    "build/a.py",
    "build/keep.txt",
    "src/a.py",
    "src/build/b.py",
    "src/build.txt",
    "src/ü.txt",
]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in FILES:
        file = tmp_path / "tree" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path / "tree"


def taken(filter: PathFilter) -> list[str]:
    return [item.path.removeprefix("tree/") for item in DirectorySource("tree", filter=filter).files()]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ([], [], FILES),
        (["*.py"], [], ["a.py", "build/a.py", "src/a.py", "src/build/b.py"]),
        (["/*.py"], [], ["a.py"]),
        (["src/"], [], ["src/a.py", "src/build.txt", "src/build/b.py", "src/ü.txt"]),
        ([], ["build/"], ["a.py", "a.txt", "src/a.py", "src/build.txt", "src/ü.txt"]),
        ([], ["/build"], ["a.py", "a.txt", "src/a.py", "src/build.txt", "src/build/b.py", "src/ü.txt"]),
        ([], ["*", "!*.txt"], ["a.txt"]),
        (["*.py"], ["src/**/b.py", "/a.*"], ["build/a.py", "src/a.py"]),
        (["*.py", "!a.py"], [], ["src/build/b.py"]),
        ([], ["build/", "!build/keep.txt"], ["a.py", "a.txt", "src/a.py", "src/build.txt", "src/ü.txt"]),
        (["ü*"], [], ["src/ü.txt"]),
        (["nothing"], [], []),
    ],
)
def test_patterns_choose_files(include: list[str], exclude: list[str], expected: list[str]) -> None:
    assert taken(PathFilter(include, exclude)) == sorted(expected)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git on PATH")
@pytest.mark.parametrize(
    "patterns",
    [["*.py"], ["build"], ["build/"], ["/build/"], ["src/*", "!src/build/"], ["**/a.py"], ["s?c"], ["[ab].py"]],
)
def test_exclude_patterns_match_the_files_that_git_ignores(tree: Path, patterns: list[str]) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    (tree / ".git" / "info" / "exclude").write_text("".join(f"{line}\n" for line in patterns))
    command = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=tree, capture_output=True, check=True)
    expected = sorted(name for name in listed.stdout.decode().split("\0") if name)
    assert taken(PathFilter([], [*patterns, "/.git/"])) == expected


def test_an_excluded_folder_is_not_even_opened(tree: Path) -> None:
    (tree / "locked").symlink_to("locked")  # would be a problem if it were opened
    filter = PathFilter(exclude=["locked", "src"])
    assert taken(filter) == ["a.py", "a.txt", "build/a.py", "build/keep.txt"]


@pytest.mark.usefixtures("tree")
def test_a_single_file_is_matched_by_its_name() -> None:
    def count(pattern: str) -> int:
        return len(list(DirectorySource("tree/src/a.py", prefix="p", filter=PathFilter([pattern])).files()))

    assert [count("/a.py"), count("*.py"), count("src/a.py"), count("*.txt")] == [1, 1, 0, 0]


def test_names_of_a_list_are_matched_whole(tree: Path) -> None:
    (tree.parent / "list").write_text("tree/src\ntree/a.py\ntree/build\n")

    def taken_of_list(filter: PathFilter) -> list[str]:
        return [item.path for item in NameListSource("list", context=SourceContext("p/q", filter)).files()]

    assert taken_of_list(PathFilter(["/tree/src/a.py"])) == ["p/q/tree/src/a.py"]
    assert taken_of_list(PathFilter(exclude=["src/", "/tree/a.py"])) == [
        "p/q/tree/build/a.py",
        "p/q/tree/build/keep.txt",
    ]


def test_invalid_pattern_is_named() -> None:
    with pytest.raises(InvalidInput, match="bad pattern '!'"):
        PathFilter(exclude=["*.txt", "!"])


def test_the_pattern_library_is_loaded_only_for_patterns() -> None:
    script = (
        "import sys; from cafcat.sources.local.directory import DirectorySource; "
        "from cafcat.sources.filter import PathFilter; list(DirectorySource('.', filter=PathFilter()).files()); "
        "sys.exit('pathspec' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent)
