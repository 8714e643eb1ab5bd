"""Reads some files of a source, to measure how fast an ingest can read them."""

import random
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from cafcat.errors import SourceFailed
from cafcat.model import NewFile, SourceFile
from cafcat.operations.estimate.report import Speed
from cafcat.scanning.batches import SourceBroke, read_each
from cafcat.session import Session
from cafcat.sources.base import Opener, OpenFile

__all__ = ["measure"]

_MOST_FILES: Final = 500
"""Most files that are read."""


def measure(session: Session, opener: Opener, files: Sequence[SourceFile], seconds: float) -> Speed:
    """Return how fast files are read, as an ingest reads them: many at the same time if they are remote.

    Files that cannot be read are left out. Of the last file, only the part that was read in time is counted.

    Args:
        session: The session. Its `checkpoint` can end the measurement.
        opener: Opens the files.
        files: Files of the source, in any order.
        seconds: How long to read, in seconds.
    """
    if not files or not seconds:
        return Speed()
    chosen = random.Random(0).sample(list(files), min(_MOST_FILES, len(files)))  # noqa: S311 - a sample, no secret
    begin, count, size_bytes = time.monotonic(), 0.0, 0
    ends_at = begin + seconds
    try:
        with closing(read_each(opener, chosen)) as opened:
            for result in opened:
                session.checkpoint()
                if not isinstance(result, SourceFailed):
                    share, read = _read(result, ends_at)
                    count, size_bytes = count + share, size_bytes + read
                if time.monotonic() > ends_at:
                    break
    except SourceBroke as broke:
        raise broke.reason from broke
    return Speed(count, size_bytes, time.monotonic() - begin)


def _read(result: NewFile | OpenFile, ends_at: float) -> tuple[float, int]:
    """Read a file until a time. Return which share of it was read, and how many bytes."""
    if isinstance(result, NewFile):
        return 1.0, len(result.content)
    read = 0
    with result:
        try:
            for block in result.blocks():
                read += len(block)
                if time.monotonic() > ends_at:
                    break
        except SourceFailed:
            return 0.0, read
        return (read / result.size_bytes if result.size_bytes else 1.0), read
