"""Connects to the database that the settings name: one with a given URL, or the embedded one."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.schema import HEAD_REVISION, current_revision, outdated, upgrade
from cafcat.errors import CatalogUnavailable, InvalidInput
from cafcat.settings.settings import Settings, redact
from cafcat.support.private import close_home

if TYPE_CHECKING:
    from cafcat.catalog.layout_state import LayoutChange
    from cafcat.embedded.server import EmbeddedServer

__all__ = ["Database", "redacted"]

_Result = TypeVar("_Result")


def redacted(url: str) -> str:
    """Return the libpq URL or key=value string of a database with `***` in place of passwords.

    If libpq cannot parse the text, this returns only `***`.
    """
    from cafcat.catalog.database_url import is_readable

    return redact(url) if is_readable(url) else "***"


def _random_password() -> str:
    import secrets

    return secrets.token_urlsafe(18)


class Database:
    """The database that the settings name: opens connections, migrates the schema, controls the embedded server.

    In a database with a given URL, only `init` and `upgrade` create or migrate the schema. In the embedded
    database, `connect` does so, too, if the schema is missing or has an older revision.
    """

    def __init__(self, settings: Settings) -> None:
        self._given_url = settings.database_url
        self._prepares = settings.prepared_statements
        self._lock_timeout = settings.lock_timeout
        self._read_url = settings.read_database_url
        self._max_staleness = settings.max_staleness
        self._home = settings.home
        self._is_default_home = settings.has_default_home
        self._has_connected = False

    @property
    def is_embedded(self) -> bool:
        """True if the database is that of the embedded server in CAFCAT_HOME."""
        return self._given_url is None

    def connect(self) -> PgConnection:
        """Return a new connection to the database in autocommit mode.

        For the embedded database, this starts the server, and creates a missing schema or migrates an older one. If
        the home was moved, it also updates the URLs of the stores inside the home. A schema that is newer than this
        version of cafcat is left as it is; queries then raise CatalogOutdated.

        Raises:
            CatalogUnavailable: The server does not answer or start, or the migration failed. Or this object has
                connected before, and the embedded database is gone.
            AccessDenied: The server rejects user and password.
            InvalidInput: The given URL cannot be read.
        """
        if self._given_url is not None:
            from cafcat.catalog.database_url import connect

            return connect(self._given_url, prepares=self._prepares)
        from cafcat.embedded.connecting import connect_running, revision_and_home_of, without_pg_variables

        if self._has_connected and not self.exists:  # a server must not go on with a new, empty database
            hint = "was the home moved, or its disk unmounted? Start this command again"
            raise CatalogUnavailable(f"the database in {self._home} is gone", hint=hint)
        close_home(self._home, is_default=self._is_default_home)
        connection = connect_running((self._home / "postgres").resolve()) or self.embedded_server().connect()
        try:
            connection.revision, home = revision_and_home_of(connection)
        except BaseException:
            connection.close()
            raise
        if connection.revision is None or connection.revision < HEAD_REVISION:
            self.embedded_server().set_up()  # an earlier version may have created tables as another role
            with without_pg_variables():
                upgrade(self.embedded_server().conninfo())
            connection.revision, home = HEAD_REVISION, None
        self._follow_home(connection, connection.revision, home)
        self._has_connected = True
        return connection

    def connect_reader(self) -> PgConnection:
        """Return a new connection for SQL queries of the user.

        Its role in the embedded database can only read. For a database with a given URL, this is what `connect`
        returns.

        Raises:
            CatalogUnavailable, AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        connection = self.connect()
        if not self.is_embedded:
            return connection
        connection.close()
        from cafcat.embedded.roles import READER

        return self.embedded_server().connect(READER)

    def _follow_home(self, connection: PgConnection, revision: str | None, recorded: str | None) -> None:
        """Update the URLs of the stores inside the home, if the home was moved or copied since the last use.

        If the schema has another revision than HEAD_REVISION, nothing is updated.

        Args:
            connection: A connection to the embedded database.
            revision: Revision of its schema.
            recorded: URL of the home at the last use, with symbolic links resolved; None if it was not recorded.
        """
        home = Path(os.path.realpath(self._home)).as_uri()
        if revision != HEAD_REVISION or recorded == home:
            return
        from cafcat.catalog.connection import translated_errors
        from cafcat.catalog.stores.stores import follow_home

        with translated_errors():
            follow_home(connection, home, [self._home.as_uri()])

    @property
    def exists(self) -> bool:
        """False if the database is the embedded one, and no command has created it yet."""
        return not self.is_embedded or (self._home / "postgres").is_dir()

    def unchanged(self) -> Catalog:
        """Return the catalog in this database. Unlike that of `catalog`, its connections never migrate the schema.

        A stopped embedded server is started. Read replicas are not used.
        """
        return Catalog(_Unchanged(self), lock_timeout=self._lock_timeout)

    def catalog(self) -> Catalog:
        """Return the catalog in this database. It connects at its first query."""
        if self._read_url is None:
            return Catalog(self, lock_timeout=self._lock_timeout)
        from cafcat.catalog.database_url import DatabaseUrl

        standby = DatabaseUrl(self._read_url, self._prepares)
        return Catalog(self, lock_timeout=self._lock_timeout, standby=standby, max_staleness=self._max_staleness)

    def url(self) -> str:
        """Return a libpq URL or key=value string of the database, which may contain a password.

        The embedded server is started, so that the URL works.

        Raises:
            CatalogUnavailable: The embedded server does not start.
        """
        if self._given_url is not None:
            return self._given_url
        from cafcat.embedded.connecting import revision_and_home_of

        with self.embedded_server().connect() as connection:
            self._follow_home(connection, *revision_and_home_of(connection))
        return self.embedded_server().url()

    def init(self, partitions: int | None = None) -> str:
        """Create cafcat's schema in the database if there is none.

        Args:
            partitions: Number of partitions of file_locations; 0 for a plain table. An empty catalog in another
                layout gets this one. None: a plain table, or the layout that the database has.

        Returns:
            The revision of the schema: HEAD_REVISION.

        Raises:
            InvalidInput: The number of partitions is not possible, or the catalog has files in another layout.
            CatalogOutdated: The database has a schema of another revision.
            CatalogUnavailable: The server does not answer or start, or the schema cannot be created.
            AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        if partitions is not None:
            from cafcat.catalog.layout import check_partitions

            check_partitions(partitions)
        found = current_revision(self.url())
        if found is None:
            upgrade(self.url())
        elif found != HEAD_REVISION:
            raise outdated(found)
        if partitions is not None:
            self._with_catalog(lambda catalog: catalog.layout.set_empty(partitions))
        return HEAD_REVISION

    def upgrade(self) -> tuple[str | None, str]:
        """Migrate the schema of the database to the revision of this version of cafcat.

        Returns:
            The revision before (None: no schema), and the revision after the migration.

        Raises:
            CatalogOutdated: The schema has a newer revision.
            CatalogUnavailable: The server does not answer or start, or the migration failed.
            AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        found = current_revision(self.url())
        if found is not None and found > HEAD_REVISION:
            raise outdated(found)
        upgrade(self.url())
        return found, HEAD_REVISION

    def current(self) -> tuple[str | None, str]:
        """Return the revision of the schema (None: no schema), and the revision that this version of cafcat needs.

        Raises:
            CatalogUnavailable: The server does not answer or start.
            AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        return current_revision(self.url()), HEAD_REVISION

    def partitions(self) -> int:
        """Return the number of partitions of file_locations; 0 for a plain table.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogUnavailable, AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        return self._with_catalog(lambda catalog: catalog.layout.partitions())

    def layout_change(self) -> "LayoutChange | None":
        """Return the state of the unfinished change of the layout of file_locations; None if there is none.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogUnavailable, AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        return self._with_catalog(lambda catalog: catalog.layout.change())

    def check(self) -> list[str]:
        """Return a line for each kind of contradiction or leftover in the catalog; an empty list if there is none.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogUnavailable, AccessDenied, InvalidInput: The connection fails, for the reasons of `connect`.
        """
        return self._with_catalog(lambda catalog: catalog.reports.findings())

    def _with_catalog(self, function: Callable[[Catalog], _Result]) -> _Result:
        """Return the result of a function of a catalog, whose connection is closed afterwards."""
        catalog = self.catalog()
        try:
            return function(catalog)
        finally:
            catalog.close()

    def stop(self) -> bool:
        """Stop the embedded PostgreSQL server.

        Returns:
            True if the server was stopped, False if it was not running.

        Raises:
            InvalidInput: The database has a given URL, so cafcat did not start its server.
            CatalogUnavailable: The server does not stop, or cafcat did not start it.
        """
        if not self.is_embedded:
            message = "only the embedded database can be stopped, and a database URL is set"
            hint = "leave --database-url out, unset CAFCAT_DATABASE_URL, or remove database_url from cafcat.toml"
            raise InvalidInput(message, hint=hint)
        return self.embedded_server().stop()

    def grant_reader(self, role: str) -> str | None:
        """Let a role read all tables and views of the catalog, and change nothing. A missing role is created.

        Args:
            role: Name of the role.

        Returns:
            The random password of a role that was created; None for an existing role, whose password stays.

        Raises:
            InvalidInput: The role can do more than read.
            CatalogUnavailable: The role of the URL may not grant this, or may not create roles.
        """
        from cafcat.catalog.connection import translated_errors
        from cafcat.catalog.reader_roles import grant_reader, set_password

        with self._administrator() as connection, translated_errors(), connection.transaction():
            if not grant_reader(connection, role):
                return None
            password = _random_password()
            set_password(connection, role, password)
            return password

    def _administrator(self) -> PgConnection:
        """Return a connection of a role that can create roles, if there is one: the embedded server's superuser."""
        connection = self.connect()  # this also creates a missing schema
        if not self.is_embedded:
            return connection
        connection.close()
        from cafcat.embedded.roles import SUPERUSER

        return self.embedded_server().connect(SUPERUSER)

    def listen(self, port: int | None = None) -> str:
        """Open a TCP port of the embedded server on the loopback interface, for roles that can only read.

        The server is restarted, unless it has the port already; commands that are running connect again. The role
        `cafcat_reader` gets a new password.

        Args:
            port: The port; None for the present one, or else the first free one from 15432 on.

        Returns:
            The libpq URL for this role, with its password.

        Raises:
            InvalidInput: The database has a given URL, or another program uses the port.
            CatalogUnavailable: The server does not stop or start.
        """
        from cafcat.catalog.reader_roles import set_password
        from cafcat.embedded import listening
        from cafcat.embedded.connecting import DATABASE
        from cafcat.embedded.roles import READER

        server = self._server_to_listen()
        self.connect().close()
        present = listening.port_of(server.folder)
        chosen = port or present or listening.free_port()
        if chosen != present:
            if not listening.is_free(chosen):
                raise InvalidInput(f"another program uses port {chosen}", hint="choose another one with --port")
            listening.set_port(server.folder, chosen)
            server.stop()
        password = _random_password()
        with self._administrator() as connection:
            if connection.execute("SHOW port").fetchone() != (str(chosen),):
                listening.set_port(server.folder, None)
                raise InvalidInput(
                    f"another program has taken port {chosen}", hint="choose another one with --port"
                )
            set_password(connection, READER, password)
        return f"postgresql://{READER}:{password}@{listening.LOOPBACK}:{chosen}/{DATABASE}"

    def stop_listening(self) -> bool:
        """Close the TCP port of the embedded server. Return False if none was open.

        Raises:
            InvalidInput: The database has a given URL.
            CatalogUnavailable: The server does not stop.
        """
        from cafcat.embedded import listening

        server = self._server_to_listen()
        if listening.port_of(server.folder) is None:
            return False
        listening.set_port(server.folder, None)
        server.stop()
        return True

    def _server_to_listen(self) -> "EmbeddedServer":
        if not self.is_embedded:
            raise InvalidInput("only the embedded database can open a port, and a database URL is set")
        return self.embedded_server()

    def psql(self) -> tuple[list[str], dict[str, str]]:
        """Return the command line of psql and its complete environment, after one successful connection.

        A password is in the environment, not on the command line, because other users can read command lines.

        Raises:
            CatalogUnavailable: The server does not answer or start.
            AccessDenied: The server rejects user and password.
            InvalidInput: The given URL cannot be read.
        """
        if not self.is_embedded:  # for the embedded database, `url` connects
            self.connect().close()
        from cafcat.catalog.database_url import split_password

        conninfo, password = split_password(self.url())
        environment = dict(os.environ)
        if password is not None:
            environment["PGPASSWORD"] = password
        program = shutil.which("psql")
        if self.is_embedded or program is None:
            program = str(self.embedded_server().programs / "psql")
        if self.is_embedded:
            # PG* variables may be meant for another server.
            environment = {name: value for name, value in environment.items() if not name.startswith("PG")}
        return [program, conninfo], environment

    def embedded_server(self) -> "EmbeddedServer":
        """Return the embedded server of the home. It is not started."""
        from cafcat.embedded.server import EmbeddedServer

        return EmbeddedServer(self._home / "postgres")


class _Unchanged:
    """Opens connections to a database, and leaves its schema as it is: a Connector."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def connect(self) -> PgConnection:
        """Return a new connection in autocommit mode. Raises CatalogUnavailable, AccessDenied and InvalidInput."""
        if self._database.is_embedded:
            return self._database.embedded_server().connect()
        return self._database.connect()

    connect_reader = connect
