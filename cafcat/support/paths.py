"""Paths of the catalog: what can be one, and what people mean by what they type."""

__all__ = ["file_of", "folder_of", "from_root", "is_text"]


def from_root(typed: str) -> str:
    """Without what a shell or a habit puts before a path: "./a", "/a" -> "a"; "./", "/", "." -> "", the root."""
    name = typed
    while name.startswith(("./", "/")):
        name = name.removeprefix(".").removeprefix("/")
    return "" if name == "." else name


def folder_of(prefix: str) -> str:
    """A folder as typed, as the beginning of its paths: "./a", "/a", "a/" -> "a/"; ".", "./", "" -> ""."""
    name = from_root(prefix)
    return name if not name or name.endswith("/") else f"{name}/"


def file_of(prefix: str) -> str | None:
    """The path of the file that the same could mean; None for what has a slash at its end, or is everything."""
    folder = folder_of(prefix)
    return None if not folder or prefix.endswith("/") else folder[:-1]


def is_text(name: str) -> bool:
    """Whether Postgres can hold it, or be asked for it: UTF-8 without NUL."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False
