import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import InvalidInput
from cafcat.support.quantities import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        (1000, 1000),
        ("7B", 7),
        ("4k", 4000),
        ("20MB", 20_000_000),
        ("20 mb", 20_000_000),
        (" 30GB ", 30_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("1Ki", 1024),
        ("2T", 2_000_000_000_000),
        ("0.5kB", 500),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "-1", "1e9", "1.5.5", "10 GBit", "0x10", "1_000", "٣", "9223372036854775808", "10EB", "1i"],
)
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1500, "1.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (30_000_000_000, "30.0 GB"),
        (2**63 - 1, "9.2 EB"),
    ],
)
def test_sizes_are_shown_in_si_units(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(min_value=0, max_value=9 * 10**18))
def test_a_size_that_is_shown_reads_back_to_within_its_last_digit(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= max(size * 0.051, 0)
