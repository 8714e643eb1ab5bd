"""Mounts the files of a catalog or a snapshot, and returns when they are unmounted."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from cafcat.errors import Conflict, InvalidInput, NotInstalled, Unavailable
from cafcat.mount.bindings import fuse_class
from cafcat.mount.filesystem import Owner, PackedFilesystem, Reports
from cafcat.mount.folders import FolderCatalog, Folders
from cafcat.mount.open_files import OpenFiles
from cafcat.mount.reading_ahead import KnownEnds
from cafcat.mount.versions import CachedVersions
from cafcat.packed_files import PackedFiles
from cafcat.progress import Warnings
from cafcat.reading.reader import FileReader
from cafcat.session import Stores
from cafcat.settings.settings import Settings
from cafcat.snapshots.database import PooledRows, SnapshotFile
from cafcat.snapshots.lookup import SnapshotCatalog
from cafcat.support.collecting import collect_as_server

__all__ = ["Tree", "check_mount_point", "mount", "tree_of_catalog", "tree_of_snapshot"]

_CHECKED_SECONDS: Final = 0.5
"""How long entries of a catalog are shown before the catalog is asked whether it has changed, in seconds."""
_CACHED_SECONDS: Final = 0.5
"""How long the operating system keeps names and attributes of a catalog, in seconds."""
_SURELY_CACHED_SECONDS: Final = 5.0
"""How long it could keep them on a busy machine, in seconds."""
_THREADS: Final = 16
"""Largest number of system calls that are answered at the same time. With libfuse before 3.12, libfuse decides."""
_FOR_EVER: Final = 86_400 * 365
_DEVICE: Final = "/dev/fuse"

_OPTIONS_OF_CATALOG: Final = {
    "entry_timeout": _CACHED_SECONDS,
    "attr_timeout": _CACHED_SECONDS,
    "negative_timeout": 0,
}
_OPTIONS_OF_SNAPSHOT: Final = {
    "entry_timeout": _FOR_EVER,
    "attr_timeout": _FOR_EVER,
    "negative_timeout": _FOR_EVER,
}


@dataclass(frozen=True, slots=True)
class Tree:
    """The files that are mounted.

    Attributes:
        catalog: Finds the files, and lists the folders.
        reader: Reads the files.
        never_changes: True for a snapshot, so that bytes that were read once stay right.
    """

    catalog: FolderCatalog
    reader: FileReader
    never_changes: bool


@contextmanager
def tree_of_catalog(repository: PackedFiles, warn: Callable[[str], object]) -> Iterator[Tree]:
    """Yield the files of a catalog, after one query that shows that the catalog answers.

    Args:
        repository: The catalog and its stores.
        warn: Called with each warning that a copy is read.

    Raises:
        CatalogUnavailable, CatalogOutdated, AccessDenied: The database does not answer, or has another schema.
    """
    session = repository.session
    session.catalog.reading.files.folder_page("", limit=1)
    yield Tree(session.catalog.reading.files, session.reader(Warnings(warn)), False)


@contextmanager
def tree_of_snapshot(path: str, settings: Settings, warn: Callable[[str], object]) -> Iterator[Tree]:
    """Yield the files of a snapshot. The database is not used.

    Args:
        path: Name of the snapshot file.
        settings: How stores are reached.
        warn: Called with each warning that a copy is read.

    Raises:
        NotFound, InvalidInput, Unsupported, Corrupt, Unavailable: The snapshot cannot be opened.
    """
    catalog = SnapshotCatalog(PooledRows(SnapshotFile(os.path.abspath(path))))
    catalog.files.info()
    stores = Stores(settings)
    try:
        yield Tree(catalog.files, FileReader(catalog, stores, Warnings(warn)), True)
    finally:
        stores.close()


def check_mount_point(directory: str) -> None:
    """Check that a folder can be mounted on.

    Raises:
        InvalidInput: There is no such folder.
        Conflict: The folder is not empty: the mount would hide its files.
    """
    try:
        is_empty = not os.listdir(directory)
    except OSError as error:
        hint = "make the folder first"
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            hint = f"if it is the mount of a killed cafcat, run: fusermount3 -u {directory}"
        raise InvalidInput(f"cannot mount on it: {error.strerror}", path=directory, hint=hint) from error
    if not is_empty:
        raise Conflict("the folder is not empty", path=directory, hint="mount on an empty folder")


def mount(
    tree: Tree,
    directory: str,
    *,
    allow_other: bool = False,
    warn: Callable[[str], object],
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Mount files on a folder, read-only, and return when they are unmounted.

    SIGINT, SIGTERM and SIGHUP unmount them, unless they are ignored or handled by the program. Call this from the
    main thread.

    Args:
        tree: The files.
        directory: An empty folder.
        allow_other: True to let other users of the machine read the files, as far as their modes allow it.
        warn: Called with the reason of each error that a program gets, from any thread.
        ready: Called once, when programs can use the mount, from any thread.

    Raises:
        NotInstalled: mfusepy, libfuse or the device /dev/fuse is missing.
        InvalidInput, Conflict: As `check_mount_point` raises them.
        Unavailable: The files cannot be mounted. libfuse has printed the reason on stderr.
    """
    library = _library()
    check_mount_point(directory)
    report = Reports(warn)
    ends = KnownEnds()
    folders = Folders(tree.catalog, _CHECKED_SECONDS, report, ends)
    has_begun = False

    def begin() -> None:
        nonlocal has_begun
        has_begun = True
        ready()

    files = OpenFiles(tree.reader, ends)
    versions = None if tree.never_changes else CachedVersions(_SURELY_CACHED_SECONDS)
    filesystem = PackedFilesystem(folders, files, Owner(), report, begin, versions=versions)
    options: dict[str, Any] = {"foreground": True, "ro": True, "fsname": "cafcat", "subtype": "cafcat"}
    options |= {"use_ino": True}
    options |= _OPTIONS_OF_SNAPSHOT if tree.never_changes else _OPTIONS_OF_CATALOG
    version = (library.fuse_version_major, library.fuse_version_minor)
    if version >= (3, 0):
        options["max_idle_threads"] = _THREADS  # libfuse 3.14 prints a message about its own default
    keeps_threads = version >= (3, 12)
    if keeps_threads:
        options["max_threads"] = _THREADS
    if allow_other:
        options |= {"allow_other": True, "default_permissions": True}
    thresholds = gc.get_threshold()
    collect_as_server()
    try:
        fuse_class(library, keeps_threads=keeps_threads)(
            filesystem, os.path.abspath(directory), raw_fi=True, **options
        )
    except RuntimeError as error:
        if has_begun:
            return  # libfuse 3.14 reports a signal as a failure, after it has unmounted
        hint = "see the message of libfuse above; other users need user_allow_other in /etc/fuse.conf"
        raise Unavailable(f"cannot mount: libfuse failed with code {error}", path=directory, hint=hint) from error
    finally:
        gc.set_threshold(*thresholds)


def _library() -> Any:
    """Return the module mfusepy. Raises NotInstalled if it, libfuse or the device is missing."""
    try:
        library = import_module("mfusepy")
    except ImportError as error:
        message = "mounting needs the library mfusepy, which is not installed"
        raise NotInstalled(message, hint=NotInstalled.remedy("mount")) from error
    except (OSError, AttributeError) as error:
        message = f"mounting needs libfuse 2 or 3: {error}"
        raise NotInstalled(message, hint="install it, such as by: apt-get install fuse3 libfuse3-3") from error
    if not os.path.exists(_DEVICE):
        raise NotInstalled(f"mounting needs {_DEVICE}, which is missing", hint="load the kernel module fuse")
    return library
