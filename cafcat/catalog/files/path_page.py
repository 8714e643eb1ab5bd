"""Many paths of a catalog, as one text."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self, overload

__all__ = ["PathPage"]


class PathPage(Sequence[str]):
    """Paths in their order. The first access makes strings of them all, except for an access to the last path.

    Attributes:
        lines: The paths in UTF-8, with a newline between any two; None if one of them contains a newline.
        size_bytes: Size of this text.
    """

    def __init__(self, lines: bytes, count: int) -> None:
        """Create a page.

        Args:
            lines: The paths, with a newline between any two. None of them contains a newline.
            count: Number of paths.
        """
        self.lines: bytes | None = lines
        self.size_bytes = len(lines)
        self._count = count

    @classmethod
    def of(cls, paths: Sequence[str]) -> Self:
        """Return a page of paths that may contain newlines."""
        text = "\n".join(paths).encode()
        page = cls(text, len(paths))
        page._all = list(paths)
        if text.count(b"\n") >= max(1, len(paths)):
            page.lines = None
        return page

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if index == -1 and self._count and self.lines is not None:
            return self.lines[self.lines.rfind(b"\n") + 1 :].decode()
        return self._all[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[str]:
        return self.lines.decode().split("\n") if self._count and self.lines is not None else []
