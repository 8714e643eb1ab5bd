"""How Alembic reaches the database: by `cafcat db upgrade`, or `alembic` with CAFCAT_DATABASE_URL set."""

import os

import psycopg
from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from cafcat.catalog.tables import metadata

LOCK_KEY = 0x63616663  # "cafc": two migrations at once wait for each other
SETTINGS = ("SET lock_timeout = '10s'", "SET statement_timeout = '30min'")


def database_url() -> str:
    """A libpq URL, from the caller's configuration or the environment."""
    url = context.config.attributes.get("database_url") or os.environ.get("CAFCAT_DATABASE_URL")
    if not url:
        raise SystemExit("set CAFCAT_DATABASE_URL, or use `cafcat db upgrade`")
    return str(url)


def run_migrations() -> None:
    """All steps to the target in one transaction: they happen wholly or not at all."""
    url = database_url()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        for statement in SETTINGS:
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("offline mode is not supported: migrations/schema.sql has the whole schema as SQL")
run_migrations()
