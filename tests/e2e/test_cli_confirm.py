"""Commands that destroy something ask on a terminal."""

import fcntl
import os
import pty
import select
import subprocess
import termios
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.waiting import PATIENCE_SECONDS


def asked(cafcat: Cafcat, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, type an answer, and return exit code and output of the terminal."""
    ours, theirs = pty.openpty()
    command = cafcat.command(*arguments)
    with subprocess.Popen(
        command,
        cwd=cafcat.folder,
        env=cafcat.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C is a signal then
    ) as process:
        os.close(theirs)
        shown = b""
        while not shown.rstrip().endswith(b"[y/N]") and (block := read(ours)):
            shown += block
        os.write(ours, answer)
        while block := read(ours):
            shown += block
    os.close(ours)
    return process.returncode, shown.decode()


def read(terminal: int) -> bytes:
    """Return the next output of a terminal; nothing after the end of its processes, or after two minutes."""
    if not select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
        return b""
    try:
        return os.read(terminal, 4096)
    except OSError:  # the end of a terminal whose processes have ended
        return b""


@pytest.fixture
def packed(cafcat: Cafcat, tmp_path: Path) -> Cafcat:
    folder = cafcat.folder / "tree"
    folder.mkdir()
    (folder / "file").write_bytes(b"content")
    cafcat("ingest", "tree")
    return cafcat


def test_only_yes_is_yes(packed: Cafcat) -> None:
    for answer in (b"\n", b"\x04"):
        code, shown = asked(packed, answer, "rm", "-r", "tree")
        assert (code, "Remove 1 file? [y/N]" in shown, "nothing was done" in shown) == (9, True, True), answer
    assert packed("ls", "-R").lines == ["tree/file"]
    code, shown = asked(packed, b"\x03", "rm", "-r", "tree")
    assert code == 130
    assert packed("ls", "-R").lines == ["tree/file"]
    code, shown = asked(packed, b"y\n", "rm", "-r", "tree")
    assert (code, "removed 1 file" in shown) == (0, True)
    code, shown = asked(packed, b"y\n", "prune", "--grace", "0")
    assert (code, "removed 1 chunk" in shown) == (0, True)
    assert "Remove 1 object, and 1 removed or replaced file for good? [y/N]" in shown
    assert packed("ls").lines == []


def test_the_counted_files_are_removed(packed: Cafcat) -> None:
    """A pattern is expanded, and a list is read, before the question only."""
    for name in ("a.txt", "b.txt", "odd"):
        (packed.folder / "tree" / name).write_text(name)
    packed("ingest", "tree")
    (packed.folder / "list").write_bytes(b"tree/odd\0\xff\0")
    code, shown = asked(packed, b"y\n", "rm", "tree/*.txt", "--files-from", "list", "-0")
    assert (code, "Remove 3 files?" in shown, "removed 3 files" in shown) == (3, True, True), shown
    assert shown.count("udcff: the catalog has no such file") == 1, (
        "the problem is printed before the question only"
    )
    assert packed("ls", "-R").lines == ["tree/file"]


def test_nobody_is_asked_if_nothing_would_be_done(packed: Cafcat) -> None:
    assert packed("prune", "--grace", "0").text == "nothing to prune\n"
    assert packed("repack").text.startswith("nothing to repack: no chunk has more than ")
    assert packed("rm", "-r", "missing", code=4).text == ""
