"""The database that the settings mean: one that we were given, or the embedded one."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.connection import PgConnection, connect, is_readable, split_password
from cafcat.catalog.schema import HEAD_REVISION, current_revision, outdated, revision_and_home_of, upgrade
from cafcat.errors import InvalidInput
from cafcat.settings.settings import Settings, redact
from cafcat.support.private import close_home

if TYPE_CHECKING:
    from cafcat.embedded.server import EmbeddedServer

__all__ = ["Database", "redacted"]


def redacted(url: str) -> str:
    """Return a libpq URL or key=value string without passwords: `***` for one that cannot be read."""
    return redact(url) if is_readable(url) else "***"


class Database:
    """Connects, starts, stops, migrates. A database that we were given is migrated only by init and upgrade;
    the embedded one is ours, and is moved to our revision whenever it is behind."""

    def __init__(self, settings: Settings) -> None:
        self._given_url = settings.database_url
        self._prepares = settings.prepared_statements
        self._lock_timeout = settings.lock_timeout
        self._home = settings.home
        self._is_default_home = settings.has_default_home

    @property
    def is_embedded(self) -> bool:
        """Whether it is the embedded server of CAFCAT_HOME."""
        return self._given_url is None

    def connect(self) -> PgConnection:
        """Return a new connection. With the embedded database: to our revision of the schema, and with the stores
        inside the home where the home is now. Raises CatalogUnavailable."""
        if self._given_url is not None:
            return connect(self._given_url, prepares=self._prepares)
        from cafcat.embedded.connecting import without_pg_variables

        close_home(self._home, is_default=self._is_default_home)
        server = self._server()
        connection = server.connect()
        try:
            revision, home = revision_and_home_of(connection)
        except BaseException:
            connection.close()
            raise
        if revision is None or revision < HEAD_REVISION:
            server.set_up()  # an earlier version may have made tables as another role
            with without_pg_variables():
                upgrade(server.conninfo())
            revision, home = HEAD_REVISION, None
        self._follow_home(connection, revision, home)
        return connection

    def connect_reader(self) -> PgConnection:
        """Return a new connection for queries of the user: in the embedded database, of a role that can only read.

        Raises:
            CatalogUnavailable: the server does not answer or start.
        """
        connection = self.connect()
        if not self.is_embedded:
            return connection
        connection.close()
        from cafcat.embedded.roles import READER

        return self._server().connect(READER)

    def _follow_home(self, connection: PgConnection, revision: str | None, noted: str | None) -> None:
        """Where the home that the database has noted is not this one, it was moved or copied. Its URL is the same
        for every symbolic link to it."""
        home = Path(os.path.realpath(self._home)).as_uri()
        if revision != HEAD_REVISION or noted == home:
            return
        from cafcat.catalog.connection import translated_errors
        from cafcat.catalog.stores.stores import follow_home

        with translated_errors():
            follow_home(connection, home, [self._home.as_uri()])

    def catalog(self) -> Catalog:
        """Return the catalog in it, which connects at its first call."""
        return Catalog(self.connect, self.connect_reader, lock_timeout=self._lock_timeout)

    def url(self) -> str:
        """A libpq URL that works now: the embedded server is started."""
        if self._given_url is not None:
            return self._given_url
        with self._server().connect() as connection:
            self._follow_home(connection, *revision_and_home_of(connection))
        return self._server().url()

    def init(self) -> str:
        """Makes the schema where there is none; fine if it is there and ours. Returns the revision. Raises
        CatalogOutdated for a schema of another revision."""
        found = current_revision(self.url())
        if found is None:
            upgrade(self.url())
        elif found != HEAD_REVISION:
            raise outdated(found)
        return HEAD_REVISION

    def upgrade(self) -> tuple[str | None, str]:
        """Moves the schema to our revision. Returns (from, to). Raises CatalogOutdated if it is newer."""
        found = current_revision(self.url())
        if found is not None and found > HEAD_REVISION:
            raise outdated(found)
        upgrade(self.url())
        return found, HEAD_REVISION

    def current(self) -> tuple[str | None, str]:
        """The revision in the database (None: no schema), and the one that this cafcat needs."""
        return current_revision(self.url()), HEAD_REVISION

    def check(self) -> list[str]:
        """What SQL alone can see to be wrong; empty if all is well. Raises CatalogOutdated."""
        catalog = self.catalog()
        try:
            return catalog.reports.findings()
        finally:
            catalog.close()

    def stop(self) -> bool:
        """Stops the embedded server; False if it was not running. InvalidInput for a database of others."""
        if not self.is_embedded:
            raise InvalidInput("the database is not ours to stop", hint="unset CAFCAT_DATABASE_URL")
        return self._server().stop()

    def psql(self) -> tuple[list[str], dict[str, str]]:
        """Command line of psql, and its whole environment. The password, if any, is in the environment only:
        command lines can be seen by others. Connects once. Raises CatalogUnavailable."""
        if not self.is_embedded:  # which `url` connects to
            self.connect().close()
        conninfo, password = split_password(self.url())
        environment = dict(os.environ)
        if password is not None:
            environment["PGPASSWORD"] = password
        program = shutil.which("psql")
        if self.is_embedded or program is None:
            program = str(self._server().programs / "psql")
        if self.is_embedded:
            # Our server wants nothing of what PG* variables may say of another one.
            environment = {name: value for name, value in environment.items() if not name.startswith("PG")}
        return [program, conninfo], environment

    def _server(self) -> "EmbeddedServer":
        from cafcat.embedded.server import EmbeddedServer

        return EmbeddedServer(self._home / "postgres")
