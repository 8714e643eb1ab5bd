"""The rows of `stores`: every folder and bucket that the catalog refers to, and how one moves to another URL."""

from collections.abc import Collection, Iterator, Sequence
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
    set_url,
    take_url,
    written_records,
)
from cafcat.errors import Conflict, Locked

__all__ = [
    "ServerVerdicts",
    "StoreRow",
    "StoredObject",
    "Stores",
    "add_store",
    "follow_home",
    "forget_home",
    "moved_meanwhile",
]

_FAILED: Final = "coalesce(checks -> 'failed', '[]')"
_HAS_OBJECTS: Final = " UNION ALL ".join(
    f"(SELECT FROM {table} WHERE store = %(store)s AND deleted_at IS NULL LIMIT 1)"
    for table in ("chunks", "chunk_copies", "backups")
)
_REMEMBER: Final = f"""
UPDATE stores
SET checks = coalesce(checks, '{{}}') || jsonb_build_object('failed', {_FAILED} || to_jsonb(%(check)s::text))
WHERE url = %(url)s AND NOT {_FAILED} ? %(check)s
"""  # noqa: S608
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
       (SELECT count(*) FROM backups AS b WHERE b.store = s.url AND b.state = 'committed')
FROM stores AS s
"""

_OBJECTS: Final = """
SELECT object_key, size_bytes FROM (
    SELECT c.object_key, c.size_bytes FROM chunks AS c
    WHERE c.store = %(store)s AND c.state IN ('committed', 'retired')
  UNION ALL
    SELECT k.object_key, c.size_bytes FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
    WHERE k.store = %(store)s AND k.state = 'committed' AND k.retired_at IS NULL
  UNION ALL
    SELECT b.object_key, b.size_bytes FROM backups AS b WHERE b.store = %(store)s AND b.state = 'committed'
) AS objects
"""
_SAMPLE: Final = _OBJECTS + "ORDER BY random() LIMIT %(limit)s"
_PAGE: Final = _OBJECTS + 'WHERE object_key > %(after)s COLLATE "C" ORDER BY object_key COLLATE "C" LIMIT %(limit)s'
_COUNT: Final = f"SELECT count(*) FROM ({_OBJECTS}) AS o"  # noqa: S608


class StoreRow(NamedTuple):
    """A store, and the objects that the catalog has there. moves_with_home: its URL follows CAFCAT_HOME. uuid:
    identity in the store's marker object, None while it has none. chunks, adopted, copies, backups: numbers of
    objects; size_bytes: of `chunks`. retired: copies that a migration left behind for prune."""

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


class StoredObject(NamedTuple):
    """An object that a store should have, and its size in bytes (None if unknown)."""

    object_key: str
    size_bytes: int | None


class Stores:
    """Every method is one transaction. Stores are named by their URLs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self) -> list[StoreRow]:
        """All stores, in the order in which the catalog first used them."""
        with self._connection.statement() as connection:
            return [StoreRow(*row) for row in connection.execute(f"{_ROWS} ORDER BY s.id".encode()).fetchall()]

    def find(self, name_or_url: str) -> StoreRow | None:
        """Return the store with this URL, else the one with this name; None if there is neither."""
        condition = "WHERE s.url = %(text)s OR s.name = %(text)s ORDER BY s.url = %(text)s DESC LIMIT 1"
        with self._connection.statement() as connection:
            row = connection.execute((_ROWS + condition).encode(), {"text": name_or_url}).fetchone()
        return None if row is None else StoreRow(*row)

    def has(self, url: str) -> bool:
        """Return whether the catalog has a store with this URL."""
        with self._connection.statement() as connection:
            return connection.execute("SELECT FROM stores WHERE url = %s", [url]).fetchone() is not None

    def url_of(self, name: str) -> str | None:
        """Return the URL of the store with a name; None if there is none."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT url FROM stores WHERE name = %s", [name]).fetchone()
        return None if row is None else str(row[0])

    def register(self, url: str) -> None:
        """Insert the row of a store unless there is one. Do this when a verb that writes opens the store: rows of
        chunks, copies and backups that come later fail once the store has moved."""
        with self._connection.transaction() as connection:
            add_store(connection, url)

    def add(self, url: str, name: str | None) -> None:
        """Insert the row of a store, or give an existing row a name. Raises Conflict if another store has the
        name."""
        with self._connection.transaction() as connection:
            add_store(connection, url)
            if name is not None:
                _rename(connection, url, name)

    def rename(self, url: str, name: str | None) -> None:
        """Give a store a name, or none. Raises Conflict if another store has it, NotFound if there is no such
        store."""
        with self._connection.transaction() as connection:
            _rename(connection, url, name)

    def remove(self, url: str) -> None:
        """Delete the row of a store, and those of copies and backups there that are gone. Raises Conflict if
        anything else refers to it, NotFound if there is no such store."""
        with self._connection.transaction() as connection:
            _check_told(connection, url)
            try:
                with connection.transaction():
                    for table in ("chunk_copies", "backups"):
                        statement = f"DELETE FROM {table} WHERE store = %s AND deleted_at IS NOT NULL"  # noqa: S608
                        connection.execute(statement.encode(), [url])
                    removed = connection.execute("DELETE FROM stores WHERE url = %s", [url]).rowcount
            except pg.ForeignKeyViolation as error:
                raise _still_referred_to(connection, url) from error
            if not removed:
                raise no_such_store(url)

    def check_movable(self, old: str, new: str) -> None:
        """Raise what `move` would raise."""
        with self._moving(old) as connection:
            check_movable(connection, old, new)

    def move(self, old: str, new: str) -> str | None:
        """Change the URL of a store and of everything that refers to it: one UPDATE. What dead writers left there
        moves along. Returns the name that the new URL had, if the store keeps another one. Raises NotFound,
        Conflict if the catalog has chunks or copies at the new URL, Locked while anything is being written to the
        store, or another transaction holds its rows."""
        with self._moving(old) as connection:
            return move_store(connection, old, new)

    def moved_to(self, url: str) -> str | None:
        """Return where the store is that was moved away from a URL; None if none was, or the catalog has a store
        there."""
        if self.has(url):
            return None
        with self._connection.statement() as connection:
            return moved_to(connection, url)

    def written_records(self, url: str, limit: int | None = None) -> list[tuple[int, UUID]]:
        """Return number and uuid of journal records that a store has for certain: random ones, so many at most; in
        order without a limit."""
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            return written_records(connection, url, limit)

    @contextmanager
    def _moving(self, store: str) -> Iterator[PgConnection]:
        with self._connection.transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'; SET LOCAL statement_timeout = 0")
            try:
                yield connection
            except pg.LockNotAvailable as error:
                hint = "wait for the commands that write to it, and run it again"
                raise Locked(f"rows of the store {store} are locked by another command", hint=hint) from error

    def sample(self, url: str, limit: int) -> list[StoredObject]:
        """Return random objects of a store, so many at most."""
        return self._objects(_SAMPLE, {"store": url, "limit": limit})

    def page(self, url: str, *, after: str = "", limit: int = 1000) -> list[StoredObject]:
        """Return objects of a store by key, beginning after one."""
        return self._objects(_PAGE, {"store": url, "after": after, "limit": limit})

    def count(self, url: str) -> int:
        """Return how many objects the catalog has in a store."""
        with self._connection.statement() as connection:
            row = connection.execute(_COUNT.encode(), {"store": url}).fetchone()
        return int(row[0]) if row else 0

    def _objects(self, statement: str, parameters: dict[str, Any]) -> list[StoredObject]:
        with self._connection.statement() as connection:
            return [StoredObject(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]


def add_store(connection: PgConnection, url: str) -> None:
    """Insert the row of a store unless there is one, in the caller's transaction: rows of chunks, copies and
    backups refer to it. A store inside the home of an embedded database moves with it from now on."""
    # An UPSERT would take a number of the sequence and wait for other inserts each time.
    if connection.execute("SELECT FROM stores WHERE url = %s", [url]).fetchone() is not None:
        return
    row = connection.execute("SELECT home FROM catalog_identity").fetchone()
    home_path = path_below(row[0], url) if row and row[0] else None
    statement = "INSERT INTO stores (url, home_path) VALUES (%s, %s) ON CONFLICT DO NOTHING"
    connection.execute(statement, (url, home_path))


def moved_meanwhile(store: str) -> Conflict:
    """Return the error for a row that refers to a store which the catalog does not have (any more)."""
    hint = "it was moved or removed meanwhile: `cafcat store ls` shows where it is; then run the command again"
    return Conflict(f"the catalog has no store {store}", hint=hint)


def follow_home(connection: PgConnection, home: str, other_names: Sequence[str]) -> list[tuple[str, str]]:
    """Give all stores inside the home their URLs at the place where the home is now. One transaction.

    Args: home: URL of the folder, without a slash at its end; other_names: its URLs through symbolic links.
    Returns: old and new URL of each store that was changed.
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
            with suppress(Conflict):  # another store is there
                take_url(connection, url, new)
                set_url(connection, url, new, home_path)
                moved.append((url, new))
        connection.execute("UPDATE catalog_identity SET home = %s", [home])
    return moved


def forget_home(connection: PgConnection) -> None:
    """Forget the home and the stores inside it, after rows came from the catalog of another home. The next
    connection notes them anew."""
    connection.execute("UPDATE catalog_identity SET home = NULL")
    connection.execute("UPDATE stores SET home_path = NULL")


def _find_stores_inside(connection: PgConnection, homes: Sequence[str]) -> None:
    """Note the stores inside the home, for a catalog that has not noted its home yet."""
    for (url,) in connection.execute("SELECT url FROM stores WHERE home_path IS NULL").fetchall():
        home_path = next((path for home in homes if (path := path_below(home, url))), None)
        if home_path:
            connection.execute("UPDATE stores SET home_path = %s WHERE url = %s", (home_path, url))


def _still_referred_to(connection: PgConnection, url: str) -> Conflict:
    """Return the error for a store that cannot be forgotten: it has something, or only had something."""
    if connection.execute(_HAS_OBJECTS.encode(), {"store": url}).fetchone() is None:
        hint = "the row takes no part in anything: another store can move to that URL"
        return Conflict(f"the history of deleted objects refers to the store {url}: its row has to stay", hint=hint)
    hint = "cafcat store ls shows what it has; cafcat store migrate moves that to another store"
    return Conflict(f"the catalog still refers to the store {url}", hint=hint)


def _check_told(connection: PgConnection, url: str) -> None:
    statement = "SELECT count(*) FROM journal WHERE unwritten <> '{}' AND unwritten @> ARRAY[%s]"
    row = connection.execute(statement, [url]).fetchone()
    if row is not None and row[0]:
        hint = "run `cafcat recover`, which writes them"
        raise Conflict(f"the store {url} still lacks {row[0]} journal records", hint=hint)


def _rename(connection: PgConnection, url: str, name: str | None) -> None:
    try:
        with connection.transaction():
            changed = connection.execute("UPDATE stores SET name = %s WHERE url = %s", (name, url)).rowcount
    except pg.UniqueViolation as error:
        hint = "`cafcat store ls` shows it; choose another name"
        raise Conflict(f"another store has the name {name}", hint=hint) from error
    if not changed:
        raise no_such_store(url)


class ServerVerdicts:
    """Checks that the servers of stores failed: `stores.checks`, as `{"failed": ["entity_tag"]}`."""

    def __init__(self, connection: Connection) -> None:
        """Take a connection of its own: verdicts are found inside transactions of others."""
        self._connection = connection

    def failed(self, store_url: str) -> Collection[str]:
        """Return the names of the checks that the server of a store failed. Raises CatalogUnavailable."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT checks -> 'failed' FROM stores WHERE url = %s", [store_url]).fetchone()
        return [] if row is None or row[0] is None else row[0]

    def replace(self, store_url: str, checks: Collection[str]) -> bool:
        """Store the result of a new look at all checks. Return False if the catalog has no such store. Raises
        CatalogUnavailable."""
        statement = "UPDATE stores SET checks = jsonb_build_object('failed', %s::text[]) WHERE url = %s"
        with self._connection.transaction() as connection:
            return connection.execute(statement, (sorted(checks), store_url)).rowcount == 1

    def remember(self, store_url: str, check: str) -> bool:
        """Add a failed check, if the catalog has the store. Return False if the store had this check before.
        Raises CatalogUnavailable."""
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL lock_timeout = '10s'")
            if connection.execute(_REMEMBER.encode(), {"check": check, "url": store_url}).rowcount:
                return True
            return connection.execute("SELECT FROM stores WHERE url = %s", [store_url]).fetchone() is None
