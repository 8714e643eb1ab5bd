"""Permissions of roles that can read the whole catalog and change nothing."""

from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from cafcat.catalog.ops_views import grant_views
from cafcat.errors import AccessDenied, InvalidInput

__all__ = ["grant_reader", "set_password"]

_EXISTS: Final = "SELECT FROM pg_roles WHERE rolname = %s"
# The role itself, or one that it can become, which can do more than read.
_POWER: Final = """
SELECT r.rolname FROM pg_roles AS r
WHERE pg_has_role(%(role)s, r.oid, 'MEMBER') AND (
    r.rolsuper OR r.rolname IN ('pg_write_all_data', 'pg_write_server_files', 'pg_execute_server_program')
    OR EXISTS (SELECT FROM pg_class AS c WHERE c.relowner = r.oid AND c.oid = 'chunks'::regclass)
    OR EXISTS (SELECT FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
               WHERE a.grantee = r.oid AND a.privilege_type NOT IN ('SELECT', 'REFERENCES')
                 AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)))
LIMIT 1
"""
_OWNER: Final = """
SELECT pg_get_userbyid(relowner)::text, relnamespace::regnamespace::text FROM pg_class
WHERE oid = 'chunks'::regclass
"""
_GRANTS: Final = (
    "GRANT CONNECT ON DATABASE {database} TO {role}",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}",
    # PostgreSQL 14 lets every role create tables there.
    "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
)
# This is no permission, because the role can undo the setting. Not every owner of the tables may change roles.
_READ_ONLY: Final = "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_read_only = on"


def grant_reader(connection: psycopg.Connection[Any], role: str) -> bool:
    """Let a role read all tables and views of the catalog, also those of later versions, in one transaction.

    Args:
        connection: A connection whose role owns the tables and can create roles, if the role is missing.
        role: Name of the role. A missing role is created, with the right to log in and without a password.

    Returns:
        True if the role was created.

    Raises:
        InvalidInput: The name is empty. Or the role can do more than read: it is a superuser, owns the tables or
            may change them, or is a member of such a role.
        AccessDenied: The role does not exist, and the role of the connection may not create roles.
        psycopg.Error: The role of the connection may not do this.
    """
    if not role:
        raise InvalidInput("the name of the role is empty", hint="name a role for readers, such as grafana")
    name = sql.Identifier(role)
    with connection.transaction():
        is_new = connection.execute(_EXISTS, [role]).fetchone() is None
        if is_new:
            _create(connection, name)
        power = connection.execute(_POWER.encode(), {"role": role}).fetchone()
        if power is not None:
            raise InvalidInput(
                f"the role {role} can change the catalog (through {power[0]})",
                hint="name a role of its own for readers",
            )
        [(owner, schema)] = connection.execute(_OWNER.encode()).fetchall()
        names = {
            "role": name,
            "owner": sql.Identifier(str(owner)),
            "schema": sql.SQL(schema),
            "database": sql.Identifier(connection.info.dbname),
        }
        for statement in _GRANTS:
            connection.execute(sql.SQL(statement).format(**names))
        grant_views(connection, role)
        with suppress(InsufficientPrivilege), connection.transaction():
            connection.execute(sql.SQL(_READ_ONLY).format(**names))
    return is_new


def _create(connection: psycopg.Connection[Any], name: sql.Identifier) -> None:
    statement = sql.SQL("CREATE ROLE {} LOGIN").format(name)
    try:
        connection.execute(statement)
    except InsufficientPrivilege as error:
        shown = statement.as_string(connection)
        hint = f"let an administrator of the database run: {shown}; then run this command again"
        raise AccessDenied("the role of the catalog may not create other roles", hint=hint) from error


def set_password(connection: psycopg.Connection[Any], role: str, password: str) -> None:
    """Set the password of a role. The server gets only its SCRAM verifier, and so does its log.

    Args:
        connection: A connection whose role may do this.
        role: Name of the role.
        password: The password.
    """
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
    connection.execute(statement.format(sql.Identifier(role), sql.Literal(verifier)))
