"""Folders of the catalog, as people type them."""

from cafcat.paths import from_root

__all__ = ["file_of", "folder_of"]


def folder_of(prefix: str) -> str:
    """A folder as typed, as the beginning of its paths: "./a", "/a", "a/" -> "a/"; ".", "./", "" -> ""."""
    name = from_root(prefix)
    return name if not name or name.endswith("/") else f"{name}/"


def file_of(prefix: str) -> str | None:
    """The path of the file that the same could mean; None for what has a slash at its end, or is everything."""
    folder = folder_of(prefix)
    return None if not folder or prefix.endswith("/") else folder[:-1]
