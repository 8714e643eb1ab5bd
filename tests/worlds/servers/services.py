"""The Postgres servers on which the tests run, and fresh databases on them.

`postgres_server`, `database_url`, `empty_database_url`: CAFCAT_TEST_DATABASE_URL, else a container if a Docker
engine answers, else the embedded PostgreSQL. `debian_server`, `database_url_15`, `empty_database_url_15`: a second
server, from the machine's own `initdb`. A missing server skips its tests with a message, or fails them if
CAFCAT_REQUIRE_SERVICES=1.
"""

import contextlib
import functools
import gc
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from unittest import mock
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.catalog.layout import partition_empty
from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import SETTINGS, EmbeddedServer
from cafcat.errors import CatalogUnavailable
from tests.worlds.memory import memory_folder
from tests.worlds.sharing import run_folder, shared_service

CONTAINER_IMAGE = "postgres:17-alpine"
PING_SECONDS = 3
OWNER = "cafcat_tests"
EMBEDDED = "embedded-server"
FAST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_wal_size": "256MB",
    "max_connections": "400",  # all workers share the server
}
"""Settings of PostgreSQL for a server that loses nothing of value when it is killed."""


def missing_service(reason: str) -> NoReturn:
    """Skip the test, or fail it if every service is required."""
    if os.environ.get("CAFCAT_REQUIRE_SERVICES") == "1":
        pytest.fail(f"MISSING SERVICE: {reason}", pytrace=False)
    pytest.skip(f"MISSING SERVICE: {reason}")


def url_of(conninfo: str, dbname: str) -> str:
    """Return the libpq URL of another database of the same server.

    All keywords are in the query part, where socket folders, passwords and odd characters need no special cases.
    """
    keywords = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value not in (None, "")}
    keywords.pop("dbname", None)
    return f"postgresql:///{quote(dbname, safe='')}?{urlencode(keywords, quote_via=quote)}"


class Databases:
    """Fresh databases on one server. Names are unique, so that several test sessions can share it.

    They belong to a role that is no superuser, as those of a careful user do.
    """

    def __init__(self, conninfo: str, shared: Path | None = None) -> None:
        """Use the server of this conninfo.

        Args:
            conninfo: of a role that may create databases.
            shared: the folder of a `shared_service`, whose users share one template. Without it this object makes
                its own.
        """
        self.conninfo = conninfo
        self._shared = shared
        self._template: str | None = None
        self._cleanup = contextlib.ExitStack()

    @functools.cached_property
    def owner_conninfo(self) -> str:
        """The conninfo of the role that owns the databases: OWNER, or the given role if it is no superuser."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            if connection.info.parameter_status("is_superuser") != "on":
                return self.conninfo
            role = sql.Identifier(OWNER)
            # Of two processes that run these statements at the same time, one fails. The connection's end unlocks.
            connection.execute("SELECT pg_advisory_lock(hashtext('the owner of the test databases'))")
            with contextlib.suppress(psycopg.errors.DuplicateObject):
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, OWNER))
            if connection.info.server_version >= 150000:  # for tests that break what triggers guard
                connection.execute(sql.SQL("GRANT SET ON PARAMETER session_replication_role TO {}").format(role))
        return make_conninfo(self.conninfo, user=OWNER, password=OWNER)

    @property
    def owner(self) -> str:
        """The name of the role that owns the databases."""
        return str(conninfo_to_dict(self.owner_conninfo)["user"])

    def url(self, name: str) -> str:
        """Return the libpq URL of a database, for its owner."""
        return url_of(self.owner_conninfo, name)

    def superuser_url(self, url: str) -> str:
        """Return the libpq URL of the same database, for the role that may create databases."""
        return url_of(self.conninfo, str(conninfo_to_dict(url)["dbname"]))

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def create(self, template: str = "template0") -> str:
        """Make a database and return its name."""
        name = f"cafcat_test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {{}} TEMPLATE {{}} OWNER {{}} {self._strategy}", name, template, self.owner)
        return name

    @functools.cached_property
    def _strategy(self) -> str:
        """The strategy of CREATE DATABASE. Copying files takes a fifth of the time of copying through the log."""
        with psycopg.connect(self.conninfo) as connection:
            return "STRATEGY FILE_COPY" if connection.info.server_version >= 150000 else ""

    def drop(self, name: str) -> None:
        """Remove a database, and end the connections to it."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def template(self) -> str:
        """Return the name of a database with the newest schema, which is made once."""
        if self._template is None:
            if self._shared is None:
                self._template = self._make_template()
                self._cleanup.callback(self.drop, self._template)
            else:
                service = shared_service(self._shared, self._make_template, self.drop)
                self._template = self._cleanup.enter_context(service)
        return self._template

    def _make_template(self) -> str:
        from cafcat.catalog import schema

        name = self.create()
        try:
            schema.upgrade(self.url(name))
        except BaseException:
            self.drop(name)
            raise
        return name

    @contextlib.contextmanager
    def fresh(self, template: str = "template0", partitions: int = 0) -> Iterator[str]:
        """Yield the URL of a new database, which is dropped afterwards with all its connections.

        A catalog in it has an identity of its own, other than that of its template.

        Args:
            template: name of the database to copy.
            partitions: number of partitions of file_locations; 0 for a plain table.
        """
        name = self.create(template)
        url = self.url(name)
        try:
            if template == self._template:
                with psycopg.connect(url) as connection:
                    connection.execute("UPDATE catalog_identity SET uuid = gen_random_uuid()")
                    if partitions:
                        partition_empty(connection, partitions)
            yield url
        finally:
            self.drop(name)

    def close(self) -> None:
        """Drop the template when its last user closes."""
        self._cleanup.close()
        self._template = None


@contextlib.contextmanager
def any_server(shared: Path) -> Iterator[str]:
    """Yield the conninfo of a role that may create databases, on the first kind of server that is available.

    Args:
        shared: the folder where all workers of this test run meet for one embedded server.
    """
    given = os.environ.get("CAFCAT_TEST_DATABASE_URL")
    if given:
        yield given
    elif docker_answers():
        with container_server() as conninfo:
            yield conninfo
    else:
        with shared_server(shared) as conninfo:
            yield conninfo


def docker_answers() -> bool:
    """Return True if a Docker engine answers. An installed `docker` program is not enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the client leaks a socket if no engine answers
        answer = _ping_docker()
        gc.collect()
    return answer


def _ping_docker() -> bool:
    try:
        import docker
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=PING_SECONDS)
    except (docker.errors.DockerException, OSError):
        return False
    try:
        return bool(client.ping())
    except (docker.errors.DockerException, OSError):
        return False
    finally:
        client.close()


@contextlib.contextmanager
def container_server() -> Iterator[str]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer(CONTAINER_IMAGE, driver=None) as container:
        yield container.get_connection_url()


@contextlib.contextmanager
def shared_server(shared: Path, programs: Path | None = None) -> Iterator[str]:
    """Yield the superuser's conninfo of one server that all workers of this test run share.

    Its files are in memory if possible, and not synced: no test kills this server.

    Args:
        shared: the folder where the workers meet.
        programs: the folder of other PostgreSQL programs than those of the wheel.
    """

    def server_in(home: str) -> EmbeddedServer:
        return EmbeddedServer(Path(home) / "postgres", programs=programs)

    def start() -> str:
        home = tempfile.mkdtemp(prefix="cafcat-tests-", dir=memory_folder())
        try:
            with mock.patch.dict(SETTINGS, FAST_SETTINGS):
                connect_once(server_in(home))
        except BaseException:
            shutil.rmtree(home)
            raise
        return home

    def stop(home: str) -> None:
        server_in(home).stop()
        shutil.rmtree(home)

    with shared_service(shared, start, stop) as home:
        yield server_in(home).conninfo("postgres", SUPERUSER)


@contextlib.contextmanager
def temporary_server(programs: Path | None = None) -> Iterator[EmbeddedServer]:
    """Yield a server with the product's own settings, in a temporary home which is removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="cafcat-tests-"))
    server = EmbeddedServer(home / "postgres", programs=programs)
    try:
        connect_once(server)
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


def connect_once(server: EmbeddedServer) -> None:
    """Start the server. If that fails, the service is missing."""
    try:
        server.connect().close()
    except CatalogUnavailable as error:
        missing_service(f"the embedded PostgreSQL: {error}")


def debian_programs() -> Path:
    """Return the folder of the machine's own PostgreSQL: on PATH, or where Debian installs it."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    usable = [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
    if not usable:
        missing_service("no initdb of a second PostgreSQL (Debian: apt-get install postgresql-15)")
    return usable[0]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Administrative conninfo of a server for tests."""
    with any_server(run_folder(tmp_path_factory) / EMBEDDED) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def debian_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Administrative conninfo of the machine's own PostgreSQL (15 on Debian 12)."""
    with shared_server(run_folder(tmp_path_factory) / "debian-server", debian_programs()) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def databases(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Fresh databases on `postgres_server`."""
    with contextlib.closing(Databases(postgres_server, run_folder(tmp_path_factory) / "template")) as databases:
        yield databases


@pytest.fixture(scope="session")
def databases_15(debian_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Fresh databases on `debian_server`."""
    shared = run_folder(tmp_path_factory) / "debian-template"
    with contextlib.closing(Databases(debian_server, shared)) as databases:
        yield databases


@pytest.fixture(scope="session")
def quick_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Fresh databases on the embedded server of this test run, whichever server `databases` uses."""
    shared = run_folder(tmp_path_factory)
    with (
        shared_server(shared / EMBEDDED) as conninfo,
        contextlib.closing(Databases(conninfo, shared / "embedded-template")) as databases,
    ):
        yield databases


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """libpq URL of a fresh database with the schema at head."""
    with databases.fresh(databases.template()) as url:
        yield url


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """libpq URL of a fresh database without a schema."""
    with databases.fresh() as url:
        yield url


@pytest.fixture
def database_url_15(databases_15: Databases) -> Iterator[str]:
    """Like `database_url`, on the machine's own PostgreSQL."""
    with databases_15.fresh(databases_15.template()) as url:
        yield url


@pytest.fixture
def empty_database_url_15(databases_15: Databases) -> Iterator[str]:
    """Like `empty_database_url`, on the machine's own PostgreSQL."""
    with databases_15.fresh() as url:
        yield url
