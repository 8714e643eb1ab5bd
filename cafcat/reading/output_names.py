"""Gives many files of the catalog the names of their outputs, and refuses two files with one output."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from cafcat.errors import InvalidInput
from cafcat.support.paths import is_text
from cafcat.support.sorting import ExternalSort

__all__ = ["OutputNames", "stripped"]

_END: Final = b"\0"
"""Ends the name of the output in a record: no path has it, and it sorts before every character."""


def stripped(path: str, parts: int) -> str:
    """Return a path without its leading parts: ("a/b/c", 1) -> "b/c"; "" for a path without further parts."""
    for _ in range(parts):
        path = path.partition("/")[2]
    return path


class OutputNames:
    """Paths of files, each with the name of its output, sorted by these names. Use it in a `with` statement.

    Memory does not depend on the number of paths: sorted runs are in a temporary file.
    """

    def __init__(self, what: str, hint: str) -> None:
        """Create an empty list.

        Args:
            what: What two files with one output have in common, for the message.
            hint: What to do about two files with one output.
        """
        self._what = what
        self._hint = hint
        self._sorted = ExternalSort("names of outputs")

    def add(self, path: str, output: str) -> bool:
        """Add the path of a file with the name of its output.

        Returns:
            False if no path can have this name, because it is not valid UTF-8 or has a NUL. It is not added.
        """
        if not is_text(path):
            return False
        self._sorted.add(output.encode() + _END + path.encode())
        return True

    def check(self) -> None:
        """Check that no two different paths have the same output; an output of "" stands for none.

        Raises:
            InvalidInput: Two paths have the same output.
        """
        before = before_path = b""
        for record in self._sorted:
            output, _, path = record.partition(_END)
            if output and output == before and path != before_path:
                first, second = before_path.decode(), path.decode()
                raise InvalidInput(f"{first!r} and {second!r} have {self._what}", hint=self._hint)
            before, before_path = output, path

    def __iter__(self) -> Iterator[str]:
        """Yield each path once, in the order of the outputs."""
        before = b""
        for record in self._sorted:
            if record != before:
                yield record.partition(_END)[2].decode()
            before = record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sorted.close()
