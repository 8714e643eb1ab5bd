"""Paths of the catalog: how typed text is converted to a path, and which texts can be a path."""

__all__ = ["file_of", "folder_of", "from_root", "is_text"]


def from_root(typed: str) -> str:
    """Return a typed path from the root of the catalog on: "./a", "/a" -> "a"; "./", "/", "." -> "", the root."""
    name = typed
    while name.startswith(("./", "/")):
        name = name.removeprefix(".").removeprefix("/")
    return "" if name == "." else name


def folder_of(prefix: str) -> str:
    """Return a typed folder as a prefix of paths: "./a", "/a", "a/" -> "a/"; ".", "./", "" -> ""."""
    name = from_root(prefix)
    return name if not name or name.endswith("/") else f"{name}/"


def file_of(prefix: str) -> str | None:
    """Return a typed path as the path of a file. None if it ends in a slash, or is the root."""
    folder = folder_of(prefix)
    return None if not folder or prefix.endswith("/") else folder[:-1]


def is_text(name: str) -> bool:
    """Return True if Postgres can store a text: it is valid UTF-8 without NUL."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False
