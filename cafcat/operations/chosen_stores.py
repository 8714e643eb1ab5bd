"""Finds the store that the user named, and checks that it is usable for new objects."""

import os
from pathlib import Path

from cafcat.errors import InvalidInput, NotFound
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.session import Session
from cafcat.settings.stores import chosen_url, possible_name
from cafcat.settings.values import GivenValue
from cafcat.stores.base import FolderStore, Store
from cafcat.stores.presence import elsewhere
from cafcat.stores.registry import shown_schemes

__all__ = [
    "check_folder",
    "check_new_store",
    "check_parent",
    "chosen_store",
    "default_store",
    "existing_store",
    "named_store",
    "store_for_new_objects",
    "store_to_write",
    "url_of_store_with_chunks",
]


def default_store(session: Session) -> Store:
    """Return the store of the settings, which operations use if the user names no other store."""
    settings = session.settings
    return _store_in_catalog(session, settings.store_name) or session.stores[settings.store]


def named_store(session: Session, given: str) -> Store:
    """Return the store that the user means by a name, a URL or a folder. The store need not exist.

    Args:
        session: The session.
        given: A name in the configuration or in the catalog, a URL, or a folder. A word that names no store is
            the path of a folder.

    Raises:
        InvalidInput: The text is not a valid URL or path, or the URL cannot be opened.
        Unsupported: No kind of store has the scheme of the URL.
    """
    stores = session.settings.stores
    found = _store_in_catalog(session, possible_name(given, stores))
    url = chosen_url(GivenValue(given, "argument", Path.cwd()), "store", stores)
    return found or session.stores[url]


def chosen_store(session: Session, given: str | None) -> Store:
    """Return the store that the user named (see `named_store`), or the store of the settings if `given` is None.

    Raises:
        InvalidInput, Unsupported: As `named_store` raises them.
    """
    return default_store(session) if given is None else named_store(session, given)


def existing_store(session: Session, given: str) -> Store:
    """Return the store that the user named (see `named_store`), for a catalog that may have lost its names.

    Raises:
        Unavailable: The catalog has the store, and the folder of the store does not exist.
        NotFound: The given folder does not exist.
        InvalidInput: The given folder is a file; or as `named_store` raises it.
        Unsupported: As `named_store` raises it.
    """
    store = named_store(session, given)
    check_folder(session, store)
    if isinstance(store, FolderStore) and not os.path.isdir(store.folder):
        _refuse_file(store)
        is_word = possible_name(given, session.settings.stores) is not None
        hint = "names of stores are lost with their catalog: give the path or the URL" if is_word else None
        raise NotFound(f"no store and no folder is called {given}", hint=hint)
    return store


def check_folder(session: Session, store: Store) -> None:
    """Raise Unavailable if the catalog has a store whose folder does not exist."""
    is_missing = isinstance(store, FolderStore) and not os.path.isdir(store.folder)
    if is_missing and session.catalog.stores.has(store.url):
        raise elsewhere(store.url, "its folder does not exist")


def store_for_new_objects(session: Session, given: str | None = None) -> Store:
    """Return the store that new objects go to.

    Args:
        session: The session.
        given: The store: a name, a URL or a folder; None for the store of the settings.

    Raises:
        InvalidInput: The text is a bare word, and neither a store nor a folder has this name; or it is the path of
            a folder in a folder that does not exist: a typing error, or a disk that is not mounted, must not create
            a new store. Or the text is the path of a file, or not a valid URL or path.
        Unsupported: No kind of store has the scheme of the URL.
    """
    settings = session.settings
    word = settings.store_name if given is None else possible_name(given, settings.stores)
    store = chosen_store(session, given)
    if not session.catalog.stores.has(store.url):
        # The default store is in the home, which cafcat makes.
        is_default = given is None and settings.origins["store"] == "default"
        check_new_store(store, word, needs_parent=not is_default)
    return store


def check_new_store(store: Store, word: str | None, *, needs_parent: bool = True) -> None:
    """Raise InvalidInput if a store is a file, or a folder that does not exist and may be a typing error.

    Args:
        store: The store.
        word: The bare word that the user typed, if the catalog has no store of this name; else None.
        needs_parent: True if the folder that the store is in must exist.
    """
    if not isinstance(store, FolderStore) or os.path.isdir(store.folder):
        return
    _refuse_file(store)
    if word is not None:
        hint = f"run `cafcat store add {word} URL` to name a store, or write ./{word} for a new folder"
        raise InvalidInput(f"no store and no folder is called {word}", hint=hint)
    if ":" in os.path.basename(store.folder):
        hint = f"kinds of stores are {shown_schemes()}; to use a folder of this name, make it with mkdir"
        raise InvalidInput(f"no store is called {os.path.basename(store.folder)}", hint=hint)
    if needs_parent:
        check_parent(store)


def check_parent(store: Store) -> None:
    """Raise InvalidInput if a new store is a file, or a folder in a folder that does not exist.

    A typing error, or a disk that is not mounted, must not create a new store.
    """
    if not isinstance(store, FolderStore):
        return
    _refuse_file(store)
    parent = os.path.dirname(store.folder)
    if not os.path.isdir(store.folder) and not os.path.isdir(parent):
        hint = "mount its disk, correct the name (a bucket is s3://BUCKET/PREFIX), or make the folder with mkdir -p"
        raise InvalidInput(f"there is no folder {parent} for the new store {store.folder}", hint=hint)


def _refuse_file(store: FolderStore) -> None:
    """Raise InvalidInput if the folder of a store is a file."""
    if os.path.exists(store.folder) and not os.path.isdir(store.folder):
        hint = "name a folder, or a URL such as s3://BUCKET/PREFIX"
        raise InvalidInput(f"{store.folder} is a file, and a store needs a folder", hint=hint)


def store_to_write(session: Session, given: str | None = None) -> Store:
    """Return the store that new objects go to, after checks. Operations call `join_store` before they write there.

    Args:
        session: The session.
        given: The store: a name, a URL or a folder; None for the store of the settings.

    Raises:
        Unavailable: The store is not at its URL any more: its disk is not mounted, or the store was moved.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
        InvalidInput, Unsupported: As `store_for_new_objects` raises them.
    """
    return ReachableStores(session).check_to_write(store_for_new_objects(session, given).url)


def url_of_store_with_chunks(session: Session, given: str | None) -> str | None:
    """Return the URL of the store that the user named; None if `given` is None.

    Raises:
        NotFound: The catalog has no row of a chunk, copy or backup in this store. Without this error, a typing
            error in the name would look like success.
        InvalidInput, Unsupported: As `named_store` raises them.
    """
    if given is None:
        return None
    store = named_store(session, given)
    if not session.catalog.recovery.has_store(store.url):
        hint = "`cafcat store ls` lists the stores"
        is_folder = isinstance(store, FolderStore) and os.path.basename(store.folder) == given
        if is_folder and not os.path.lexists(given):
            raise NotFound(f"no store and no folder is called {given}", hint=hint)
        raise NotFound(f"the catalog has no chunk in the store {store.url}", hint=hint)
    return store.url


def _store_in_catalog(session: Session, name: str | None) -> Store | None:
    url = None if name is None else session.catalog.stores.url_of(name)
    return None if url is None else session.stores[url]
