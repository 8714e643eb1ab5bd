"""The roles of the embedded PostgreSQL and their privileges.

`cafcat` is the superuser of the cluster. It is only used to set up the database and the other two roles.
`cafcat_owner` owns the database and cafcat's objects in it, and nothing outside; commands and psql connect as this
role. `cafcat_reader` owns nothing and can only read the tables; the queries of `cafcat sql -c` and
`Repository.query` run as this role. A session of `cafcat_owner` or `cafcat_reader` cannot become another of these
three roles.
"""

from pathlib import Path
from typing import Final, LiteralString

from psycopg import sql

from cafcat.catalog.connection import PgConnection
from cafcat.embedded.connecting import DATABASE, OWNER, connect_to

__all__ = ["OWNER", "READER", "SUPERUSER", "is_missing", "set_up_database"]

SUPERUSER: Final = "cafcat"
READER: Final = "cafcat_reader"

_CREATE: Final = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {name}) THEN CREATE ROLE {role}; END IF;
END $$
"""
_SETTINGS: Final[tuple[LiteralString, ...]] = (
    "ALTER ROLE {owner} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS",
    "ALTER ROLE {reader} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS",
    "ALTER ROLE {reader} SET default_transaction_read_only = on",
    "GRANT pg_monitor TO {owner}",  # to see the holders of locks and the server's settings
)
_OWNED: Final = """
SELECT format('ALTER %s %I.%I OWNER TO %I',
              CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'f' THEN 'FOREIGN TABLE'
                             WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
              n.nspname, c.relname, {owner}::text)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relowner = {superuser}::regrole AND n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND NOT EXISTS (SELECT FROM pg_depend AS d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i', 'e')
                    AND d.refclassid IN ('pg_class'::regclass, 'pg_extension'::regclass))
UNION ALL
SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, {owner}::text)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE p.proowner = {superuser}::regrole AND n.nspname = 'public'
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                  AND d.deptype = 'e')
"""
_PRIVILEGES: Final[tuple[LiteralString, ...]] = (
    "ALTER DATABASE {database} OWNER TO {owner}",
    "ALTER SCHEMA public OWNER TO {owner}",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
    "GRANT USAGE ON SCHEMA public TO {reader}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA public GRANT SELECT ON TABLES TO {reader}",
    # Earlier versions of cafcat, which may still be in use, create tables as the superuser.
    "ALTER DEFAULT PRIVILEGES FOR ROLE {superuser} IN SCHEMA public GRANT SELECT ON TABLES TO {reader}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {superuser} IN SCHEMA public GRANT ALL ON TABLES TO {owner}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {superuser} IN SCHEMA public GRANT ALL ON SEQUENCES TO {owner}",
)


def is_missing(reason: str) -> bool:
    """Return True if a connection failed because the cluster does not have the database or a role yet.

    A new cluster has neither. A cluster of an earlier version of cafcat lacks the roles.

    Args:
        reason: The server's message.
    """
    roles = (f'role "{name}" does not exist' for name in (OWNER, READER))
    return any(text in reason for text in (f'database "{DATABASE}" does not exist', *roles))


def set_up_database(sockets: Path) -> None:
    """Create the database `cafcat` and the roles if they are missing, and set owners and privileges.

    Args:
        sockets: Folder of the server's socket.

    Raises:
        psycopg.Error: The connection fails, or the server reports an error.
    """
    with connect_to(sockets, "postgres", SUPERUSER) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if found is None:
            # All properties are given, because a cluster that another program created may have other defaults.
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
            connection.execute(statement.format(sql.Identifier(DATABASE)))
    with connect_to(sockets, DATABASE, SUPERUSER) as connection:
        _set_up_roles(connection)


def _set_up_roles(connection: PgConnection) -> None:
    """Create the owner role and the reader role if they are missing, and set owners and privileges.

    The owner role becomes the owner of the database, and of all objects of the superuser in the schema `public`.
    This is one transaction.

    Args:
        connection: Connection of the superuser to the database.

    Raises:
        psycopg.Error: The server reports an error. Then nothing has changed.
    """
    roles = {"owner": OWNER, "reader": READER, "superuser": SUPERUSER, "database": DATABASE}
    names = {key: sql.Identifier(name) for key, name in roles.items()}

    def run(statement: LiteralString) -> None:
        connection.execute(sql.SQL(statement).format(**names))

    with connection.transaction():
        for role in (OWNER, READER):
            create = sql.SQL(_CREATE).format(name=sql.Literal(role), role=sql.Identifier(role))
            connection.execute(create)
        for setting in _SETTINGS:
            run(setting)
        _change_owners(connection)
        for privilege in _PRIVILEGES:
            run(privilege)


def _change_owners(connection: PgConnection) -> None:
    """Make the owner role the owner of the superuser's relations and routines in the schema `public`.

    Earlier versions of cafcat had no other role than the superuser.
    """
    query = sql.SQL(_OWNED).format(owner=sql.Literal(OWNER), superuser=sql.Literal(SUPERUSER))
    for (statement,) in connection.execute(query).fetchall():
        connection.execute(str(statement).encode())
