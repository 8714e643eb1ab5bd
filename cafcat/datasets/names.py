"""A list of texts in three objects, however many there are."""

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

__all__ = ["Names"]


class Names(Sequence[str]):
    """A list of texts that cannot be changed, as one run of bytes and an array of offsets.

    A list of `str` has an object for each text, with a counter of references. A forked process that only reads such
    a list changes these counters, and soon has a copy of the whole list. This list stays shared.
    """

    def __init__(self, names: Iterable[str]) -> None:
        data, ends = bytearray(), array("Q", [0])
        for name in names:
            data += name.encode()
            ends.append(len(data))
        self._data, self._ends = bytes(data), ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return a text, or a list of them. Raises IndexError."""
        if isinstance(index, slice):
            return self.some(range(*index.indices(len(self))))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"there is no sample {index}: there are {len(self)}")
        return self._data[self._ends[number] : self._ends[number + 1]].decode()

    def some(self, numbers: Iterable[int]) -> list[str]:
        """Return several texts by their numbers, which must be from 0 to the number of texts minus 1."""
        data, ends = self._data, self._ends
        return [data[ends[number] : ends[number + 1]].decode() for number in numbers]
