"""Splits range reads at their largest gaps while few requests are planned, so that fewer bytes are read.

Merging saves requests. But many requests in flight take little more time than one, and the bytes of the gaps take
time, too. Decision 0031 has the model and the measurements.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import groupby, pairwise
from sys import maxsize
from typing import Any, Final

from cafcat.reading.coalescing import Coalescing, RangeRead, Span

__all__ = ["split"]

_ROUNDS: Final = 4
"""Reads are split until there are so many of them for each request that may be in flight."""
_LEAST_GAP_BYTES: Final = 64 << 10
"""Smaller gaps are read: their bytes cost less CPU time than another request, which costs money as well."""

_ALL_FILES: Final = Coalescing(gap_bytes=maxsize, read_bytes=maxsize, read_files=maxsize)
"""A part of a read takes each of its files."""
_Cut = tuple[int, int]
"""Where a read is split: its position among the reads, and the position of the first file after the gap."""


def split(
    reads: Iterable[RangeRead[Span]], requests_in_flight: int, window_files: int
) -> Iterator[RangeRead[Span]]:
    """Yield the reads of one store in their order, some of them split into several.

    A split leaves out the bytes of one gap and costs one request. The largest gaps are chosen, and only until there
    are four reads for each request that may be in flight. If there are as many reads anyway, none is split.

    Args:
        reads: The reads, as `coalesce` yields them.
        requests_in_flight: Most requests to the store that are in flight at the same time. With one, no read is
            split, because then each further request takes as long as the transfer of 1 MiB.
        window_files: The reads of so many files are compared with each other, and are in memory.
    """
    if requests_in_flight == 1:
        yield from reads
        return
    most_reads = _ROUNDS * requests_in_flight
    window: list[RangeRead[Span]] = []
    file_count, has_most = 0, False
    for read in reads:
        if file_count >= window_files:
            yield from _split(window, most_reads)
            window, file_count, has_most = [], 0, False
        window.append(read)
        file_count += len(read.files)
        has_most = has_most or len(window) == most_reads
        if has_most:
            yield from window
            window = []
    yield from _split(window, most_reads)


def _split(reads: Sequence[RangeRead[Span]], most_reads: int) -> Iterator[RangeRead[Span]]:
    cuts = _cuts(reads, most_reads - len(reads))
    for n, read in enumerate(reads):
        if n not in cuts:
            yield read
            continue
        for first, end in pairwise((0, *cuts[n], len(read.files))):
            part = RangeRead[Span](read.store, read.object_key)
            for file in read.files[first:end]:
                part.take(file, _ALL_FILES)
            yield part


def _cuts(reads: Sequence[RangeRead[Any]], most_cuts: int) -> dict[int, list[int]]:
    """Return where to split, by the position of the read: before which of its files."""
    gaps = ((size, (-n, -at)) for n, read in enumerate(reads) for size, at in _gaps(read))
    chosen: list[_Cut] = sorted((-n, -at) for _, (n, at) in nlargest(most_cuts, gaps))
    return {n: [at for _, at in of_read] for n, of_read in groupby(chosen, key=lambda cut: cut[0])}


def _gaps(read: RangeRead[Any]) -> list[tuple[int, int]]:
    """Return the sizes of the large gaps in a read, each with the position of the first file after it.

    A read whose files are not in the order of their bytes has none: its parts could overlap.
    """
    gaps = []
    before = end = read.start_byte
    for at, file in enumerate(read.files):
        start_byte, end_byte = file.start_byte, file.end_byte
        if start_byte == end_byte:
            continue
        if start_byte < before:
            return []
        if start_byte - end >= _LEAST_GAP_BYTES:
            gaps.append((start_byte - end, at))
        before, end = start_byte, max(end, end_byte)
    return gaps
