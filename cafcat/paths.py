"""Paths of the catalog: what can be one, and what people mean by what they type."""

__all__ = ["from_root", "is_text"]


def from_root(typed: str) -> str:
    """Without what a shell or a habit puts before a path: "./a", "/a" -> "a"; "./", "/", "." -> "", the root."""
    name = typed
    while name.startswith(("./", "/")):
        name = name.removeprefix(".").removeprefix("/")
    return "" if name == "." else name


def is_text(name: str) -> bool:
    """Whether Postgres can hold it, or be asked for it: UTF-8 without NUL."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False
