"""Statements that try to escape from `cafcat sql -c`, on the embedded server and on a given one."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from alembic import command
from psycopg.conninfo import make_conninfo

import cafcat
from cafcat.catalog.schema import HEAD_REVISION, _config
from cafcat.embedded.roles import OWNER, READER, SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CafcatError, InvalidInput
from tests.worlds.servers.services import Databases, debian_programs, temporary_server

MARK = "pwned"
STATEMENTS = {
    # Changes of the catalog
    "delete": "DELETE FROM file_locations",
    "update": "UPDATE chunks SET state = 'deleted'",
    "truncate": "TRUNCATE file_locations",
    "drop": "DROP TABLE journal CASCADE",
    "create": "CREATE TABLE pwned (n int)",
    "select into": "SELECT 1 AS n INTO pwned",
    "create as": "CREATE TABLE pwned AS SELECT 1 AS n",
    "temporary table": "CREATE TEMPORARY TABLE pwned (n int)",
    "delete in WITH": "WITH gone AS (DELETE FROM file_locations RETURNING *) SELECT * FROM gone",
    "insert in WITH": "WITH new AS (INSERT INTO listings DEFAULT VALUES RETURNING 1) SELECT * FROM new",
    "explain analyze": "EXPLAIN ANALYZE DELETE FROM file_locations",
    "for update": "SELECT * FROM file_locations FOR UPDATE",
    "lock": "LOCK TABLE file_locations IN ACCESS EXCLUSIVE MODE",
    "nextval": "SELECT nextval(pg_get_serial_sequence('chunks', 'id'))",
    "setval": "SELECT setval(pg_get_serial_sequence('chunks', 'id'), 1000000)",
    "query_to_xml": "SELECT query_to_xml('DELETE FROM file_locations', true, true, '')",
    "reindex": "REINDEX TABLE file_locations",
    "vacuum": "VACUUM file_locations",
    # Programs and files of the server
    "copy to program": "COPY (SELECT 1) TO PROGRAM 'cat > {mark}'",
    "copy from program": "COPY listings FROM PROGRAM 'touch {mark}'",
    "copy to file": "COPY (SELECT 1) TO '{mark}'",
    "copy from file": "COPY listings FROM '/etc/passwd'",
    "copy to stdout": "COPY file_locations TO STDOUT",
    "pg_read_file": "SELECT pg_read_file('/etc/passwd')",
    "pg_read_binary_file": "SELECT pg_read_binary_file('/etc/passwd')",
    "pg_ls_dir": "SELECT pg_ls_dir('/')",
    "pg_stat_file": "SELECT pg_stat_file('/etc/passwd')",
    "copy in xml": "SELECT query_to_xml('COPY (SELECT 1) TO PROGRAM ''cat > {mark}''', true, true, '')",
    "load": "LOAD 'auto_explain'",
    "C function": "CREATE FUNCTION system(cstring) RETURNS int AS 'libc.so.6', 'system' LANGUAGE C STRICT",
    "alter system": "ALTER SYSTEM SET archive_command = 'touch {mark}'",
    "reload": "SELECT pg_reload_conf()",
    # Out of the role
    "reset role": "RESET ROLE",
    "set role": "SET ROLE {superuser}",
    "set role none": "SET ROLE NONE",
    "session authorization": "SET SESSION AUTHORIZATION {superuser}",
    "reset session authorization": "RESET SESSION AUTHORIZATION",
    "set_config role": "SELECT set_config('role', 'none', false), pg_read_file('/etc/passwd')",
    "set_config superuser": "SELECT set_config('role', '{superuser}', false), pg_read_file('/etc/passwd')",
    "set_config authorization": "SELECT set_config('session_authorization', '{superuser}', false)",
    "do, reset role": "DO $$ BEGIN RESET ROLE; COPY (SELECT 1) TO PROGRAM 'cat > {mark}'; END $$",
    "do, execute": "DO $$ BEGIN EXECUTE 'RESET ROLE'; PERFORM pg_read_file('/etc/passwd'); END $$",
    "alter role": "ALTER ROLE CURRENT_USER SUPERUSER",
    "create role": "CREATE ROLE pwned SUPERUSER",
    "grant": "GRANT {superuser} TO CURRENT_USER",
    "security definer": "CREATE FUNCTION f() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
    # Out of the transaction
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "begin": "BEGIN READ WRITE",
    "several": "SELECT 1; DELETE FROM file_locations",
    "commit and delete": "COMMIT; DELETE FROM file_locations",
    "close and delete": "SELECT 1; CLOSE cafcat_query; DELETE FROM file_locations",
    "comment and delete": "SELECT 1 -- \n; DELETE FROM file_locations; --",
    "read write": "SET TRANSACTION READ WRITE",
    "read write and delete": "SET TRANSACTION READ WRITE; DELETE FROM file_locations",
    "session characteristics": "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "do, read write": "DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM file_locations; END $$",
    "do, delete": "DO $$ BEGIN DELETE FROM file_locations; END $$",
    "do, commit": "DO $$ BEGIN COMMIT; DELETE FROM file_locations; COMMIT; END $$",
    "set_config read only": "SELECT set_config('transaction_read_only', 'off', false)",
    "set_config local": "SELECT set_config('transaction_read_only', 'off', true)",
    "call": "CALL pwned()",
    "prepare": "PREPARE p AS DELETE FROM file_locations",
    "execute": "EXECUTE p",
    "prepare transaction": "PREPARE TRANSACTION 'pwned'",
    "savepoint": "SAVEPOINT s",
    "with hold": "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    # Other ways
    "large object": "SELECT lo_create(4711)",
    "large object from bytes": "SELECT lo_from_bytea(4711, 'x')",
    "large object import": "SELECT lo_import('/etc/passwd')",
    "large object export": "SELECT lo_export(4711, '{mark}')",
    "extension dblink": "CREATE EXTENSION dblink",
    "extension plpython": "CREATE EXTENSION plpython3u",
    "extension file_fdw": "CREATE EXTENSION file_fdw",
    "language": "CREATE LANGUAGE plpythonu",
    "dblink": "SELECT dblink_exec('dbname=postgres', 'CREATE TABLE pwned (n int)')",
    "dblink out": "SELECT dblink_exec('{elsewhere}', 'DROP TABLE journal')",
    "server": "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw",
    "subscription": "CREATE SUBSCRIPTION s CONNECTION 'dbname=postgres' PUBLICATION p",
    "publication": "CREATE PUBLICATION pwned FOR ALL TABLES",
    "event trigger": "CREATE EVENT TRIGGER pwned ON ddl_command_start EXECUTE FUNCTION chunks_are_kept()",
    "rule": "CREATE RULE pwned AS ON SELECT TO units DO INSTEAD SELECT 1",
    "comment": "COMMENT ON TABLE chunks IS 'pwned'",
    "listen": "LISTEN pwned",
    "notify": "NOTIFY pwned",
}
MAY_SUCCEED = {"large object", "large object from bytes"}
"""Allowed on servers before PostgreSQL 16, where they have no lasting effect."""


@dataclass
class Given:
    """A catalog, the repository that queries it, and the superuser of its server."""

    repository: cafcat.Repository
    superuser_url: str
    host: str
    database: str
    superuser: str

    def state(self) -> dict[str, object]:
        """Return everything that a statement could have changed."""
        queries = {
            "files": "SELECT count(*), min(file_path) FROM file_locations",
            "chunks": "SELECT array_agg((id, state)::text) FROM chunks",
            "relations": "SELECT array_agg(oid::regclass::text ORDER BY 1) FROM pg_class WHERE oid >= 16384",
            "routines": "SELECT array_agg(oid::regprocedure::text ORDER BY 1) FROM pg_proc WHERE oid >= 16384",
            "roles": "SELECT array_agg((rolname, rolsuper, rolcanlogin)::text ORDER BY 1) FROM pg_roles",
            "members": "SELECT array_agg((roleid::regrole, member::regrole)::text ORDER BY 1) FROM pg_auth_members",
            "extensions": "SELECT array_agg(extname ORDER BY 1) FROM pg_extension",
            "large objects": "SELECT count(*) FROM pg_largeobject_metadata",
            "prepared": "SELECT count(*) FROM pg_prepared_xacts",
            "publications": "SELECT count(*) FROM pg_publication",
            "subscriptions": "SELECT count(*) FROM pg_subscription",
            "triggers": "SELECT count(*) FROM pg_event_trigger",
            "rules": "SELECT count(*) FROM pg_rules",
            "settings": "SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'",
            "sequence": "SELECT last_value FROM chunks_id_seq",
            "comment": "SELECT obj_description('chunks'::regclass)",
        }
        with psycopg.connect(self.superuser_url, autocommit=True) as connection:
            return {name: connection.execute(query.encode()).fetchone() for name, query in queries.items()}


def fill(repository: cafcat.Repository, folder: Path) -> None:
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    repository.ingest([str(folder)])


@pytest.fixture(scope="module")
def embedded_15(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """An embedded server that runs the machine's own PostgreSQL, which is older than that of the wheel."""
    yield from _embedded(tmp_path_factory.mktemp("embedded15"), debian_programs())


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    yield from _embedded(tmp_path_factory.mktemp("embedded"), None)


def _embedded(folder: Path, programs: Path | None) -> Iterator[Given]:
    server = EmbeddedServer(folder / "home" / "postgres", programs=programs)
    server.connect().close()  # the programs that start the server are the ones that made it
    try:
        with cafcat.open(home=folder / "home", store=folder / "store") as repository:
            fill(repository, folder / "tree")
            url = server.conninfo(role=SUPERUSER)
            host = str(psycopg.conninfo.conninfo_to_dict(url)["host"])
            yield Given(repository, url, host, "cafcat", SUPERUSER)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def given_15(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """A database that the role of its URL owns, on the machine's own PostgreSQL."""
    yield from _given(tmp_path_factory.mktemp("given15"), debian_programs())


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    yield from _given(tmp_path_factory.mktemp("given"), None)


def _given(folder: Path, programs: Path | None) -> Iterator[Given]:
    """Provide a database on a server that no other test uses, because roles belong to the whole server."""
    with (
        temporary_server(programs) as server,
        contextlib.closing(Databases(server.conninfo("postgres", SUPERUSER))) as databases,
        databases.fresh(databases.template()) as url,
    ):
        superuser_url = databases.superuser_url(url)
        options = psycopg.conninfo.conninfo_to_dict(superuser_url)
        with cafcat.open(database_url=url, home=folder / "home", store=folder / "store") as repository:
            fill(repository, folder / "tree")
            place = (str(options.get("host")), str(options["dbname"]), str(options["user"]))
            yield Given(repository, superuser_url, *place)


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("embedded_15", marks=pytest.mark.slow),
        pytest.param("given", marks=pytest.mark.slow),
        "given_15",
    ]
)
def server(request: pytest.FixtureRequest) -> Given:
    found: Given = request.getfixturevalue(request.param)
    return found


def attempt(server: Given, name: str, mark: Path) -> None:
    """Run a statement that must be refused, or have no lasting effect."""
    elsewhere = make_conninfo(host=server.host, dbname=server.database, user=server.superuser)
    words = {"{mark}": str(mark), "{superuser}": server.superuser, "{elsewhere}": elsewhere.replace("'", "''")}
    statement = STATEMENTS[name]
    for key, value in words.items():
        statement = statement.replace(key, value)
    if name in MAY_SUCCEED:
        with contextlib.suppress(InvalidInput):
            list(server.repository.query(statement)[1])
    else:
        with pytest.raises(CafcatError) as raised:
            list(server.repository.query(statement)[1])
        assert isinstance(raised.value, InvalidInput) or "password is required" in str(raised.value)
    assert not mark.exists(), name


def test_no_statement_escapes(server: Given, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    before = server.state()
    for name in STATEMENTS:
        attempt(server, name, tmp_path / MARK)
        assert server.state() == before, name


def test_installed_dblink_is_no_escape(given_15: Given, tmp_path: Path) -> None:
    """dblink requires a password, except from superusers."""
    with psycopg.connect(given_15.superuser_url, autocommit=True) as admin:
        try:
            admin.execute("CREATE EXTENSION dblink")
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this PostgreSQL has no dblink")
        try:
            before = given_15.state()
            for name in ("dblink", "dblink out"):
                attempt(given_15, name, tmp_path / MARK)
                assert given_15.state() == before
        finally:
            admin.execute("DROP EXTENSION dblink")


@pytest.mark.parametrize("name", ["given_15"])
def test_statements_have_effects_without_the_confinement(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """This proves that the test above can fail. The role is a superuser, in a READ ONLY transaction."""
    server: Given = request.getfixturevalue(name)
    mark = tmp_path / MARK
    tmp_path.chmod(0o777)
    for statement in (STATEMENTS["do, reset role"], "RESET ROLE; " + STATEMENTS["copy to program"]):
        with psycopg.connect(server.superuser_url) as connection:
            connection.read_only = True
            connection.execute("SET ROLE pg_monitor")
            connection.execute(statement.replace("{mark}", str(mark)).encode())
        assert mark.exists()
        mark.unlink()


@pytest.mark.parametrize("name", ["given", "given_15"])
def test_a_role_with_the_powers_of_a_superuser_is_refused(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """The role is a superuser, a member of one, or a member of a role with access to files and programs."""
    server: Given = request.getfixturevalue(name)
    role = f"cafcat_tests_{os.urandom(4).hex()}"
    url = make_conninfo(server.superuser_url, user=role, password=role)
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        superuser = admin.info.user
        try:
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
            with cafcat.open(database_url=url, home=tmp_path, store=tmp_path / "store") as repository:
                assert list(repository.query("SELECT 1")[1]) == [(1,)]
                for power in (
                    superuser,
                    "pg_read_server_files",
                    "pg_write_server_files",
                    "pg_execute_server_program",
                ):
                    admin.execute(f"GRANT {power} TO {role}".encode())
                    with pytest.raises(InvalidInput, match=power) as raised:
                        repository.query("SELECT 1")
                    assert "cafcat db grant-reader" in str(raised.value.hint)
                    assert "only read" not in str(raised.value), "a role that may write is accepted"
                    admin.execute(f"REVOKE {power} FROM {role}".encode())
                assert list(repository.query("SELECT 1")[1]) == [(1,)]
                admin.execute(f"ALTER ROLE {role} SUPERUSER".encode())
                with pytest.raises(InvalidInput, match="superuser's powers"):
                    repository.query("SELECT 1")
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize("name", ["embedded", "embedded_15"])
def test_no_verb_of_the_embedded_database_is_a_superuser(request: pytest.FixtureRequest, name: str) -> None:
    server: Given = request.getfixturevalue(name)
    query = (
        "SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles WHERE rolname LIKE 'c%'"
    )
    with psycopg.connect(server.superuser_url, autocommit=True) as connection:
        roles = {row[0]: row[1:] for row in connection.execute(query)}
        owners = connection.execute(
            "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchall()
        clients = connection.execute(
            "SELECT DISTINCT usename::text FROM pg_stat_activity "
            "WHERE datname = 'cafcat' AND pid <> pg_backend_pid()"
        ).fetchall()
        read = "SELECT count(*) FILTER (WHERE NOT has_table_privilege(%s, oid, 'SELECT')), " + ", ".join(
            f"count(*) FILTER (WHERE has_table_privilege(%s, oid, '{power}'))"
            for power in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES")
        )
        counted = connection.execute(
            f"{read} FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')".encode(),
            [READER] * 7,
        ).fetchone()
    assert roles[OWNER] == roles[READER] == (False,) * 4
    assert owners == clients == [(OWNER,)]
    assert counted == (0,) * 7
    columns, rows = server.repository.query("SELECT session_user, current_user")
    assert list(rows) == [(READER, READER)]
    assert columns == ["session_user", "current_user"]


@pytest.fixture
def old_home(tmp_path: Path) -> Iterator[Path]:
    """A home of a version without the roles, in which the superuser owns everything. Its server is running."""
    server = EmbeddedServer(tmp_path / "home" / "postgres")
    try:
        with server.connect(SUPERUSER) as connection:
            connection.execute(f"REASSIGN OWNED BY {OWNER} TO {SUPERUSER}".encode())
            for role in (OWNER, READER):
                connection.execute(f"DROP OWNED BY {role}".encode())
                connection.execute(f"DROP ROLE {role}".encode())
            connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        yield tmp_path / "home"
    finally:
        server.stop()


@pytest.mark.parametrize("revision", ["0003", HEAD_REVISION])
@pytest.mark.parametrize("running", [True, False])
def test_an_embedded_database_of_an_earlier_version_gets_the_roles(
    old_home: Path, revision: str, running: bool
) -> None:
    server = EmbeddedServer(old_home / "postgres")
    command.upgrade(_config(server.conninfo(role=SUPERUSER)), revision)
    if not running:
        server.stop()
    with cafcat.open(home=old_home, store=old_home / "store") as repository:
        fill(repository, old_home / "tree")
        assert list(repository.query("SELECT session_user::text, count(*) FROM file_locations GROUP BY 1")[1]) == [
            (READER, 1)
        ]
        [(path,)] = repository.query("SELECT file_path FROM file_locations")[1]
        assert repository.rm([path]).files == 1
    with server.connect(SUPERUSER) as connection:
        statement = (
            "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        )
        assert connection.execute(statement.encode()).fetchall() == [(OWNER,)]
        statement = (
            "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        )
        assert connection.execute(statement.encode()).fetchall() == [(OWNER,)]


def test_tables_of_an_earlier_version_get_the_owner(old_home: Path) -> None:
    """The roles exist, and then an earlier version makes the schema as the superuser."""
    server = EmbeddedServer(old_home / "postgres")
    server.connect().close()
    command.upgrade(_config(server.conninfo(role=SUPERUSER)), "0003")
    with cafcat.open(home=old_home, store=old_home / "store") as repository:
        fill(repository, old_home / "tree")
        assert list(repository.query("SELECT count(*) FROM file_locations")[1]) == [(1,)]
