"""`cafcat db grant-reader` and `db listen`: a role that reads everything, and can change nothing."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import cafcat
from cafcat.catalog.named_queries import named_queries
from cafcat.catalog.tables import metadata
from cafcat.embedded import listening
from cafcat.embedded.roles import SUPERUSER
from cafcat.errors import AccessDenied, InvalidInput
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings

FILES = {"a/one": b"1", "a/two": b"22"}
TABLES = sorted(metadata.tables)
CHANGES = [
    *(f"INSERT INTO {table} DEFAULT VALUES" for table in TABLES),
    *(f"DELETE FROM {table}" for table in TABLES),
    *(f"TRUNCATE {table} CASCADE" for table in TABLES),
    *(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE" for table in TABLES),
    *(f"ALTER TABLE {table} ADD COLUMN pwned int" for table in TABLES),
    *(f"DROP TABLE {table} CASCADE" for table in TABLES),
    "UPDATE chunks SET state = 'deleted'",
    "UPDATE file_locations SET start_byte = 0",
    "UPDATE stores SET url = 'file:///pwned'",
    "SELECT * FROM chunks FOR UPDATE",
    "SELECT setval('chunks_id_seq', 1)",
    "SELECT nextval('chunks_id_seq')",
    "CREATE TABLE pwned (n int)",
    "CREATE TABLE cafcat_ops.pwned (n int)",
    "CREATE TEMPORARY TABLE pwned (n int)",
    "CREATE SCHEMA pwned",
    "CREATE FUNCTION pwned() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE VIEW cafcat_ops.files AS SELECT 1",
    "DROP VIEW cafcat_ops.files CASCADE",
    "DROP SCHEMA cafcat_ops CASCADE",
    "SET ROLE cafcat_owner",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "CREATE ROLE pwned",
    "COPY chunks FROM STDIN",
    "COPY chunks TO PROGRAM 'cat'",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with an embedded database, a catalog of two files, and a port."""
    folder = tmp_path_factory.mktemp("home")
    with cafcat.open(home=folder, store=folder / "store") as repository:
        with repository.writer() as writer:
            for path, content in FILES.items():
                writer.add(path, content)
        repository.verify()
    yield folder
    Database(Settings.load(home=folder)).stop()


@pytest.fixture(scope="module")
def reader_url(home: Path) -> str:
    database = Database(Settings.load(home=home))
    password = database.grant_reader("grafana")
    assert database.grant_reader("grafana") is None
    return make_conninfo(database.listen(unused_port()), user="grafana", password=password)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind((listening.LOOPBACK, 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("statement", CHANGES)
def test_no_statement_changes_anything(reader_url: str, statement: str) -> None:
    with psycopg.connect(reader_url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.autocommit = False
        with pytest.raises(psycopg.Error) as failure:
            connection.execute(statement.encode())
        assert failure.value.sqlstate in ("42501", "0A000"), failure.value  # no privilege; views cannot be changed


def test_every_table_view_and_query_can_be_read(reader_url: str) -> None:
    with psycopg.connect(reader_url) as connection:
        assert connection.execute("SELECT count(*) FROM cafcat_ops.files").fetchall() == [(2,)]
        for table in TABLES:
            connection.execute(f"SELECT * FROM {table}".encode())
        for query in named_queries().values():
            connection.execute(query.example().encode())


def test_reading_works_and_changing_does_not(home: Path, reader_url: str) -> None:
    with cafcat.open(database_url=reader_url, home=home, store=home / "store") as repository:
        assert {item.path: repository.read(item.path) for item in repository.list()} == FILES
        assert dict(repository.read_many(FILES)) == FILES
        assert [item.path for item in repository.list_folder()] == ["a/"]
        assert repository.folder_total("a").files == 2
        assert repository.stats().files == 2
        assert repository.history("a/one") == []
        assert len(list(repository.chunks())) == 1
        assert len(repository.runs()) == 1
        assert len(repository.stores()) == 1
        repository.extract("a", home / "extracted")
        repository.snapshot(home / "all.snapshot")
        for change in (lambda: repository.rm(["a/one"]), repository.verify, repository.backup):
            with pytest.raises(AccessDenied):
                change()
    with cafcat.open(home=home) as repository:
        assert repository.stats().files == 2


def test_roles_that_can_change_the_catalog_are_refused(home: Path) -> None:
    database = Database(Settings.load(home=home))
    for role in ("cafcat_owner", SUPERUSER):
        with pytest.raises(InvalidInput, match="can change the catalog"):
            database.grant_reader(role)


def test_a_role_without_a_name_is_refused(home: Path) -> None:
    with pytest.raises(InvalidInput, match="the name of the role is empty"):
        Database(Settings.load(home=home)).grant_reader("")


def test_the_port_is_for_readers_and_is_closed_again(home: Path) -> None:
    database = Database(Settings.load(home=home))
    url = database.listen(unused_port())
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT current_user").fetchall() == [("cafcat_reader",)]
    for role in ("cafcat_owner", SUPERUSER):
        with pytest.raises(psycopg.OperationalError, match="rejects connection"):
            psycopg.connect(url.replace("cafcat_reader", role))
    with socket.socket() as other:
        other.bind((listening.LOOPBACK, 0))
        other.listen()
        with pytest.raises(InvalidInput, match="another program uses port"):
            database.listen(other.getsockname()[1])
        # A port that was taken meanwhile does not keep the database from starting.
        listening.set_port(home / "postgres", other.getsockname()[1])
        database.stop()
        with cafcat.open(home=home) as repository:
            assert repository.stats().files == 2
    assert database.stop_listening()
    assert not database.stop_listening()
    with cafcat.open(home=home) as repository:
        assert repository.stats().files == 2
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
