"""Points users to `units` and `search` if a missing file is a log file whose records are in an archive of logs."""

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cafcat.errors import CafcatError, NotFound

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["NO_LOGS", "add_log_hint"]

NO_LOGS: Final = (
    "no archive of logs has a log file {prefix!r}, or one below a folder of this name; see `cafcat units`"
)
"""Message of a command that finds no log files below a prefix."""


def add_log_hint(repository: "PackedFiles", error: CafcatError) -> None:
    """Change message and hint of an error if the missing file is a log file in an archive, or a folder of them.

    This costs one query for a NotFound with a path, and nothing for other errors. If the query fails, the error
    stays as it is.

    Args:
        repository: The repository that raised the error.
        error: The error.
    """
    if not isinstance(error, NotFound) or not error.path:
        return
    with suppress(CafcatError):
        if repository.has_logs(error.path):
            name = shlex.quote(error.path)
            error.message = (
                "an archive of logs has the records of this log file, or of the log files in this folder"
            )
            error.hint = f"use `cafcat units {name}`, or `cafcat search QUERY {name}`"
