"""Files out of the catalog, and back as long as their chunk is there.

All that one call names goes in one transaction. Then the stores are told, by a journal record beside the
chunks: a rebuild from a store has to know what was removed. A store that cannot be told now is told by recover.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from cafcat.catalog.files.lookup import LOOKED_UP_PATHS, PathScope, successor
from cafcat.catalog.files.path_list import PathList
from cafcat.catalog.files.removal import Change
from cafcat.errors import CafcatError, CatalogUnavailable, InvalidInput, shown_path
from cafcat.model import FileProblem, ProblemKind, RetiredLocation
from cafcat.operations.known_stores import KnownStores
from cafcat.operations.rm.report import RemoveReport
from cafcat.operations.undelete.report import UndeleteReport
from cafcat.session import Session
from cafcat.support.paths import file_of, folder_of, is_text
from cafcat.writing.journal import write_journal

__all__ = ["Removing"]

_LIVE: Final = "it has a file again: that one stays"
_PRUNED: Final = "its bytes are gone for good: its chunk was pruned"
_NEVER_REMOVED: Final = "nothing of that name was removed"
_NO_FILE: Final = "the catalog has no such file"
_A_FOLDER: Final = "that is a folder: rm -r removes all that is in it"


class Removing:
    """One call of `rm` or `undelete`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = KnownStores(session)
        self._progress = session.progress

    def remove(self, paths: Iterable[str], folders: Sequence[str], *, dry_run: bool) -> RemoveReport:
        """See RmOptions."""
        places = _outermost(folders)
        removal = self._catalog.removal
        act = removal.count if dry_run else removal.remove
        with PathList() as names:
            impossible = self._collect(paths, names, _NO_FILE)
            self._progress.begin("rm", files=names.count or None)
            with act(names, places, self._session.checkpoint) as change:
                self._progress.advance(change.files, change.bytes)
                behind = self._tell(change)
                self._report_missing(change)
        failed = impossible + change.missing.count + len(change.empty)
        return RemoveReport(change.files, change.bytes, failed, change.chunks, behind, dry_run)

    def undelete(self, paths: Iterable[str], folders: Sequence[str]) -> UndeleteReport:
        """See UndeleteOptions."""
        places = _outermost(folders)
        with PathList() as names:
            impossible = self._collect(paths, names, _NEVER_REMOVED)
            self._progress.begin("undelete", files=names.count or None)
            self._write_pending()
            with self._catalog.removal.restore(names, places, self._session.checkpoint) as change:
                self._progress.advance(change.files, change.bytes)
                behind = self._tell(change)
                self._report_left(change, of_folders=bool(places))
        failed = impossible + change.missing.count + len(change.empty)
        live, pruned = change.live.count, change.pruned.count
        return UndeleteReport(change.files, change.bytes, failed, live, pruned, len(change.repacked_logs), behind)

    def removed(self, prefix: str) -> Iterator[RetiredLocation]:
        """Give the files below a folder, or of that name, that `undelete` can bring back, in order of path."""
        place = _below(prefix or ".")
        if place.file is not None:
            yield from self._catalog.removal.removed(place.file, successor(place.file)).files
        after, high = place.range()
        while True:
            page = self._catalog.removal.removed(after, high)
            yield from page.files
            if page.last is None:
                return
            after = successor(page.last)

    def _collect(self, paths: Iterable[str], names: PathList, why_missing: str) -> int:
        """Returns the number of names that no catalog can have."""
        impossible = 0
        self._progress.begin("reading names")
        for path in paths:
            self._session.checkpoint()
            if path and is_text(path):
                names.add(path)
                self._progress.advance(1, 0)
            else:
                impossible += 1
                self._progress.emit(FileProblem(_printable(path), ProblemKind.MISSING, why_missing))
        return impossible

    def _report_missing(self, change: Change) -> None:
        missing = iter(change.missing)
        while paths := list(islice(missing, LOOKED_UP_PATHS)):
            folders: set[str] = set()
            with contextlib.suppress(CatalogUnavailable):  # what is done is done
                folders = self._catalog.files.folders_among([path.removesuffix("/") for path in paths])
            for path in paths:
                message = _A_FOLDER if path.removesuffix("/") in folders else _NO_FILE
                self._progress.emit(FileProblem(path, ProblemKind.MISSING, message))
        for below in change.empty:
            message = "the catalog has no such file or folder"
            self._progress.emit(FileProblem(below.name, ProblemKind.MISSING, message))

    def _report_left(self, change: Change, *, of_folders: bool) -> None:
        """Who names a file wants that one back; of a folder, some may have been brought back in other ways."""
        for path in change.missing:
            self._progress.emit(FileProblem(path, ProblemKind.MISSING, _NEVER_REMOVED))
        for below in change.empty:
            self._progress.emit(FileProblem(below.name, ProblemKind.MISSING, _NEVER_REMOVED))
        for path in change.live:
            kind = ProblemKind.CONFLICT if of_folders else ProblemKind.EXISTS
            self._progress.emit(FileProblem(path, kind, _LIVE))
        for path in change.pruned:
            kind = ProblemKind.PRUNED if of_folders else ProblemKind.MISSING
            self._progress.emit(FileProblem(path, kind, _PRUNED))
        for path, log_file, archive in change.repacked_logs:
            message = f"records of the log file {shown_path(log_file)!r} are in archive {archive} now"
            self._progress.emit(FileProblem(path, ProblemKind.TAKEN, message))

    def _write_pending(self) -> None:
        """Journal records that stores lack: those before ours. That they cannot be written is no reason to
        stop: which record is the last is told by their numbers."""
        for url in self._catalog.removal.stores_behind():
            with contextlib.suppress(CafcatError):
                write_journal(self._catalog.journal, self._stores.open(url))

    def _tell(self, change: Change) -> tuple[str, ...]:
        """Writes the record into every store. What is done is done: whatever goes wrong here is a warning. Returns
        the stores that do not have it."""
        behind = []
        for url in change.stores:
            try:
                write_journal(self._catalog.journal, self._stores.open(url))
            except CafcatError as error:
                behind.append(url)
                self._progress.warn(f"the store {url} was not told: {error}; cafcat recover does it later")
        return tuple(behind)


def _below(typed: str) -> PathScope:
    """A folder as typed: "./a", "/a", "a" -> all below "a/", and the file "a"; "a/" -> only what is below; "." ->
    everything. Raises InvalidInput for an empty name (a variable of a shell that was not set), for "/" (an adopted
    archive may have a folder of that name), or what is none."""
    if not typed:
        raise InvalidInput("an empty name is no folder", hint="all of the catalog is .")
    if not is_text(typed):
        raise InvalidInput(f"no path of the catalog has such a name: {_printable(typed)}")
    below = PathScope(folder_of(typed), file_of(typed))
    if not below.folder and not typed.startswith("."):
        raise InvalidInput(f"{typed} is no folder of the catalog", hint="all of the catalog is .")
    return below


def _outermost(folders: Sequence[str]) -> list[PathScope]:
    """Without those that are in others, or named twice."""
    kept: list[PathScope] = []
    for below in sorted(map(_below, folders), key=lambda below: (below.folder, below.file is None)):
        if not kept or not below.folder.startswith(kept[-1].folder):
            kept.append(below)
    return kept


def _printable(path: str) -> str:
    return path.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
