"""The rows of a chunk, which a thread buffers while they are read."""

from collections.abc import Generator
from threading import Event

import pytest

from cafcat.catalog.chunks.rows import ChunkRow, ChunkRows
from tests.property.test_native_rows import encoded

ROWS = [(f"folder/{n:06}", n, n + 1, n, None) for n in range(50_000)]
TEXT = encoded(ROWS)
HALF = len(TEXT) // 2


def test_rows_can_be_read_before_the_last_one_has_arrived() -> None:
    may_end = Event()

    def blocks() -> Generator[bytes, None, None]:
        yield TEXT[:HALF]
        may_end.wait(60)
        yield TEXT[HALF:]

    with ChunkRows(blocks()) as rows:
        reader = rows.reader()
        assert first_of(reader.row()) == first_of(next(iter(rows))) == ("folder/000000", 0, 1, 0)
        may_end.set()
        assert [first_of(row) for row in rows] == [row[:4] for row in ROWS]
        assert sum(1 for _ in rows) == len(ROWS)


def first_of(row: ChunkRow | None) -> tuple[str, int, int, int]:
    assert row is not None
    return row[:4]


def test_an_error_is_raised_where_its_rows_would_be_read() -> None:
    def blocks() -> Generator[bytes, None, None]:
        yield TEXT[:HALF]
        raise LookupError("the server broke off")

    with ChunkRows(blocks()) as rows, pytest.raises(LookupError, match="broke off"):
        list(rows)


def test_closed_rows_are_not_taken_to_their_end() -> None:
    taken = 0
    may_go, is_ended = Event(), Event()

    def blocks() -> Generator[bytes, None, None]:
        nonlocal taken
        try:
            yield b"x" * 9_000_000
            may_go.wait(60)
            for taken in range(1_000_000):  # noqa: B007 - counts
                yield b"x"
        finally:
            is_ended.set()

    with ChunkRows(blocks()):
        may_go.set()
    assert is_ended.is_set()
    assert taken < 999_999
