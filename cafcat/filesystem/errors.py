"""The exceptions of Python that users of fsspec expect for a path."""

import errno

from cafcat.errors import CafcatError, NotFound

__all__ = ["file_exists", "is_a_folder", "no_such_file", "read_only", "shown_error"]


def no_such_file(path: str, reason: str = "no such file or folder") -> FileNotFoundError:
    """Return the exception for a path that does not exist."""
    return FileNotFoundError(errno.ENOENT, reason, path)


def is_a_folder(path: str) -> IsADirectoryError:
    """Return the exception for a folder that is read as a file."""
    return IsADirectoryError(errno.EISDIR, "this is a folder of the catalog, not a file", path)


def file_exists(path: str) -> FileExistsError:
    """Return the exception for a new file whose path the catalog has."""
    return FileExistsError(errno.EEXIST, "the catalog has a file with this path", path)


def read_only(path: str) -> OSError:
    """Return the exception for a path that is written to a snapshot, as a read-only disk raises it."""
    return OSError(errno.EROFS, "a snapshot is read-only; open the catalog to write", path)


def shown_error(error: CafcatError, path: str, *, is_folder: bool) -> Exception:
    """Return the exception that a user of fsspec gets for an error of reading a file.

    Only NotFound changes. The other errors stay CafcatErrors, which are no OSErrors: fsspec takes an OSError in a
    listing for an empty folder, and zarr takes some for a chunk of zeros.

    Args:
        error: The error.
        path: Path of the file.
        is_folder: True if the path is a folder of the catalog.
    """
    if not isinstance(error, NotFound):
        return error
    return is_a_folder(path) if is_folder else no_such_file(path, error.message)
