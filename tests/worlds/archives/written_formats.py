"""The formats in which chunks can be written, and a tree with files that are difficult for some of them."""

import os
import random
from pathlib import Path
from typing import Final

from cafcat.errors import Unsupported
from cafcat.formats import registry
from cafcat.testing.formats import ListSink

__all__ = ["TREE", "WRITTEN", "byte_of", "make_tree", "same_tree"]


def _is_written(name: str) -> bool:
    try:
        registry.by_name(name).writer(ListSink())
    except Unsupported:
        return False
    return True


WRITTEN: Final = tuple(filter(_is_written, registry.NAMES))
"""Names of the formats."""

_RANDOM: Final = random.Random(6)

TREE: Final = {
    "tree/empty": b"",
    "tree/one byte": b"1",
    "tree/a/b/c/d/deep": b"deep",
    "tree/a/empty": b"",
    "tree/a/70 KiB": _RANDOM.randbytes(70 << 10),
    "tree/a/1 MiB": _RANDOM.randbytes(1 << 20),
    "tree/large": _RANDOM.randbytes((5 << 20) // 2),
    "tree/larger": _RANDOM.randbytes((9 << 20) + 1),
    "tree/same/1": b"the same" * 100,
    "tree/same/2": b"the same" * 100,
    "tree/\u00fc/\u65e5\u672c \n\t\\'": b"unicode",
    "tree/zeros": bytes(200_000),
} | {f"tree/small/{n:03}": _RANDOM.randbytes(n * 7) for n in range(60)}
"""Contents by path. A file of more than 8 MiB is streamed when it is read. A file of more than 1 MiB has several
records or blocks, in formats that have these."""


def make_tree(folder: Path) -> None:
    """Write TREE into a folder. The modification times of all files differ."""
    for number, (path, content) in enumerate(TREE.items()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(0, 1_700_000_000_123_456_000 + number * 1_000_001_000))


def byte_of(data: bytes, start: int, end: int, piece: bytes) -> int:
    """Return the position of a byte that can be changed to damage a file.

    The file has this piece, and its span is from start to end. If the format stores the piece as it is, the byte is
    in the piece. Else the byte is near the end of the span: compressed zeros may contain zeros that can be changed
    without harm.
    """
    found = data.rfind(piece, start, end) if any(piece) or data[start:end].count(0) == end - start else -1
    return end - 3 if found < 0 else found


def same_tree(first: Path, second: Path) -> bool:
    """Return True if both folders have the same files with equal contents and times, to the microsecond."""
    return _described(first) == _described(second)


def _described(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns // 1000) for path in files}
