"""Translates errors of the operating system about output files to errors of cafcat."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cafcat.errors import CafcatError, Conflict, InvalidInput, OutputFailed

__all__ = ["FILE_EXISTS", "FOLDER_EXISTS", "disk_error", "disk_errors"]

FILE_EXISTS: Final = "there is a file of that name already"
"""Message of the Conflict if an output file exists."""
FOLDER_EXISTS: Final = "there is a folder of that name"
"""Message of the Conflict if a folder has the name of an output file."""

_NO_SUCH_NAME: Final = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_IN_THE_WAY: Final = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)


@contextmanager
def disk_errors(shown: str) -> Iterator[None]:
    """Raise each OSError of the `with` block as the error that `disk_error` returns for it.

    Args:
        shown: Path of the output file or folder, for messages.
    """
    try:
        yield
    except OSError as error:
        raise disk_error(error, shown) from error


def disk_error(error: OSError, shown: str) -> CafcatError:
    """Return the error of cafcat for an OSError about an output file or folder.

    Args:
        error: The error of the operating system.
        shown: Path of the output file or folder, for messages.

    Returns:
        Conflict if another file or folder is in the way, InvalidInput for a name that the file system cannot have,
        else OutputFailed.
    """
    reason = error.strerror or str(error)
    if error.errno == errno.EEXIST or isinstance(error, FileExistsError):
        if os.path.isdir(shown) and not os.path.islink(shown):
            return Conflict(FOLDER_EXISTS, path=shown)
        hint = "choose another name, or overwrite it (--force, in Python overwrite=True)"
        return Conflict(FILE_EXISTS, path=shown, hint=hint)
    if error.errno in _IN_THE_WAY:
        return Conflict("a file, link or folder is in the way of the output", path=shown)
    if error.errno in _NO_SUCH_NAME:
        return InvalidInput(f"the file system cannot have this name: {reason}", path=shown)
    above = os.path.dirname(os.path.abspath(shown))
    is_missing = error.errno == errno.ENOENT and not os.path.isdir(above)
    next_step = f"make the folder {above} first" if is_missing else None
    return OutputFailed(f"the output cannot be written: {reason}", path=shown, hint=next_step)
