"""Files that go, come back, and are gone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from cafcat.custody.base import Keeper, ignore, never
from cafcat.errors import InvalidInput
from cafcat.model import DEFAULT_GRACE_SECONDS
from cafcat.progress import Progress

if TYPE_CHECKING:
    from cafcat.model import RetiredLocation
    from cafcat.operations.prune.run import PrunedChunk, PruneReport
    from cafcat.operations.remove.run import RemoveReport, Removing, UndeleteReport

__all__ = ["Files", "names_of"]

_Names = TypeVar("_Names", bound=Iterable[str])


class Files(Keeper):
    """remove, undelete, prune."""

    def remove(
        self,
        paths: Iterable[str] = (),
        *,
        folders: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
        should_stop: Callable[[], object] | None = None,
    ) -> "RemoveReport":
        """Removes files from the catalog, all in one transaction: these paths, any number of them, and everything
        below these folders (a folder's name also means the file of that name; "." is everything). Their bytes stay
        where they are: undelete brings the files back, until prune removes a chunk that has no other files.

        dry_run: looks, changes nothing. Names that the catalog does not have are told to `progress` as problems and
        counted. should_stop may raise, up to the moment of the commit: then nothing has happened.

        Every store with chunks is told, so that a rebuild knows; one that cannot be told now is a warning, and
        recover tells it later. Raises InvalidInput, CatalogUnavailable (if it could not be done or nobody can
        tell), CatalogOutdated.
        """
        progress = progress or Progress()
        try:
            return self._removing(progress, should_stop).remove(names_of(paths), names_of(folders), dry_run=dry_run)
        finally:
            progress.end()

    def undelete(
        self,
        paths: Iterable[str] = (),
        *,
        folders: Sequence[str] = (),
        progress: Progress | None = None,
        should_stop: Callable[[], object] | None = None,
    ) -> "UndeleteReport":
        """Brings removed files back, as they were when they were removed last: these paths, and all that was
        removed below these folders; all in one transaction. A path that has a file again is left alone, and what
        was pruned is gone; an archive of logs does not come back when another one has its log files. All are
        problems, told to `progress` and counted. The rest as of remove."""
        progress = progress or Progress()
        try:
            return self._removing(progress, should_stop).undelete(names_of(paths), names_of(folders))
        finally:
            progress.end()

    def removed(self, prefix: str = "") -> "Iterator[RetiredLocation]":
        """The files below a folder (or of that name) that undelete can bring back, in path order."""
        return self._removing(Progress(), None).removed(prefix)

    def prune(
        self,
        *,
        grace_seconds: int = DEFAULT_GRACE_SECONDS,
        store: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_pruned: "Callable[[PrunedChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "PruneReport":
        """Removes chunks, and all their copies, that no path points to since more than grace_seconds. What was
        removed of them cannot be undeleted any more. What an earlier prune did not come to is finished.

        store: a URL or folder, only its chunks. dry_run: looks, changes nothing. on_pruned is told of each chunk.
        When should_stop says True, which is asked between chunks, it ends.

        What a store refuses, or one that is not there, costs only its chunks and is reported. Raises
        CatalogUnavailable, CatalogOutdated, InvalidInput for a store that is none, NotFound for one without a
        chunk.
        """
        from cafcat.operations.known_stores import KnownStores
        from cafcat.operations.prune.run import Prune

        progress = progress or Progress()
        only = self._store_with_chunks(store)
        prune = Prune(
            self._catalog,
            KnownStores(self._catalog, self._store_of),
            grace_seconds=grace_seconds,
            dry_run=dry_run,
            progress=progress,
            on_pruned=on_pruned or ignore,
            should_stop=should_stop or never,
        )
        progress.begin("prune")
        try:
            return prune.take(only)
        finally:
            progress.end()

    def _removing(self, progress: Progress, should_stop: Callable[[], object] | None) -> "Removing":
        from cafcat.operations.known_stores import KnownStores
        from cafcat.operations.remove.run import Removing

        return Removing(self._catalog, KnownStores(self._catalog, self._store_of), progress, should_stop or never)


def names_of(names: _Names) -> _Names:
    if isinstance(names, str | bytes):
        raise InvalidInput("names are a list", hint=f"write [{names!r}]")
    return names
