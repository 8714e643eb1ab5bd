"""Filters the files of a source: --include and --exclude, in the pattern language of gitignore(5)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cafcat.errors import InvalidInput

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["PathFilter"]


class PathFilter:
    """Includes the paths that match an include pattern (all paths, if there is none) and no exclude pattern.

    Paths are relative to the source, with "/" between their parts. As in git, a later "!pattern" cannot include a
    file whose folder is excluded.
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Compile the patterns. Raises InvalidInput for a pattern that gitignore does not allow."""
        self._include = _compiled(include)
        self._exclude = _compiled(exclude)

    def includes(self, path: str) -> bool:
        """Return True if a file is to be ingested, or if a folder is to be searched for files.

        Args:
            path: Path of the file, or of a folder with "/" at its end, relative to the source. "" is the source
                itself, which is always included.
        """
        if not path:
            return True
        if self._exclude is not None and self._exclude.match_file(path):
            return False
        return self._include is None or path.endswith("/") or self._include.match_file(path)

    def includes_with_folders(self, path: str) -> bool:
        """Return True if a file is to be ingested, and each folder above it is to be searched for files.

        Args:
            path: Path of the file, relative to the source.
        """
        ends = [n for n, character in enumerate(path) if character == "/"]
        return all(self.includes(path[: end + 1]) for end in ends) and self.includes(path)


def _compiled(patterns: Sequence[str]) -> "GitIgnoreSpec | None":
    if not patterns:
        return None
    from pathspec import GitIgnoreSpec  # takes 15 ms, and only an ingest with patterns needs it

    for pattern in patterns:
        if not pattern:
            raise InvalidInput(
                "a pattern is empty", hint="'*' matches every file; leave the option out for no filter"
            )
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError as error:
            raise InvalidInput(
                f"bad pattern {pattern!r}: {error}", hint="write patterns as in a .gitignore file"
            ) from error
    return GitIgnoreSpec.from_lines(patterns)
