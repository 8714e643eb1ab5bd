"""The UUIDs of the catalog and of its stores."""

from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from cafcat.catalog.connection import Connection, PgConnection

__all__ = ["Identities", "Identity", "catalog_uuid", "set_catalog_uuid"]

_IS_EMPTY: Final = "SELECT NOT EXISTS (SELECT FROM chunks) AND NOT EXISTS (SELECT FROM journal)"
_BOTH: Final = "SELECT i.uuid, s.uuid FROM catalog_identity AS i LEFT JOIN stores AS s ON s.url = %s"
# Two URLs of one place have the same UUID. Only one row has it.
_RECORD_STORE: Final = """
UPDATE stores SET uuid = %(uuid)s WHERE url = %(url)s AND NOT EXISTS (SELECT FROM stores WHERE uuid = %(uuid)s)
"""


class Identity(NamedTuple):
    """The UUIDs of the catalog and of one of its stores.

    Attributes:
        catalog: UUID of the catalog.
        store: UUID of the store; None if the catalog does not have the store, or has not recorded a UUID for it.
    """

    catalog: UUID
    store: UUID | None


def catalog_uuid(connection: PgConnection) -> UUID:
    """Return the UUID of the catalog."""
    [(uuid,)] = connection.execute("SELECT uuid FROM catalog_identity").fetchall()
    return UUID(str(uuid))


def set_catalog_uuid(connection: PgConnection, uuid: UUID) -> None:
    """Set the UUID of this catalog to that of a lost one, in the caller's transaction."""
    connection.execute("UPDATE catalog_identity SET uuid = %s", [uuid])


class Identities:
    """Queries on `catalog_identity` and `stores.uuid`. Every query is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, store_url: str) -> Identity:
        """Return the UUIDs of the catalog and of a store."""
        with self._connection.statement() as connection:
            [row] = connection.execute(_BOTH, [store_url]).fetchall()
        return Identity(*row)

    def record_store(self, store_url: str, uuid: UUID) -> None:
        """Set stores.uuid of a store to the UUID that its marker objects contain.

        Nothing changes if the catalog does not have the store, for instance because it was just moved. Nothing
        changes either if a store of the catalog has this UUID already: both URLs mean one place then.
        """
        with self._connection.transaction() as connection:
            connection.execute(_RECORD_STORE, {"url": store_url, "uuid": uuid})

    def url_of(self, uuid: UUID) -> str | None:
        """Return the URL of the store with this UUID in its marker objects; None if the catalog has none."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT url FROM stores WHERE uuid = %s", [uuid]).fetchone()
        return None if row is None else str(row[0])

    def is_empty(self) -> bool:
        """Return True if the catalog has no rows of chunks, whatever their state, and no journal records."""
        with self._connection.statement() as connection:
            [(is_empty,)] = connection.execute(_IS_EMPTY).fetchall()
        return bool(is_empty)

    def database(self) -> str:
        """Return a URL of the database for messages, without user and password."""
        with self._connection.statement() as connection:
            info = connection.info
            name, host, port = quote(info.dbname, safe=""), info.host, info.port
        if host.startswith("/"):
            return f"postgresql:///{name}?host={quote(host)}&port={port}"
        return f"postgresql://{f'[{host}]' if ':' in host else host}:{port}/{name}"
