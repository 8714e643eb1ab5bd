"""The rows of `stores`: all folders and buckets to which the catalog refers."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.stores.moving import (
    check_movable,
    move_store,
    moved_to,
    no_such_store,
    path_below,
    reuse_url,
    set_url,
    written_records,
)
from cafcat.errors import Conflict, Locked
from cafcat.support.quantities import plural

__all__ = [
    "StoreRow",
    "StoredObject",
    "Stores",
    "add_store",
    "follow_home",
    "has_objects",
    "moved_meanwhile",
    "replace_home",
]

_HAS_OBJECTS: Final = " UNION ALL ".join(
    f"(SELECT FROM {table} WHERE store = %(store)s AND deleted_at IS NULL LIMIT 1)"
    for table in ("chunks", "chunk_copies", "backups")
)
_LOCK_TIMEOUT: Final = "30s"

_ROWS: Final = """
SELECT s.id, s.url, s.name, s.home_path IS NOT NULL, s.uuid,
       (SELECT count(*) FROM chunks AS c
        WHERE c.store = s.url AND c.adopted_prefix IS NULL AND c.state IN ('committed', 'retired')),
       (SELECT coalesce(sum(c.size_bytes), 0)::bigint FROM chunks AS c
        WHERE c.store = s.url AND c.adopted_prefix IS NULL AND c.state IN ('committed', 'retired')),
       (SELECT count(*) FROM chunks AS c
        WHERE c.store = s.url AND c.adopted_prefix IS NOT NULL AND c.state IN ('committed', 'retired')),
       (SELECT count(*) FROM chunk_copies AS k
        WHERE k.store = s.url AND k.state = 'committed' AND k.retired_at IS NULL),
       (SELECT count(*) FROM chunk_copies AS k
        WHERE k.store = s.url AND k.state = 'committed' AND k.retired_at IS NOT NULL),
       (SELECT count(*) FROM backups AS b WHERE b.store = s.url AND b.state = 'committed'),
       s.uuid IS NOT NULL OR EXISTS (SELECT FROM chunks AS c WHERE c.store = s.url)
       OR EXISTS (SELECT FROM chunk_copies AS k WHERE k.store = s.url)
       OR EXISTS (SELECT FROM backups AS b WHERE b.store = s.url),
       (SELECT coalesce(sum(c.size_bytes), 0)::bigint FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
        WHERE k.store = s.url AND k.state = 'committed' AND k.retired_at IS NULL)
FROM stores AS s
"""

_OBJECTS: Final = """
SELECT object_key, size_bytes, is_needed FROM (
    SELECT c.object_key, c.size_bytes, c.state = 'committed' AS is_needed FROM chunks AS c
    WHERE c.store = %(store)s
      AND (c.state = 'committed' OR c.state = 'retired' AND NOT cafcat_ops.is_broken(c.id, NULL))
  UNION ALL
    SELECT k.object_key, c.size_bytes, c.state = 'committed'
    FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
    WHERE k.store = %(store)s AND k.state = 'committed' AND k.retired_at IS NULL
      AND (c.state = 'committed' OR NOT cafcat_ops.is_broken(c.id, k.id))
  UNION ALL
    SELECT b.object_key, b.size_bytes, true FROM backups AS b WHERE b.store = %(store)s AND b.state = 'committed'
) AS objects
"""
_SAMPLE: Final = _OBJECTS + "ORDER BY random() LIMIT %(limit)s"
_PAGE: Final = _OBJECTS + 'WHERE object_key > %(after)s COLLATE "C" ORDER BY object_key COLLATE "C" LIMIT %(limit)s'
_COUNT: Final = f"SELECT count(*) FROM ({_OBJECTS}) AS o"  # noqa: S608


class StoreRow(NamedTuple):
    """A store, and how many complete objects of each kind the catalog has there.

    Attributes:
        id: stores.id.
        url: URL of the store.
        name: Short name of the store; None if it has none.
        moves_with_home: True if the store is inside CAFCAT_HOME, so that its URL changes with the home.
        uuid: UUID in the store's marker objects; None if the catalog has not recorded it.
        chunks: Number of committed and retired chunks that cafcat wrote.
        size_bytes: Total size of these chunks.
        adopted: Number of adopted archives.
        copies: Number of committed copies of chunks, except those that a migration has retired.
        retired: Number of copies that a migration has retired. Prune removes them.
        backups: Number of backups of the catalog.
        was_used: True if a command has written into the store, even if no chunk was complete.
        copy_bytes: Total size of the copies.
    """

    id: int
    url: str
    name: str | None
    moves_with_home: bool
    uuid: UUID | None
    chunks: int
    size_bytes: int
    adopted: int
    copies: int
    retired: int
    backups: int
    was_used: bool
    copy_bytes: int


class StoredObject(NamedTuple):
    """An object that a store should have.

    Attributes:
        object_key: Key of the object.
        size_bytes: Size of the object; None if unknown.
        is_needed: False for a chunk without live files, and for a copy of such a chunk.
    """

    object_key: str
    size_bytes: int | None
    is_needed: bool


class Stores:
    """Queries on the rows of `stores`. Every method except `moved_to` is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self) -> list[StoreRow]:
        """Return all stores, in the order in which the catalog first used them."""
        with self._connection.statement() as connection:
            return [StoreRow(*row) for row in connection.execute(f"{_ROWS} ORDER BY s.id".encode()).fetchall()]

    def find(self, name_or_url: str) -> StoreRow | None:
        """Return the store with this URL, or else the store with this name; None if the catalog has neither."""
        condition = "WHERE s.url = %(text)s OR s.name = %(text)s ORDER BY s.url = %(text)s DESC LIMIT 1"
        with self._connection.statement() as connection:
            row = connection.execute((_ROWS + condition).encode(), {"text": name_or_url}).fetchone()
        return None if row is None else StoreRow(*row)

    def has(self, url: str) -> bool:
        """Return True if the catalog has a store with this URL."""
        with self._connection.statement() as connection:
            return connection.execute("SELECT FROM stores WHERE url = %s", [url]).fetchone() is not None

    def url_of(self, name: str) -> str | None:
        """Return the URL of the store with a name; None if no store has the name."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT url FROM stores WHERE name = %s", [name]).fetchone()
        return None if row is None else str(row[0])

    def register(self, url: str) -> None:
        """Insert the row of a store, if there is none.

        An operation that writes calls this when it opens the store. If the store is moved later, no row of `stores`
        has the old URL any more. Then inserts of chunks, copies and backups with the old URL fail.
        """
        with self._connection.transaction() as connection:
            add_store(connection, url)

    def add(self, url: str, name: str | None) -> None:
        """Insert the row of a store if there is none, and set its name if one is given.

        Raises:
            Conflict: Another store has the name.
        """
        with self._connection.transaction() as connection:
            add_store(connection, url)
            if name is not None:
                _rename(connection, url, name)

    def rename(self, url: str, name: str | None) -> None:
        """Set the name of a store, or remove it with None.

        Raises:
            Conflict: Another store has the name.
            NotFound: The catalog has no such store.
        """
        with self._connection.transaction() as connection:
            _rename(connection, url, name)

    def remove(self, url: str) -> None:
        """Delete the row of a store, and the rows of its removed copies and backups.

        If only rows of removed objects, or of their checks, refer to the store, its row stays, and loses its name.

        Raises:
            Conflict: The catalog has objects in the store, journal records still have to be written into it, or its
                row has to stay and has no name.
            NotFound: The catalog has no such store.
        """
        with self._connection.transaction() as connection:
            try:
                with connection.transaction():
                    for table in ("chunk_copies", "backups"):
                        statement = f"DELETE FROM {table} WHERE store = %s AND deleted_at IS NOT NULL"  # noqa: S608
                        connection.execute(statement.encode(), [url])
                    removed = connection.execute("DELETE FROM stores WHERE url = %s", [url]).rowcount
            except pg.ForeignKeyViolation as error:
                statement = "UPDATE stores SET name = NULL WHERE url = %s AND name IS NOT NULL"
                if has_objects(connection, url) or not connection.execute(statement, [url]).rowcount:
                    raise _reference_error(connection, url) from error
                removed = 1
            _check_journal_written(connection, url)
            if not removed:
                raise no_such_store(url)

    def check_movable(self, old: str, new: str) -> None:
        """Check that a store can move to another URL. The catalog is not changed.

        Args:
            old: Present URL of the store.
            new: The URL to which the store is to move.

        Raises:
            NotFound: The catalog has no such store.
            InvalidInput: Both URLs are the same.
            Conflict: The catalog has chunks or copies at the new URL, or a backup is being written there.
            Locked: A command is, or may be, writing to the store. Or another transaction has locked rows of the
                store for 30 seconds.
        """
        with self._moving(old) as connection:
            check_movable(connection, old, new)

    def move(self, old: str, new: str) -> str | None:
        """Change the URL of a store, in its row and in all rows that refer to it.

        Unfinished objects of dead writers also get the new URL, and their leases end. If the catalog still has a
        row of the new URL, without chunks and copies, that row is merged into the row of this store.

        Args:
            old: Present URL of the store.
            new: The URL to which the store moves.

        Returns:
            The name of that other row, if the name is lost because this store keeps its own name; else None.

        Raises:
            NotFound: The catalog has no such store.
            InvalidInput: Both URLs are the same.
            Conflict: The catalog has chunks or copies at the new URL, or a backup is being written there. Or
                both URLs have a row of a chunk with the same object key.
            Locked: A command is, or may be, writing to the store. Or another transaction has locked rows of the
                store for 30 seconds.
        """
        with self._moving(old) as connection:
            return move_store(connection, old, new)

    def moved_to(self, url: str) -> str | None:
        """Return the present URL of the store that was moved away from this URL, after all its further moves.

        Returns:
            The URL. None if no store was moved away, or if the catalog has a store at this URL.
        """
        if self.has(url):
            return None
        with self._connection.statement() as connection:
            return moved_to(connection, url)

    def written_records(self, url: str, limit: int | None = None) -> list[tuple[int, UUID]]:
        """Return journal.id and journal.uuid of records that a store certainly has.

        Args:
            url: URL of the store.
            limit: Largest number of records, which are chosen at random; None for all, in order of journal.id.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            return written_records(connection, url, limit)

    @contextmanager
    def _moving(self, store_url: str) -> Iterator[PgConnection]:
        """Open a transaction that waits at most 30 seconds for locks. Raises Locked after that time."""
        with self._connection.transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'; SET LOCAL statement_timeout = 0")
            try:
                yield connection
            except pg.LockNotAvailable as error:
                hint = "wait for the commands that write to the store, then run this command again"
                raise Locked(f"rows of the store {store_url} are locked by another command", hint=hint) from error

    def sample(self, url: str, limit: int) -> list[StoredObject]:
        """Return up to `limit` of the objects that a store should have, chosen at random.

        These are the chunks, adopted archives, active copies and backups that the catalog has in the store, except
        objects without live files that a check found damaged or missing.
        """
        return self._objects(_SAMPLE, {"store": url, "limit": limit})

    def page(self, url: str, *, after: str = "", limit: int = 1000) -> list[StoredObject]:
        """Return a page of the objects that a store should have, in the order of their keys.

        They are those of `sample`.

        Args:
            url: URL of the store.
            after: Return only objects whose keys come after this key.
            limit: Largest number of objects.
        """
        return self._objects(_PAGE, {"store": url, "after": after, "limit": limit})

    def count(self, url: str) -> int:
        """Return the number of objects that a store should have: those of `sample`."""
        with self._connection.statement() as connection:
            row = connection.execute(_COUNT.encode(), {"store": url}).fetchone()
        return int(row[0]) if row else 0

    def _objects(self, statement: str, parameters: dict[str, Any]) -> list[StoredObject]:
        with self._connection.statement() as connection:
            return [StoredObject(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]


def add_store(connection: PgConnection, url: str) -> None:
    """Insert the row of a store if there is none, in the caller's transaction.

    Rows of chunks, copies and backups refer to it. If the store is inside the home of an embedded database, its URL
    changes with the home from then on.
    """
    # INSERT ... ON CONFLICT alone would use up a number of the sequence, and wait for other inserts, at every call.
    if connection.execute("SELECT FROM stores WHERE url = %s", [url]).fetchone() is not None:
        return
    row = connection.execute("SELECT home FROM catalog_identity").fetchone()
    home_path = path_below(row[0], url) if row and row[0] else None
    statement = "INSERT INTO stores (url, home_path) VALUES (%s, %s) ON CONFLICT DO NOTHING"
    connection.execute(statement, (url, home_path))


def moved_meanwhile(store: str) -> Conflict:
    """Return the Conflict error for a new row that refers to a store which the catalog does not have."""
    hint = "it was moved or removed meanwhile: `cafcat store ls` shows its new URL; then run the command again"
    return Conflict(f"the catalog has no store {store}", hint=hint)


def follow_home(connection: PgConnection, home: str, other_names: Sequence[str]) -> list[tuple[str, str]]:
    """Update the URLs of all stores inside the home after the home was moved, in one transaction.

    The new URL of the home is recorded. A store keeps its old URL if the catalog has objects of another store at
    the new URL.

    Args:
        connection: A connection to the embedded database.
        home: URL of the home's folder, without a slash at its end.
        other_names: URLs of the same folder through symbolic links.

    Returns:
        Old and new URL of each store that was changed; an empty list if none was.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        row = connection.execute("SELECT home FROM catalog_identity FOR UPDATE").fetchone()
        if row is None or row[0] == home:
            return []
        if row[0] is None:
            _find_stores_inside(connection, [home, *other_names])
        statement = "SELECT url, home_path FROM stores WHERE home_path IS NOT NULL ORDER BY id"
        moved = []
        for url, home_path in connection.execute(statement).fetchall():
            new = f"{home}/{home_path}"
            if new == url:
                continue
            with suppress(Conflict):  # another store has the new URL
                reuse_url(connection, url, new)
                set_url(connection, url, new, home_path)
                moved.append((url, new))
        connection.execute("UPDATE catalog_identity SET home = %s", [home])
    return moved


def replace_home(connection: PgConnection, home: str | None) -> None:
    """Record the present home and the stores inside it, after rows were loaded from the catalog of another home.

    Args:
        connection: A connection with an open transaction.
        home: URL of the home. If it is None, the next connection to an embedded database records its home.
    """
    connection.execute("UPDATE catalog_identity SET home = %s", [home])
    connection.execute("UPDATE stores SET home_path = NULL")
    if home is not None:
        _find_stores_inside(connection, [home])


def _find_stores_inside(connection: PgConnection, homes: Sequence[str]) -> None:
    """Set stores.home_path of the stores inside the home, for a catalog that has not recorded its home yet."""
    for (url,) in connection.execute("SELECT url FROM stores WHERE home_path IS NULL").fetchall():
        home_path = next((path for home in homes if (path := path_below(home, url))), None)
        if home_path:
            connection.execute("UPDATE stores SET home_path = %s WHERE url = %s", (home_path, url))


def has_objects(connection: PgConnection, url: str) -> bool:
    """Return True if the catalog has objects in a store: chunks, copies or backups that were not deleted."""
    return connection.execute(_HAS_OBJECTS.encode(), {"store": url}).fetchone() is not None


def _reference_error(connection: PgConnection, url: str) -> Conflict:
    """Return the Conflict error for a store whose row cannot be deleted, because the store has or had objects."""
    if not has_objects(connection, url):
        hint = "the row does no harm: `cafcat store ls` leaves it out, and another store can move to that URL"
        return Conflict(f"the history of deleted objects refers to the store {url}: its row has to stay", hint=hint)
    hint = (
        "`cafcat store ls` counts its objects; `cafcat store migrate` copies them to another store, and later "
        "`cafcat prune` removes the old ones; if its objects are lost, or were copies that you have deleted: "
        f"cafcat store rm {shlex.quote(url)} --lost"
    )
    return Conflict(f"the catalog still refers to the store {url}", hint=hint)


def _check_journal_written(connection: PgConnection, url: str) -> None:
    """Raise Conflict if journal records still have to be written into a store."""
    statement = "SELECT count(*) FROM journal WHERE unwritten <> '{}' AND unwritten @> ARRAY[%s]"
    row = connection.execute(statement, [url]).fetchone()
    if row is not None and row[0]:
        hint = "run `cafcat recover`, which writes them"
        raise Conflict(f"the store {url} still lacks {plural(row[0], 'journal record')}", hint=hint)


def _rename(connection: PgConnection, url: str, name: str | None) -> None:
    try:
        with connection.transaction():
            changed = connection.execute("UPDATE stores SET name = %s WHERE url = %s", (name, url)).rowcount
    except pg.UniqueViolation as error:
        hint = "`cafcat store ls` lists all names; choose another one"
        raise Conflict(f"another store has the name {name}", hint=hint) from error
    if not changed:
        raise no_such_store(url)
