"""Finds and loads the native part, which the build of the package compiles where there is a compiler.

Everything works without the library, more slowly. CAFCAT_NATIVE=0 in the environment turns the library off. If the
variable is unset, empty or 1, the library beside this file is loaded. Any other value is the path of the library to
load, for tests with a library that was compiled in another way.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["FILE_NAME", "VERSION", "library", "turned_off", "why_unused"]

FILE_NAME: Final = "libcafcat.bin"
"""Name of the library, which is beside this file. Python would take a name with the end .so for a module."""
VERSION: Final = 13
"""Version of the functions and structures that this version of cafcat calls: CAFCAT_NATIVE_VERSION in native.h."""

_off = [0]  # how many `turned_off` are open


def library() -> ctypes.CDLL | None:
    """Return the loaded library; None if it is turned off, missing, of another version, or of another platform."""
    return None if _off[0] or isinstance(found := _load(), str) else found


def why_unused() -> str | None:
    """Return why the library is not used, for a message; None if it is used."""
    return found if isinstance(found := _load(), str) else None


@contextmanager
def turned_off() -> Iterator[None]:
    """Turn the library off in this process, for a comparison with the equal in Python."""
    _off[0] += 1
    try:
        yield
    finally:
        _off[0] -= 1


@cache
def _load() -> ctypes.CDLL | str:
    chosen = os.environ.get("CAFCAT_NATIVE")
    if chosen == "0":
        return "CAFCAT_NATIVE=0"
    if (encoding := sys.getfilesystemencoding()) != "utf-8":  # the library has names of files in UTF-8
        return f"the locale encodes names of files in {encoding}, not in UTF-8"
    is_own = chosen in (None, "", "1")
    path = Path(__file__).with_name(FILE_NAME) if is_own else Path(str(chosen))
    if not path.is_file():
        wrong = f"CAFCAT_NATIVE={chosen} names no file; CAFCAT_NATIVE=0 turns the native part off"
        return "this installation was built without a C compiler" if is_own else wrong
    return _opened(path)


def _opened(path: Path) -> ctypes.CDLL | str:
    try:
        loaded = ctypes.CDLL(str(path))
        version = int(loaded.cafcat_native_version())
    except (OSError, AttributeError) as error:
        return f"the library cannot be loaded: {error}"
    if version != VERSION:
        return f"{path} has version {version} instead of {VERSION}: install cafcat again"
    return loaded
