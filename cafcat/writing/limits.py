"""The size, and the number of files, at which a chunk is full."""

from typing import Final, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.model import MAX_CHUNK_BYTES
from cafcat.writing.chunk import OpenChunk

__all__ = ["MAX_FILES", "WHOLE_FILE_BYTES", "Limits"]

MAX_FILES: Final = 1_000_000
"""Largest number of files that cafcat packs into one chunk."""
WHOLE_FILE_BYTES: Final = 1 << 20
"""Files up to this size, in bytes, are read completely before they are written: if reading fails, the chunk gets no
dead bytes."""


class Limits(NamedTuple):
    """The size, and the number of files, at which a chunk is full. A chunk with a single file can exceed this size.

    Attributes:
        target_bytes: Largest size in bytes of the finished object, if it has more than one file.
        hard_bytes: Largest size of an object with a single file, in bytes. A larger file is refused.
        max_files: Largest number of files in a chunk.
    """

    target_bytes: int
    hard_bytes: int = MAX_CHUNK_BYTES
    max_files: int = MAX_FILES

    def check(self) -> None:
        """Raise InvalidInput if `target_bytes` is not between 1 and `hard_bytes`."""
        if not 0 < self.target_bytes <= self.hard_bytes:
            message = f"the target size must be between 1 and {self.hard_bytes} bytes, not {self.target_bytes}"
            raise InvalidInput(message)

    def have_room(self, chunk: OpenChunk, path: str, size_bytes: int) -> bool:
        """Return True if a chunk has room for a file of this path and size, in bytes, and the format can add it.

        Raises:
            Refused: The format cannot store the path.
        """
        return (
            chunk.size_with(path, size_bytes) <= self.target_bytes
            and chunk.file_count < self.max_files
            and chunk.can_add(path, size_bytes)
        )
