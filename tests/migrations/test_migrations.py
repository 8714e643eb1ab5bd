"""The migrations, the tables in SQLAlchemy and the snapshot say the same."""

import os
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from cafcat.catalog import schema
from cafcat.catalog.tables import metadata
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CatalogOutdated, CatalogUnavailable
from cafcat.repository import open as open_repository
from tests.migrations.snapshot import SNAPSHOT, dump
from tests.worlds.servers.services import Databases


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return EmbeddedServer(tmp_path / "unused").programs


@pytest.mark.parametrize("partitions", [0, 3])
def test_tables_and_migrations_are_equal(databases: Databases, partitions: int) -> None:
    with databases.fresh(databases.template(), partitions) as url:
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
        with engine.connect() as connection:
            options = {"compare_type": True, "compare_server_default": True, "include_name": _is_no_partition}
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, metadata) == []


def _is_no_partition(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or not str(name).startswith("file_locations_p3_")


def test_constraints_are_equal_in_both_layouts(databases: Databases) -> None:
    statement = """
        SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = 'file_locations'::regclass AND contype <> 'n'
        UNION SELECT indexrelid::regclass::text, indisvalid::text || indisunique::text FROM pg_index
        WHERE indrelid = 'file_locations'::regclass
        UNION SELECT attname, concat_ws(' ', attnum, atttypid::regtype, attnotnull, attcollation::regcollation,
                                        col_description(attrelid, attnum)) FROM pg_attribute
        WHERE attrelid = 'file_locations'::regclass AND attnum > 0
        UNION SELECT 'comment', obj_description('file_locations'::regclass, 'pg_class')
        ORDER BY 1
    """
    found = []
    for partitions in (0, 3):
        with databases.fresh(databases.template(), partitions) as url, psycopg.connect(url) as connection:
            found.append(connection.execute(statement).fetchall())
    assert found[0] == found[1]
    assert len(found[0]) >= 17


def test_snapshot_is_true(database_url: str, programs: Path) -> None:
    assert SNAPSHOT.read_text() == dump(database_url, programs / "pg_dump"), "run `make schema`"


def test_snapshot_is_true_on_the_oldest_server_we_have(database_url_15: str, programs: Path) -> None:
    assert SNAPSHOT.read_text() == dump(database_url_15, programs / "pg_dump")


def test_head_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.migrations_folder()))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD_REVISION]


def test_every_table_and_column_has_a_comment(database_url: str) -> None:
    tables = """
        SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
          AND obj_description(c.oid, 'pg_class') IS NULL
    """
    columns = """
        SELECT c.relname || '.' || a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
          AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
    """
    with psycopg.connect(database_url) as connection:
        assert connection.execute(tables).fetchall() == []
        assert connection.execute(columns).fetchall() == []


def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    schema.upgrade(database_url)
    assert schema.current_revision(database_url) == schema.HEAD_REVISION


def test_an_empty_database_has_no_revision_and_is_not_migrated_unasked(empty_database_url: str) -> None:
    import cafcat

    assert schema.current_revision(empty_database_url) is None
    with (
        cafcat.open(database_url=empty_database_url) as repository,
        pytest.raises(CatalogOutdated, match="cafcat db init"),
    ):
        repository.read("x")
    assert schema.current_revision(empty_database_url) is None


def test_revision_0005_is_upgraded_and_keeps_its_rows(empty_database_url: str) -> None:
    command.upgrade(schema._config(empty_database_url), "0005")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("INSERT INTO stores (url, name) VALUES ('file:///store', 'kept')")
        identity = connection.execute("SELECT uuid FROM catalog_identity").fetchone()
        assert schema.revision_of(connection) == "0005"
    with (
        pytest.raises(CatalogOutdated, match="cafcat db upgrade"),
        open_repository(database_url=empty_database_url) as repository,
    ):
        repository.session.catalog.access_keys.all()
    schema.upgrade(empty_database_url)
    with open_repository(database_url=empty_database_url) as repository:
        assert repository.session.catalog.access_keys.all() == []
        assert [store.name for store in repository.stores()] == ["kept"]
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT uuid FROM catalog_identity").fetchone() == identity


@pytest.mark.parametrize(("revision", "advice"), [("0000", "cafcat db upgrade"), ("9999", "newer cafcat")])
def test_another_revision_is_refused_with_the_command_to_run(database_url: str, revision: str, advice: str) -> None:
    import cafcat

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])
    with cafcat.open(database_url=database_url) as repository:
        with pytest.raises(CatalogOutdated, match=advice):
            repository.read("x")
        with pytest.raises(CatalogOutdated, match=advice):
            repository.stats()


def test_a_database_in_another_encoding_is_refused(postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS cafcat_latin1")
        connection.execute("CREATE DATABASE cafcat_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            conninfo = psycopg.conninfo.make_conninfo(postgres_server, dbname="cafcat_latin1")
            with pytest.raises(CatalogUnavailable, match="LATIN1"):
                schema.upgrade(conninfo)
        finally:
            connection.execute("DROP DATABASE cafcat_latin1 WITH (FORCE)")


@pytest.mark.parametrize(
    ("revision", "hint"), [(None, "must own the database: ALTER DATABASE"), ("0009", "role that owns the tables")]
)
def test_the_hint_for_a_role_without_rights_names_the_owner(
    databases: Databases, empty_database_url: str, revision: str | None, hint: str
) -> None:
    role = f"cafcat_tests_{os.urandom(4).hex()}"
    url = psycopg.conninfo.make_conninfo(empty_database_url, user=role, password=role)
    with psycopg.connect(databases.superuser_url(empty_database_url), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
        try:
            if revision:
                command.upgrade(schema._config(empty_database_url), revision)
                connection.execute(f"GRANT ALL ON SCHEMA public TO {role}".encode())
                connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
            with pytest.raises(CatalogUnavailable, match="nothing was changed") as raised:
                schema.upgrade(url)
            assert hint in str(raised.value.hint)
        finally:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_rows_of_chunks_are_never_deleted(database_url: str) -> None:
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.Error, match="never deleted"):
        connection.execute("DELETE FROM chunks")
