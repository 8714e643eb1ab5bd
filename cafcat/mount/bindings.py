"""Changes of mfusepy, which calls the methods of a file system for libfuse: listings with attributes, and speed."""

import ctypes
from threading import local
from typing import Any, Final

from cafcat.mount.open_files import WITHOUT_ATTRIBUTES_FROM

__all__ = ["fuse_class"]

_READDIR_PLUS: Final = 1
"""FUSE_READDIR_PLUS of libfuse 3: the operating system asks for attributes."""
_FILL_DIR_PLUS: Final = 2
"""FUSE_FILL_DIR_PLUS of libfuse 3: an entry has them."""


def fuse_class(library: Any, *, keeps_threads: bool) -> Any:
    """Return the class FUSE of mfusepy, with two changes.

    Listings pass on the attributes of the entries, so that the operating system need not look up each name that it
    lists. With libfuse 2, listings are unchanged.

    Python keeps its state of each thread of libfuse. Otherwise it would map, fill and unmap 16 KiB of memory for
    every single call.

    Args:
        library: The module mfusepy.
        keeps_threads: True if libfuse never ends its threads before it unmounts. Otherwise Python does not keep
            their state, because it could not free it.
    """

    class Fuse(library.FUSE):  # type: ignore[misc] # the module is imported at run time
        _threads = local()

        def _wrapper(self, function: Any, *arguments: Any) -> Any:
            if keeps_threads and not hasattr(self._threads, "is_kept"):
                ctypes.pythonapi.PyGILState_Ensure()  # without PyGILState_Release: that would free the state
                self._threads.is_kept = True
            return super()._wrapper(function, *arguments)

        def readdir_fuse_3(  # noqa: PLR0917 - as libfuse calls it
            self, path: bytes, buffer: Any, fill: Any, offset: int, info: Any, flags: int
        ) -> int:
            if not flags & _READDIR_PLUS or offset >= WITHOUT_ATTRIBUTES_FROM:
                return int(super().readdir_fuse_3(path, buffer, fill, offset, info, flags))
            folder = path.decode(self.encoding, self.errors)
            entries = self.operations.readdir_with_attributes(folder, offset, info.contents.fh)
            for name, values, following in entries:
                attributes = library.c_stat()
                library.set_st_attrs(attributes, values, use_ns=True)
                if fill(buffer, name.encode(self.encoding, self.errors), attributes, following, _FILL_DIR_PLUS):
                    break
            return 0

    return Fuse
