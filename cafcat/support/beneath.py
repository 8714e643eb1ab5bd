"""Opens files below a folder, and follows no symbolic link there.

A user who can write into a folder may replace a folder in it by a symbolic link while another user, such as root,
packs the files. `os.open` follows such a link, even with O_NOFOLLOW, which is about the last name of a path only.
"""

import errno
import os
from typing import Final

__all__ = ["PATH_MAX", "Beneath"]

PATH_MAX: Final = 4095
"""Longest path that Linux opens, in bytes. A longer one is refused here, too: then all ways to a file are equal."""
_SHORT: Final = PATH_MAX // 4
"""Number of characters that always have fewer bytes."""
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Beneath:
    """A folder below which files are opened. Threads may share it, and it can be pickled.

    The folder of the last opened file stays open, because the next file is often in the same folder.
    """

    def __init__(self, folder: str) -> None:
        """Store the folder, which is opened at the first use.

        Args:
            folder: Its path, which may be a symbolic link, with a slash at its end.
        """
        self.folder: Final = folder
        self._last: _OpenFolder | None = None

    def open(self, path: str, flags: int) -> int:
        """Open a file or folder, and return its descriptor.

        Args:
            path: Its path, which begins with `folder`, without a slash at its end.
            flags: Flags of os.open.

        Raises:
            OSError: It cannot be opened. With ELOOP or ENOTDIR, a name of the path below `folder` may be a link.
        """
        if len(path) > _SHORT and len(os.fsencode(path)) > PATH_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        end = path.rindex("/") + 1
        last = self._last
        if last is None or last.path != path[:end]:
            last = self._last = _OpenFolder(self.folder, path[:end])
        return os.open(path[end:], flags | os.O_NOFOLLOW, dir_fd=last.descriptor)

    def __reduce__(self) -> tuple[type["Beneath"], tuple[str]]:
        """Let another process open the folder anew."""
        return Beneath, (self.folder,)


class _OpenFolder:
    """An open folder. It is closed when no thread uses it any more."""

    def __init__(self, top: str, path: str) -> None:
        """Open each folder of a path, from the top on. Raises OSError."""
        self.path = path
        self.descriptor = -1
        self.descriptor = os.open(top, _FLAGS)
        for name in path[len(top) :].split("/")[:-1]:
            above = self.descriptor
            try:
                self.descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=above)
            finally:
                if self.descriptor != above:
                    os.close(above)

    def __del__(self) -> None:
        """Close the folder."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
