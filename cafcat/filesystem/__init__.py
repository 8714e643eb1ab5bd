"""Packed files as a file system of fsspec, for the URLs `cafcat://`. It needs the extra `cafcat[fsspec]`."""

from cafcat.filesystem.filesystem import CafcatFileSystem

__all__ = ["CafcatFileSystem"]
