"""What the entries of an object's own index have to be like, for the catalog to take them."""

from typing import Final

from cafcat.model import MAX_PATH_BYTES, Entry

__all__ = ["refusal", "unnameable"]

_SHORT_PATH: Final = MAX_PATH_BYTES // 4
"""A path of so few characters is short enough, however many bytes each takes."""


def refusal(entry: Entry, position: int) -> str | None:
    """Why it cannot be taken; None if it can. position: the end_byte of the entry before it in the index, 0 for the
    first."""
    path, start, _, checksum, _, _, _ = entry
    if reason := unnameable(path):
        return reason
    if checksum is None:
        return "its index has no checksum of the file"
    if start < position:
        return "two files share bytes, or are not in order"
    return None


def unnameable(path: str) -> str | None:
    """Why the catalog cannot have a file of that name; None if it can."""
    if not path or "\0" in path or (len(path) > _SHORT_PATH and len(path.encode()) > MAX_PATH_BYTES):
        return "the catalog cannot hold this name"
    return None
