"""When a chunk is full."""

from typing import Final, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.model import MAX_CHUNK_BYTES
from cafcat.writing.chunk import OpenChunk

__all__ = ["MAX_FILES", "WHOLE_FILE_BYTES", "Limits"]

MAX_FILES: Final = 1_000_000
"""No chunk has more files."""
WHOLE_FILE_BYTES: Final = 1 << 20
"""Files up to this size are read before they are written: if reading fails the chunk has no dead bytes."""


class Limits(NamedTuple):
    """A chunk exceeds the target only if it holds a single file."""

    target_bytes: int
    hard_bytes: int = MAX_CHUNK_BYTES
    max_files: int = MAX_FILES

    def check(self) -> None:
        """Raises InvalidInput for a target size that no chunk can have."""
        if not 0 < self.target_bytes <= self.hard_bytes:
            message = f"a target size is between 1 and {self.hard_bytes} bytes, not {self.target_bytes}"
            raise InvalidInput(message)

    def have_room(self, chunk: OpenChunk, path: str, size_bytes: int) -> bool:
        """Whether a further file fits into a chunk."""
        return (
            chunk.size_with(path, size_bytes) <= self.target_bytes
            and chunk.file_count < self.max_files
            and chunk.can_add(path, size_bytes)
        )
