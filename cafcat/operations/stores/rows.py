"""Stores of the catalog: list, add, rename and remove them."""

from collections.abc import Sequence

from cafcat.catalog.stores.stores import StoreRow
from cafcat.errors import Conflict, InvalidInput, NotFound
from cafcat.operations.chosen_stores import check_parent, default_store, named_store
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.session import Session
from cafcat.settings.stores import is_store_name
from cafcat.stores.marker import read_markers

__all__ = ["add_store", "configured_as", "configured_name", "remove_store", "rename_store", "store_row", "stores"]


def stores(session: Session) -> Sequence[StoreRow]:
    """Return all stores of the catalog, in the order of their first use."""
    return session.catalog.stores.rows()


def store_row(session: Session, given: str) -> StoreRow:
    """Return a store of the catalog.

    Args:
        session: The session.
        given: Its name in the configuration, its name or URL in the catalog, or its folder.

    Raises:
        NotFound: The catalog has no such store.
    """
    rows = session.catalog.stores
    configured = session.settings.stores.get(given)
    row = rows.find(session.stores[configured.url].url) if configured is not None else None
    row = row or rows.find(given)
    row = row or rows.find(named_store(session, given).url)
    if row is None:
        raise NotFound(f"the catalog has no store {given}", hint="`cafcat store ls` shows its stores")
    return row


def add_store(session: Session, name: str, url: str) -> StoreRow:
    """Give a store a name in the catalog. The catalog gets a row for the store, if it has none.

    Args:
        session: The session.
        name: The name.
        url: A URL, a folder, or a name in the configuration.

    Raises:
        InvalidInput: The name is not valid for a store, or the URL or path is not valid, or the path is that of a
            file, or of a folder in a folder that does not exist.
        Unsupported: No kind of store has the scheme of the URL.
        Conflict: Another store has the name, or the store has another name.
        NotFound: There is no such bucket.
        Unavailable, StoreFailed, AccessDenied: The store does not answer, refuses the request, or is not at its
            URL any more, for example because its disk is not mounted.
    """
    _check_name(name)
    store = named_store(session, url)
    row = session.catalog.stores.find(store.url)
    if row is not None and row.name not in (None, name):
        hint = f"`cafcat store rename {row.name} {name}` gives it another name"
        raise Conflict(f"the store {store.url} has the name {row.name}", hint=hint)
    if row is None:
        check_parent(store)
        read_markers(store)  # a name with a typing error must not stay in the catalog
    ReachableStores(session).check_place(store.url)
    session.catalog.stores.add(store.url, name)
    return store_row(session, store.url)


def rename_store(session: Session, store: str, name: str) -> StoreRow:
    """Give a store of the catalog another name.

    Args:
        session: The session.
        store: A store of the catalog: a name, a URL or a folder.
        name: The new name.

    Raises:
        NotFound: The catalog has no such store.
        InvalidInput: The name is not valid for a store.
        Conflict: Another store has the name.
    """
    _check_name(name)
    row = store_row(session, store)
    session.catalog.stores.rename(row.url, name)
    return store_row(session, row.url)


def remove_store(session: Session, store: str) -> StoreRow:
    """Remove a store from the catalog, and return its last row. Its objects stay.

    If the history of deleted objects refers to the store, its row stays, and loses its name.

    Raises:
        NotFound: The catalog has no such store.
        Conflict: The catalog refers to objects in the store, or journal records still have to be written there. Or
            the row has to stay, and has no name.
    """
    row = store_row(session, store)
    session.catalog.stores.remove(row.url)
    return row


def configured_as(session: Session, url: str) -> str | None:
    """Return the setting that has this URL: `stores.NAME`, or `store` for the store of new chunks; else None."""
    named = session.settings.stores.items()
    names = [name for name, store in named if session.stores[store.url].url == url]
    if names:
        return f"stores.{names[0]}"
    return "store" if default_store(session).url == url else None


def configured_name(session: Session, store: str) -> str | None:
    """Return the name of a store of the catalog, if the setting "store" selects this store by its name; else None.

    Args:
        session: The session.
        store: A store of the catalog: its name, URL or folder.

    Raises:
        NotFound: The catalog does not have this store.
    """
    name = store_row(session, store).name
    return name if name is not None and name == session.settings.store_name else None


def _check_name(name: str) -> None:
    if not is_store_name(name):
        hint = "use letters, digits, '_', '-' and '.', so that the name cannot be confused with a folder or URL"
        raise InvalidInput(f"not a valid name for a store: {name!r}", hint=hint)
