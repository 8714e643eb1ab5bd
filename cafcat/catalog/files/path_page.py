"""Many paths of a catalog, as PostgreSQL sends them."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, overload

__all__ = ["PathPage"]

# PostgreSQL documentation, COPY, "Text Format": these sequences stand for a backslash and for control characters.
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class PathPage(Sequence[str]):
    """Paths in their order. They become strings when a program asks for one of them, except for the last one.

    Attributes:
        size_bytes: Size of the text.
        lines: The paths in UTF-8, each with a newline at its end; None if a path has a newline or another character
            that PostgreSQL escapes.
    """

    def __init__(self, text: bytes) -> None:
        """Create a page.

        Args:
            text: Result of a COPY of the paths in text format: a line for each path.
        """
        self._text = text
        self._count = text.count(b"\n")
        self.size_bytes = len(text)
        self._paths: list[str] | None = None
        self.lines = None if b"\\" in text else text

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if index == -1 and self._count:
            return _path(self._text[self._text.rfind(b"\n", 0, -1) + 1 : -1])
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def _all(self) -> list[str]:
        if self._paths is None:
            if self.lines is not None:
                self._paths = self.lines.decode().split("\n")[:-1]
            else:
                self._paths = [_path(line) for line in self._text.split(b"\n")[:-1]]
        return self._paths


def _path(line: bytes) -> str:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), line).decode()
