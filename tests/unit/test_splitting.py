"""Range reads of a bucket are split at their largest gaps, until there are four for each request in flight."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cafcat.reading.coalescing import RangeRead
from cafcat.reading.plan import PLANNED_FILES, in_read_order, range_reads
from cafcat.reading.request import ReadRequest
from tests.unit.test_plan import BUCKET, KIB, MIB, Opened, request

LEAST_GAP = 64 * KIB
Read = RangeRead[ReadRequest]


def merged(items: list[ReadRequest]) -> list[Read]:
    """Return the reads of a store that gets one request at a time. None of them is split."""
    return list(range_reads(items, Opened(requests=1)))


def split(items: list[ReadRequest], requests: int) -> list[Read]:
    return list(range_reads(items, Opened(requests)))


def spans(reads: list[Read]) -> list[tuple[int, int]]:
    return [(read.start_byte, read.end_byte) for read in reads]


def bytes_read(reads: list[Read]) -> int:
    return sum(read.size_bytes for read in reads)


def files_with_gaps(*gaps: int, size: int = 10, key: str = "a", store: str = BUCKET) -> list[ReadRequest]:
    """Return files of one size, the first at byte 0, with these gaps between them."""
    items, end = [request(0, size, key, store)], size
    for gap in gaps:
        items.append(request(end + gap, end + gap + size, key, store))
        end += gap + size
    return items


@pytest.mark.parametrize(("gap", "expected"), [(LEAST_GAP - 1, 1), (LEAST_GAP, 2)])
def test_a_gap_from_64_kib_on_is_not_read(gap: int, expected: int) -> None:
    assert len(split(files_with_gaps(gap), 64)) == expected


def test_the_largest_gaps_are_left_out_until_there_are_four_reads_for_each_request() -> None:
    gaps = [n * KIB for n in (200, 900, 300, 800, 400, 700, 500, 600, 64, 65)]
    items = files_with_gaps(*gaps) + files_with_gaps(1000 * KIB, 1000 * KIB, key="b")
    assert [len(read.files) for read in merged(items)] == [11, 3]
    assert [len(read.files) for read in split(items, 2)] == [2, 2, 2, 2, 3, 1, 1, 1]
    assert bytes_read(split(items, 2)) == bytes_read(merged(items)) - (900 + 800 + 700 + 600 + 2000) * KIB


def test_reads_are_not_split_if_there_are_enough() -> None:
    items = [item for key in "abcdefghij" for item in files_with_gaps(900 * KIB, key=key)]
    assert spans(split(items, 2)) == spans(merged(items))
    assert spans(split(items[4:], 2)) == spans(merged(items[4:]))
    assert len(split(items[6:], 2)) == 8
    assert len(split(items, 3)) == 12


def test_neighbours_are_not_split() -> None:
    items = files_with_gaps(*[LEAST_GAP - 1] * 500) + files_with_gaps(*[0] * 2000, size=64 * KIB, key="b")
    assert spans(split(items, 64)) == spans(merged(items))


def test_files_in_another_order_are_not_split() -> None:
    """Their parts could overlap."""
    items = [request(0, 10), request(600 * KIB, 900 * KIB), request(300 * KIB, 600 * KIB)]
    items = [item._replace(location=item.location._replace(store=BUCKET)) for item in items]
    assert spans(split(items, 64)) == [(0, 900 * KIB)]
    assert spans(split(in_read_order(items), 64)) == [(0, 10), (300 * KIB, 900 * KIB)]


def test_empty_and_repeated_files_do_not_matter() -> None:
    first, second = files_with_gaps(500 * KIB)
    empty = request(300 * KIB, 300 * KIB, store=BUCKET)
    large = request(0, 450 * KIB, store=BUCKET)
    reads = split([first, first, empty, second, second], 64)
    assert [len(read.files) for read in reads] == [3, 2]
    assert spans(split([large, first, second], 64)) == [(0, 500 * KIB + 20)]
    assert spans(reads) == [(0, 10), (500 * KIB + 10, 500 * KIB + 20)]


def test_each_window_of_files_is_split_on_its_own() -> None:
    """An export has any number of files: those of a window are in memory."""
    neighbours = files_with_gaps(*[0] * (PLANNED_FILES - 1), key="a")
    windows = [*neighbours, *files_with_gaps(*[900 * KIB] * 3, key="b"), *neighbours]
    reads = split(windows, 1000)
    assert [len(read.files) for read in reads] == [PLANNED_FILES, 1, 1, 1, 1, PLANNED_FILES]
    seen = []

    def taken() -> Iterator[ReadRequest]:
        for item in windows:
            seen.append(item)
            yield item

    next(range_reads(taken(), Opened(1000)))
    assert PLANNED_FILES < len(seen) < PLANNED_FILES + 10


SIZES = st.sampled_from([0, 1, 4 * KIB, 300 * KIB, 17 * MIB])
SPANS = st.tuples(st.integers(0, 40 * MIB), SIZES, st.sampled_from("ab"))


@given(st.lists(SPANS, max_size=60), st.sampled_from([2, 3, 64]), st.booleans())
@example([(n * 400 * KIB, 1, "a") for n in range(50)], 3, True)
def test_split_reads_serve_the_same_files_with_fewer_bytes(
    found: list[tuple[int, int, str]], requests: int, is_sorted: bool
) -> None:
    items = [request(start, start + size, key, BUCKET, str(n)) for n, (start, size, key) in enumerate(found)]
    items = in_read_order(items) if is_sorted else items
    before, after = merged(items), split(items, requests)
    assert [item for read in after for item in read.files] == items
    for read in after:
        full = [item for item in read.files if item.size_bytes]
        assert all(read.start_byte <= item.start_byte < item.end_byte <= read.end_byte for item in full)
        assert {item.location.object_key for item in read.files} == {read.object_key}
    assert len(before) <= len(after) <= max(len(before), 4 * requests)
    assert bytes_read(before) - bytes_read(after) >= LEAST_GAP * (len(after) - len(before))
    assert sum(read.in_blocks for read in before) == sum(read.in_blocks for read in after)


@given(st.lists(st.integers(0, 2 * MIB), min_size=1, max_size=60), st.sampled_from([2, 3, 64]))
def test_no_gap_that_is_read_is_larger_than_one_that_is_left_out(gaps: list[int], requests: int) -> None:
    items = files_with_gaps(*gaps)
    reads = split(items, requests)
    left_out = sorted(after.start_byte - before.end_byte for before, after in pairwise(reads))
    read_gaps = [after.start_byte - before.end_byte for read in reads for before, after in pairwise(read.files)]
    assume(left_out and read_gaps)
    others = [gap for gap in read_gaps if gap >= LEAST_GAP]
    if len(reads) < 4 * requests:
        assert not others
    elif len(merged(items)) < 4 * requests:
        assert max(others, default=0) <= left_out[0]
