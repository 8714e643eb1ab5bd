"""Members of a tar archive as files to ingest, or as the reasons why they cannot be."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cafcat.errors import SourceFailed
from cafcat.model import MAX_PATH_BYTES, FileProblem, ProblemKind, SourceFile
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import check_name, member_name, prefixed, printable, strip_warning
from cafcat.sources.tar.members import Member, MemberKind

__all__ = ["Found", "Items", "damage", "key", "own_item", "shown"]

Found = SourceFile | FileProblem

_MAX_NAME: Final = 2 * MAX_PATH_BYTES
"""Characters; an archive can have far longer names. Such a one is refused unseen, and shown in part."""
_FOLDERS: Final = 1024


class Items:
    """How the members of one archive are named, and which are taken."""

    def __init__(self, prefix: str, filter: PathFilter | None, warn: Callable[[str], None]) -> None:
        self._prefix = prefix
        self._filter = filter
        self._warn = warn
        self._warned: set[bool] = set()
        self._enters = lru_cache(maxsize=_FOLDERS)(self._is_entered)

    def item(self, member: Member, found: Found) -> Found | None:
        """What to ingest for a member, or why it cannot be; None for what is left out. `found` is what the member
        is by itself, or what a hard link is to, by any path."""
        if member.kind is MemberKind.NOTHING:
            return None
        name, removed = member_name(member.name)
        if removed:
            self._warn_of(removed)
        path = prefixed(self._prefix, name)
        if not name or len(name) > _MAX_NAME:
            return FileProblem(shown(path or member.name), ProblemKind.NAME, check_name(name) or "")
        if not self._takes(name):
            return None
        if isinstance(found, FileProblem):
            return found._replace(path=shown(path))
        if refused := check_name(path):
            return FileProblem(shown(path), ProblemKind.NAME, refused)
        return found._replace(path=path)

    def _warn_of(self, removed: str) -> None:
        """Once for leading slashes, once for "..": an archive may have any number of the latter."""
        kind = ".." in removed
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(strip_warning(removed[:_MAX_NAME]))

    def _takes(self, name: str) -> bool:
        if self._filter is None:
            return True
        return self._enters(name.rpartition("/")[0]) and self._filter.takes(name)

    def _is_entered(self, folder: str) -> bool:
        """Whether a walk would come to the files of this folder: none of those above it is excluded."""
        if self._filter is None or not folder:
            return True
        ends = (n for n, character in enumerate(f"{folder}/") if character == "/")
        return all(self._filter.takes(f"{folder}/"[: end + 1]) for end in ends)


def own_item(member: Member, locator: str) -> Found:
    """What a member that is no hard link is by itself, with the path ""."""
    if member.kind is MemberKind.FILE:
        return SourceFile("", member.size_bytes, member.modified_ns, locator)
    if member.kind is MemberKind.SYMLINK:
        return FileProblem("", ProblemKind.SYMLINK, "symbolic links are not followed")
    if member.kind is MemberKind.PART:
        message = (
            "only the end of it is here, it begins in another volume: extract the volumes and ingest the files"
        )
        return FileProblem("", ProblemKind.UNREADABLE, message)
    return FileProblem("", ProblemKind.SPECIAL, "not a regular file")


def key(name: str) -> str:
    """What the names of a hard link's target and of a member have in common if they are the same."""
    return member_name(name)[0]


def damage(name: str, error: SourceFailed) -> FileProblem:
    """Why an archive of that name could not be read to its end."""
    return FileProblem(name, ProblemKind(error.problem), error.message)


def shown(name: str) -> str:
    """The name of a member for messages."""
    return printable(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}...")
