"""Shells, and file names that would run commands if they were quoted wrongly in a command line."""

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["HOSTILE_NAMES", "SHELLS", "run_line"]

SHELLS = [shell for shell in ("sh", "bash", "dash", "ksh", "busybox sh") if shutil.which(shell.split()[0])]

HOSTILE_NAMES = [
    "a\ntouch pwned #",
    "a\ntouch pwned\nb",
    "ends in newline\n",
    "ends in newlines\n\n\n",
    "\n",
    "\r",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "$(touch pwned)",
    "`touch pwned`",
    "a;touch pwned",
    "a\n$(touch pwned)",
    "a\n`touch pwned`",
    "a\n'; touch pwned; '",
    'a\n"; touch pwned; "',
    "-rf",
    "-n\n-e",
    "--",
    "\x1b[31mred",
    "\x01\x07\x08\x7f",
    "next\x85line",
    "paragraph\u2029line\u2028",
    "right\u202eleft",
    "tab\there",
    "vertical\x0bform\x0c",
    "back\\slash\\n",
    "back\\\n",
    "per%cent %s %d\n",
    "digits behind\n123",
    "ü\n日本",
    r"\012 $'\n' \\",
    "*",
    "~",
    "!x !! !\n!",
    "${IFS}&|<>#(){}[]",
    "  spaces  ",
    "dot.",
    "dot\n.",
    "a=b\nPATH=/nowhere",
    "folder\n/file\n",
]
"""Paths that are valid in a Unix file system and in the catalog."""


def run_line(shell: str, line: str, folder: Path, programs: Path | None = None) -> bytes:
    """Run a line as `... | tail -n 1 | SHELL` does, in an empty folder, and return its output.

    Asserts that the line is one physical line, and that that stderr and the folder are empty.
    """
    assert len(line.encode().split(b"\n")) == 1, line
    path = os.environ["PATH"] if programs is None else f"{programs}{os.pathsep}{os.environ['PATH']}"
    last = subprocess.run(["tail", "-n", "1"], input=f"before\n{line}\n".encode(), capture_output=True, check=True)
    command = subprocess.run(
        shell.split(),
        input=last.stdout,
        cwd=folder,
        capture_output=True,
        check=True,
        env=os.environ | {"PATH": path},
    )
    assert command.stderr == b""
    assert list(folder.iterdir()) == []
    return command.stdout
