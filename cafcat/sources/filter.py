"""Which files of a source are taken: --include and --exclude, in the pattern language of gitignore(5)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cafcat.errors import InvalidInput

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["PathFilter"]


class PathFilter:
    """Takes what some include pattern matches (everything, if there is none) and no exclude pattern does.

    Paths are relative to the source, with "/" between their parts. As in git, a file in an excluded folder
    cannot be had back by a later "!pattern": the folder is not entered.
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Raises InvalidInput for a pattern that gitignore does not allow."""
        self._include = _compiled(include)
        self._exclude = _compiled(exclude)

    def takes(self, path: str) -> bool:
        """Whether a file of this path is ingested; for a folder (its path ends in "/"; "" is the source
        itself), whether the files in it are looked at."""
        if not path:
            return True
        if self._exclude is not None and self._exclude.match_file(path):
            return False
        return self._include is None or path.endswith("/") or self._include.match_file(path)


def _compiled(patterns: Sequence[str]) -> "GitIgnoreSpec | None":
    if not patterns:
        return None
    from pathspec import GitIgnoreSpec  # 15 ms that an ingest without patterns does not spend

    for pattern in patterns:
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError as error:
            raise InvalidInput(
                f"bad pattern {pattern!r}: {error}", hint="patterns are those of .gitignore files"
            ) from error
    return GitIgnoreSpec.from_lines(patterns)
