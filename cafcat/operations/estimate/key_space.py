"""Turns the names in a large folder into numbers, so that names between two others can be found and counted.

Names are seen as numbers in a mixed radix: at each position stand the characters that were seen there. If a digit
was seen, any digit may stand there; if several letters were seen, any letter. Texts that all names share take no
space then, and a run of numbers or hashes fills its part of the space evenly.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

__all__ = ["KeySpace"]

_POSITIONS: Final = 48
"""Characters of a name that are used."""
_DIGITS: Final = "0123456789"
_LETTERS: Final = ("abcdef", "ABCDEF", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_EXPANDED_LETTERS: Final = 4
"""Different letters that must be seen at a position. Fewer belong to texts, such as "jpg", at varying places."""


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
    letters = {character for character in characters if character.isascii() and character.isalpha()}
    digits = {character for character in characters if character.isdecimal()}
    if digits:
        found |= set(_DIGITS)
    if len(letters) >= _EXPANDED_LETTERS or (digits and letters and found <= set(_DIGITS) | letters):
        for members in _LETTERS:
            if letters <= set(members):
                found |= set(members)
                break
        else:
            found |= set("".join(_LETTERS[2:]))
    return sorted(found, key=_ordinal)
