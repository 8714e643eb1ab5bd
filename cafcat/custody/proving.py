"""Every byte proved."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cafcat.custody.base import Keeper, ignore, never
from cafcat.model import VerifyLevel
from cafcat.progress import Progress
from cafcat.wiring import Rooms

if TYPE_CHECKING:
    from cafcat.operations.verify.run import CheckedObject, VerifyReport

__all__ = ["Proving"]


class Proving(Keeper):
    """verify."""

    def verify(
        self,
        sources: Sequence[str | os.PathLike[str]] = (),
        *,
        level: VerifyLevel | str = VerifyLevel.INDEX,
        chunks: Sequence[str] = (),
        prefix: str = "",
        store: str | None = None,
        older_than: int | None = None,
        sample: float | None = None,
        follow_symlinks: bool = False,
        unpack_tars: bool = True,
        restart: bool = False,
        jobs: int | None = None,
        progress: Progress | None = None,
        on_checked: "Callable[[CheckedObject], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "VerifyReport":
        """Checks what was packed, and keeps what it finds in the catalog (`verify_runs`, `verifications`,
        `findings`). Chunks, live or retired, and their copies.

        At level index and data, chunks: uuids, or their beginnings; prefix: only chunks that have, or had, a file
        below this folder of the catalog, or of that name; store: a URL or folder, only what is there; older_than:
        only what was not found whole in these last seconds, at that level or a higher one; sample: only this
        fraction of them, above 0 and up to 1. jobs: how many at once; None: one for each processor, if it is worth
        it. At level source: sources, prefix, follow_symlinks and unpack_tars as they were given to `ingest`.

        A verify that did not come to its end goes on when it is asked for again in the same way, unless restart.
        on_checked is told of each object when its result is in the catalog. When should_stop says True, which is
        asked between objects, it ends; when it raises, what is at hand is checked anew the next time.

        Damage is not an error: the report has it. Raises InvalidInput, NotFound for a chunk, folder, store or
        source that is not there, CatalogUnavailable, CatalogOutdated; Unavailable if one of its processes died.
        """
        from cafcat.operations.verify.run import Verify, VerifyOptions

        options = VerifyOptions(
            level=VerifyLevel(level),
            sources=[os.fspath(source) for source in sources],
            chunks=chunks,
            prefix=prefix,
            store=self._store_with_chunks(store),
            older_than_seconds=older_than,
            sample=sample,
            follow_symlinks=follow_symlinks,
            unpack_tars=unpack_tars,
            restart=restart,
            jobs=jobs,
        )
        progress = progress or Progress()
        verify = Verify(
            self._catalog,
            self._store_of,
            rooms=Rooms(self._settings),
            opening=lambda options: self._opening(options, progress),
            progress=progress,
            on_checked=on_checked or ignore,
            should_stop=should_stop or never,
        )
        try:
            return verify.run(options)
        finally:
            progress.end()
