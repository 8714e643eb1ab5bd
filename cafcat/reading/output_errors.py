"""Errors of the operating system about output files, as errors of cafcat."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cafcat.errors import CafcatError, Conflict, InvalidInput, OutputFailed

__all__ = ["disk_error", "disk_errors"]

_NO_SUCH_NAME: Final = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_IN_THE_WAY: Final = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)


@contextmanager
def disk_errors(shown: str) -> Iterator[None]:
    """Translate OSError. shown: the file or folder, for messages."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, shown) from error


def disk_error(error: OSError, shown: str) -> CafcatError:
    """Return the error of cafcat for an OSError about a file or folder: Conflict if something is in its way,
    InvalidInput for a name that the file system cannot have, else OutputFailed."""
    reason = error.strerror or str(error)
    if error.errno == errno.EEXIST or isinstance(error, FileExistsError):
        return Conflict("there is a file of that name already", path=shown, hint="--force overwrites it")
    if error.errno in _IN_THE_WAY:
        return Conflict("a file or link is in the way of a folder", path=shown)
    if error.errno in _NO_SUCH_NAME:
        return InvalidInput(f"the file system cannot have this name: {reason}", path=shown)
    return OutputFailed(f"cannot be written: {reason}", path=shown)
