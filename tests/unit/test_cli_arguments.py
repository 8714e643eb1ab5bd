import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import InvalidInput
from cafcat.support.arguments import parse_date, parse_percent, parse_range


def bytes_of(text: str, content: bytes) -> bytes:
    byte_range = parse_range(text)
    return content[slice(*byte_range)]


CONTENT = bytes(range(250)) * 4


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("0-99", CONTENT[:100]),
        ("0-0", CONTENT[:1]),
        ("10-9999", CONTENT[10:]),
        ("100-", CONTENT[100:]),
        ("-100", CONTENT[900:]),
        ("-5000", CONTENT),
    ],
)
def test_ranges_are_inclusive_as_in_http(text: str, content: bytes) -> None:
    assert bytes_of(text, CONTENT) == content


@given(st.binary(max_size=50), st.integers(0, 60), st.integers(0, 100))
def test_a_range_has_the_bytes_that_its_numbers_say(content: bytes, first: int, more: int) -> None:
    wanted = bytes(byte for number, byte in enumerate(content) if first <= number <= first + more)
    assert bytes_of(f"{first}-{first + more}", content) == wanted


@pytest.mark.parametrize("text", ["", "-", "5", "a-b", "1-2-3", "-1-2", "0-99,200-", "٣-٤", "5-4", " 0-1", "-0"])
def test_invalid_ranges_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="byte range"):
        parse_range(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("2026-11-21", 1_795_219_200),
        ("2026-11-21T10:00:00", 1_795_255_200),
        ("2026-11-21 10:00:00.5", 1_795_255_200.5),
        ("2026-11-21T10:00:00Z", 1_795_255_200),
        ("2026-11-21T12:00:00+02:00", 1_795_255_200),
        ("1969-12-31T23:59:59", -1),
    ],
)
def test_dates_are_utc_unless_they_say_otherwise(text: str, seconds: float) -> None:
    assert parse_date(text) == int(seconds * 1_000_000_000)


def test_a_duration_is_a_time_before_now() -> None:
    before = time.time_ns()
    hour_ago = parse_date("1h")
    assert before - 3_600_000_000_000 <= hour_ago <= time.time_ns() - 3_600_000_000_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1795219200"])
def test_invalid_dates_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a date"):
        parse_date(text)


@pytest.mark.parametrize(("text", "share"), [("20%", 0.2), ("5%", 0.05), (" 0.5% ", 0.005), ("100%", 1)])
def test_a_share_is_a_part_of_one(text: str, share: float) -> None:
    assert parse_percent(text) == parse_percent(text, may_be_zero=True) == share


@pytest.mark.parametrize("text", ["20", "-1%", "101%", "-0%", "%", "", "x%", "nan%"])
def test_invalid_shares_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a share"):
        parse_percent(text)


def test_a_share_may_be_nothing_where_that_makes_sense() -> None:
    assert parse_percent("0%", may_be_zero=True) == 0
    with pytest.raises(InvalidInput, match="not a share"):
        parse_percent("101%", may_be_zero=True)
