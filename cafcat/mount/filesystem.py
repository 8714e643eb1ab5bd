"""The system calls of a mount, as mfusepy calls them. Their names are those of FUSE."""

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

from cafcat.errors import CafcatError
from cafcat.model import Folder, Location
from cafcat.mount.folders import NAME_BYTES, Folders, Item
from cafcat.mount.open_files import OpenFiles, OpenFolder
from cafcat.mount.versions import CachedVersions
from cafcat.reading.packed_file import CHECKED_BYTES

__all__ = ["Owner", "PackedFilesystem", "Reports"]

_BLOCK_BYTES: Final = 4096
_REPEAT_SECONDS: Final = 60.0
"""How long a message is not repeated, in seconds: programs try to read a damaged file several times."""
_MOST_MESSAGES: Final = 1000
_ASYNC_READ: Final = 1
"""FUSE_CAP_ASYNC_READ of libfuse."""
_READDIRPLUS_AUTO: Final = 1 << 14
"""FUSE_CAP_READDIRPLUS_AUTO of libfuse 3."""
_TOP: Final = Folder("")
Entry = tuple[str, dict[str, int], int]
"""A name in a folder, attributes, and the offset of the next entry."""


class Owner:
    """Who owns all files of a mount, and their modes: the user that mounts, with the user's umask.

    Attributes:
        uid: User id.
        gid: Group id.
        file_mode: Type and mode of files, as 0o100644.
        folder_mode: Type and mode of folders, as 0o40755.
    """

    def __init__(self) -> None:
        umask = os.umask(0o077)
        os.umask(umask)
        self.uid, self.gid = os.getuid(), os.getgid()
        self.file_mode = stat.S_IFREG | (0o666 & ~umask)
        self.folder_mode = stat.S_IFDIR | (0o777 & ~umask)


class Reports:
    """Passes messages on, but not the same message again within a minute. Threads may share this object."""

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._lock = Lock()
        self._reported: dict[str, float] = {}

    def __call__(self, message: str) -> None:
        """Pass a message on, unless it is a repetition."""
        now = time.monotonic()
        with self._lock:
            if now - self._reported.get(message, float("-inf")) < _REPEAT_SECONDS:
                return
            if len(self._reported) >= _MOST_MESSAGES:
                self._reported.clear()
            self._reported[message] = now
        self._warn(message)


class PackedFilesystem:
    """Answers the system calls of programs below a mount. FUSE calls the methods from several threads.

    A path that does not exist is ENOENT. A file that is damaged or cannot be read is EIO, and so is everything that
    needs the catalog while the catalog does not answer; the reason is reported.
    """

    use_ns = True
    """Tells mfusepy that times are in nanoseconds."""

    def __init__(
        self,
        folders: Folders,
        files: OpenFiles,
        owner: Owner,
        report: Callable[[str], object],
        ready: Callable[[], object],
        *,
        versions: CachedVersions | None,
    ) -> None:
        """Create the file system, which is not mounted yet.

        Args:
            folders: Finds files and lists folders.
            files: Opens and reads files.
            owner: Owner and modes of all files.
            report: Called with the reason of each EIO.
            ready: Called once, when programs can use the mount.
            versions: Versions of files that the operating system knows. None if no file is ever replaced: the
                operating system may then keep the bytes of a closed file, if all of them were compared with the
                checksum.
        """
        self._folders = folders
        self._files = files
        self._owner = owner
        self._report = report
        self._ready = ready
        self._versions = versions
        self._listings: dict[int, OpenFolder] = {}
        self._lock = Lock()
        self._last_listing = 0

    def init_with_config(self, connection: Any, config: Any) -> None:  # noqa: ARG002 - as FUSE calls it
        """Choose how the operating system reads, and report that the file system is mounted.

        The operating system sends one request at a time for each open file. Several requests would arrive in any
        order, and look like random reading.

        It asks for the attributes of all entries that it lists. By default it does so only for the first ones of a
        folder, until a program has looked up one of the others.
        """
        if hasattr(connection, "want"):
            connection.want &= ~(_ASYNC_READ | _READDIRPLUS_AUTO)
        connection.async_read = 0  # of libfuse 2
        self._ready()

    def getattr(self, path: str, info: Any = None) -> dict[str, int]:  # noqa: ARG002 - as FUSE calls it
        """Return the attributes of a file or folder."""
        with self._errors("look up", path):
            return self._attributes(self._find(path))

    def open(self, path: str, info: Any) -> int:
        """Open a file for reading.

        If the operating system may have the size of another version, the error is ESTALE. The operating system then
        looks the path up once more, and opens it again; programs do not notice.

        Args:
            path: Path of the file.
            info: Has the flags of the call, and gets the handle of the file.
        """
        if info.flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        with self._errors("open", path):
            item = self._find(path)
            if isinstance(item, Folder):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if self._versions is not None and not self._versions.allows(item):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            info.fh = self._files.open(item)
            info.keep_cache = self._versions is None and item.size_bytes <= CHECKED_BYTES
            return 0

    def read(self, path: str, size: int, offset: int, info: Any) -> bytes:
        """Return bytes of an open file."""
        with self._errors("read", path):
            return self._files.read(info.fh, offset, size)

    def release(self, path: str, info: Any) -> int:
        """Close a file."""
        with self._errors("close", path):
            self._files.close(info.fh)
        return 0

    def opendir(self, path: str) -> int:
        """Begin a listing of a folder, and return its handle."""
        folder = path[1:]
        with self._lock:
            self._last_listing += 1
            self._listings[self._last_listing] = OpenFolder(self._folders, f"{folder}/" if folder else "")
            return self._last_listing

    def readdir_with_offset(self, path: str, offset: int, fh: int) -> Iterator[Entry]:
        """Yield names of a folder from an offset on, each with its type, number, and the offset of the next one."""
        return self._entries(path, offset, fh, self._type_of)

    def readdir_with_attributes(self, path: str, offset: int, fh: int) -> Iterator[Entry]:
        """Yield names of a folder from an offset on, each with its attributes, and the offset of the next one."""
        return self._entries(path, offset, fh, self._attributes)

    def _entries(
        self, path: str, offset: int, fh: int, attributes_of: Callable[[Item], dict[str, int]]
    ) -> Iterator[Entry]:
        with self._errors("list", path):
            here = Folder(path[1:] + "/" if path != "/" else "")
            for own, name in enumerate((".", "..")):
                if offset <= own:
                    yield name, self._type_of(here if name == "." else _parent_of(here)), own + 1
            for name, item, following in self._listings[fh].entries(max(0, offset - 2)):
                version = self._files.version(item.path) or item
                yield name, attributes_of(version), following + 2

    def _type_of(self, item: Item) -> dict[str, int]:
        mode = self._owner.folder_mode if isinstance(item, Folder) else self._owner.file_mode
        return {"st_mode": mode, "st_ino": _number_of(item)}

    def releasedir(self, path: str, fh: int) -> int:  # noqa: ARG002 - as FUSE calls it
        """End a listing."""
        self._listings.pop(fh, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:  # noqa: ARG002 - as FUSE calls it
        """Return the limits of the file system. Sizes are 0: counting all files would read the whole catalog."""
        return {"f_bsize": _BLOCK_BYTES, "f_frsize": _BLOCK_BYTES, "f_namemax": NAME_BYTES}

    def _find(self, path: str) -> Item:
        """Return the file or folder with a path of the mount, which begins with "/".

        Raises:
            OSError: ENOENT, or ENAMETOOLONG.
        """
        if path == "/":
            return _TOP
        path = path[1:]
        item = self._files.version(path) or self._folders.find(path)
        if item is None:
            is_long = len(path[path.rfind("/") + 1 :].encode(errors="surrogateescape")) > NAME_BYTES
            number = errno.ENAMETOOLONG if is_long else errno.ENOENT
            raise OSError(number, os.strerror(number))
        return item

    def _attributes(self, item: Item) -> dict[str, int]:
        common = {"st_ino": _number_of(item), "st_uid": self._owner.uid, "st_gid": self._owner.gid}
        if isinstance(item, Folder):
            return common | {"st_mode": self._owner.folder_mode, "st_nlink": 2, "st_blksize": _BLOCK_BYTES}
        if self._versions is not None:
            self._versions.add(item)
        size, when = item.size_bytes, item.modified_ns or 0
        return common | {
            "st_mode": self._owner.file_mode,
            "st_nlink": 1,
            "st_size": size,
            "st_blocks": -(-size // 512),
            "st_blksize": _BLOCK_BYTES,
            "st_mtime": when,
            "st_ctime": when,
            "st_atime": when,
        }

    def _errors(self, what: str, path: str) -> "_Errors":
        """Report an error of the `with` block, and raise OSError with EIO in its place. OSError passes through."""
        return _Errors(self._report, what, path)


class _Errors:
    """The context of `PackedFilesystem._errors`. A class is entered faster than a generator."""

    __slots__ = ("_path", "_report", "_what")

    def __init__(self, report: Callable[[str], object], what: str, path: str) -> None:
        self._report, self._what, self._path = report, what, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, OSError):
            return
        if isinstance(error, CafcatError):
            self._report(f"cannot {self._what} {self._path!r}: {error}")
        else:
            logging.getLogger("cafcat").error("cannot %s %r", self._what, self._path, exc_info=error)
            self._report(f"cannot {self._what} {self._path!r}: {error!r}")
        raise OSError(errno.EIO, os.strerror(errno.EIO)) from error


def _parent_of(folder: Folder) -> Folder:
    return Folder(folder.path[: folder.path.rfind("/", 0, -1) + 1])


def _number_of(item: Location | Folder) -> int:
    """Return the inode number of a file or folder: the same in every mount, from the first to the last."""
    return int.from_bytes(blake2b(item.path.encode(), digest_size=8).digest()) or 1
