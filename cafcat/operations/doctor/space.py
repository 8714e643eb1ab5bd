"""Checks of free space: home, embedded database, and stores that are folders."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from cafcat.errors import CafcatError
from cafcat.operations.doctor.examination import Examination
from cafcat.operations.doctor.found import Found, error, ok, warning
from cafcat.operations.doctor.stores import used_stores
from cafcat.stores.base import FolderStore
from cafcat.support.quantities import format_size
from cafcat.support.time_limit import call_all_within

__all__ = ["home", "stores"]

_LEAST_BYTES: Final = 200_000_000
"""Below this, writing fails soon."""
_LEAST_HOME_BYTES: Final = 5_000_000_000
"""Below this, the embedded database may run full: its log alone takes up to 4 GB."""


def home(examination: Examination) -> Iterator[Found]:
    """Compare the free space of the home with the needs of the embedded database."""
    settings = examination.settings
    folder = settings.home / "postgres" if settings.database_url is None else settings.home
    free = _free(folder)
    text = f"{format_size(free)} free for {folder}"
    if free < _LEAST_BYTES:
        yield error(text, "free disk space, or move the home (docs/cli.md)")
    elif free < _LEAST_HOME_BYTES and settings.database_url is None:
        yield warning(f"{text}: the log of the embedded database alone takes up to 4 GB", "free disk space")
    else:
        yield ok(text)


def stores(examination: Examination) -> Iterator[Found]:
    """Compare the free space of each store that is a folder with the size of one chunk."""
    try:
        facts_of = used_stores(examination)
    except CafcatError:
        return  # the store of the settings cannot be opened, which another check reports
    reads = {
        folder: partial(_free, Path(folder), must_exist=facts.has_own)
        for url, facts in facts_of.items()
        if (folder := _folder(examination, url)) is not None
    }
    for folder, free in call_all_within(reads, examination.timeout_seconds).items():
        if isinstance(free, FileNotFoundError):
            continue  # the store is away, which another check reports
        if isinstance(free, Exception):
            yield error(f"the free space of {folder} cannot be read: {free}", "check the disk or its server")
        else:
            yield _compared(folder, free, examination.settings.target_size)


def _folder(examination: Examination, url: str) -> str | None:
    """Return the folder of a store; None if it is no folder, or cannot be opened, which another check reports."""
    try:
        store = examination.stores[url]
    except CafcatError:
        return None
    return store.folder if isinstance(store, FolderStore) else None


def _compared(folder: str, free: int, target_size: int) -> Found:
    text = f"{format_size(free)} free for {folder}"
    if free < _LEAST_BYTES:
        return error(text, "free disk space, or use another store for new chunks")
    if free < target_size:
        remedy = "free disk space, use another store for new chunks, or make chunks smaller with target_size"
        return warning(f"{text}: less than one chunk of {format_size(target_size)} (target_size)", remedy)
    return ok(text)


def _free(folder: Path, *, must_exist: bool = False) -> int:
    """Return the free bytes for a normal user in a folder, or in the nearest folder above that exists.

    Raises:
        FileNotFoundError: The folder does not exist, and `must_exist` is true.
        OSError: The file system does not answer.
    """
    while not must_exist and not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
