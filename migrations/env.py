"""Alembic's environment, for `cafcat db upgrade` and for `alembic` with CAFCAT_DATABASE_URL set."""

import os

import psycopg
from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from cafcat.catalog.ops_views import create_views
from cafcat.catalog.schema import HEAD_REVISION
from cafcat.catalog.tables import metadata

LOCK_KEY = 0x63616663  # advisory lock ("cafc"): of two simultaneous migrations, the second one waits
SETTINGS = ("SET lock_timeout = '10s'", "SET statement_timeout = '30min'")


def database_url() -> str:
    """Return a libpq URL from the caller's configuration or the environment."""
    url = context.config.attributes.get("database_url") or os.environ.get("CAFCAT_DATABASE_URL")
    if not url:
        raise SystemExit("set CAFCAT_DATABASE_URL, or use `cafcat db upgrade`")
    return str(url)


def run_migrations() -> None:
    """Run all migrations up to the target revision in one transaction. The newest one is followed by the views."""
    url = database_url()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        for statement in SETTINGS:
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
        context.run_migrations()
        if context.get_context().get_current_revision() == HEAD_REVISION:
            create_views(connection.connection.driver_connection)


if context.is_offline_mode():
    raise SystemExit("offline mode is not supported: migrations/schema.sql has the whole schema as SQL")
run_migrations()
