"""Times in answers of S3 servers: read quickly, and to the same values as botocore reads them."""

import pytest
from botocore.utils import parse_timestamp

from cafcat.remote.answers import nanoseconds, parse_time


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-25T23:01:18.000Z",
        "2026-11-25T23:01:18.123Z",
        "2026-11-25T23:01:18.123456Z",
        "2026-11-25T23:01:18Z",
        "2026-11-25T23:01:18.5Z",
        "2026-11-25T23:01:18.123456789Z",
        "2026-11-25T23:01:18+02:00",
        "Wed, 25 Nov 2026 23:01:18 GMT",
        "1970-01-01T00:00:00.000Z",
        1_795_647_678,
        "1795647678",
    ],
)
def test_times_have_the_value_that_botocore_reads(value: str | int) -> None:
    assert nanoseconds(parse_time(value)) == nanoseconds(parse_timestamp(value))


@pytest.mark.parametrize("value", ["", "yesterday", "2026-11-25T25:01:18Z"])
def test_other_texts_are_no_time(value: str) -> None:
    with pytest.raises(ValueError, match="Invalid timestamp"):
        parse_time(value)
