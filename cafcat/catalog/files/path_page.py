"""Many paths of a catalog, as PostgreSQL sends them."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, overload

__all__ = ["PathPage"]

# PostgreSQL documentation, COPY, "Text Format": these sequences stand for a backslash and for control characters.
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class PathPage(Sequence[str]):
    """Paths in their order. The first access makes strings of them all, except for an access to the last path.

    Attributes:
        size_bytes: Size of the text.
    """

    def __init__(self, blocks: Sequence[bytes], count: int) -> None:
        """Create a page.

        Args:
            blocks: Result of a COPY of the paths in text format: a line for each path, and no line in two blocks.
            count: Number of paths.
        """
        self._blocks = blocks
        self._count = count
        self.size_bytes = sum(map(len, blocks))

    @cached_property
    def lines(self) -> bytes | None:
        """The paths in UTF-8, each with a newline at its end; None if PostgreSQL escapes a character of a path.

        Such a character is a newline, for example.
        """
        return None if any(b"\\" in block for block in self._blocks) else b"".join(self._blocks)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if index == -1 and self._count:
            last = self._blocks[-1]
            return _path(last[last.rfind(b"\n", 0, -1) + 1 : -1])
        return self._all[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[str]:
        if self.lines is not None:
            return self.lines.decode().split("\n")[:-1]
        return [_path(line) for block in self._blocks for line in block.split(b"\n")[:-1]]


def _path(line: bytes) -> str:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), line).decode()
