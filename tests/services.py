"""The Postgres servers that the tests run against, and fresh databases on them.

`postgres_server`, `database_url`, `empty_database_url`: CAFCAT_TEST_DATABASE_URL, else a container if a Docker
engine answers, else the embedded PostgreSQL. `debian_server`, `database_url_15`, `empty_database_url_15`: a second
server, from the machine's own `initdb`. What is missing skips loudly, and fails where CAFCAT_REQUIRE_SERVICES=1.
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
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CatalogUnavailable

CONTAINER_IMAGE = "postgres:17-alpine"
PING_SECONDS = 3
OWNER = "cafcat_tests"


def missing_service(reason: str) -> NoReturn:
    """Skips the test, or fails it where every service has to be there."""
    if os.environ.get("CAFCAT_REQUIRE_SERVICES") == "1":
        pytest.fail(f"MISSING SERVICE: {reason}", pytrace=False)
    pytest.skip(f"MISSING SERVICE: {reason}")


def url_of(conninfo: str, dbname: str) -> str:
    """The libpq URL of another database of the same server. Everything goes into the query part, where socket
    folders, passwords and odd characters need no special cases."""
    keywords = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value not in (None, "")}
    keywords.pop("dbname", None)
    return f"postgresql:///{quote(dbname, safe='')}?{urlencode(keywords, quote_via=quote)}"


class Databases:
    """Fresh databases on one server. Names are unique, so that several test sessions can share it.

    They belong to a role that is no superuser, as those of a careful user do.
    """

    def __init__(self, conninfo: str) -> None:
        """Take the conninfo of a role that may create databases."""
        self.conninfo = conninfo
        self._template: str | None = None

    @functools.cached_property
    def owner_conninfo(self) -> str:
        """Of the role that owns the databases: OWNER, or the given one if it is no superuser itself."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            if connection.info.parameter_status("is_superuser") != "on":
                return self.conninfo
            role = sql.Identifier(OWNER)
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, OWNER))
            if connection.info.server_version >= 150000:  # for tests that break what triggers guard
                connection.execute(sql.SQL("GRANT SET ON PARAMETER session_replication_role TO {}").format(role))
        return make_conninfo(self.conninfo, user=OWNER, password=OWNER)

    @property
    def owner(self) -> str:
        """The name of that role."""
        return str(conninfo_to_dict(self.owner_conninfo)["user"])

    def url(self, name: str) -> str:
        """The libpq URL of one of these databases, as its owner."""
        return url_of(self.owner_conninfo, name)

    def superuser_url(self, url: str) -> str:
        """The libpq URL of the same database, as the role that may create databases."""
        return url_of(self.conninfo, str(conninfo_to_dict(url)["dbname"]))

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def create(self, template: str = "template0") -> str:
        name = f"cafcat_test_{uuid.uuid4().hex}"
        self._execute("CREATE DATABASE {} TEMPLATE {} OWNER {}", name, template, self.owner)
        return name

    def drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def template(self) -> str:
        """The name of a database with the schema at head; made once."""
        if self._template is None:
            from cafcat.catalog import schema

            name = self.create()
            try:
                schema.upgrade(self.url(name))
            except BaseException:
                self.drop(name)
                raise
            self._template = name
        return self._template

    @contextlib.contextmanager
    def fresh(self, template: str = "template0") -> Iterator[str]:
        """The URL of a new database, dropped afterwards whoever is still connected. A catalog in it has an identity
        of its own, and not that of its template."""
        name = self.create(template)
        url = self.url(name)
        try:
            if template == self._template:
                with psycopg.connect(url) as connection:
                    connection.execute("UPDATE catalog_identity SET uuid = gen_random_uuid()")
            yield url
        finally:
            self.drop(name)

    def close(self) -> None:
        if self._template is not None:
            self.drop(self._template)


@contextlib.contextmanager
def any_server() -> Iterator[str]:
    """The conninfo of a role that may create databases, on the first kind of server that is there."""
    given = os.environ.get("CAFCAT_TEST_DATABASE_URL")
    if given:
        yield given
    elif docker_answers():
        with container_server() as conninfo:
            yield conninfo
    else:
        with temporary_server() as server:
            yield server.conninfo("postgres", SUPERUSER)


def docker_answers() -> bool:
    """Whether a Docker engine answers, not whether its program is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its client forgets a socket that nobody answers on
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
def temporary_server(programs: Path | None = None) -> Iterator[EmbeddedServer]:
    """A server of our own in a temporary home; nothing of it is left afterwards."""
    home = Path(tempfile.mkdtemp(prefix="cafcat-tests-"))
    server = EmbeddedServer(home / "postgres", programs=programs)
    try:
        try:
            server.connect().close()
        except CatalogUnavailable as error:
            missing_service(f"the embedded PostgreSQL: {error}")
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


def debian_programs() -> Path:
    """The folder of the machine's own PostgreSQL: by PATH, else where Debian puts it."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    usable = [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
    if not usable:
        missing_service("no initdb of a second PostgreSQL (Debian: apt-get install postgresql-15)")
    return usable[0]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Administrative conninfo of a server for tests."""
    with any_server() as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def debian_server() -> Iterator[str]:
    """Administrative conninfo of the machine's own PostgreSQL (15 on Debian 12)."""
    with temporary_server(debian_programs()) as server:
        yield server.conninfo("postgres", SUPERUSER)


@pytest.fixture(scope="session")
def databases(postgres_server: str) -> Iterator[Databases]:
    with contextlib.closing(Databases(postgres_server)) as databases:
        yield databases


@pytest.fixture(scope="session")
def databases_15(debian_server: str) -> Iterator[Databases]:
    with contextlib.closing(Databases(debian_server)) as databases:
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
    """As database_url, on the machine's own PostgreSQL."""
    with databases_15.fresh(databases_15.template()) as url:
        yield url


@pytest.fixture
def empty_database_url_15(databases_15: Databases) -> Iterator[str]:
    """As empty_database_url, on the machine's own PostgreSQL."""
    with databases_15.fresh() as url:
        yield url
