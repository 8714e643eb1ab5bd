"""Verbs that take several paths: one that fails does not keep the others back."""

from collections.abc import Callable, Sequence

from cafcat.cli.call import Call
from cafcat.cli.errors import SOME_FAILED
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound

__all__ = ["each"]


def each(call: Call, paths: Sequence[str], action: Callable[[str], None]) -> int:
    """Runs the action on every path. A single path that fails ends the command with its own error; of
    several, each failure is one message and the exit code is 3."""
    if len(paths) == 1:
        action(paths[0])
        return 0
    failed = 0
    for path in paths:
        try:
            action(path)
        except (NotFound, Corrupt, Conflict, InvalidInput) as error:
            failed += 1
            call.report(error)
    return SOME_FAILED if failed else 0
