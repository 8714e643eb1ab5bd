"""Converts text that users type to paths of the catalog, and checks which texts can be such a path."""

__all__ = ["file_of", "folder_of", "from_root", "is_text"]


def from_root(typed: str) -> str:
    """Convert a typed path to a path from the catalog's root: "./a", "/a" -> "a"; "./", "/", "." -> "" (root)."""
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
    """Return True if Postgres can store `name` as text, because it is valid UTF-8 without a NUL byte."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False
