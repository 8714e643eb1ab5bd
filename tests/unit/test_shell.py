"""Lines that are printed for a shell: one physical line that writes the right bytes, and runs no part of a name."""

import subprocess
from pathlib import Path

import pytest

from cafcat.support.shell import cat_line, curl_line, dd_line, shell_name
from tests.worlds.shells import HOSTILE_NAMES, SHELLS, run_line

CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder in which the lines run. Any other command would leave a file there."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_ordinary_names_are_not_escaped() -> None:
    assert cat_line("srv/photos/a.jpg") == "cafcat cat -- srv/photos/a.jpg"
    assert cat_line("it's $HOME") == """cafcat cat -- 'it'"'"'s $HOME'"""
    assert cat_line("é 日本") == "cafcat cat -- 'é 日本'"
    assert dd_line("/a/b", 3, 5) == "dd if=/a/b iflag=skip_bytes,count_bytes bs=1M skip=3 count=2 status=none"


def test_other_names_are_octal_escapes() -> None:
    before, word = shell_name("a\n1%é")
    assert before == r"cafcat_name=$(printf 'a\0121\045\303\251.'); "
    assert word == '"${cafcat_name%.}"'


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_line_of_a_local_file_gives_its_bytes_and_runs_nothing_else(
    tmp_path: Path, folder: Path, name: str, shell: str
) -> None:
    archive = tmp_path / name
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(CONTENT)
    for start, end in ((0, 0), (3, 3), (0, 256), (255, 3_000_001)):
        assert run_line(shell, dd_line(str(archive), start, end), folder) == CONTENT[start:end]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_line_for_a_file_to_be_decoded_names_just_that_file(
    tmp_path: Path, folder: Path, name: str, shell: str
) -> None:
    program = tmp_path / "bin" / "cafcat"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    words = run_line(shell, cat_line(name), folder, program.parent).decode().split("\0")
    assert words == ["cat", "--", name, ""]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_line_of_a_url(tmp_path: Path, folder: Path, shell: str) -> None:
    assert curl_line("https://h/a b", 10, 20, ["--user x"]) == "curl -sSf --user x -r 10-19 'https://h/a b'"
    assert curl_line("https://h/a", 10, 10) == "true"
    program = tmp_path / "bin" / "curl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    for name in HOSTILE_NAMES:
        words = run_line(shell, curl_line(f"https://h/{name}", 0, 9), folder, program.parent).decode().split("\0")
        assert words == ["-sSf", "-r", "0-8", f"https://h/{name}", ""]


def test_quotes_alone_would_run_code(folder: Path) -> None:
    """Quotes keep a newline, and `tail` passes only the second half of the name to the shell."""
    import shlex

    line = f"cafcat cat -- {shlex.quote(HOSTILE_NAMES[0])}"
    subprocess.run(["sh"], input=line.splitlines()[-1].encode(), cwd=folder, capture_output=True)
    assert [path.name for path in folder.iterdir()] == ["pwned"]
