"""Plans: the files that share a range read, and the cost of the reads."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.model import Location
from cafcat.reading.coalescing import coalescing_of
from cafcat.reading.plan import ReadPlan, in_read_order, range_reads
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.stores.kind import StoreContext
from cafcat.stores.registry import open_store


class Opened(dict[str, Store]):
    """Stores by their URL.

    requests: Most requests in flight to a bucket. With one, reads are not split again.
    """

    def __init__(self, requests: int = 1) -> None:
        super().__init__()
        self._context = StoreContext(read_requests=requests)

    def __missing__(self, url: str) -> Store:
        return self.setdefault(url, open_store(url, self._context))


FOLDER = "file:///srv/chunks"
BUCKET = "s3://bucket/chunks"
STORES = Opened()
KIB, MIB = 1 << 10, 1 << 20


def request(start: int, end: int, key: str = "a", store: str = FOLDER, name: str = "") -> ReadRequest:
    location = Location(name or f"{key}-{start}", start, end, 0, None, UUID(int=ord(key[0])), store, key)
    return ReadRequest.of(location.path, location)


def spans(items: list[ReadRequest]) -> list[tuple[int, int]]:
    return [(read.start_byte, read.end_byte) for read in range_reads(items, STORES)]


@pytest.mark.parametrize(("store", "gap"), [(FOLDER, 64 * KIB), (BUCKET, MIB)])
def test_files_up_to_a_gap_apart_share_a_read(store: str, gap: int) -> None:
    near = [request(0, 10, store=store), request(10 + gap, 20 + gap, store=store)]
    far = [request(0, 10, store=store), request(11 + gap, 20 + gap, store=store)]
    assert spans(near) == [(0, 20 + gap)]
    assert spans(far) == [(0, 10), (11 + gap, 20 + gap)]


@pytest.mark.parametrize(("store", "most"), [(FOLDER, 8 * MIB), (BUCKET, 16 * MIB)])
def test_a_shared_read_has_a_largest_size_and_a_single_file_has_not(store: str, most: int) -> None:
    full = [request(5, 10, store=store), request(10, 5 + most, store=store)]
    assert spans(full) == [(5, 5 + most)]
    assert spans([request(4, 5, store=store), *full]) == [(4, 10), (10, 5 + most)]
    [fits] = range_reads([request(0, most, store=store)], STORES)
    [larger] = range_reads([request(0, most + 1, store=store)], STORES)
    assert (fits.in_blocks, larger.in_blocks) == (False, True)
    twice = [request(0, most + 1, store=store)] * 2
    assert [len(read.files) for read in range_reads(twice, STORES)] == [1, 1]


def test_files_of_two_objects_or_stores_share_no_read() -> None:
    items = [request(0, 1, "a"), request(1, 2, "b"), request(2, 3, "b", "file:///srv/others")]
    assert len(spans(items)) == 3


def test_empty_files_cost_nothing() -> None:
    assert spans([request(7, 7)]) == [(0, 0)]
    assert spans([request(0, 0), request(9 * MIB, 9 * MIB), request(20, 30), request(MIB, MIB)]) == [(20, 30)]
    [read] = range_reads([request(0, 9 * MIB), request(9 * MIB, 9 * MIB)], STORES)
    assert read.in_blocks
    plan = ReadPlan()
    for read in range_reads([request(7, 7), request(8, 8, "b")], STORES):
        plan.add(read, "/there")
    assert (plan.files, plan.requests, plan.bytes_read, len(plan.chunks)) == (2, 0, 0, 2)


@pytest.mark.parametrize(("store", "most"), [(FOLDER, 5_000), (BUCKET, 16_000)])
@pytest.mark.parametrize("size", [0, 1])
def test_a_read_has_a_largest_number_of_files(store: str, most: int, size: int) -> None:
    """Otherwise 8 MiB of tiny files, and any number of empty files, would be held in memory."""
    items = [request(n * size, (n + 1) * size, store=store) for n in range(2 * most + 1)]
    assert [len(read.files) for read in range_reads(items, STORES)] == [most, most, 1]


@pytest.mark.parametrize("end", [10, 50])
def test_file_with_a_large_content_is_read_alone_and_in_blocks(end: int) -> None:
    """A record of zeros may have no bytes in the chunk."""
    place = request(10, end).location._replace(content_bytes=9 * MIB, decoding="some")
    large = ReadRequest.of("large", place)
    small = ReadRequest.of("small", place._replace(start_byte=60, end_byte=end + 50, content_bytes=8 * MIB))
    reads = list(range_reads([request(0, 10), large, large, request(50, 60), small], STORES))
    assert [[item.name for item in read.files] for read in reads] == [
        ["a-0"],
        ["large"],
        ["large"],
        ["a-50", "small"],
    ]
    assert [read.in_blocks for read in reads] == [False, True, True, False]


def test_only_neighbours_in_the_requested_order_share_a_read() -> None:
    a, b, c = request(0, 10), request(10, 20), request(20, 30)
    assert spans([a, c, b]) == [(0, 30)]
    assert spans([b, a, c]) == [(10, 20), (0, 30)]
    assert spans([a, request(5, 6, "b"), b]) == [(0, 10), (5, 6), (10, 20)]
    assert spans(in_read_order([c, request(5, 6, "b"), b, a])) == [(0, 30), (5, 6)]


def test_a_plan_counts_requests_and_bytes_by_chunk() -> None:
    items = [request(0, 10), request(15, 20), request(0, 10), request(MIB, MIB + 1), request(3, 4, "b")]
    plan = ReadPlan()
    for read in range_reads(in_read_order(items), STORES):
        plan.add(read, f"/chunks/{read.object_key}")
    assert (plan.files, plan.requests, plan.bytes_wanted, plan.bytes_read) == (5, 3, 27, 22)
    first, second = plan.chunks
    assert (first.object, first.files, first.requests) == ("/chunks/a", 4, 2)
    assert (first.bytes_wanted, first.bytes_read) == (26, 21)
    assert (second.chunk, second.files, second.bytes_read) == (UUID(int=ord("b")), 1, 1)


SPANS = st.tuples(
    st.integers(0, 40 * MIB), st.one_of(st.integers(0, 3 * MIB), st.integers(0, 20 * MIB), st.just(0))
)


@given(
    st.lists(st.builds(lambda span, key: (span, key), SPANS, st.sampled_from("abc"))),
    st.sampled_from([FOLDER, BUCKET]),
    st.booleans(),
)
def test_every_file_is_in_its_read_once_and_in_order(
    found: list[tuple[tuple[int, int], str]], store: str, in_order: bool
) -> None:
    items = [request(start, start + size, key, store, str(n)) for n, ((start, size), key) in enumerate(found)]
    items = items if in_order else in_read_order(items)
    reads = list(range_reads(items, STORES))
    rule = coalescing_of(open_store(store))
    assert [item for read in reads for item in read.files] == items
    for read in reads:
        full = [item for item in read.files if item.size_bytes]
        assert all(read.start_byte <= item.start_byte <= item.end_byte <= read.end_byte for item in full)
        assert {item.location.object_key for item in read.files} == {read.object_key}
        assert len(full) == 1 or read.size_bytes <= rule.read_bytes
        assert sum(item.size_bytes for item in full) + rule.gap_bytes * len(full) >= read.size_bytes
    if not in_order:
        for before, after in pairwise(read for read in reads if read.size_bytes):
            far = after.start_byte - before.end_byte > rule.gap_bytes
            large = max(before.end_byte, after.files[0].end_byte) - before.start_byte > rule.read_bytes
            assert before.object_key != after.object_key or far or large
