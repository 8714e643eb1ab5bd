"""Turns the names in a large folder into numbers, so that names between two others can be found and counted.

Names are seen as numbers in a mixed radix: at each position stand the characters that were seen there. If two digits
were seen, any digit may stand there, and so with hexadecimal digits and letters. Texts that all names share thus take
no space, and a run of numbers or hashes fills its part of the space evenly.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

__all__ = ["KeySpace"]

_POSITIONS: Final = 48
"""Characters of a name that are used."""
_CLASSES: Final = ("0123456789", "0123456789abcdef", "0123456789ABCDEF", "abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class KeySpace:
    """Numbers for the names in one folder, in the order of the names."""

    def __init__(self, folder: str, names: Iterable[str]) -> None:
        """Find the characters at each position.

        Args:
            folder: Text that all names begin with, and that is left out.
            names: Some of the names.
        """
        self._folder = folder
        seen: list[set[str]] = [set() for _ in range(_POSITIONS)]
        for name in names:
            text = name[len(folder) : len(folder) + _POSITIONS]
            for position, characters in enumerate(seen):
                characters.add(text[position : position + 1])
        self._alphabets = [_expanded(characters) for characters in seen]
        self._ordinals = [[_ordinal(character) for character in alphabet] for alphabet in self._alphabets]

    def number(self, name: str) -> int:
        """Return the number of a name. A name with unknown characters gets the number of the next known name."""
        text, number = name[len(self._folder) :], 0
        beyond: int | None = None  # -1 and 0 stand for the largest and the smallest digit
        for position, ordinals in enumerate(self._ordinals):
            digit = beyond or 0
            if beyond is None:
                wanted = _ordinal(text[position : position + 1])
                digit = bisect_left(ordinals, wanted)
                if digit == len(ordinals):
                    beyond = digit = -1
                elif ordinals[digit] != wanted:
                    beyond = 0
            number = number * len(ordinals) + digit % len(ordinals)
        return number

    def name(self, number: int) -> str:
        """Return the name of a number."""
        characters: list[str] = []
        for alphabet in reversed(self._alphabets):
            number, digit = divmod(number, len(alphabet))
            characters.append(alphabet[digit])
        text = ""
        for character in reversed(characters):
            if not character:
                break
            text += character
        return self._folder + text

    @property
    def size(self) -> int:
        """Number of all names that the space has."""
        size = 1
        for alphabet in self._alphabets:
            size *= len(alphabet)
        return size


def _ordinal(character: str) -> int:
    return ord(character) if character else -1


def _expanded(characters: set[str]) -> list[str]:
    """Return the characters that may stand at a position, in order, the end of the name ("") first."""
    found = set(characters) or {""}
    letters = {character for character in characters if character.isascii() and character.isalnum()}
    if any(character.isdigit() for character in letters) or len(letters) > 1:
        for members in _CLASSES:
            if letters <= set(members):
                found |= set(members)
                break
        else:
            for members in (_CLASSES[0], _CLASSES[-1], _UPPER):
                if letters & set(members):
                    found |= set(members)
    return sorted(found, key=_ordinal)
