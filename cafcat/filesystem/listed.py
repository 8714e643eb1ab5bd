"""Opens the catalog or the snapshot of a file system, also in forked and other processes; finds and lists files."""

import asyncio
import os
import re
import weakref
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from glob import has_magic
from itertools import chain
from threading import Lock
from typing import Any, Final, cast

from fsspec.asyn import AsyncFileSystem, get_loop, reset_lock, sync_wrapper
from fsspec.utils import glob_translate

from cafcat.filesystem.carried import settings_of, text_of
from cafcat.filesystem.errors import is_a_folder, no_such_file
from cafcat.filesystem.lookups import Info, Listing, Lookups, below, folder_info, info_of, levels
from cafcat.model import Location
from cafcat.repository import Repository
from cafcat.settings.settings import Settings, redact
from cafcat.snapshots import Snapshot
from cafcat.support.paths import from_root, is_text

__all__ = ["ListedFileSystem"]

_PORTABLE_OPTIONS: Final = ("asynchronous", "batch_size", "use_listings_cache", "listings_expiry_time", "max_paths")
"""Options of fsspec that a pickled file system carries to another process."""

# Later versions of fsspec do this themselves. 2025.3 keeps the event loop of the parent, which has no thread.
os.register_at_fork(after_in_child=reset_lock)


class ListedFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """A file system of fsspec that finds and lists the files of a catalog or of a snapshot.

    fsspec calls methods whose names begin with "_" in an event loop. The look-ups of these methods run in threads.
    """

    protocol = "cafcat"
    root_marker = ""
    _loop: Any  # fsspec sets it
    _pid: int

    def __init__(
        self,
        snapshot: str | os.PathLike[str] | None = None,
        *,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        batch_size: int | None = None,
        use_listings_cache: bool = False,
        listings_expiry_time: float | None = None,
        max_paths: int | None = None,
        carried_settings: str | None = None,
        **settings: Any,
    ) -> None:
        """Create a file system, which connects to the database at the first call that needs it.

        Args:
            snapshot: Name of a snapshot file, which is read in place of the catalog's database; None for the
                database.
            asynchronous: True if coroutines of the file system are called in the event loop of the caller.
            loop: Event loop for all other calls; None for the one that fsspec runs in a thread.
            batch_size: As in fsspec: most files that `get` copies at the same time.
            use_listings_cache: True to keep the listings of folders. Changes by others are not seen then.
            listings_expiry_time: How long a listing is kept, in seconds; None for ever.
            max_paths: Largest number of listings that are kept; None for no limit.
            carried_settings: Settings of a file system that was pickled, in place of `settings`.
            **settings: Settings by name, as in `cafcat.open`.

        Raises:
            InvalidInput: A setting is unknown or invalid, or the file is not a snapshot.
            NotFound: The snapshot does not exist.
        """
        super().__init__(
            asynchronous=asynchronous,
            loop=loop,
            batch_size=batch_size,
            use_listings_cache=use_listings_cache,
            listings_expiry_time=listings_expiry_time,
            max_paths=max_paths,
        )
        found = Settings.load(**settings) if carried_settings is None else settings_of(carried_settings)
        self._settings_text = text_of(found)
        self._snapshot = None if snapshot is None else os.path.abspath(snapshot)
        self._packed = Repository(found) if self._snapshot is None else Snapshot(self._snapshot, found)
        self._lookups = Lookups(self._packed)
        self._write_lock = Lock()
        weakref.finalize(self, self._packed.close)
        self._name = self._snapshot or redact(found.database_url or str(found.home))

    @property
    def _files(self) -> Listing:
        return self._lookups.files

    @property
    def fsid(self) -> str:
        """Name of the catalog or snapshot: the same in all processes with the same settings. Without a password."""
        return f"cafcat_{self._name}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Event loop that runs the coroutines; None if the caller's own does. A forked process gets a new one."""
        self._renew()
        if self._loop is None and not self.asynchronous:
            self._loop = get_loop()
        return cast(asyncio.AbstractEventLoop | None, self._loop)

    def _renew(self) -> None:
        """Forget the event loop and the lock in a forked process: only the parent process has their threads."""
        if self._pid != os.getpid():
            self._pid, self._loop, self._write_lock = os.getpid(), None, Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: self.storage_options[name] for name in _PORTABLE_OPTIONS if name in self.storage_options}
        if self._snapshot is not None:
            options["snapshot"] = self._snapshot
        return _opened_again, (type(self), options | {"carried_settings": self._settings_text})

    def _identity(self) -> tuple[Any, ...]:
        return type(self).__name__, self._snapshot, self._settings_text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self._identity()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else from_root(stripped)

    async def _info(self, path: str, **kwargs: Any) -> Info:
        path = self._strip_protocol(path)
        if not path:
            return folder_info("")
        found = await self._lookups.find(path)
        if found is None:
            raise no_such_file(path)
        return info_of(found)

    async def _isdir(self, path: str) -> bool:
        return await self._type_of(path) == "directory"

    async def _isfile(self, path: str) -> bool:
        return await self._type_of(path) == "file"

    async def _type_of(self, path: str) -> str | None:
        try:
            return cast(str, (await self._info(path))["type"])
        except FileNotFoundError:
            return None

    async def _ls(self, path: str, detail: bool = True, refresh: bool = False, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entries = None if refresh else self.dircache.get(path)
        if entries is None:
            entries = await self._in_thread(self._level, path)
            if not entries and path:
                return [info if detail else path for info in [await self._info(path)]]
            self.dircache[path] = entries
        return list(entries) if detail else [info["name"] for info in entries]

    def _level(self, path: str) -> list[Info]:
        return [info_of(entry) for entry in self._files.folder(f"{path}/" if path else "")] if is_text(path) else []

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> list[str] | dict[str, Info]:
        path = self._strip_protocol(path)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = await self._in_thread(self._found, path, maxdepth, withdirs) if is_text(path) else {}
        names = sorted(found)
        return {name: found[name] for name in names} if kwargs.get("detail") else names

    async def _glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> list[str] | dict[str, Info]:
        """Find files and folders by a pattern, as `AbstractFileSystem.glob` describes.

        If names of folders have wildcards, only folders that match are listed. fsspec would list all paths below
        the first of these folders.
        """
        folders, _, last = self._strip_protocol(path).rpartition("/")
        if maxdepth is not None or not has_magic(folders) or "**" in path:
            return cast(list[str] | dict[str, Info], await super()._glob(path, maxdepth=maxdepth, **kwargs))
        children = await self._children(await self._folders(folders), last)
        # If a file and a folder have one name, the file is found.
        found = {info["name"]: info for info in sorted(children, key=lambda info: info["type"] == "file")}
        kinds = {"directory"} if path.endswith("/") else {"directory", "file"}
        kinds -= set() if kwargs.get("withdirs", True) else {"directory"}
        names = sorted(name for name, info in found.items() if info["type"] in kinds)
        return {name: found[name] for name in names} if kwargs.get("detail") else names

    async def _folders(self, pattern: str) -> list[str]:
        """Return the names that a pattern of folders means. Those without a wildcard at their end may not exist."""
        if not has_magic(pattern):
            return [pattern]
        above, _, last = pattern.rpartition("/")
        folders = await self._folders(above)
        if not has_magic(last):
            return [f"{folder}/{last}" for folder in folders]
        return [info["name"] for info in await self._children(folders, last) if info["type"] == "directory"]

    async def _children(self, folders: Iterable[str], pattern: str) -> list[Info]:
        """Return the files and folders directly in these folders whose name matches a pattern without a slash."""
        if not has_magic(pattern):
            found = await asyncio.gather(*(self._lookups.find(f"{folder}/{pattern}") for folder in folders))
            return [info_of(one) for one in found if one is not None]
        matches = re.compile(glob_translate(pattern)).match
        listed = await asyncio.gather(*(self._in_thread(self._level, folder) for folder in folders))
        return [info for info in chain(*listed) if matches(info["name"].rpartition("/")[2])]

    def _found(self, path: str, depth: int | None, with_folders: bool) -> dict[str, Info]:
        if depth is None:
            return below(self._files, path, with_folders=with_folders)
        return levels(self._files, path, depth, with_folders=with_folders)

    async def _expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
    ) -> list[str]:
        """Return the paths that names and patterns mean. A pattern that is the name of a file means this file."""
        names = self._strip_protocol([path] if isinstance(path, str | os.PathLike) else list(path))
        found = await asyncio.gather(*(self._lookups.find(name) for name in names if has_magic(name)))
        literal = {location.path for location in found if isinstance(location, Location)}
        if not literal or assume_literal:
            options = {"assume_literal": True} if assume_literal else {}  # fsspec of 2025 does not have it
            return cast(list[str], await super()._expand_path(names, recursive, maxdepth, **options))
        others = [name for name in names if name not in literal]
        expanded = await super()._expand_path(others, recursive, maxdepth) if others else []
        return sorted({*literal, *expanded})

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> int | dict[str, int]:
        found = await self._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info["size"] for name, info in cast(dict[str, Info], found).items()}
        return sum(sizes.values()) if total else sizes

    async def _modified(self, path: str) -> datetime:
        mtime = (await self._info(path)).get("mtime")
        if mtime is None:
            raise NotImplementedError(f"the catalog has no modification time of {path}")
        return datetime.fromtimestamp(mtime, UTC)

    async def _checksum(self, path: str) -> int:
        info = await self._info(path)
        if info["type"] != "file":
            raise is_a_folder(info["name"])
        return cast(int, info["size"] << 32 | info["crc32c"])

    modified = sync_wrapper(_modified)
    checksum = sync_wrapper(_checksum)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget all listings of folders.

        Args:
            path: Ignored: a listing of any folder above the path may have changed.
        """
        self.dircache.clear()
        super().invalidate_cache(path)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _opened_again(kind: Callable[..., ListedFileSystem], options: dict[str, Any]) -> ListedFileSystem:
    """Return the file system that was pickled. fsspec returns an equal one that this process has."""
    return kind(**options)
