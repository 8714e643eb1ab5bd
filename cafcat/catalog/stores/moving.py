"""Change of a store's URL in the catalog, together with all rows that refer to the store."""

import shlex
from typing import Final
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.errors import Conflict, InvalidInput, Locked, NotFound

__all__ = [
    "check_movable",
    "move_store",
    "moved_to",
    "no_such_store",
    "path_below",
    "set_url",
    "take_url",
    "written_records",
]

_REFERRING: Final = ("chunks", "chunk_copies", "backups")

# Whether the catalog has, or is about to have, chunks or copies at a URL. Backups alone can join another store.
_IN_USE: Final = """
SELECT EXISTS (SELECT FROM chunks WHERE store = %(url)s AND state IN ('writing', 'committed', 'retired'))
    OR EXISTS (SELECT FROM chunk_copies WHERE store = %(url)s AND state IN ('writing', 'committed'))
    OR EXISTS (SELECT FROM backups WHERE store = %(url)s AND state = 'writing')
"""
# What an object of the moved store has replaced, by name, has no remains any more that recover could remove.
_REPLACED: Final = """
UPDATE chunk_copies AS dead SET deleted_at = now()
WHERE store = %(new)s AND deleted_at IS NULL AND (
    EXISTS (SELECT FROM chunks AS c WHERE c.store = %(old)s AND c.object_key = dead.object_key
            AND c.state IN ('writing', 'committed', 'retired'))
    OR EXISTS (SELECT FROM chunk_copies AS k WHERE k.store = %(old)s AND k.object_key = dead.object_key
               AND k.deleted_at IS NULL))
"""
# Of two rows for one backup, the one that is in use stays.
_SAME_BACKUPS: Final = tuple(
    f"DELETE FROM backups AS gone USING backups AS kept WHERE gone.store = %({gone})s AND kept.store = %({kept})s "  # noqa: S608
    f"AND gone.object_key = kept.object_key {condition}"
    for gone, kept, condition in (
        ("old", "new", "AND gone.state IN ('abandoned', 'deleted')"),
        ("new", "old", ""),
    )
)
# Records that a store has for certain: of chunks that were written there, and of all removals since the first of
# them. A chunk that was migrated or rebuilt has no event for this store. urls: also those that it had before.
_RECORDS: Final = """
WITH own AS (
    SELECT j.id FROM journal AS j JOIN chunks AS c ON c.id = j.chunk_id JOIN events AS e ON e.chunk_id = c.id
    WHERE c.store = %(url)s AND c.adopted_prefix IS NULL AND c.state IN ('committed', 'retired')
      AND e.kind = 'chunk_begun'
      AND e.detail IN (SELECT u || ' ' || c.object_key FROM unnest(%(urls)s::text[]) AS u)
)
SELECT id, uuid FROM journal
WHERE (id IN (SELECT id FROM own) OR (chunk_id IS NULL AND id > (SELECT min(id) FROM own)))
  AND NOT unwritten @> ARRAY[%(url)s]
ORDER BY {order}
"""
_CARRY_OVER: Final = """
UPDATE stores SET name = coalesce(name, %s), uuid = coalesce(uuid, %s), checks = coalesce(%s::jsonb, checks)
WHERE url = %s
"""


def check_movable(connection: PgConnection, old: str, new: str) -> None:
    """Check that a store can move to another URL, and lock its row until the transaction ends.

    Raises:
        NotFound: the catalog has no such store.
        InvalidInput: both URLs are the same.
        Locked: a command writes to the store.
        Conflict: the catalog has chunks or copies at the new URL.
    """
    if connection.execute("SELECT FROM stores WHERE url = %s FOR UPDATE", [old]).fetchone() is None:
        raise no_such_store(old)
    if old == new:
        raise InvalidInput(f"the store is at {new} already")
    _check_not_written(connection, old)
    if _is_in_use(connection, new):
        hint = f"cafcat store migrate {shlex.quote(old)} {shlex.quote(new)} copies the first store into the second"
        raise Conflict(f"the catalog has objects in {new} already", hint=hint)


def move_store(connection: PgConnection, old: str, new: str) -> str | None:
    """Change the URL of a store. Returns the name that the new URL had in the catalog, if the store keeps another
    one. Raises as check_movable."""
    check_movable(connection, old, new)
    _end_leases(connection, old)
    dropped_name = take_url(connection, old, new)
    row = connection.execute("SELECT home FROM catalog_identity").fetchone()
    set_url(connection, old, new, path_below(row[0], new) if row and row[0] else None)
    connection.execute("INSERT INTO events (kind, detail) VALUES ('store_moved', %s)", [f"{old} {new}"])
    return dropped_name


def take_url(connection: PgConnection, old: str, new: str) -> str | None:
    """Let a store have a URL that the catalog does not use any more: rows of deleted and abandoned objects, and of
    backups, are added to those of the store, which also gets name, identity and checks if it has none. Returns a
    name that no store has now. Raises Conflict if the catalog uses the URL."""
    if _is_in_use(connection, new):
        raise Conflict(f"the catalog has objects in {new} already")
    if connection.execute("SELECT FROM stores WHERE url = %s", [new]).fetchone() is None:
        return None
    try:
        with connection.transaction():
            return _take_rows(connection, old, new)
    except pg.UniqueViolation as error:
        raise Conflict(f"the catalog has the same object in {old} and in {new}") from error


def set_url(connection: PgConnection, old: str, new: str, home_path: str | None) -> None:
    """Change a URL by one UPDATE: foreign keys change the rows that refer to the store."""
    connection.execute("UPDATE stores SET url = %s, home_path = %s WHERE url = %s", (new, home_path, old))
    connection.execute(
        "UPDATE journal SET unwritten = array_replace(unwritten, %s, %s) "
        "WHERE unwritten <> '{}' AND unwritten @> ARRAY[%s]",
        (old, new, old),
    )


def moved_to(connection: PgConnection, url: str) -> str | None:
    """Return where the store is that was moved away from a URL; None if none was."""
    statement = "SELECT detail FROM events WHERE kind = 'store_moved' ORDER BY id"
    place = url
    for (detail,) in connection.execute(statement).fetchall():
        if detail.startswith(f"{place} "):
            place = detail.removeprefix(f"{place} ")
    return None if place == url else place


def written_records(connection: PgConnection, url: str, limit: int | None) -> list[tuple[int, UUID]]:
    """Return number and uuid of journal records that were written to a store, in order; with a limit, random
    ones."""
    urls = {url}
    statement = "SELECT detail FROM events WHERE kind = 'store_moved' ORDER BY id DESC"
    for (detail,) in connection.execute(statement).fetchall():
        before, _, after = detail.partition(" ")
        if after in urls:
            urls.add(before)
    query = _RECORDS.format(order="id" if limit is None else f"random() LIMIT {limit:d}")
    return connection.execute(query.encode(), {"url": url, "urls": sorted(urls)}).fetchall()


def path_below(home: str, url: str) -> str | None:
    """The rest of the URL of a store behind that of the home, percent-encoded as there; None for other stores."""
    return url.removeprefix(f"{home}/") if url.startswith(f"{home}/") else None


def no_such_store(url: str) -> NotFound:
    return NotFound(f"the catalog has no store {url}", hint="`cafcat store ls` shows its stores")


def _is_in_use(connection: PgConnection, url: str) -> bool:
    """Rows of the store's objects cannot be inserted meanwhile."""
    connection.execute("SELECT FROM stores WHERE url = %s FOR UPDATE", [url])
    [(is_in_use,)] = connection.execute(_IN_USE, {"url": url}).fetchall()
    return bool(is_in_use)


def _check_not_written(connection: PgConnection, store: str) -> None:
    """Raise Locked if a writer has a lease, and may be alive. What dead writers left moves with the store."""
    for table in _REFERRING:
        statement = (
            f"SELECT lease_owner, {iso('lease_expires_at')} FROM {table} "  # noqa: S608
            "WHERE store = %s AND state = 'writing' AND lease_expires_at >= now() FOR UPDATE"
        )
        rows = connection.execute(statement.encode(), [store]).fetchall()
        ends = [end for owner, end in rows if not is_dead(owner)]
        if ends:
            hint = f"wait for the commands that write there; if one was killed, its lease ends at {max(ends)}"
            raise Locked(f"{len(ends)} rows of {table} in the store {store} are being written", hint=hint)


def _end_leases(connection: PgConnection, store: str) -> None:
    """Take what dead writers left from them. One that was only suspended must not commit any more: its object is at
    the old place."""
    for table in _REFERRING:
        statement = (
            f"UPDATE {table} SET lease_owner = NULL, lease_expires_at = now() "  # noqa: S608
            "WHERE store = %s AND state = 'writing'"
        )
        connection.execute(statement.encode(), [store])


def _take_rows(connection: PgConnection, old: str, new: str) -> str | None:
    urls = {"old": old, "new": new}
    for statement in (_REPLACED, *_SAME_BACKUPS):
        connection.execute(statement.encode(), urls)
    for table in _REFERRING:
        statement = f"UPDATE {table} SET store = %(old)s WHERE store = %(new)s"  # noqa: S608
        connection.execute(statement.encode(), urls)
    [(own_name,)] = connection.execute("SELECT name FROM stores WHERE url = %s", [old]).fetchall()
    statement = "DELETE FROM stores WHERE url = %s RETURNING name, uuid, checks::text"
    [(name, uuid, checks)] = connection.execute(statement, [new]).fetchall()
    connection.execute(_CARRY_OVER, (name, uuid, checks, old))
    return name if own_name is not None else None
