"""Converts members of a tar archive to files to ingest, or to problems."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from cafcat.errors import SourceFailed
from cafcat.model import MAX_PATH_BYTES, FileProblem, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import check_name, member_name, prefixed, printable, strip_warning
from cafcat.sources.tar.members import Member, MemberKind

__all__ = ["Found", "Items", "damage", "key", "last_files", "own_item", "shown"]

Found = SourceFile | FileProblem

_MAX_NAME: Final = 2 * MAX_PATH_BYTES
"""Longest name in characters. Archives can have far longer names: such a member is refused, and its name shown
in part."""
_FOLDERS: Final = 1024
"""Most folders for which the result of the filter is cached."""


class Items:
    """Converts the members of one tar archive: gives them their names in the catalog, and applies the filter."""

    def __init__(self, prefix: str, filter: PathFilter | None, progress: Progress) -> None:
        self._prefix = prefix
        self._filter = filter
        self._progress = progress
        self._warned: set[bool] = set()
        self._enters = lru_cache(maxsize=_FOLDERS)(self._is_entered)

    def item(self, member: Member, found: Found) -> Found | None:
        """Return the file to ingest for a member, or the problem if it cannot be ingested.

        Args:
            member: A member of a tar archive.
            found: The file or problem for the member itself, as `own_item` returns it; for a hard link, that for
                its target. Its path is replaced by the member's path in the catalog.

        Returns:
            The file or problem. None if the filter excludes the member, or if there is nothing to ingest, as for a
            folder.
        """
        if member.kind is MemberKind.NOTHING:
            return None
        name, removed = member_name(member.name)
        if removed:
            self._warn_of(removed)
        path = prefixed(self._prefix, name)
        if not name or len(name) > _MAX_NAME:
            return FileProblem(shown(path or member.name), ProblemKind.NAME, check_name(name) or "")
        if not self._is_included(name):
            return None
        if isinstance(found, FileProblem):
            return found._replace(path=shown(path))
        if refused := check_name(path):
            return FileProblem(shown(path), ProblemKind.NAME, refused)
        return found._replace(path=path)

    def _warn_of(self, removed: str) -> None:
        """Warn that the beginning of a name is removed: once for leading slashes, and once for "..".

        An archive may have any number of such names.
        """
        kind = ".." in removed
        if kind not in self._warned:
            self._warned.add(kind)
            self._progress.warn(strip_warning(removed[:_MAX_NAME]))

    def _is_included(self, name: str) -> bool:
        if self._filter is None:
            return True
        return self._enters(name.rpartition("/")[0]) and self._filter.includes(name)

    def _is_entered(self, folder: str) -> bool:
        """Return True if a walk would enter this folder: neither the folder nor one above it is excluded."""
        if self._filter is None or not folder:
            return True
        ends = (n for n, character in enumerate(f"{folder}/") if character == "/")
        return all(self._filter.includes(f"{folder}/"[: end + 1]) for end in ends)


def own_item(member: Member, locator: str) -> Found:
    """Return the file to ingest for a member, or the problem if it cannot be ingested. The path is left empty.

    Args:
        member: The member, which is not a hard link.
        locator: The locator of the file (`SourceFile.locator`).
    """
    if member.kind is MemberKind.FILE:
        return SourceFile("", member.size_bytes, member.modified_ns, locator)
    if member.kind is MemberKind.SYMLINK:
        return FileProblem("", ProblemKind.SYMLINK, "symbolic links are not followed")
    if member.kind is MemberKind.PART:
        message = (
            "this is only the end of a file that begins in another volume: extract the volumes and ingest the files"
        )
        return FileProblem("", ProblemKind.UNREADABLE, message)
    return FileProblem("", ProblemKind.SPECIAL, "not a regular file")


def key(name: str) -> str:
    """Return a name without leading slashes and "..", so that a link's target equals the name of its member."""
    return member_name(name)[0]


def last_files(items: Sequence[Found]) -> list[Found]:
    """Return the files and problems without the files that a later file of the same path replaces."""
    last = {item.path: n for n, item in enumerate(items) if isinstance(item, SourceFile)}
    return [item for n, item in enumerate(items) if isinstance(item, FileProblem) or last[item.path] == n]


def damage(name: str, error: SourceFailed) -> FileProblem:
    """Return the problem under which an archive is reported that cannot be read to its end.

    Args:
        name: Name of the archive, which becomes the path of the problem.
        error: Why the archive cannot be read further.
    """
    return FileProblem(name, ProblemKind(error.problem), error.message)


def shown(name: str) -> str:
    """Return a name for messages: printable, and in part if it is very long."""
    return printable(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}...")
