"""Settling what writers left behind that died."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cafcat.catalog.chunks.owners import owner_name
from cafcat.custody.base import Keeper, ignore, never
from cafcat.errors import CafcatError
from cafcat.progress import Progress

if TYPE_CHECKING:
    from cafcat.operations.recover.left_copies import RecoveredCopy
    from cafcat.operations.recover.run import Recover, RecoveredChunk, RecoverReport

__all__ = ["Recovering"]


class Recovering(Keeper):
    """recover, and what all that write chunks do before."""

    def recover(
        self,
        *,
        store: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_settled: "Callable[[RecoveredChunk | RecoveredCopy], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RecoverReport":
        """Settles what writers left behind that died: chunks whose object is whole are adopted, of all others
        nothing is left. Chunks that are being written are left alone.

        store: a URL or folder, only its chunks; otherwise those of all stores that the catalog names. dry_run:
        looks, changes nothing. on_settled is told of each chunk. When should_stop says True, which is asked between
        chunks, it ends; when it raises, the chunk at hand stays as it is.

        What a store refuses costs only its chunks and is reported. Raises CatalogUnavailable, CatalogOutdated,
        InvalidInput for a store that is none, NotFound for one without a chunk in the catalog.
        """
        progress = progress or Progress()
        only = self._store_with_chunks(store)
        stores = [url for url in self._catalog.recovery.stores() if only in (None, url)]
        recover = self._recovery(progress, on_settled, should_stop, dry_run=dry_run)
        progress.begin("recover")
        try:
            recover.take(stores)
        finally:
            progress.end()
        return recover.report

    def settle(self, store: str, progress: Progress, should_stop: Callable[[], bool]) -> None:
        """What an ingest does before it begins: what the catalog knows that dead writers left in a store is
        adopted or removed. That it cannot be is a warning: the ingest itself does not depend on it."""
        recover = self._recovery(progress, None, should_stop, dry_run=False)
        try:
            recover.settle(store)
        except CafcatError as error:
            progress.warn(f"what an earlier run left could not be settled: {error}")
            return
        report = recover.report
        for failed in report.failed:
            progress.warn(f"what an earlier run left could not be settled: {failed}")
        if report.adopted or report.abandoned:
            progress.warn(
                f"settled what an earlier run left: {report.adopted} chunks adopted "
                f"({report.files_adopted} files), {report.abandoned} abandoned"
            )

    def _recovery(
        self,
        progress: Progress,
        on_settled: "Callable[[RecoveredChunk | RecoveredCopy], object] | None",
        should_stop: Callable[[], bool] | None,
        *,
        dry_run: bool,
    ) -> "Recover":
        from cafcat.operations.recover.run import Recover

        return Recover(
            self._catalog,
            self._store_of,
            owner=owner_name("recover"),
            dry_run=dry_run,
            progress=progress,
            on_settled=on_settled or ignore,
            should_stop=should_stop or never,
        )
