"""Which files a query is about: ranges of paths, folders, and conditions on files."""

from typing import Any, NamedTuple

from cafcat.model import Location
from cafcat.support.quantities import to_microseconds

__all__ = ["FindFilter", "PathPart", "PathScope", "folder_range", "successor"]

PathPart = tuple[str, str | None]
"""A half-open range of paths: the lowest path, and the first path after the range; None for no end."""


class FindFilter(NamedTuple):
    """Conditions on the files that `cafcat find` lists. None stands for no condition.

    A file without a modification time meets no condition on this time.

    Attributes:
        name_regex: Regular expression of PostgreSQL that the path, or a part of it, must match.
        newer_ns: The modification time must be later: nanoseconds since 1970 UTC.
        older_ns: The modification time must be earlier: nanoseconds since 1970 UTC.
        min_size: Smallest size of the file, in bytes.
        max_size: Largest size of the file, in bytes.
    """

    name_regex: str | None = None
    newer_ns: int | None = None
    older_ns: int | None = None
    min_size: int | None = None
    max_size: int | None = None

    def is_met_by(self, location: Location) -> bool:
        """Return True if a file meets all conditions but that on its name. Compares microseconds, as SQL does."""
        return (
            self._meets_times(location.modified_ns)
            and (self.min_size is None or location.size_bytes >= self.min_size)
            and (self.max_size is None or location.size_bytes <= self.max_size)
        )

    def _meets_times(self, modified_ns: int | None) -> bool:
        if self.newer_ns is None and self.older_ns is None:
            return True
        if modified_ns is None:
            return False
        modified = to_microseconds(modified_ns)
        is_newer = self.newer_ns is None or modified > to_microseconds(self.newer_ns)
        return is_newer and (self.older_ns is None or modified < to_microseconds(self.older_ns))

    def parameters(self) -> dict[str, Any]:
        """Return the values of the conditions as parameters of SQL, by name. Times are in microseconds."""
        newer, older = (None if ns is None else to_microseconds(ns) for ns in (self.newer_ns, self.older_ns))
        sizes = {"min_size": self.min_size, "max_size": self.max_size}
        return {"name_regex": self.name_regex, "newer": newer, "older": older} | sizes


def folder_range(folder: str) -> tuple[str, str | None]:
    """Return the half-open range of the paths below a folder.

    Args:
        folder: A folder that ends in "/"; "" for all paths.

    Returns:
        The lowest path, and the first path after the range; None if the range has no upper end.
    """
    return (folder, folder[:-1] + "0") if folder else ("", None)


class PathScope(NamedTuple):
    """All files below a folder and, unless `file` is None, the file that has the name of the folder.

    Attributes:
        folder: A folder that ends in "/"; "" for all files.
        file: Path of the file with the folder's name; None to leave this file out.
    """

    folder: str
    file: str | None

    @property
    def name(self) -> str:
        """Name of the file or folder for messages, as a user types it; "." for the whole catalog."""
        return self.file or self.folder or "."

    def range(self) -> tuple[str, str | None]:
        """Return the half-open range of the paths below the folder: its lowest path, and the first path after it.

        The end is None for the scope of all files.
        """
        return folder_range(self.folder)

    def condition(self) -> tuple[str, list[str]]:
        """Return an SQL condition on file_path, and its parameters."""
        low, high = self.range()
        below = "file_path >= %s" if high is None else "file_path >= %s AND file_path < %s"
        ends = [low] if high is None else [low, high]
        return (f"({below})", ends) if self.file is None else (f"({below} OR file_path = %s)", [*ends, self.file])


def successor(path: str) -> str:
    """Return the lowest path after a path: the path followed by U+0001, the smallest character of a path."""
    return path + "\x01"
