"""Opening of the sources that the user named."""

from cafcat.operations.chosen_stores import default_store
from cafcat.scanning.opening import Opening, SourceOptions
from cafcat.session import Session

__all__ = ["opening"]


def opening(session: Session, options: SourceOptions) -> Opening:
    """Return an opener of sources that skips cafcat's own folders: its home, and the store of the settings."""
    home, store = session.settings.home, default_store(session)
    return Opening(
        options,
        session.catalog.listings,
        session.settings.access,
        session.warn,
        own_folders=[str(home / "postgres"), str(home / "chunks"), getattr(store, "folder", "")],
        own_urls=[store.url],
    )
