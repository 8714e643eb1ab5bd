"""The identity of the catalog, and the identities of its stores."""

from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from cafcat.catalog.connection import Connection, PgConnection

__all__ = ["Identities", "Identity", "catalog_uuid", "take_over"]

_IS_EMPTY: Final = "SELECT NOT EXISTS (SELECT FROM chunks) AND NOT EXISTS (SELECT FROM journal)"
_OF_STORE: Final = "SELECT i.uuid, s.uuid FROM catalog_identity AS i LEFT JOIN stores AS s ON s.url = %s"
# A copy of a store has the identity of its original; a catalog that has both keeps it for one of them.
_RECORD_STORE: Final = """
UPDATE stores SET uuid = %(uuid)s WHERE url = %(url)s AND NOT EXISTS (SELECT FROM stores WHERE uuid = %(uuid)s)
"""


class Identity(NamedTuple):
    """Identity of the catalog, and of one of its stores: None if the catalog has not seen a marker there."""

    catalog: UUID
    store: UUID | None


def catalog_uuid(connection: PgConnection) -> UUID:
    """Return the identity of the catalog."""
    [(uuid,)] = connection.execute("SELECT uuid FROM catalog_identity").fetchall()
    return UUID(str(uuid))


def take_over(connection: PgConnection, uuid: UUID) -> None:
    """Give this catalog the identity of a lost one, in the caller's transaction."""
    connection.execute("UPDATE catalog_identity SET uuid = %s", [uuid])


class Identities:
    """The row of `catalog_identity`, and `stores.uuid`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, store: str) -> Identity:
        """Return the identities of the catalog and of the store with this URL."""
        with self._connection.statement() as connection:
            [row] = connection.execute(_OF_STORE, [store]).fetchall()
        return Identity(*row)

    def record_store(self, store: str, uuid: UUID) -> None:
        """Note the identity that the markers of a store give it. Does nothing if the catalog does not have the
        store: it may have moved a moment ago."""
        with self._connection.transaction() as connection:
            connection.execute(_RECORD_STORE, {"url": store, "uuid": uuid})

    def is_empty(self) -> bool:
        """Return whether the catalog has never had a chunk or a change of a file."""
        with self._connection.statement() as connection:
            [(is_empty,)] = connection.execute(_IS_EMPTY).fetchall()
        return bool(is_empty)

    def database(self) -> str:
        """Return a URL of the database without user and password, for people."""
        with self._connection.statement() as connection:
            info = connection.info
            name, host, port = quote(info.dbname, safe=""), info.host, info.port
        if host.startswith("/"):
            return f"postgresql:///{name}?host={quote(host)}&port={port}"
        return f"postgresql://{f'[{host}]' if ':' in host else host}:{port}/{name}"
