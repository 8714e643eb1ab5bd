"""Opens the sources that the user named."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cafcat.operations.chosen_stores import default_store
from cafcat.scanning.opening import SourceOpener, SourceOptions
from cafcat.session import Session
from cafcat.stores.base import FolderStore

__all__ = ["source_opener"]

_OWN_NAMES: Final = (
    "postgres",
    "postgres.listen",
    "postgres.lock",
    "postgres.log",
    "postgres.running",
    "chunks",
    "cafcat.toml",
    "seal.key",
)
"""Names of cafcat's own files and folders in its home."""


def source_opener(session: Session, options: SourceOptions) -> SourceOpener:
    """Return an opener of sources that skips cafcat's own files.

    These are cafcat's files and folders in its home, and the store of the settings. Files of other stores are not
    skipped.
    """
    store = default_store(session)
    own_paths = _own_in_home(session.settings.home)
    if isinstance(store, FolderStore):
        own_paths.append(store.folder)
    return SourceOpener(
        options,
        session.catalog,
        session.settings.options_of,
        session.progress,
        own_paths=own_paths,
        own_urls=[store.url],
    )


def _own_in_home(home: Path) -> list[str]:
    """Return the paths of cafcat's own files and folders in its home, which may not exist.

    A home without other files and folders is itself one of these folders.
    """
    paths = [str(home / name) for name in _OWN_NAMES]
    with suppress(OSError):
        if set(os.listdir(home)).issubset(_OWN_NAMES):
            paths.append(str(home))
    return paths
