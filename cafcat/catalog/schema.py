"""The schema's revision, and moving a database to it with Alembic."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import UndefinedTable

from cafcat.errors import CatalogOutdated, CatalogUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "HEAD_REVISION",
    "current_revision",
    "migrations_folder",
    "outdated",
    "revision_and_home_of",
    "revision_of",
    "upgrade",
]

HEAD_REVISION = "0005"
"""What this version of cafcat works with; a test compares it with the newest migration."""


def outdated(revision: str | None) -> CatalogOutdated:
    """The error for a database of that revision; None is one without a schema."""
    if revision is None:
        message, hint = "the database has no cafcat schema", "run `cafcat db init`"
    elif revision < HEAD_REVISION:
        message = f"the database has schema revision {revision}, this cafcat needs {HEAD_REVISION}"
        hint = "run `cafcat db upgrade`"
    else:
        message = f"the database has schema revision {revision}, this cafcat knows {HEAD_REVISION}"
        hint = "install a newer cafcat"
    return CatalogOutdated(message, hint=hint)


def revision_of(connection: psycopg.Connection[Any]) -> str | None:
    """The revision of the database behind a connection, None if it has no cafcat schema. One query."""
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except UndefinedTable:
        return None
    return str(row[0]) if row else None


def revision_and_home_of(connection: psycopg.Connection[Any]) -> tuple[str | None, str | None]:
    """Return the revision of an embedded database, as `revision_of` does, and the URL of the home at its last use:
    None if it was not noted yet. One query where the schema is ours."""
    statement = "SELECT version_num, (SELECT home FROM catalog_identity) FROM alembic_version"
    try:
        row = connection.execute(statement).fetchone()
    except UndefinedTable:
        return revision_of(connection), None
    return (str(row[0]), row[1]) if row else (None, None)


def current_revision(url: str) -> str | None:
    """The revision of a database, None if it has no cafcat schema. Raises CatalogUnavailable."""
    from cafcat.catalog.connection import connect, translated

    with connect(url) as connection, translated():
        return revision_of(connection)


def upgrade(url: str) -> None:
    """Moves the database at a libpq URL to HEAD_REVISION, in one transaction. Raises CatalogUnavailable where
    the server is older than 14 or the database is not in UTF-8."""
    from alembic import command
    from sqlalchemy.exc import SQLAlchemyError

    from cafcat.catalog.connection import translated

    _check_server(url)
    try:
        with translated():
            command.upgrade(_config(url), "head")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).split("\n")[0]
        hint = "does the database hold tables of something else?" if "already exists" in reason else None
        raise CatalogUnavailable(f"the migration failed, nothing was changed: {reason}", hint=hint) from error


def _check_server(url: str) -> None:
    from cafcat.catalog.connection import connect

    with connect(url) as connection:
        if connection.info.server_version < 140000:
            raise CatalogUnavailable("the server is older than PostgreSQL 14", hint="cafcat needs 14 or newer")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            hint = "create one with ENCODING 'UTF8' TEMPLATE template0"
            raise CatalogUnavailable(f"the database is in {encoding}, not in UTF8", hint=hint)


def _config(url: str) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["database_url"] = url
    return config


def migrations_folder() -> Path:
    """Where the migrations are: inside the installed package, or at the top of a checkout."""
    package = Path(str(resources.files("cafcat")))
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
