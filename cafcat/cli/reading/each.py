"""Runs a command for several files: if one of them is missing or damaged, the others are still processed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.cli.choosing import Chosen
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.cli.reading.missing_names import explain_missing
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["each"]


def each(call: Call, chosen: Chosen, function: "Callable[[PackedFiles, str], None]") -> int:
    """Call a function with the path of each chosen file, and return the exit code: 0, or 3 if any path failed.

    If the user gave a single path, its error is raised. If there are several, the errors NotFound, Corrupt,
    Conflict and InvalidInput of a path are printed, and the other paths are still processed. All other errors are
    raised.

    Args:
        call: The call of the command.
        chosen: The files that the user chose.
        function: Called with the repository and a path.
    """
    with call.reading() as repository:
        only, names = chosen.names(repository)
        if only is not None:
            function(repository, only)
            return 0
        failed = 0
        for path in names:
            try:
                function(repository, path)
            except (NotFound, Corrupt, Conflict, InvalidInput) as error:
                failed += 1
                explain_missing(repository, error, chosen.paths)
                call.report(error)
        if failed:
            warn_if_lost(call, repository.session)
    return SOME_FAILED if failed else 0
