"""Finds the revision of a database's schema, and migrates the schema with Alembic."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import DiskFull, InsufficientPrivilege, UndefinedTable

from cafcat.errors import CatalogOutdated, CatalogUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "HEAD_REVISION",
    "current_revision",
    "migrations_folder",
    "outdated",
    "revision_of",
    "upgrade",
]

HEAD_REVISION = "0016"
"""Schema revision of this version of cafcat. A test compares it with the newest migration."""


def outdated(revision: str | None) -> CatalogOutdated:
    """Return the CatalogOutdated error for a database whose schema has another revision than HEAD_REVISION.

    Args:
        revision: Revision of the database's schema; None if it has no cafcat schema.
    """
    if revision is None:
        message, hint = (
            "the database has no cafcat schema",
            "run `cafcat db init` with the same --database-url or settings",
        )
    elif revision < HEAD_REVISION:
        message = f"the database has schema revision {revision}, this cafcat needs {HEAD_REVISION}"
        hint = "run `cafcat db upgrade`"
    else:
        message = f"the database has schema revision {revision}, this cafcat supports {HEAD_REVISION}"
        hint = "install a newer cafcat"
    return CatalogOutdated(message, hint=hint)


def revision_of(connection: psycopg.Connection[Any]) -> str | None:
    """Return the revision of a database's schema; None if it has no cafcat schema. Raises psycopg.Error."""
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except UndefinedTable:
        return None
    return str(row[0]) if row else None


def current_revision(url: str) -> str | None:
    """Return the schema revision of the database at a libpq URL; None if it has no cafcat schema.

    Raises:
        InvalidInput: The URL cannot be read.
        AccessDenied: The server rejects user and password.
        CatalogUnavailable: The database cannot be reached.
    """
    from cafcat.catalog.connection import translated_errors
    from cafcat.catalog.database_url import connect

    with connect(url) as connection, translated_errors():
        return revision_of(connection)


def upgrade(url: str) -> None:
    """Migrate the schema of the database at a libpq URL to HEAD_REVISION, in one transaction.

    A database without a schema gets one. The caller has checked that its revision is not newer. An unfinished
    change of the layout is ended first, because a migration may change the tables.

    Raises:
        InvalidInput: The URL cannot be read.
        AccessDenied: The server rejects user and password.
        CatalogUnavailable: The database cannot be reached, its server is older than PostgreSQL 14, its encoding is
            not UTF-8, or the migration failed.
    """
    from alembic import command
    from sqlalchemy.exc import SQLAlchemyError

    from cafcat.catalog.connection import translated_errors

    _check_server(url)
    _end_layout_change(url)
    try:
        with translated_errors():
            command.upgrade(_config(url), "head")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).split("\n")[0]
        exists = "already exists" in reason
        hint = "use an empty database: this one seems to have tables of another program" if exists else None
        if isinstance(getattr(error, "orig", None), DiskFull):
            hint = "free disk space on the database server, then run the command again"
        if isinstance(getattr(error, "orig", None), InsufficientPrivilege):
            empty = "cafcat's role must own the database: ALTER DATABASE name OWNER TO role"
            hint = "use the --database-url of the role that owns the tables" if current_revision(url) else empty
        raise CatalogUnavailable(f"the migration failed, nothing was changed: {reason}", hint=hint) from error


def _end_layout_change(url: str) -> None:
    from cafcat.catalog.connection import translated_errors
    from cafcat.catalog.database_url import connect
    from cafcat.catalog.layout_state import end_change

    with connect(url) as connection, translated_errors(), connection.transaction():
        if _has_layout_change(connection) and revision_of(connection) != HEAD_REVISION:
            end_change(connection)


def _has_layout_change(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT to_regclass('layout_change') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def _check_server(url: str) -> None:
    from cafcat.catalog.database_url import connect

    with connect(url) as connection:
        if connection.info.server_version < 140000:
            raise CatalogUnavailable(
                "the server is older than PostgreSQL 14", hint="cafcat needs PostgreSQL 14 or newer"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            hint = "create a database with ENCODING 'UTF8' TEMPLATE template0"
            raise CatalogUnavailable(f"the encoding of the database is {encoding}, not UTF8", hint=hint)


def _config(url: str) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["database_url"] = url
    return config


def migrations_folder() -> Path:
    """Return the folder of Alembic's migrations: inside the installed package, or at the top of a checkout."""
    package = Path(str(resources.files("cafcat")))
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
