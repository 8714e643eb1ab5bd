"""Reads files through fsspec."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from fsspec.asyn import sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import is_exception

from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.filesystem.errors import is_a_folder, no_such_file, shown_error
from cafcat.filesystem.listed import ListedFileSystem
from cafcat.filesystem.opened import AsyncOpenFile, OpenFile
from cafcat.filesystem.saving import save_small, save_stream
from cafcat.reading.packed_file import PackedFile
from cafcat.support.paths import is_text

__all__ = ["ReadableFileSystem"]

_SMALL_BYTES: Final = 1 << 20
"""A file up to this size, in bytes, is read at once by `get`, together with others. A larger one is streamed."""


class ReadableFileSystem(ListedFileSystem):
    """A file system of fsspec that reads the files of a catalog or of a snapshot."""

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        try:
            if end is not None and end < 0:
                start, end = await self._limits(path, start, end)
            return await self._packed.aread(path, start or 0, end)
        except InvalidInput:
            first, last = await self._limits(path, start, end)
            return await self._packed.aread(path, first, last) if first < last else b""
        except CafcatError as error:
            raise await self._shown(path, error) from error

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or a slice of them, as `AbstractFileSystem.cat_file` describes.

        The file is read in the thread of the caller, which is four times as fast as through the event loop.
        """
        if end is None or end >= 0:
            with suppress(NotFound, InvalidInput):  # the coroutine finds the exception for it, or the empty slice
                return self._packed.read(self._strip_protocol(path), start or 0, end)
        return cast(bytes, sync(self.loop, self._cat_file, path, start, end))

    async def _limits(self, path: str, start: int | None, end: int | None) -> tuple[int, int]:
        """Return the range that a slice [start:end] of the content means: numbers within the file."""
        info = await self._info(path)
        if info["type"] != "file":
            raise is_a_folder(path)
        first, last, _ = slice(start, end).indices(info["size"])
        return first, max(first, last)

    async def _shown(self, path: str, error: CafcatError) -> Exception:
        is_folder = isinstance(error, NotFound) and await self._isdir(path)
        return shown_error(error, path, is_folder=is_folder)

    async def _cat(
        self,
        path: str | list[str],
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        paths = await self._expand_path(path, recursive=recursive)
        found = await self._contents(paths)
        if recursive:
            found = {name: content for name, content in found.items() if not isinstance(content, IsADirectoryError)}
        if on_error == "raise":
            _raise_first(found.values())
        if len(paths) == len(found) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return next(iter(found.values()))
        return {name: content for name, content in found.items() if on_error != "omit" or not is_exception(content)}

    async def _contents(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the content of each file, or its exception. Near files share a request."""
        found: dict[str, bytes | Exception] = {}
        possible = [path for path in paths if is_text(path)]
        async for path, content in self._packed.aread_many(possible):
            found[path] = content
        failed = {path: error for path, error in found.items() if isinstance(error, CafcatError)}
        shown = await asyncio.gather(*(self._shown(path, error) for path, error in failed.items()))
        found |= dict(zip(failed, shown, strict=True))
        return {path: found[path] if path in found else no_such_file(path) for path in paths}

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | BaseException]:
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        ranges = list(zip(paths, starts, ends, strict=True))
        # All calls are made before the event loop runs on, so they form one batch.
        calls = (self._cat_file(path, start, end) for path, start, end in ranges)
        results = await asyncio.gather(*calls, return_exceptions=True)
        if on_error != "return":
            _raise_first(results)
        return results

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        rpath = self._strip_protocol(rpath)
        info = await self._info(rpath)
        if info["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        if hasattr(lpath, "write") or info["size"] > _SMALL_BYTES:
            await self._in_thread(save_stream, self._open_packed, rpath, lpath, callback)
            return
        callback.set_size(info["size"])
        data = await self._cat_file(rpath)
        await self._in_thread(save_small, data, lpath)
        callback.relative_update(len(data))

    def _open_packed(self, path: str) -> OpenFile:
        if not is_text(path):
            raise no_such_file(path)
        try:
            raw = self._packed.open(path).detach()
        except NotFound as error:
            is_folder = not path or bool(self._files.folders_among([path]))
            raise shown_error(error, path, is_folder=is_folder) from error
        return OpenFile(self, path, cast(PackedFile, raw))

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> AsyncOpenFile:
        """Open a file for reading in an asyncio program: `await file.read(size)` does not block its event loop.

        Raises:
            FileNotFoundError, IsADirectoryError: No file has the path, or it is a folder.
            ValueError: The mode is not "rb".
        """
        if mode != "rb" or kwargs.get("compression"):
            raise ValueError('a file is opened with open_async for reading only: mode "rb", no compression')
        return AsyncOpenFile(await self._in_thread(self._open_packed, self._strip_protocol(path)))


def _raise_first(results: Iterable[Any]) -> None:
    error = next(filter(is_exception, results), None)
    if error is not None:
        raise error
