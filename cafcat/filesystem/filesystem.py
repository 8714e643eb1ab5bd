"""The file system of fsspec for the URLs `cafcat://`: what programs call to write files."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

from fsspec.callbacks import DEFAULT_CALLBACK

from cafcat.filesystem.errors import file_exists, read_only
from cafcat.filesystem.opened import OpenFile
from cafcat.filesystem.pending import PendingFiles
from cafcat.filesystem.readable import ReadableFileSystem
from cafcat.filesystem.writing import CafcatTransaction, NewFile, NewText
from cafcat.repository import Repository
from cafcat.snapshots import Snapshot
from cafcat.sources.names import check_name, member_name

__all__ = ["CafcatFileSystem"]

_BLOCK_BYTES: Final = 1 << 20
_HINT: Final = "use Repository.rm or cafcat rm"


class CafcatFileSystem(ReadableFileSystem):
    """The files of a catalog or of a snapshot, for programs that use fsspec.

    docs/fsspec.md describes how files are read, listed and written. Threads may share a file system. It can be
    pickled, and used in forked processes: each process has connections of its own.

    A path that does not exist raises FileNotFoundError, a folder that is read as a file IsADirectoryError, a new
    file that exists FileExistsError. All other failures are CafcatErrors.
    """

    transaction_type = CafcatTransaction

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file, as `AbstractFileSystem.open` describes.

        Raises:
            FileNotFoundError, IsADirectoryError: No file has the path, or it is a folder.
            FileExistsError: The mode is "x", and a file has the path.
            NotImplementedError: The mode is another than "r", "w" or "x"; or a file is to be written compressed.
        """
        if "r" in mode:
            return super().open(path, mode=mode, compression=compression, **kwargs)
        if compression is not None:
            hint = "use fsspec.open(url, mode, compression=...), which closes both files"
            raise NotImplementedError(f"a compressed file cannot be written by this method; {hint}")
        if "b" in mode:
            return super().open(path, mode=mode, **kwargs)
        text = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
        return NewText(super().open(path, mode=f"{mode.replace('t', '')}b", **kwargs), **text)

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **kwargs: Any) -> OpenFile | NewFile:
        if mode == "rb":
            return self._open_packed(path)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"packed files cannot be opened in mode {mode!r}; use rb, wb or xb")
        self._check_new(path)
        if mode == "xb" and (path in self._packed or (not autocommit and path in self.transaction.pending)):
            raise file_exists(path)
        pending = PendingFiles(self) if autocommit else self.transaction.pending
        return NewFile(path, mode, pending, commits=autocommit)

    @contextmanager
    def writing(self) -> Iterator[Repository]:
        """Return the repository for a commit. Other threads wait. Listings are forgotten afterwards."""
        self._renew()
        with self._write_lock:
            yield cast(Repository, self._packed)
        self.dircache.clear()

    def _check_new(self, path: str) -> None:
        """Raise an exception if no file can be written under a path.

        Raises:
            OSError: This is a snapshot (errno EROFS).
            ValueError: No file can have this path.
        """
        if isinstance(self._packed, Snapshot):
            raise read_only(path)
        reason = check_name(path) or ("" if member_name(path)[0] == path else 'it has a part "", "." or ".."')
        if reason:
            raise ValueError(f"no file can be written under the path {path!r}: {reason}")

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        await self._pipe({path: value}, mode=mode)

    async def _pipe(
        self, path: str | dict[str, bytes], value: bytes | None = None, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        contents = {path: value} if isinstance(path, str) else path
        with self._collected() as pending:
            for name, content in contents.items():
                await self._add(pending, name, [content], mode=mode)
            await self._commit(pending)

    async def _put(self, lpath: Any, rpath: Any, **kwargs: Any) -> None:
        with self._collected() as pending:
            await super()._put(lpath, rpath, pending=pending, **kwargs)
            await self._commit(pending)

    async def _put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        pending: PendingFiles | None = None,
        **kwargs: Any,
    ) -> None:
        if os.path.isdir(lpath):
            return
        if pending is None:
            with self._collected() as own:
                await self._put_file(lpath, rpath, callback, mode, own)
                await self._commit(own)
            return
        with open(lpath, "rb") as file:
            status = os.fstat(file.fileno())
            callback.set_size(status.st_size)
            blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
            await self._add(pending, rpath, blocks, mode=mode, modified_ns=status.st_mtime_ns)
            callback.relative_update(status.st_size)

    @contextmanager
    def _collected(self) -> Iterator[PendingFiles]:
        """Return the files of the transaction, or new ones, which are forgotten at the end of the block."""
        if self._intrans:
            yield self.transaction.pending
            return
        pending = PendingFiles(self)
        try:
            yield pending
        finally:
            pending.close()

    async def _commit(self, pending: PendingFiles) -> None:
        if not self._intrans:
            await self._in_thread(pending.commit)

    async def _add(
        self, pending: PendingFiles, path: str, blocks: Iterable[Any], *, mode: str, modified_ns: int | None = None
    ) -> None:
        path = self._strip_protocol(path)
        self._check_new(path)
        is_new = mode == "create"
        if is_new and (path in pending or await self._isfile(path)):
            raise file_exists(path)
        await self._in_thread(lambda: pending.add(path, map(bytes, blocks), modified_ns=modified_ns, is_new=is_new))

    async def _rm(self, path: Any, *arguments: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"cafcat:// does not remove files; {_HINT}")

    async def _rm_file(self, path: str, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"cafcat:// does not remove files; {_HINT}")

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("cafcat:// does not copy files inside the catalog; read the file, and write it")

    async def _mv_file(self, path1: str, path2: str) -> NoReturn:
        raise NotImplementedError("cafcat:// does not move files; write the file again, and remove the old one")

    def mv(self, path1: Any, path2: Any, *arguments: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError. `mv` of fsspec copies first and removes then."""
        raise NotImplementedError("cafcat:// does not move files; write the file again, and remove the old one")
