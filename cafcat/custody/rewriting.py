"""Chunks written anew, or again: their files in better order, from right bytes, in a further store."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cafcat.catalog.chunks.owners import owner_name
from cafcat.custody.base import ignore, never
from cafcat.custody.files import names_of
from cafcat.custody.recovering import Recovering
from cafcat.errors import InvalidInput
from cafcat.model import DEFAULT_MAX_UNUSED
from cafcat.progress import Progress

if TYPE_CHECKING:
    from cafcat.catalog.chunks.rewriting import RewritableChunk
    from cafcat.operations.copy.run import CopiedChunk, CopyReport
    from cafcat.operations.repack.run import RepackReport
    from cafcat.operations.repair.run import RepairReport
    from cafcat.writing.limits import Limits

__all__ = ["Rewriting"]


class Rewriting(Recovering):
    """repack, repair, copy. What dead writers left is settled before."""

    def repack(
        self,
        *,
        chunks: Sequence[str] = (),
        max_unused: float = DEFAULT_MAX_UNUSED,
        small: int | None = None,
        max_repack_size: int | None = None,
        store: str | None = None,
        format: str | None = None,
        target_size: int | None = None,
        dry_run: bool = False,
        join_store: bool = False,
        progress: Progress | None = None,
        on_chosen: "Callable[[RewritableChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RepackReport":
        """Copies the live files of chunks with much dead space into new chunks of the same store; the old ones
        retire, and prune removes them.

        chunks: uuids, or their beginnings; otherwise those in which a larger share than max_unused (0 to 1) of the
        data is dead, the largest share first, and those of less than `small` bytes. max_repack_size: so many live
        bytes are copied at most. store: a URL or folder, only its chunks. format: of the new chunks, and chunks of
        another format are chosen, too; otherwise each keeps its own. target_size: bytes of a new chunk.
        join_store: as for `ingest`. dry_run: changes nothing. on_chosen is told of each chunk before. When
        should_stop returns True, which is asked between files and blocks, the packed files are committed; when it
        raises, the open chunk is given up.

        A file that is damaged stays where it is and is told to `progress`; it is for repair. Raises NotFound,
        InvalidInput, Unsupported for a format that is never written, NotInstalled, StoreFailed, CatalogUnavailable,
        CatalogOutdated: chunks committed before stay.
        """
        from cafcat.formats import registry as formats
        from cafcat.operations.repack.run import Repack, RepackOptions

        if format is not None:
            formats.to_write(formats.asked_for(format))
        progress, should_stop = progress or Progress(), should_stop or never
        only = self._store_with_chunks(store)
        limits = self._limits(target_size)
        repack = Repack(
            self._catalog,
            self._store_of,
            limits,
            store=self._default_store().url,
            join=partial(self.join, join_store=join_store),
            progress=progress,
            should_stop=should_stop,
        )
        if not dry_run:
            for url in self._catalog.recovery.stores() if only is None else [only]:
                self.settle(url, progress, should_stop)
        plan = repack.plan(RepackOptions(chunks, max_unused, small, max_repack_size, only, format))
        if any(chunk.is_adopted for chunk in plan.chunks):
            self.store_to_write(dry_run=dry_run)
        for chunk in plan.chunks:
            (on_chosen or ignore)(chunk)
        try:
            return repack.take(plan, dry_run=dry_run)
        finally:
            progress.end()

    def repair(
        self,
        *,
        sources: Sequence[str | os.PathLike[str]] = (),
        from_copies: bool = False,
        chunks: Sequence[str] = (),
        prefix: str = "",
        follow_symlinks: bool = False,
        unpack_tars: bool = True,
        target_size: int | None = None,
        dry_run: bool = False,
        join_store: bool = False,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RepairReport":
        """Takes the live files of damaged chunks from wherever their right bytes still are, and packs them into new
        chunks of the repository's store: from the chunk itself; else, with from_copies, from its copies; else from
        the sources, with prefix, follow_symlinks and unpack_tars as they were given to `ingest`. Nothing is taken
        that has not the checksum in the catalog.

        chunks: uuids, or their beginnings; otherwise those that verify found to be damaged. dry_run: reads all,
        changes nothing. target_size, join_store, should_stop: as of repack.

        A file that nobody can give stays where it is and is told to `progress`. Raises NotFound, InvalidInput,
        StoreFailed, CatalogUnavailable, CatalogOutdated: chunks committed before stay.
        """
        from cafcat.operations.repair.run import Repair
        from cafcat.operations.rewriting import Rewriter, chunk_target
        from cafcat.scanning.opening import SourceOptions

        if not sources and not from_copies:
            raise InvalidInput(
                "a repair needs to know where right bytes may be", hint="name sources, or ask copies"
            )
        progress, should_stop = progress or Progress(), should_stop or never
        store = self._default_store()
        limits = self._limits(target_size)
        options = SourceOptions(
            prefix=prefix, follow_symlinks=follow_symlinks, unpack_tars=unpack_tars, restart_listing=True
        )
        opened = self._opening(options, progress).open(sources)
        if not dry_run:
            self.store_to_write()
            self.settle(store.url, progress, should_stop)
        self.join(store, join_store=join_store, dry_run=dry_run)
        place = chunk_target(self._catalog, store, "repair")
        repair = Repair(
            self._catalog,
            self._store_of,
            Rewriter(place, limits, progress=progress, should_stop=should_stop),
            from_copies=from_copies,
            sources=opened,
            sources_again="-" not in sources,
            dry_run=dry_run,
            progress=progress,
        )
        try:
            repair.take(repair.damaged(chunks))
        finally:
            progress.end()
        return repair.report

    def copy(
        self,
        chunks: Sequence[str] = (),
        *,
        to: str,
        prefix: str | None = None,
        join_store: bool = False,
        progress: Progress | None = None,
        on_taken: "Callable[[CopiedChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "CopyReport":
        """Copies chunks bit by bit into another store: a URL, folder or name. Reads go there by themselves when a
        chunk's own object fails, and repair takes right bytes from there. With each goes what the journal says, so
        that a rebuild from the copies alone works. What is there already is left alone.

        chunks: uuids, or their beginnings; otherwise all that are committed, or those with files below `prefix`, a
        folder of the catalog (or of that name). join_store: as for `ingest`.

        on_taken is told of each chunk. When should_stop returns True, which is asked between chunks, the copy ends;
        when it raises, nothing is left of the copy of a chunk that was under way.

        A chunk that is damaged, or cannot be read, costs only itself and is reported. Raises NotFound,
        InvalidInput, StoreFailed and AccessDenied if `to` does not take the copy, CatalogUnavailable,
        CatalogOutdated: what was copied before stays.
        """
        from cafcat.operations.copy.run import CopyChunks, selection_of
        from cafcat.operations.known_stores import KnownStores

        progress, should_stop = progress or Progress(), should_stop or never
        target = KnownStores(self._catalog, self._store_of).open(self._store_for_new(to).url)
        selection = selection_of(self._catalog, names_of(chunks), prefix, target)
        self._catalog.stores.register(target.url)
        self.settle(target.url, progress, should_stop)
        self.join(target, join_store=join_store)
        copy = CopyChunks(
            self._catalog,
            self._store_of,
            target,
            owner=owner_name("copy"),
            progress=progress,
            on_taken=on_taken or ignore,
            should_stop=should_stop,
        )
        try:
            copy.take(selection)
        finally:
            progress.end()
        return copy.report

    def _limits(self, target_size: int | None) -> "Limits":
        from cafcat.writing.limits import Limits

        limits = Limits(self._settings.target_size if target_size is None else target_size)
        limits.check()
        return limits
