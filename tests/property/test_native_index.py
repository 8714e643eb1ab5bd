"""The index of a CAF, parsed by the native part and by Python: always the same entries, or the same error."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.formats.caf.format import CAF
from cafcat.model import Entry
from cafcat.native.index import GROUP_ENTRIES
from cafcat.testing.formats import BytesArchive
from tests.worlds.native import both_ways, needs_library

pytestmark = needs_library

DATA = b"0123456789"
NUMBERS = ["0", "1", "7", "10", "11", "-1", "-0", "007", "1.0", "1e1", "4294967295", "4294967296"] + [
    str((1 << bits) + more) for bits in (63, 64) for more in (-1, 0, 1)
]
NUMBERS += [str(-(1 << 63)), str(-(1 << 63) - 1), "9" * 19, "9" * 20, '"3"', "null", ""]
NAMES = [
    "a",
    "b/c",
    "",
    "ü",
    "日本",
    "\U0001f600",
    '\\"',
    "\\\\",
    "\\u0041",
    "\\n",
    "\x1f",
    "\x7f",
    "x" * 40,
    "a\tb",
]
NAMES += ["x" * n + '"' * (n % 2) for n in range(7, 18)]
USUAL = {"start_byte": "2", "end_byte": "5", "crc32c": "17", "modified_ns": "-3"}
BYTES = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x80\x80\x80"]


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from([name.encode() for name in NAMES] + BYTES) | st.binary(max_size=20))
    keys = draw(
        st.sampled_from(
            [
                ("start_byte", "end_byte", "crc32c", "modified_ns"),
                ("start_byte", "end_byte", "crc32c"),
                ("start_byte", "end_byte", "modified_ns"),
                ("start_byte", "end_byte"),
                ("end_byte", "start_byte"),
                ("start_byte",),
                ("start_byte", "end_byte", "modified_ns", "crc32c"),
                ("start_byte", "end_byte", "other", "crc32c"),
            ]
        )
    )
    numbers = {key: draw(st.just(USUAL.get(key, "[]")) | st.sampled_from(NUMBERS)) for key in keys}
    space = draw(st.sampled_from(["", "", "", " "]))
    members = ",".join(f'"{key}":{space}{number}' for key, number in numbers.items())
    return b'"' + name + b'":{' + members.encode() + b"}" + space.encode()


@st.composite
def indexes(draw: st.DrawFn) -> bytes:
    found = b",".join(draw(st.lists(entries(), max_size=6)))
    index = bytearray(b'{"format_version":"1.0","files":{' + found + b"}}")
    for position, byte in draw(
        st.lists(st.tuples(st.integers(0, len(index) - 1), st.integers(0, 255)), max_size=2)
    ):
        index[position] = byte
    return bytes(index)


def read(index: bytes) -> list[Entry]:
    archive = BytesArchive(DATA + index + len(index).to_bytes(4, "little"))
    return list(CAF.reader(archive).entries())


def usual(number: int) -> bytes:
    return b'"folder/%06d":{"start_byte":0,"end_byte":10,"crc32c":%d,"modified_ns":%d}' % (number, number, -number)


def index_of(*found: bytes) -> bytes:
    return b'{"format_version":"1.0","files":{' + b",".join(found) + b"}}"


@given(indexes())
@example(index_of(usual(0), usual(1), usual(1)))
@example(index_of(usual(1), usual(0), usual(2)))
@example(index_of(usual(1), usual(2)).replace(b'"start_byte":0', b'"start_byte":9223372036854775808'))
def test_any_index(index: bytes) -> None:
    both_ways(lambda: read(index))


@pytest.mark.parametrize("key", USUAL)
@pytest.mark.parametrize("number", NUMBERS)
def test_each_odd_number_in_each_place(key: str, number: str) -> None:
    numbers = USUAL | {key: number}
    members = ",".join(f'"{key}":{number}' for key, number in numbers.items())
    both_ways(lambda: read(index_of(usual(0), b'"g":{' + members.encode() + b"}", usual(1))))


@pytest.mark.parametrize("name", [name.encode() for name in NAMES] + BYTES)
def test_each_odd_name(name: bytes) -> None:
    for before, after in ((b"", b""), (b"12345678", b""), (b"", b"12345678")):
        entry = b'"' + before + name + after + b'":{"start_byte":1,"end_byte":2}'
        both_ways(lambda entry=entry: read(index_of(usual(0), entry, usual(1))))  # type: ignore[misc]


def test_more_entries_than_a_group_and_a_window() -> None:
    """The index has 2.2 MB: names and numbers are cut at each byte of some entry by a window of 1 MiB."""
    found = both_ways(lambda: read(index_of(*map(usual, range(5 * GROUP_ENTRIES)))))
    assert [entry for entry in found if isinstance(entry, Entry)] == [
        Entry(f"folder/{n:06}", 0, 10, n, -n) for n in range(5 * GROUP_ENTRIES)
    ]


def test_an_invalid_entry_in_the_middle_of_a_group() -> None:
    for broken in (
        b'"b":{"start_byte":6,"end_byte":5}',
        b'"\xff":{"start_byte":0,"end_byte":5}',
        b'"b":{}',
        b"null",
    ):
        found = [*map(usual, range(300)), broken, *map(usual, range(300, 600))]
        kind, _ = both_ways(lambda found=found: read(index_of(*found)))  # type: ignore[misc]
        assert kind == "corrupt"
