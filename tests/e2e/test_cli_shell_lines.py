"""`cafcat locate PATH | tail -n 1 | sh` prints the file, and runs no part of a name."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cafcat.cli.app import COMPLETION_VARIABLE
from cafcat.formats.caf.format import CAF
from cafcat.testing.formats import pack
from tests.e2e.conftest import Cafcat
from tests.worlds.shells import SHELLS, run_line

NAMES = [
    "a\ntouch pwned #",
    "$(touch pwned)\n`touch pwned`;'touch pwned;\"",
    "-rf",
    "ends in newlines\n\n",
    "\x1b[2J\x07\u202e\u2028",
]
FILES = {name: f"content of {name!r}".encode() for name in NAMES}


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The folder in which printed lines run."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.fixture
def shell_cafcat(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cafcat]:
    """The command, which shells find on PATH, in the same environment."""
    programs = cafcat.folder / "bin"
    programs.mkdir()
    (programs / "cafcat").write_text(f'#!/bin/sh\nexec {sys.executable} -m cafcat "$@"\n')
    (programs / "cafcat").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    for name, value in cafcat.environment.items():
        if name.startswith("CAFCAT_"):
            monkeypatch.setenv(name, value)
    return cafcat


def write_files(folder: Path) -> None:
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)


def check_lines(cafcat: Cafcat, paths: dict[str, bytes], empty: Path, *options: str) -> None:
    """Run the line of each path in each shell, and check its output."""
    for path, content in paths.items():
        result = cafcat("locate", *options, "--", path)
        last = result.text.removesuffix("\n").rpartition("\n")[2]
        for shell in SHELLS:
            assert run_line(shell, last, empty) == content


def test_files_that_have_to_be_decoded(shell_cafcat: Cafcat, empty: Path) -> None:
    write_files(shell_cafcat.folder / "tree")
    shell_cafcat("ingest", "tree", "--format", "chunkio")
    check_lines(shell_cafcat, {f"tree/{name}": content for name, content in FILES.items()}, empty)


@pytest.mark.parametrize("name", NAMES)
def test_stores_with_hostile_names(shell_cafcat: Cafcat, name: str, empty: Path) -> None:
    write_files(shell_cafcat.folder / "tree")
    shell_cafcat.extra["CAFCAT_STORE"] = str(shell_cafcat.folder / name)
    shell_cafcat("ingest", "tree")
    check_lines(shell_cafcat, {f"tree/{NAMES[0]}": FILES[NAMES[0]]}, empty)


def test_adopted_archives_with_hostile_names(shell_cafcat: Cafcat, empty: Path) -> None:
    for number, name in enumerate(NAMES):
        data, _, _ = pack(CAF, [(f"file{number}", FILES[name], 0)])
        (shell_cafcat.folder / f"{name}.caf").write_bytes(data)
        shell_cafcat("adopt", "--prefix", f"p{number}", shell_cafcat.folder / f"{name}.caf")
    check_lines(shell_cafcat, {f"p{n}/file{n}": FILES[name] for n, name in enumerate(NAMES)}, empty)


def test_buckets_with_hostile_prefixes(
    shell_cafcat: Cafcat, s3_bucket: str, s3_environment: None, empty: Path
) -> None:
    write_files(shell_cafcat.folder / "tree")
    shell_cafcat.extra["CAFCAT_STORE"] = f"s3://{s3_bucket}/$(touch pwned)`touch pwned`;'touch pwned;\"[1-2]{{a,b}}"
    shell_cafcat("ingest", "tree")
    path = f"tree/{NAMES[0]}"
    check_lines(shell_cafcat, {path: FILES[NAMES[0]]}, empty, "--presign")
    for options in ([], ["--presign"]):
        url = shell_cafcat("url", *options, path).text
        assert len(url.splitlines()) == 1
        assert not set(url) & set("\"'`$();<>|\\ ")
    curl = (
        shell_cafcat.folder / "bin" / "curl"
    )  # the server of the tests may have access keys that curl cannot take
    curl.write_text('#!/bin/sh\nfor last; do :; done; echo "$last"\n')
    curl.chmod(0o755)
    check_lines(shell_cafcat, {path: shell_cafcat("url", path).out}, empty)


def test_the_url_of_a_folder_is_one_line_without_special_characters(shell_cafcat: Cafcat) -> None:
    write_files(shell_cafcat.folder / "tree")
    shell_cafcat.extra["CAFCAT_STORE"] = str(shell_cafcat.folder / NAMES[1])
    shell_cafcat("ingest", "tree")
    url = shell_cafcat("url", f"tree/{NAMES[0]}").text
    assert len(url.splitlines()) == 1
    assert not set(url) & set("\"'`$();<>|&\\ ")


def test_messages_with_names_are_one_line(cafcat: Cafcat) -> None:
    for verb in (["get"], ["locate"], ["url"], ["stat"], ["rm"]):
        result = cafcat(*verb, "--", NAMES[0], code=4)
        assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("typed", ["cafcat $(touch pwned)", "cafcat get `touch pwned`", "cafcat ';touch pwned;'"])
def test_completion_runs_nothing_of_the_words_typed(shell_cafcat: Cafcat, empty: Path, typed: str) -> None:
    script = shell_cafcat("completion", "bash").text
    complete = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _cafcat_completion cafcat; echo "${COMPREPLY[@]}"'
    words = " ".join(f"'{word}'" for word in typed.replace("'", "").split(" "))
    lines = f"{script}\nCOMP_WORDS=({words})\n{complete}\n"
    subprocess.run(["bash", "-c", lines], cwd=empty, capture_output=True, check=True)
    zsh = {COMPLETION_VARIABLE: "complete_zsh", "_TYPER_COMPLETE_ARGS": typed}
    evaluated = '_arguments() { :; }; _files() { :; }; eval "$(cafcat)"'
    subprocess.run(["bash", "-c", evaluated], cwd=empty, env=os.environ | zsh, capture_output=True)
    assert list(empty.iterdir()) == []
