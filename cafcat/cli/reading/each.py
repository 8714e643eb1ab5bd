"""Verbs with several paths: after a failure, the other paths are still processed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["each"]


def each(call: Call, paths: Sequence[str], function: "Callable[[PackedFiles, str], None]") -> int:
    """Call the function with every path, and return the exit code.

    The error of a single path is the command's error. With several paths, each failure is a message, and the exit
    code is 3.
    """
    with call.reading() as repository:
        if len(paths) == 1:
            function(repository, paths[0])
            return 0
        failed = 0
        for path in paths:
            try:
                function(repository, path)
            except (NotFound, Corrupt, Conflict, InvalidInput) as error:
                failed += 1
                call.report(error)
        if failed:
            warn_if_lost(call, repository)
    return SOME_FAILED if failed else 0
