"""Creates the views and functions of the schema cafcat_ops, which people and programs query (docs/sql.md).

The views are not created by single migrations. `create_views` runs at the end of every migration, and each time
when file_locations is replaced by a table in another layout, because a view refers to a table and not to its name.
"""

from importlib import resources
from typing import Any, Final

import psycopg
from psycopg import sql

__all__ = ["SCHEMA", "create_views", "grant_views"]

SCHEMA: Final = "cafcat_ops"
"""Schema of the views. A schema named `cafcat` would come first in the search path of a role of that name."""

# Who may read these three tables may read the views over them, which have no more than the tables.
_READERS: Final = """
SELECT CASE WHEN grantee = 0 THEN NULL ELSE pg_get_userbyid(grantee)::text END
FROM (SELECT DISTINCT c.oid, a.grantee FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
      WHERE c.oid IN ('chunks'::regclass, 'file_locations'::regclass, 'events'::regclass)
        AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner) AS granted
GROUP BY grantee HAVING count(*) = 3
"""


def create_views(connection: psycopg.Connection[Any]) -> None:
    """Create or replace the views and functions, in the open transaction.

    Roles that can read the tables can read the views, too. Existing permissions are kept.

    Args:
        connection: A connection with an open transaction, whose role owns the tables.

    Raises:
        psycopg.Error: The role may not create a schema in the database, or the server reports an error.
    """
    [(exists,)] = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", [SCHEMA]).fetchall()
    if not exists:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        comment = "Views and functions for queries by people and programs. They only ever gain columns."
        connection.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{comment}'".encode())
    connection.execute(resources.files("cafcat.catalog").joinpath("ops_views.sql").read_bytes())
    for (reader,) in connection.execute(_READERS).fetchall():
        grant_views(connection, reader)


def grant_views(connection: psycopg.Connection[Any], role: str | None) -> None:
    """Let a role read all views, in the open transaction.

    Args:
        connection: A connection whose role owns the views.
        role: Name of the role; None for all roles (PUBLIC).
    """
    grantee = sql.SQL("PUBLIC") if role is None else sql.Identifier(role)
    schema = sql.Identifier(SCHEMA)
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, grantee))
    connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(schema, grantee))
