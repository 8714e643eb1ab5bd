"""The stores of the catalog: named, moved, migrated, forgotten."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cafcat.catalog.chunks.owners import owner_name
from cafcat.custody.base import ignore, never
from cafcat.custody.recovering import Recovering
from cafcat.errors import InvalidInput, NotFound
from cafcat.progress import Progress
from cafcat.settings.stores import is_store_name

if TYPE_CHECKING:
    from cafcat.catalog.stores.stores import StoreRow
    from cafcat.operations.copy.run import CopiedChunk
    from cafcat.operations.stores.migrate import MigrateReport
    from cafcat.operations.stores.move import StoreMoveReport

__all__ = ["StoreKeeping"]


class StoreKeeping(Recovering):
    """stores, add_store, rename_store, remove_store, move_store, migrate_store."""

    def stores(self) -> "Sequence[StoreRow]":
        """Return every store that the catalog has, in the order in which it first used them."""
        return self._catalog.stores.rows()

    def add_store(self, name: str, url: str) -> "StoreRow":
        """Give a store a name in the catalog: a URL, a folder, or a name in the configuration. Raises InvalidInput
        for a bad name, Conflict if another store has the name, Unavailable for a store that is elsewhere."""
        from cafcat.operations.known_stores import KnownStores

        _check_name(name)
        store = KnownStores(self._catalog, self._store_of).check_place(self._given_store(url).url)
        self._catalog.stores.add(store.url, name)
        return self._row(store.url)

    def rename_store(self, store: str, name: str) -> "StoreRow":
        """Give a store of the catalog another name. Raises NotFound, InvalidInput, Conflict."""
        _check_name(name)
        row = self._row(store)
        self._catalog.stores.rename(row.url, name)
        return self._row(row.url)

    def remove_store(self, store: str) -> "StoreRow":
        """Forget a store that nothing in the catalog refers to; its objects are not touched. Returns its
        last row. Raises NotFound, Conflict if anything refers to it."""
        row = self._row(store)
        self._catalog.stores.remove(row.url)
        return row

    def move_store(
        self,
        old: str,
        new: str,
        *,
        look_at_all: bool = False,
        dry_run: bool = False,
        should_stop: Callable[[], object] | None = None,
    ) -> "StoreMoveReport":
        """Enter the new place of a store into the catalog: a URL, a folder, or a name. Before that, this looks for
        a hundred random objects at the new place, or for all of them.

        Raises:
            StoreFailed: objects are missing at the new place, or have other sizes. Nothing was changed.
            Locked: something is being written to the store.
            Conflict: the catalog has objects at the new place already.
            NotFound: the catalog has no such store.
        """
        from cafcat.operations.stores.move import StoreMove

        row, target = self._row(old), self._given_store(new)
        move = StoreMove(self._catalog, should_stop or never)
        return move.run(row.url, target, look_at_all=look_at_all, dry_run=dry_run)

    def migrate_store(
        self,
        old: str,
        new: str,
        *,
        join_store: bool = False,
        progress: Progress | None = None,
        on_switched: "Callable[[CopiedChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "MigrateReport":
        """Bring all chunks, copies and backups of a store to another store. Each is copied, read back and
        compared with its checksum; then the catalog points to the new place. `prune` removes the old objects after
        its grace period. Adopted archives stay where they are. A migration that was interrupted goes on when it is
        asked for again. join_store: as for `ingest`.

        What is wrong with one object costs only that, and is reported. When should_stop returns True, which is
        asked between objects, it ends; when it raises, nothing is left of the copy at hand.

        Raises:
            NotFound: the catalog has no such store.
            InvalidInput: both are the same store, or one place under two names, or `new` is a bare word that names
                nothing.
            Conflict: the other store has chunks of another catalog, and join_store is false.
            Unavailable, StoreFailed, AccessDenied: one of the stores cannot be used.
        """
        from cafcat.operations.known_stores import KnownStores
        from cafcat.operations.stores.migrate import Migrate
        from cafcat.stores.distinct import DistinctStores

        progress, should_stop = progress or Progress(), should_stop or never
        row, target = self._row(old), self._store_for_new(new)
        if row.url == target.url:
            raise InvalidInput(f"both are the store {row.url}", hint="name another store to migrate to")
        known = KnownStores(self._catalog, self._store_of)
        source = known.open(row.url)
        known.check_place(target.url)
        DistinctStores().check(target, source)
        self.join(target, join_store=join_store, dry_run=True)  # a store that is refused gets no row
        self._catalog.stores.register(target.url)
        self.join(target, join_store=join_store)
        for store in (source, target):
            self.settle(store.url, progress, should_stop)
        migrate = Migrate(
            self._catalog,
            self._store_of,
            source,
            target,
            owner=owner_name("migrate"),
            progress=progress,
            on_switched=on_switched or ignore,
            should_stop=should_stop,
        )
        try:
            return migrate.run()
        finally:
            progress.end()

    def configured_as(self, url: str) -> str | None:
        """Return the name of the store in the configuration that still means this URL, "store" if the default does;
        None if nothing does."""
        names = [name for name, store in self._settings.stores.items() if self._store_of(store.url).url == url]
        if names:
            return f"stores.{names[0]}"
        return "store" if self._default_store().url == url else None

    def configured_name(self, store: str) -> str | None:
        """Return the name of a store of the catalog if the settings have this name for it. Raises NotFound."""
        name = self._row(store).name
        return name if name is not None and name == self._settings.store_name else None

    def _row(self, given: str) -> "StoreRow":
        """A store of the catalog: by its name in the configuration, its URL or name in the catalog, or its
        folder."""
        stores = self._catalog.stores
        configured = self._settings.stores.get(given)
        row = stores.find(self._store_of(configured.url).url) if configured is not None else None
        row = row or stores.find(given)
        row = row or stores.find(self._given_store(given).url)
        if row is None:
            raise NotFound(f"the catalog has no store {given}", hint="`cafcat store ls` shows its stores")
        return row


def _check_name(name: str) -> None:
    if not is_store_name(name):
        hint = "a name has letters, digits, '_', '-' and '.', so that it is never taken for a folder or URL"
        raise InvalidInput(f"not a name for a store: {name!r}", hint=hint)
