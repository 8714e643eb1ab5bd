"""A database server that has stopped to answer, although its operating system acknowledges all packets."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.catalog.database_url import connect
from cafcat.errors import CatalogUnavailable
from tests.crash.postgres_proxy import PostgresProxy
from tests.worlds.servers.services import Databases

LIMITS = "&tcp_user_timeout=1000&connect_timeout=2"


@pytest.fixture
def proxy(databases: Databases) -> Iterator[PostgresProxy]:
    with PostgresProxy(databases.owner_conninfo) as proxy:
        yield proxy
        proxy.flowing.set()


@pytest.fixture
def repository(proxy: PostgresProxy, database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    url = proxy.url(str(name)) + LIMITS
    with cafcat.open(database_url=url, home=tmp_path, store=tmp_path / "store") as repository:
        write(repository)
        yield repository


def write(repository: cafcat.Repository) -> None:
    with repository.writer(on_conflict="replace") as writer:
        writer.add("folder/file", b"content")


@pytest.mark.parametrize(
    "use",
    [
        lambda repository: repository.read("folder/file"),
        lambda repository: list(repository.list("folder")),
        lambda repository: repository.stats(),
        lambda repository: list(repository.query("SELECT 1")[1]),
        write,
        lambda repository: repository.rm(["folder/file"]),
        lambda repository: repository.snapshot(repository.settings.home / "snapshot"),
    ],
    ids=["look-up", "listing", "report", "query", "commit", "removal", "snapshot"],
)
@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "connecting"])
@pytest.mark.slow
def test_no_statement_waits_for_ever(
    proxy: PostgresProxy,
    repository: cafcat.Repository,
    use: Callable[[cafcat.Repository], object],
    is_connected: bool,
) -> None:
    if not is_connected:
        repository.session.catalog.close()
    proxy.flowing.clear()
    with pytest.raises(CatalogUnavailable):
        use(repository)
    proxy.flowing.set()
    assert repository.read("folder/file") == b"content"


@pytest.mark.slow
def test_a_long_statement_of_a_living_server_goes_on(repository: cafcat.Repository) -> None:
    with repository.session.catalog._connection.statement(read_only=True) as connection:
        connection.execute("SELECT pg_sleep(2.5)")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("operation", ["look-up", pytest.param("commit", marks=pytest.mark.slow)])
def test_a_statement_that_is_being_executed_ends(
    proxy: PostgresProxy, repository: cafcat.Repository, operation: str
) -> None:
    """The server has the request; its answer never comes."""
    wanted = b"file_locations" if operation == "look-up" else b"COMMIT"

    def freeze(transaction: list[bytes]) -> None:
        if wanted in transaction[-1]:
            proxy.flowing.clear()

    proxy.cut = freeze
    with pytest.raises(CatalogUnavailable):
        repository.read("folder/file") if operation == "look-up" else write(repository)


def test_connections_have_limits_for_a_dead_network(database_url: str) -> None:
    """The operating system of this machine, not a server, ends connections whose packets vanish."""
    with connect(database_url) as connection:
        given = connection.info.get_parameters()
    assert {name: given[name] for name in ("keepalives_idle", "keepalives_interval", "keepalives_count")} == {
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
    }
    assert given["tcp_user_timeout"] == "60000"


def test_sockets_have_these_limits(proxy: PostgresProxy, database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with connect(proxy.url(str(name))) as connection:
        opened = socket.socket(fileno=connection.fileno())
        try:
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        finally:
            opened.detach()


def test_a_time_limit_of_the_role_ends_look_ups_but_no_commit(database_url: str, tmp_path: Path) -> None:
    """ALTER ROLE … SET statement_timeout is the limit for look-ups. Commits override it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET statement_timeout = 200'.encode())
        connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_sleep(0.4); RETURN NEW; END$$"
        )
        connection.execute(
            "CREATE TRIGGER slow BEFORE INSERT ON file_locations FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    with cafcat.open(database_url=database_url, home=tmp_path, store=tmp_path / "store") as repository:
        write(repository)
        assert repository.read("folder/file") == b"content"
        begun = time.monotonic()
        with (
            pytest.raises(CatalogUnavailable, match="statement timeout"),
            repository.session.catalog._connection.by_index(read_only=True) as opened,
        ):
            opened.execute("SELECT pg_sleep(60)")
        assert time.monotonic() - begun < 60
