"""Checks of this installation: Python, libraries, native code, programs."""

import os
import platform
import re
from collections.abc import Iterator
from ctypes.util import find_library
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Final, NamedTuple

from cafcat import __version__
from cafcat.errors import NotInstalled
from cafcat.operations.doctor.examination import Examination
from cafcat.operations.doctor.found import Found, ok, warning

__all__ = ["libraries", "native_code", "programs", "python"]

_REQUIREMENT: Final = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*])?\s*([^;]*)(?:;(.*))?")
_LIMIT: Final = re.compile(r"(>=|<)\s*([\d.]+)")
_EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")
_NOT_FOR_USERS: Final = frozenset(("dev", "test-programs", "test-clients"))
_FUSE_DEVICE: Final = "/dev/fuse"


class _Requirement(NamedTuple):
    """A library that cafcat needs.

    Attributes:
        name: Name of its package.
        limits: Limits of its version, such as ">=1.14".
        extra: The extra that needs it; None if cafcat itself does.
        is_conditional: True if only some systems or versions of Python need it.
    """

    name: str
    limits: str
    extra: str | None
    is_conditional: bool

    def problem(self) -> str | None:
        """Return the problem of the installed library, such as "alembic is missing"; None if it fits."""
        try:
            installed = version(self.name)
        except PackageNotFoundError:
            return None if self.is_conditional else f"{self.name} is missing"
        fits = all(_fits(installed, operator, limit) for operator, limit in _LIMIT.findall(self.limits))
        return None if fits else f"{self.name} {installed} is installed, {self.limits.strip()} is needed"


def python(_: Examination) -> Iterator[Found]:
    """Show the versions of cafcat, Python and the system."""
    yield ok(f"cafcat {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}")


def libraries(_: Examination) -> Iterator[Found]:
    """Compare the versions of the installed libraries with those that cafcat needs."""
    requirements = _requirements()
    problems = [found for each in requirements if each.extra is None and (found := each.problem()) is not None]
    if problems:
        yield warning("; ".join(problems), "install cafcat again: pip then installs the versions that it needs")
    extras = sorted({each.extra for each in requirements if each.extra is not None} - _NOT_FOR_USERS)
    complete = [
        extra for extra in extras if not any(each.problem() for each in requirements if each.extra == extra)
    ]
    missing = [extra for extra in extras if extra not in complete]
    yield ok(f"extras: {', '.join(complete) or 'none'}; not installed: {', '.join(missing) or 'none'}")


def native_code(_: Examination) -> Iterator[Found]:
    """Check that the libraries run their compiled code, because their Python code is many times slower."""
    from cafcat.catalog.health.server import client_library

    implementation, libpq = client_library()
    if implementation == "python":
        yield warning(f"psycopg has no compiled code (libpq {libpq})", "run: pip install 'psycopg[binary]'")
    checksums = import_module("google_crc32c").implementation
    if checksums == "python":
        remedy = "run: pip install --force-reinstall google-crc32c, on a platform with a wheel"
        yield warning("checksums (google-crc32c) have no compiled code, and are slow", remedy)
    yield ok(f"psycopg ({implementation}, libpq {libpq}), google-crc32c ({checksums})")


def programs(_: Examination) -> Iterator[Found]:
    """Look for libfuse and its device, and for the program clp-s. They are needed by single commands only."""
    if find_spec("mfusepy") is None:
        yield ok(f"`cafcat mount` is not installed ({NotInstalled.remedy('mount')})")
    elif find_library("fuse3") is None and find_library("fuse") is None:
        remedy = "install libfuse, such as by: apt-get install fuse3 libfuse3-3"
        yield warning("`cafcat mount` does not work: libfuse is missing", remedy)
    elif not os.path.exists(_FUSE_DEVICE):
        remedy = "load the kernel module fuse; in a container, pass the device on"
        yield warning(f"`cafcat mount` does not work: {_FUSE_DEVICE} is missing", remedy)
    else:
        yield ok("libfuse and its device are there, for `cafcat mount`")
    yield _log_program()


def _log_program() -> Found:
    from cafcat.formats.clp.program import program_path

    try:
        return ok(f"the program clp-s is there, for archives of logs: {program_path()}")
    except NotInstalled as error:
        return ok(f"archives of logs cannot be packed or searched: {error.message} ({error.hint})")


def _requirements() -> list[_Requirement]:
    try:
        lines = requires("cafcat") or []
    except PackageNotFoundError:  # a copy of the source that was not installed
        return []
    return [_requirement(line) for line in lines]


def _requirement(line: str) -> _Requirement:
    match = _REQUIREMENT.match(line)
    name, limits, marker = match.groups() if match is not None else (line, "", None)
    extra = _EXTRA.search(marker or "")
    is_conditional = bool(_EXTRA.sub("", marker or "").strip(" ();and"))
    return _Requirement(name, limits, extra[1] if extra else None, is_conditional)


def _fits(installed: str, operator: str, limit: str) -> bool:
    found, wanted = _numbers(installed), _numbers(limit)
    return found >= wanted if operator == ">=" else found < wanted


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])
