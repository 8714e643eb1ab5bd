"""The result of a COPY, read in blocks of many rows."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext

import psycopg
import pytest

from cafcat.catalog.connection import PgConnection, open_connection
from cafcat.catalog.copy_out import _Rows, copied_blocks
from cafcat.native.library import library, turned_off
from tests.worlds.native import needs_library
from tests.worlds.waiting import wait_until


@pytest.fixture(params=[pytest.param(True, marks=needs_library), False], ids=["native", "python"])
def is_native(request: pytest.FixtureRequest) -> Iterator[bool]:
    with nullcontext() if request.param else turned_off():
        yield request.param


@pytest.fixture
def connection(database_url: str, is_native: bool) -> Iterator[PgConnection]:
    with open_connection(database_url) as connection:
        yield connection


def test_the_library_receives_the_rows_where_there_is_one(connection: PgConnection, is_native: bool) -> None:
    assert (library() is not None) == is_native
    assert (_Rows(connection)._receiver is not None) == is_native


def test_rows_without_a_copy_are_an_error(connection: PgConnection) -> None:
    with pytest.raises(psycopg.OperationalError, match="no COPY in progress"):
        _Rows(connection)._received()


@pytest.mark.parametrize("rows", [0, 1, 999, 200_000])
def test_every_row_comes_once(connection: PgConnection, rows: int) -> None:
    query = f"COPY (SELECT n, repeat('x', n % 300) FROM generate_series(1, {rows}) AS n) TO STDOUT"
    blocks = list(copied_blocks(connection, query.encode()))
    assert b"".join(blocks) == b"".join(b"%d\t%s\n" % (n, b"x" * (n % 300)) for n in range(1, rows + 1))
    assert all(block.endswith(b"\n") for block in blocks)
    assert len(blocks) < 10 + rows / 20
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_binary_format_is_complete(connection: PgConnection) -> None:
    [data] = copied_blocks(connection, b"COPY (SELECT %s::int) TO STDOUT (FORMAT BINARY)", [7])
    assert data == b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\x01\0\0\0\x04\0\0\0\x07" + b"\xff\xff"


def test_a_row_may_be_larger_than_a_block(connection: PgConnection) -> None:
    query = b"COPY (SELECT repeat('x', 1000000 * n) FROM generate_series(1, 3) AS n) TO STDOUT"
    assert sorted(len(block) - 1 for block in copied_blocks(connection, query)) == [1_000_000, 2_000_000, 3_000_000]


@pytest.mark.parametrize("rows", [10, 100_000])
def test_an_error_in_a_row_is_raised_after_the_rows_before_it(connection: PgConnection, rows: int) -> None:
    query = f"COPY (SELECT 1 / ({rows} - n) FROM generate_series(1, {rows}) AS n) TO STDOUT"
    found = copied_blocks(connection, query.encode())
    with pytest.raises(psycopg.errors.DivisionByZero):
        list(found)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_iterator_may_be_closed_early(connection: PgConnection) -> None:
    with closing(copied_blocks(connection, b"COPY (SELECT generate_series(1, 10000000)) TO STDOUT")) as found:
        assert next(found).startswith(b"1\n2\n")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_lost_connection_is_an_error(connection: PgConnection, database_url: str) -> None:
    active = "SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE 'COPY%%'"
    pid = [connection.info.backend_pid]
    with (
        psycopg.connect(database_url, autocommit=True) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        reading = threads.submit(list, copied_blocks(connection, b"COPY (SELECT pg_sleep(600)) TO STDOUT"))
        wait_until(lambda: other.execute(active, pid).fetchone() is not None)
        other.execute("SELECT pg_terminate_backend(%s)", pid)
        assert isinstance(reading.exception(), psycopg.OperationalError)
