"""Removes files from the catalog, and brings removed files back while their chunk still exists.

All names of one call are handled in one transaction. Afterwards the journal record of the change is written into
each store with chunks or copies that cafcat wrote. Without the record, a rebuild from such a store would miss the
change. If writing the record fails, a later `recover`, ingest or `rm` writes it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from cafcat.catalog.files.path_list import PathList, VersionList
from cafcat.catalog.files.removal import Change
from cafcat.catalog.files.scope import PathScope, successor
from cafcat.errors import CafcatError, CatalogUnavailable, InvalidInput, StoreFailed, shown_path
from cafcat.model import LOOKED_UP_PATHS, NO_SUCH_FILE, NO_SUCH_PREFIX, FileProblem, ProblemKind, RetiredLocation
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.rm.report import RemoveReport
from cafcat.operations.undelete.report import UndeleteReport
from cafcat.reading.globs import is_glob
from cafcat.session import Session
from cafcat.support.paths import check_text, file_of, folder_of, is_text
from cafcat.writing.journal import write_journal

__all__ = ["Removing"]

_LIVE: Final = "a newer file has this path: the newer file stays"
_PRUNED: Final = "its chunk was pruned or lost: the bytes no longer exist"
_LET_GO: Final = "its adopted archive is not in the catalog any more: adopt the archive again"
_DAMAGED: Final = "this file is back, but verify found its bytes damaged or missing: run cafcat repair"
_NEVER_REMOVED: Final = "no removed file has this name"
_NONE_BELOW: Final = "no removed file has this name, or is below a folder of this name"
_NO_MATCH: Final = "no removed file that can come back matches this pattern"
_A_REMOVED_FOLDER: Final = "this is a folder: use undelete -r to bring back all files below it"
_A_FOLDER: Final = "this is a folder: use rm -r to remove all files below it"


class Removing:
    """State and steps of one `cafcat rm` or `cafcat undelete`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = ReachableStores(session)
        self._progress = session.progress

    def remove(self, paths: Iterable[str], folders: Sequence[str], *, dry_run: bool) -> RemoveReport:
        """Remove files from the catalog in one transaction, then write a journal record of the removal into stores.

        Each name that the catalog does not have is reported, and counted as failed.

        Args:
            paths: Paths of files.
            folders: Folders, as the user typed them.
            dry_run: Count the files; change nothing.

        Raises:
            InvalidInput: One of `folders` cannot be the name of a folder of the catalog.
            CatalogUnavailable: The files could not be removed, or the outcome of the commit is unknown.
        """
        scopes = _outermost(folders)
        removal = self._catalog.removal
        act = removal.count if dry_run else removal.remove
        with PathList() as names:
            impossible = self._collect(paths, names, NO_SUCH_FILE)
            self._progress.begin("rm", files=names.count or None)
            with act(names, scopes, self._progress) as change:
                self._progress.advance(change.files, change.bytes)
                behind = self.write_records(change.stores)
                if change.sequence is not None:
                    self._catalog.folders.fold()
                self._report_missing(change)
        failed = impossible + change.missing.count + len(change.empty)
        return RemoveReport(change.files, change.bytes, failed, change.chunks, behind, dry_run)

    def remove_versions(self, versions: VersionList, run_id: int | None, *, lost_store: str | None = None) -> int:
        """Remove certain versions of files, unless their paths have another version by now.

        Args:
            versions: The versions of the files.
            run_id: ingest_runs.id of the ingest that removes them; None for other commands.
            lost_store: URL of a store that is lost, and gets no journal record; None if there is none.

        Returns:
            The number of removed files.

        Raises:
            CatalogUnavailable: The files could not be removed, or the outcome of the commit is unknown.
        """
        with self._catalog.removal.remove_versions(versions, run_id, self._progress) as change:
            change.stores = tuple(url for url in change.stores if url != lost_store)
            self.write_records(change.stores)
            return change.files

    def record_stores(self) -> None:
        """Write a journal record with the present list of stores into all stores. Each failure is only a warning.

        A rebuild misses a store of the last list that the user does not name.
        """
        self.write_records(self._catalog.removal.record_stores())

    def undelete(self, paths: Iterable[str], folders: Sequence[str]) -> UndeleteReport:
        """Bring removed files back in one transaction, then write a journal record of their return into stores.

        Each name without a removed file, and each file that cannot come back, is reported and counted. Before the
        transaction, this tries to write the journal records that stores still lack.

        Args:
            paths: Paths of files.
            folders: Folders, as the user typed them.

        Raises:
            InvalidInput: One of `folders` cannot be the name of a folder of the catalog.
            CatalogUnavailable: The files could not be brought back, or the outcome of the commit is unknown.
        """
        scopes = _outermost(folders)
        with PathList() as names:
            impossible = self._collect(paths, names, _NEVER_REMOVED)
            self._progress.begin("undelete", files=names.count or None)
            self._write_pending()
            with self._catalog.removal.restore(names, scopes, self._progress) as change:
                self._progress.advance(change.files, change.bytes)
                behind = self.write_records(change.stores)
                if change.sequence is not None:
                    self._catalog.folders.fold()
                self._report_left(change, of_folders=bool(scopes))
        failed = impossible + change.missing.count + len(change.empty)
        return UndeleteReport(
            files=change.files,
            bytes=change.bytes,
            files_failed=failed,
            files_live=change.live.count,
            files_pruned=change.pruned.count,
            files_let_go=change.let_go.count,
            files_damaged=change.damaged.count,
            files_taken=len(change.repacked_logs),
            stores_behind=behind,
        )

    def removed(self, prefix: str) -> Iterator[RetiredLocation]:
        """Yield the removed files that `undelete` can restore, in path order.

        Args:
            prefix: Folder, whose files are yielded, or path of a file, as the user typed it; "" for all files.

        Raises:
            InvalidInput: The name cannot be that of a folder.
        """
        scope = _below(prefix or ".")
        if scope.file is not None:
            yield from self._catalog.removal.removed(scope.file, successor(scope.file)).files
        after, high = scope.range()
        while True:
            page = self._catalog.removal.removed(after, high)
            yield from page.files
            if page.last is None:
                return
            after = successor(page.last)

    def _collect(self, paths: Iterable[str], names: PathList, why_missing: str) -> int:
        """Add names to a list, and report each name that no catalog can store.

        Args:
            paths: The names.
            names: The list that receives them.
            why_missing: Message about a name that no catalog can store.

        Returns:
            The number of names that no catalog can store.

        Raises:
            InvalidInput: A path is no text.
        """
        impossible = 0
        self._progress.begin("reading names")
        for path in paths:
            self._session.checkpoint()
            if is_text(path) and path:
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
            # The removal is committed. Without the catalog, the message is only less exact.
            with contextlib.suppress(CatalogUnavailable):
                folders = self._catalog.files.folders_among([path.removesuffix("/") for path in paths])
            for path in paths:
                message = _A_FOLDER if path.removesuffix("/") in folders else NO_SUCH_FILE
                self._progress.emit(FileProblem(path, ProblemKind.MISSING, message))
        for below in change.empty:
            message = NO_SUCH_PREFIX
            self._progress.emit(FileProblem(below.name, ProblemKind.MISSING, message))

    def _report_left(self, change: Change, *, of_folders: bool) -> None:
        """Report names that could not be brought back, and files that came back damaged.

        A path with a newer file, or a file whose chunk was pruned, is a failure if the user named only files. If
        the user named folders, it counts as skipped, because such files are normal below a folder.

        Args:
            change: The result of the undelete.
            of_folders: True if the user named at least one folder.
        """
        for path in change.missing:
            is_folder = change.missing.count <= LOOKED_UP_PATHS and self._is_removed_folder(path)
            not_found = _NO_MATCH if is_glob(path) else _NEVER_REMOVED
            message = _A_REMOVED_FOLDER if is_folder else not_found
            self._progress.emit(FileProblem(path, ProblemKind.MISSING, message))
        for below in change.empty:
            self._progress.emit(FileProblem(below.name, ProblemKind.MISSING, _NONE_BELOW))
        for path in change.live:
            kind = ProblemKind.CONFLICT if of_folders else ProblemKind.EXISTS
            self._progress.emit(FileProblem(path, kind, _LIVE))
        for paths, message in ((change.pruned, _PRUNED), (change.let_go, _LET_GO)):
            kind = ProblemKind.PRUNED if of_folders else ProblemKind.MISSING
            for path in paths:
                self._progress.emit(FileProblem(path, kind, message))
        for path in change.damaged:
            self._progress.emit(FileProblem(path, ProblemKind.CORRUPT, _DAMAGED))
        for path, log_file, archive in change.repacked_logs:
            message = f"archive {archive} has the records of the log file {shown_path(log_file)!r} now"
            self._progress.emit(FileProblem(path, ProblemKind.TAKEN, message))

    def _is_removed_folder(self, path: str) -> bool:
        """Return True if a file below this path was removed, and can be brought back."""
        scope = PathScope(folder_of(path), None)
        with contextlib.suppress(CatalogUnavailable):  # the undelete is committed; the message is only less exact
            return bool(scope.folder) and bool(self._catalog.removal.removed(*scope.range(), limit=1).files)
        return False

    def _write_pending(self) -> None:
        """Write the journal records that stores still lack, before an undelete writes its own record.

        A failure does not stop the undelete, because the sequence numbers of the records show their order.
        """
        for url in self._catalog.removal.stores_behind():
            with contextlib.suppress(CafcatError):
                write_journal(self._catalog.journal, self._stores.open(url))

    def write_records(self, stores: Iterable[str]) -> tuple[str, ...]:
        """Write the journal record of a change into the stores that need it.

        The change is committed already, so each failure is only a warning.

        Returns:
            The URLs of the stores into which the record could not be written.
        """
        behind = []
        for url in stores:
            try:
                write_journal(self._catalog.journal, self._stores.open(url))
            except CafcatError as error:
                behind.append(url)
                # The hint of a server that fails is to run the command again, which has succeeded.
                why = error.message if isinstance(error, StoreFailed) else error
                self._progress.warn(
                    f"the journal record could not be written to {url}: {why}; run `cafcat recover` later"
                )
        return tuple(behind)


def _below(typed: str) -> PathScope:
    """Return the files that a folder's name means, as the user typed it.

    "./a", "/a" and "a" are all files below "a/", and the file "a". "a/" is only the files below it. "." is the
    whole catalog.

    Raises:
        InvalidInput: The name is empty, as if a variable of the shell was not set; is "/", which can be a folder of
            an adopted archive; or is no path.
    """
    check_text(typed)
    if not typed:
        raise InvalidInput("the name of the folder is empty", hint="write . for the whole catalog")
    if not is_text(typed):
        raise InvalidInput(f"a path cannot have this name: {_printable(typed)} has a NUL or is not UTF-8")
    below = PathScope(folder_of(typed), file_of(typed))
    if not below.folder and not typed.startswith("."):
        raise InvalidInput(f"{typed} is not a folder of the catalog", hint="write . for the whole catalog")
    return below


def _outermost(folders: Sequence[str]) -> list[PathScope]:
    """Return the folders without those that are inside others, or named twice."""
    outermost: list[PathScope] = []
    for below in sorted(map(_below, folders), key=lambda below: (below.folder, below.file is None)):
        if not outermost or not below.folder.startswith(outermost[-1].folder):
            outermost.append(below)
    return outermost


def _printable(path: str) -> str:
    return path.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
