"""Converts text that users type to paths of the catalog, and checks which texts can be such a path."""

from collections.abc import Iterable
from typing import Final

from cafcat.errors import InvalidInput

__all__ = [
    "check_text",
    "end_of_prefix",
    "file_of",
    "folder_of",
    "from_root",
    "is_text",
    "names_in_list",
    "not_a_text",
]


_LAST_CHARACTER: Final = 0x10FFFF
_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000


def check_text(path: object) -> None:
    """Raise InvalidInput if a path is no text: type checkers do not see all callers."""
    if not isinstance(path, str):
        raise not_a_text(path)


def not_a_text(path: object) -> InvalidInput:
    """Return the error for a path that is no text, such as a pathlib.Path, bytes or a Location."""
    if isinstance(path, bytes):
        hint = "pass os.fsdecode(path)"
    else:
        hint = "pass path.path" if isinstance(getattr(path, "path", None), str) else "pass str(path)"
    return InvalidInput(f"a path must be a text, not {type(path).__name__}", hint=hint)


def names_in_list(paths: Iterable[str]) -> Iterable[str]:
    """Return the paths. Raises InvalidInput for a single text, whose characters a caller would take for paths."""
    if isinstance(paths, str | bytes):
        raise InvalidInput("paths must be a list of names, not one name", hint=f"write [{paths!r}]")
    return paths


def from_root(typed: str) -> str:
    """Convert a typed path to a path from the catalog's root: "./a", "/a" -> "a"; "./", "/", "." -> "" (root).

    Raises InvalidInput if the path is no text, as do `folder_of` and `file_of`.
    """
    check_text(typed)
    name = typed
    while name.startswith(("./", "/")):
        name = name.removeprefix(".").removeprefix("/")
    return "" if name == "." else name


def folder_of(prefix: str) -> str:
    """Convert a typed folder to the prefix of its files' paths: "./a", "/a", "a/" -> "a/"; ".", "./", "" -> ""."""
    name = from_root(prefix)
    return name if not name or name.endswith("/") else f"{name}/"


def file_of(prefix: str) -> str | None:
    """Convert a typed path to the path of a file: "./a" -> "a". None if it ends in a slash, or is the root."""
    folder = folder_of(prefix)
    return None if not folder or prefix.endswith("/") else folder[:-1]


def is_text(name: str) -> bool:
    """Return True if Postgres can store `name` as text, because it is valid UTF-8 without a NUL byte.

    Raises InvalidInput if the name is no `str`.
    """
    check_text(name)
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text after all texts that begin with `prefix`, in the order of code points.

    Returns:
        The text; None if there is no such text, because `prefix` is empty or has no character but U+10FFFF.
    """
    for last in reversed(range(len(prefix))):
        code = ord(prefix[last])
        if code < _LAST_CHARACTER:
            # No text in UTF-8 has a surrogate.
            following = _AFTER_SURROGATES if code + 1 == _FIRST_SURROGATE else code + 1
            return prefix[:last] + chr(following)
    return None
