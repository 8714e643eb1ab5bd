"""A Spool keeps records in memory or in a temporary file."""

import pytest

from cafcat.errors import TemporaryFileFailed
from cafcat.support.spool import Spool, packed


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_records_come_back_in_order(memory_bytes: int) -> None:
    records = [b"%d" % number * number for number in range(300)]
    with Spool("records", memory_bytes) as spool:
        for record in records:
            spool.write(packed(record))
        assert list(spool.records(0, sum(len(packed(record)) for record in records))) == records


def test_a_file_that_ends_too_early_is_an_error() -> None:
    with Spool("records", 0) as spool:
        spool.write(packed(b"one"))
        records = spool.records(0, 100)
        assert next(records) == b"one"
        with pytest.raises(TemporaryFileFailed, match="ends too early"):
            next(records)
