"""The files that a client may see: those below some folders.

For all other files, answers do not depend on whether they exist.
"""

from collections.abc import Iterable

from cafcat.support.paths import end_of_prefix

__all__ = ["Visible"]


class Visible:
    """The files that a client may list and read."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Create a set of files.

        Args:
            folders: Folders that end with "/"; "" for all files.
        """
        self._folders: list[str] = []
        for folder in sorted(folders):  # a folder comes before the folders in it
            if not any(folder.startswith(above) for above in self._folders):
                self._folders.append(folder)

    def __contains__(self, path: str) -> bool:
        return any(path.startswith(folder) for folder in self._folders)

    def ranges(self, prefix: str) -> list[tuple[str, str | None]]:
        """Return the half-open ranges of the visible paths that begin with a prefix, in order.

        Args:
            prefix: Any text.

        Returns:
            The lowest path, and the first path after the range (None for no end), of each range. An empty list if
            no path that begins with the prefix can be visible.
        """
        if prefix in self:
            return [(prefix, end_of_prefix(prefix))]
        return [(folder, end_of_prefix(folder)) for folder in self._folders if folder.startswith(prefix)]
