"""Cuts a tree of names into parts of roughly the same size, by looking at some of its folders side by side.

The names are keys of a bucket or paths in the catalog, in ascending order. A cut may be any text: names are only
compared with it. So a cut that was chosen badly makes parts unequal, but loses no name.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from cafcat.sources.parts import Part
from cafcat.support.paths import is_text

__all__ = ["Level", "NameTree", "cut_tree"]

_THREADS: Final = 32
"""Number of requests at the same time."""
_LOOKS: Final = 8
"""Largest number of requests for each wanted part."""
_UNKNOWN_WEIGHT: Final = 10_000
"""Number of names that a folder counts for if nobody has looked into it."""
_PIECE_FILES: Final = 5_000
"""Largest number of files of one folder between two cuts, for a tree that shows so many names in one look."""
_DIGITS: Final = 6
"""Number of characters with which the middle between two names is computed."""
_LOWEST: Final = 0x20
_BASE: Final = 0x7F - _LOWEST


class Level(NamedTuple):
    """The first names directly in a folder.

    Attributes:
        names: Whole names of files, and of folders with "/" at their end, in ascending order.
        is_complete: False if the folder has further names.
    """

    names: Sequence[str]
    is_complete: bool


class NameTree(Protocol):
    """Names in ascending order, with "/" between the names of folders. Threads may share it."""

    def level(self, folder: str, after: str | None) -> Level:
        """Return the first names directly in a folder.

        Args:
            folder: Name of the folder with "/" at its end; "" for the root.
            after: Return only names after this one, and folders with such names; None for the beginning.
        """

    def next_name(self, folder: str, after: str) -> str | None:
        """Return the first name after a text, anywhere below a folder; None if there is none."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of names: after `after`, through `through`.

    Attributes:
        after: None for the beginning of the part that is cut.
        through: None for the end of the part that is cut.
        folder: The folder that has all names of the piece.
        weight: Number of names, or a guess.
        is_unseen: True if nobody has looked into the folder yet.
        is_flat: True if a look showed only the beginning of the piece, so that it is cut in halves.
        highest: A text that no name of the piece is above, if a halving has shown that; else None.
    """

    after: str | None
    through: str | None
    folder: str
    weight: int
    is_unseen: bool = False
    is_flat: bool = False
    highest: str | None = None


def cut_tree(tree: NameTree, folder: str, part: Part, wanted: int) -> list[Part]:
    """Cut a part of a tree into parts of roughly the same number of names.

    Args:
        tree: The names.
        folder: The folder that has all names, with "/" at its end; "" for the root.
        part: The part of the tree to cut.
        wanted: Number of parts that the caller would like.

    Returns:
        The parts in ascending order, at most twice the wanted number.
    """
    pieces = [_Piece(part.after, part.through, folder, _UNKNOWN_WEIGHT, is_unseen=True)]
    looks = _LOOKS * wanted
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-cut") as threads:
        while chosen := _chosen(pieces, wanted)[: max(0, looks)]:
            looks -= len(chosen)
            replaced = dict(zip(chosen, threads.map(lambda piece: _divided(tree, piece), chosen), strict=True))
            pieces = [smaller for piece in pieces for smaller in replaced.get(piece, [piece])]
    return list(_joined(pieces, wanted))


def _chosen(pieces: Sequence[_Piece], wanted: int) -> list[_Piece]:
    """Return the pieces to divide next: rests of long folders, and folders that nobody has looked into."""
    flat = [piece for piece in pieces if piece.is_flat]
    unseen = [piece for piece in pieces if piece.is_unseen]
    return (flat if len(flat) < wanted else []) + (unseen if len(pieces) < wanted else [])


def _divided(tree: NameTree, piece: _Piece) -> list[_Piece]:
    return list(_looked_into(tree, piece)) if piece.is_unseen else _halves(tree, piece)


def _looked_into(tree: NameTree, piece: _Piece) -> Iterator[_Piece]:
    """Yield pieces for the folders directly in the folder of a piece, and for the files between them."""
    level = tree.level(piece.folder, piece.after)
    begin, count = piece.after, 0
    within = Part(piece.after, piece.through)
    is_complete = level.is_complete
    for name in filter(is_text, level.names):
        if within.is_before(name):
            is_complete = True  # as far as the piece goes
            break
        is_folder = name[-1] == "/" and name != piece.folder  # a bucket may have a key that is the folder itself
        end = f"{name[:-1]}0" if is_folder else name  # "0" follows "/": no name in the folder is above this
        if piece.after is not None and end <= piece.after:
            continue
        if not is_folder:
            count += 1
            if count == _PIECE_FILES:
                yield _Piece(begin, name, piece.folder, count)
                begin, count = name, 0
            continue
        if count:
            yield _Piece(begin, name, piece.folder, count)
            begin, count = name, 0
        if within.is_before(end):
            yield _Piece(begin, piece.through, name, _UNKNOWN_WEIGHT, is_unseen=True)
            return
        yield _Piece(begin, end, name, _UNKNOWN_WEIGHT, is_unseen=True)
        begin = end
    if is_complete:
        yield _Piece(begin, piece.through, piece.folder, count)
        return
    last = level.names[-1] if level.names else begin
    if count and last is not None and is_text(last):
        yield _Piece(begin, last, piece.folder, count)
        begin = last
    yield _Piece(begin, piece.through, piece.folder, _UNKNOWN_WEIGHT, is_flat=True)


def _halves(tree: NameTree, piece: _Piece) -> list[_Piece]:
    """Return the halves of a range of names, by the texts themselves.

    If one half has no names, the result is one piece whose names are known to be in the other half. If no text is
    between the ends of the range, the result is one piece that is not cut any further.
    """
    low = tree.next_name(piece.folder, piece.after or piece.folder)
    high = piece.highest or piece.through or f"{piece.folder}{'~' * _DIGITS}"
    middle = None if low is None or low >= high else _between(low, high)
    if middle is None:
        return [replace(piece, is_flat=False)]
    following = tree.next_name(piece.folder, middle)
    if following is None or (piece.through is not None and following > piece.through):
        return [replace(piece, highest=middle)]
    return [replace(piece, through=middle, highest=None), replace(piece, after=middle)]


def _between(low: str, high: str) -> str | None:
    """Return a text in the middle between two texts; None if the first characters that differ leave no room."""
    common = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    middle = low[:common] + _text((_number(low[common:]) + _number(high[common:])) // 2)
    return middle if low <= middle < high else None


def _number(text: str) -> int:
    """Return the first characters of a text as a number. Characters beyond ASCII count as the highest one."""
    number = 0
    for character in text[:_DIGITS].ljust(_DIGITS, chr(_LOWEST)):
        number = number * _BASE + min(max(ord(character) - _LOWEST, 0), _BASE - 1)
    return number


def _text(number: int) -> str:
    characters = []
    for _ in range(_DIGITS):
        number, digit = divmod(number, _BASE)
        characters.append(chr(digit + _LOWEST))
    return "".join(reversed(characters)).rstrip(chr(_LOWEST))


def _joined(pieces: Sequence[_Piece], wanted: int) -> Iterator[Part]:
    """Yield parts made of neighbouring pieces, so that no part is much smaller than the others."""
    share = max(1, sum(piece.weight for piece in pieces) // wanted)
    pieces = [piece for piece in pieces if piece.through is None or piece.after != piece.through] or pieces[:1]
    begin, weight = pieces[0].after, 0
    for piece in pieces[:-1]:
        weight += piece.weight
        if weight >= share:
            yield Part(begin, piece.through)
            begin, weight = piece.through, 0
    yield Part(begin, pieces[-1].through)
