"""Run the commands of a page of docs/tasks/ in one shell, and compare their output with the page.

* A block ```console has commands after `$ `, continued after `> `, and their output. A command must end with exit
  code 0, unless the next command is `echo $?`. Output that the page does not show is not compared.
* `...` alone in a line stands for any lines; `…` in a line stands for any text. Uuids, times and speeds may differ.
* A comment `<!-- file: NAME -->` before a block of another language writes this block to the file NAME.
* Folders /mnt/NAME, for disks, exist. Other absolute paths are below the folder of the test, too.
* A comment `<!-- not run: REASON -->` before a block leaves the block out. The page must give the reason, too.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.worlds import commands

__all__ = ["Block", "Page", "PageShell", "program_of_cafcat"]

BLOCK = re.compile(r"(?:^<!-- (file|not run): (.*?) -->\n+)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOTS = re.compile(r"(?<![\w./~-])/(?=(?:srv|mnt|home|etc/cafcat|var/log/cafcat)\b)")
"""Where absolute paths of pages begin, which are below the folder of the test."""
TIMEOUT_SECONDS = 300
VARYING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{8}T\d{6}\.\d{6}Z|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"[\d.]+ s \([\d.]+ files/s, [\d.]+ \w+/s\)"), "SPEED"),
    (re.compile(r"\b[\d.]+ s\b"), "SECONDS"),
)


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Attributes:
        kind: `file` or `not run`, as a comment before the block says; otherwise empty.
        note: the name of the file, or the reason.
    """

    kind: str
    note: str
    language: str
    text: str


@dataclass(frozen=True)
class Step:
    """A command, and the output that the page shows."""

    command: str
    output: list[str] = field(default_factory=list)


class Page:
    """A page in Markdown."""

    def __init__(self, path: Path) -> None:
        """Read the page."""
        self.path = path
        self.blocks = [Block(*found.groups(default="")) for found in BLOCK.finditer(path.read_text())]

    def text_of(self, name: str) -> str:
        """Return the text of the block for the file of this name."""
        (text,) = [block.text for block in self.blocks if (block.kind, block.note) == ("file", name)]
        return text


class PageShell:
    """A folder in which pages are run, with a home and a `cafcat` of its own."""

    def __init__(self, root: Path, names: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Make the folder.

        Args:
            root: an empty folder, below which /srv, /mnt and /home of the page are.
            names: names on the page, such as s3://incoming, and the real ones.
            environment: variables of the shell beside PATH and HOME.
        """
        self.root = root
        self.home = root / "home" / "you"
        self.home.mkdir(parents=True)
        self._names = names
        self._environment = environment

    def run(self, page: Page) -> None:
        """Write the files of the page, run its commands in their order, and compare their output."""
        steps = [
            step for block in page.blocks if not block.kind and block.language == "console" for step in read(block)
        ]
        self.write_files(page)
        for step, following, (output, code) in zip(
            steps, [*steps[1:], Step("")], self._outputs(steps), strict=True
        ):
            assert code == 0 or following.command == "echo $?", (step.command, code, output)
            assert not step.output or matches(step.output, output), f"$ {step.command}\n{output}"

    def write_files(self, page: Page) -> None:
        """Write the files of the page, and make the folders of its disks."""
        for disk in re.findall(r"/mnt/\w+", page.path.read_text()):
            Path(self._here(disk)).mkdir(parents=True, exist_ok=True)
        for block in page.blocks:
            if block.kind == "file":
                file = self.home / self._here(block.note).replace("~", str(self.home))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._here(block.text))
                file.chmod(0o755 if block.text.startswith("#!") else 0o644)

    def write_program(self, name: str, text: str) -> None:
        """Write a program in sh, which `execute` finds before all others of this name."""
        program = self.root / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    def execute(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in bash, in the home of the page, and return its result."""
        with program_of_cafcat() as folder:
            path = f"{self.root / 'programs'}:{folder}:{os.environ['PATH']}"
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAFCAT_", "PG"))}
            return subprocess.run(
                ["bash", "-c", command],
                cwd=self.home,
                env={**kept, **self._environment, "HOME": str(self.home), "PATH": path, "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT_SECONDS,
            )

    def _here(self, text: str) -> str:
        """Return text of the page with the names of this test."""
        for name, real in self._names.items():
            text = text.replace(name, real)
        return ROOTS.sub(f"{self.root}/", text)

    def _there(self, text: str) -> str:
        """Return output with the names of the page."""
        text = text.replace(str(self.root), "")
        for name, real in self._names.items():
            text = text.replace(real, name)
        return text

    def _outputs(self, steps: list[Step]) -> Iterator[tuple[str, int]]:
        """Run commands in one shell. Yield the output and the exit code of each."""
        end = f"--{os.urandom(8).hex()}--"
        lines = [f'{self._here(step.command)}\n(code=$?; printf "\\n{end}$code\\n"; exit $code)' for step in steps]
        ran = self.execute("\n".join(lines))
        found = re.findall(rf"(.*?)\n{end}(\d+)\n", ran.stdout, re.DOTALL)
        assert len(found) == len(steps), ran.stdout
        for output, code in found:
            yield self._there(output), int(code)


def read(block: Block) -> Iterator[Step]:
    """Yield the commands of a block."""
    step: Step | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(line.removeprefix("$ "))
        elif step and line.startswith("> ") and not step.output:
            step = Step(f"{step.command}\n{line.removeprefix('> ')}")
        else:
            assert step, "a block console begins with a command"
            step.output.append(line)
    if step:
        yield step


def matches(shown: list[str], output: str) -> bool:
    """Return True if a page shows this output."""
    patterns = [r"(?:.*\n)*" if line == "..." else f"{pattern_of(line)} *\n" for line in shown]
    text = "".join(f"{same(line)}\n" for line in output.strip("\n").splitlines())
    return re.fullmatch("".join(patterns), text) is not None


def pattern_of(line: str) -> str:
    """Return the pattern of a line on a page."""
    return ".*".join(map(re.escape, same(line.rstrip()).split("…")))


def same(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, name in VARYING:
        line = pattern.sub(name, line)
    return line


CLIENT = """#!{python} -SI
import json, os, signal, socket, sys
passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
order = dict(program=None, arguments=sys.argv[1:], environment=dict(os.environ), folder=os.getcwd())
text = json.dumps(order).encode()
socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
server.sendall(text)
answer = server.makefile("rb")
pid = int(answer.readline())
for number in passed_on:
    signal.signal(number, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
sys.exit(os.waitstatus_to_exitcode(int(answer.readline())) % 256)
"""
"""The program `cafcat` of the pages. It asks this process for a fork (tests/worlds/commands.py)."""


@contextlib.contextmanager
def program_of_cafcat() -> Iterator[Path]:
    """Yield a folder with a program `cafcat`, for PATH."""
    with tempfile.TemporaryDirectory(prefix="cafcat-program-") as folder:
        program, address = Path(folder) / "cafcat", f"{folder}/socket"
        if os.environ.get("CAFCAT_TEST_REAL_COMMANDS") == "1":
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cafcat "$@"\n')
            program.chmod(0o755)
            yield Path(folder)
            return
        program.write_text(CLIENT.format(python=sys.executable, address=address))
        program.chmod(0o755)
        with socket.create_server(address, family=socket.AF_UNIX) as listener:
            threading.Thread(target=answer_all, args=(listener,), daemon=True).start()
            yield Path(folder)
            listener.shutdown(socket.SHUT_RDWR)


def answer_all(listener: socket.socket) -> None:
    """Answer the programs until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Fork a command, and send its process id and its wait status."""
    import json

    with connection:
        length, descriptors, _, _ = socket.recv_fds(connection, commands.LENGTH_BYTES, 3, socket.MSG_WAITALL)
        order = json.loads(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
        pid, status = commands.server().start(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with status, contextlib.suppress(BrokenPipeError):
            connection.sendall(f"{pid}\n".encode())
            connection.sendall(status.readline())
