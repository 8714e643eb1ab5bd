"""Opens the sources that the user named."""

from cafcat.operations.chosen_stores import default_store
from cafcat.scanning.opening import SourceOpener, SourceOptions
from cafcat.session import Session
from cafcat.stores.base import FolderStore

__all__ = ["source_opener"]


def source_opener(session: Session, options: SourceOptions) -> SourceOpener:
    """Return an opener of sources that skips cafcat's own files.

    These are the folders `postgres` and `chunks` in its home, and the store of the settings. Files of other stores
    are not skipped.
    """
    home, store = session.settings.home, default_store(session)
    own_folders = [str(home / "postgres"), str(home / "chunks")]
    if isinstance(store, FolderStore):
        own_folders.append(store.folder)
    return SourceOpener(
        options,
        session.catalog,
        session.settings.options_of,
        session.progress,
        own_folders=own_folders,
        own_urls=[store.url],
    )
