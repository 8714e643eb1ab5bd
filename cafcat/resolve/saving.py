"""One file to disk, wherever its bytes are."""

from collections.abc import Iterator
from pathlib import Path

from cafcat.resolve.outputs import is_special, write_single
from cafcat.resolve.reading import Reading
from cafcat.resolve.wanted import Wanted

__all__ = ["save_single"]


def save_single(
    reading: Reading, wanted: Wanted, blocks: Iterator[bytes], output: Path, *, overwrite: bool
) -> None:
    """Writes a file to disk, as `write_single` does, with its time if it is the whole file; from a copy where its
    own chunk is damaged, also if that is seen only at the end."""
    modified_ns = wanted.location.modified_ns if wanted.is_whole else None

    def write(blocks: Iterator[bytes]) -> None:
        write_single(output, blocks, modified_ns, overwrite=overwrite)

    if is_special(output):
        write(blocks)  # what has gone into a pipe is gone
    else:
        reading.save(wanted, blocks, write)
