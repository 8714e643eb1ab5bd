"""Queries on the keys with which programs read files through the S3 server."""

from typing import Final, NamedTuple

from cafcat.catalog.connection import Connection
from cafcat.catalog.history.runs import iso

__all__ = ["AccessKey", "AccessKeys"]

_INSERT: Final = f"""
INSERT INTO access_keys (access_key_id, prefix, sealed_secret, expires_at)
VALUES (%s, %s, %s, now() + make_interval(secs => %s))
RETURNING {iso("expires_at")}
"""  # noqa: S608
_SELECT: Final = f"""
SELECT access_key_id, prefix, {iso("created_at")}, {iso("expires_at")}, {iso("revoked_at")},
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END
FROM access_keys
"""  # noqa: S608
_FIND: Final = """
SELECT prefix, sealed_secret FROM access_keys
WHERE access_key_id = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""
_REVOKE: Final = """
UPDATE access_keys SET revoked_at = coalesce(revoked_at, now()), sealed_secret = NULL WHERE access_key_id = %s
"""


class AccessKey(NamedTuple):
    """A key, without its secret.

    Attributes:
        access_key_id: Name of the key.
        prefix: Folder that the key can read, with "/" at its end; "" for all files.
        created_at: When the key was made: ISO 8601, UTC.
        expires_at: From when on the key is refused; None if it does not expire.
        revoked_at: When the key was revoked; None if it was not.
        state: "active", "expired" or "revoked".
    """

    access_key_id: str
    prefix: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    state: str


class AccessKeys:
    """Queries on the rows of `access_keys`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, access_key_id: str, prefix: str, sealed_secret: bytes, seconds: int | None) -> str | None:
        """Insert a key, and return when it expires: ISO 8601, UTC; None for never.

        Args:
            access_key_id: Name of the key.
            prefix: Folder that the key can read, with "/" at its end; "" for all files.
            sealed_secret: The encrypted secret.
            seconds: How long the key is valid; None for no end.
        """
        with self._connection.transaction() as connection:
            [(expires_at,)] = connection.execute(
                _INSERT, (access_key_id, prefix, sealed_secret, seconds)
            ).fetchall()
        return None if expires_at is None else str(expires_at)

    def all(self) -> list[AccessKey]:
        """Return all keys, the oldest first."""
        with self._connection.statement(read_only=True) as connection:
            rows = connection.execute(f"{_SELECT} ORDER BY created_at, access_key_id".encode()).fetchall()
        return [AccessKey(*row) for row in rows]

    def find(self, access_key_id: str) -> tuple[str, bytes] | None:
        """Return the folder and the sealed secret of a valid key; None if it is unknown, revoked or expired."""
        with self._connection.statement(read_only=True) as connection:
            row = connection.execute(_FIND, (access_key_id,)).fetchone()
        return None if row is None else (str(row[0]), bytes(row[1]))

    def get(self, access_key_id: str) -> AccessKey | None:
        """Return a key by its name, also if it is revoked or expired; None if there is no such key."""
        with self._connection.statement(read_only=True) as connection:
            row = connection.execute(f"{_SELECT} WHERE access_key_id = %s".encode(), (access_key_id,)).fetchone()
        return None if row is None else AccessKey(*row)

    def revoke(self, access_key_id: str) -> bool:
        """Revoke a key, and erase its sealed secret. Return False if there is no such key."""
        with self._connection.transaction() as connection:
            return connection.execute(_REVOKE, (access_key_id,)).rowcount == 1
