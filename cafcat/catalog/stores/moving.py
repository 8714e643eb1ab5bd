"""The change of a store's URL, in its row and in all rows that refer to the store."""

import shlex
from typing import Final
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.runs import iso
from cafcat.errors import Conflict, InvalidInput, Locked, NotFound
from cafcat.support.quantities import plural

__all__ = [
    "check_movable",
    "check_not_written",
    "move_store",
    "moved_to",
    "no_such_store",
    "path_below",
    "reuse_url",
    "set_url",
    "written_records",
]

_REFERRING: Final = ("chunks", "chunk_copies", "backups")

# Whether the catalog has, or is about to have, chunks or copies at a URL. Committed backups do not count, because
# they can be added to another store.
_IN_USE: Final = """
SELECT EXISTS (SELECT FROM chunks WHERE store = %(url)s AND state IN ('writing', 'committed', 'retired'))
    OR EXISTS (SELECT FROM chunk_copies WHERE store = %(url)s AND state IN ('writing', 'committed'))
    OR EXISTS (SELECT FROM backups WHERE store = %(url)s AND state = 'writing')
"""
# If the moved store has an object of the same name, it has overwritten the remains of a dead copy. Mark the remains
# as removed.
_DROP_OVERWRITTEN: Final = """
UPDATE chunk_copies AS dead SET deleted_at = now()
WHERE store = %(new)s AND deleted_at IS NULL AND (
    EXISTS (SELECT FROM chunks AS c WHERE c.store = %(old)s AND c.object_key = dead.object_key
            AND c.state IN ('writing', 'committed', 'retired'))
    OR EXISTS (SELECT FROM chunk_copies AS k WHERE k.store = %(old)s AND k.object_key = dead.object_key
               AND k.deleted_at IS NULL))
"""
# If both stores have a row for the same backup, keep the row that is in use.
_DROP_DUPLICATE_BACKUPS: Final = tuple(
    f"DELETE FROM backups AS gone USING backups AS kept WHERE gone.store = %({gone})s AND kept.store = %({kept})s "  # noqa: S608
    f"AND gone.object_key = kept.object_key {condition}"
    for gone, kept, condition in (
        ("old", "new", "AND gone.state IN ('abandoned', 'deleted')"),
        ("new", "old", ""),
    )
)
# Journal records that a store certainly has: those of chunks that were written there, and of all removals since the
# first of them. A chunk that was migrated or rebuilt has no event for this store. The parameter urls has the
# present and all former URLs of the store.
# A copy of a chunk brings its record, and the records of all later removals.
_RECORDS: Final = """
WITH own AS (
    SELECT j.id FROM journal AS j JOIN chunks AS c ON c.id = j.chunk_id JOIN events AS e ON e.chunk_id = c.id
    WHERE c.store = %(url)s AND c.adopted_prefix IS NULL AND c.state IN ('committed', 'retired')
      AND e.kind = 'chunk_begun'
      AND e.detail IN (SELECT u || ' ' || c.object_key FROM unnest(%(urls)s::text[]) AS u)
    UNION ALL
    SELECT j.id FROM journal AS j JOIN chunks AS c ON c.id = j.chunk_id JOIN chunk_copies AS k ON k.chunk_id = c.id
    WHERE k.store = %(url)s AND k.state = 'committed' AND k.retired_at IS NULL
      AND c.state IN ('committed', 'retired')
      AND EXISTS (SELECT FROM events AS e WHERE e.chunk_id = c.id AND e.kind = 'chunk_begun')
)
SELECT id, uuid FROM journal
WHERE (id IN (SELECT id FROM own) OR (chunk_id IS NULL AND id > (SELECT min(id) FROM own)))
  AND NOT unwritten @> ARRAY[%(url)s]
ORDER BY {order}
"""
_COPY_ATTRIBUTES: Final = """
UPDATE stores SET name = coalesce(name, %s), uuid = coalesce(uuid, %s), checks = coalesce(%s::jsonb, checks)
WHERE url = %s
"""


def check_movable(connection: PgConnection, old: str, new: str) -> None:
    """Check that a store can move to another URL, and lock the rows of both URLs until the transaction ends.

    Args:
        connection: A connection with an open transaction.
        old: Present URL of the store.
        new: The URL to which the store moves.

    Raises:
        NotFound: The catalog has no such store.
        InvalidInput: Both URLs are the same.
        Locked: A command is writing to the store, or may be: its lease has not expired, and it may be alive.
        Conflict: The catalog has chunks or copies at the new URL, or a backup is being written there.
    """
    if connection.execute("SELECT FROM stores WHERE url = %s FOR UPDATE", [old]).fetchone() is None:
        raise no_such_store(old)
    if old == new:
        raise InvalidInput(f"the URL of the store is already {new}")
    check_not_written(connection, old)
    if _is_in_use(connection, new):
        hint = f"cafcat store migrate {shlex.quote(old)} {shlex.quote(new)} copies the first store into the second"
        raise Conflict(f"the catalog already has objects in {new}", hint=hint)


def move_store(connection: PgConnection, old: str, new: str) -> str | None:
    """Change the URL of a store, in the caller's transaction.

    If the catalog still has a row of the new URL, without chunks and copies, `reuse_url` merges that row into the
    row of this store. Dead writers in the store lose their leases.

    Args:
        connection: A connection with an open transaction.
        old: Present URL of the store.
        new: The URL to which the store moves.

    Returns:
        The name of that other row, if the name is lost because this store keeps its own name; else None.

    Raises:
        NotFound: The catalog has no such store.
        InvalidInput: Both URLs are the same.
        Locked: A command is writing to the store, or may be: its lease has not expired, and it may be alive.
        Conflict: The catalog has chunks or copies at the new URL, or a backup is being written there. Or
            both URLs have a row of a chunk with the same object key.
    """
    check_movable(connection, old, new)
    _end_leases(connection, old)
    dropped_name = reuse_url(connection, old, new)
    row = connection.execute("SELECT home FROM catalog_identity").fetchone()
    set_url(connection, old, new, path_below(row[0], new) if row and row[0] else None)
    record_event(connection, "store_moved", f"{old} {new}")
    return dropped_name


def reuse_url(connection: PgConnection, old: str, new: str) -> str | None:
    """Merge the row of an unused URL into the store that moves to this URL, and remove the row.

    The rows of deleted and abandoned objects, and of backups, at the new URL are added to the store at the old URL.
    This store also gets name and UUID of the removed row, where it has none, and the failed checks of the removed
    row, which describe the server at the new URL. If both URLs have a row of the same backup, one of these rows is
    deleted. Remains of a copy that an object of this store has overwritten are marked as removed. Nothing is
    done if the catalog has no row of the new URL.

    Args:
        connection: A connection with an open transaction.
        old: Present URL of the store that moves.
        new: The URL to which the store moves, and whose own row is removed.

    Returns:
        The name of the removed row, if the name is lost because the moved store keeps its own; else None.

    Raises:
        Conflict: The catalog has chunks or copies at the new URL, or a backup is being written there. Or
            both URLs have a row of a chunk with the same object key.
    """
    if _is_in_use(connection, new):
        raise Conflict(f"the catalog already has objects in {new}")
    if connection.execute("SELECT FROM stores WHERE url = %s", [new]).fetchone() is None:
        return None
    try:
        with connection.transaction():
            return _merge_rows(connection, old, new)
    except pg.UniqueViolation as error:
        raise Conflict(f"the catalog has the same object in {old} and in {new}") from error


def set_url(connection: PgConnection, old: str, new: str, home_path: str | None) -> None:
    """Change the URL of a store in its row, and in the journal records that must still be written into the store.

    Foreign keys with ON UPDATE CASCADE change the rows of its chunks, copies and backups.

    Args:
        connection: A connection with an open transaction.
        old: The present URL.
        new: The new URL.
        home_path: Path of the store below the home of an embedded database (stores.home_path); None if it is not
            inside the home.
    """
    connection.execute("UPDATE stores SET url = %s, home_path = %s WHERE url = %s", (new, home_path, old))
    connection.execute(
        "UPDATE journal SET unwritten = array_replace(unwritten, %s, %s) "
        "WHERE unwritten <> '{}' AND unwritten @> ARRAY[%s]",
        (old, new, old),
    )


def moved_to(connection: PgConnection, url: str) -> str | None:
    """Return the present URL of the store that was moved away from a URL, after all its further moves.

    None if no store was moved away from the URL, or if it was moved back.
    """
    statement = "SELECT detail FROM events WHERE kind = 'store_moved' ORDER BY id"
    current = url
    for (detail,) in connection.execute(statement).fetchall():
        if detail.startswith(f"{current} "):
            current = detail.removeprefix(f"{current} ")
    return None if current == url else current


def written_records(connection: PgConnection, url: str, limit: int | None) -> list[tuple[int, UUID]]:
    """Return journal.id and journal.uuid of records that were certainly written to a store.

    Args:
        connection: A connection.
        url: URL of the store.
        limit: Largest number of records, which are chosen at random; None for all records, in order of journal.id.
    """
    urls = {url}
    statement = "SELECT detail FROM events WHERE kind = 'store_moved' ORDER BY id DESC"
    for (detail,) in connection.execute(statement).fetchall():
        before, _, after = detail.partition(" ")
        if after in urls:
            urls.add(before)
    query = _RECORDS.format(order="id" if limit is None else f"random() LIMIT {limit:d}")
    return connection.execute(query.encode(), {"url": url, "urls": sorted(urls)}).fetchall()


def path_below(home: str, url: str) -> str | None:
    """Return the part of a store's URL after the URL of the home (CAFCAT_HOME) and a slash.

    The part is percent-encoded if the URL is. None if the store is not inside the home.
    """
    return url.removeprefix(f"{home}/") if url.startswith(f"{home}/") else None


def no_such_store(url: str) -> NotFound:
    """Return the NotFound error for a store that the catalog does not have."""
    return NotFound(f"the catalog has no store {url}", hint="`cafcat store ls` shows its stores")


def _is_in_use(connection: PgConnection, url: str) -> bool:
    """Return True if the catalog has chunks or copies at a URL, or a chunk, copy or backup is being written there.

    This also locks the row of the store, so that no rows of its objects can be inserted until the transaction ends.
    """
    connection.execute("SELECT FROM stores WHERE url = %s FOR UPDATE", [url])
    [(is_in_use,)] = connection.execute(_IN_USE, {"url": url}).fetchall()
    return bool(is_in_use)


def check_not_written(connection: PgConnection, store_url: str) -> None:
    """Raise Locked if a writer with a lease that has not expired may be alive and writing into a store.

    The remains of dead writers do not prevent a move. They move with the store.
    """
    for table in _REFERRING:
        statement = (
            f"SELECT lease_owner, {iso('lease_expires_at')} FROM {table} "  # noqa: S608
            "WHERE store = %s AND state = 'writing' AND lease_expires_at >= now() FOR UPDATE"
        )
        rows = connection.execute(statement.encode(), [store_url]).fetchall()
        ends = [end for owner, end in rows if not is_dead(owner)]
        if ends:
            hint = f"wait for the commands that write there; if one was killed, its lease ends at {max(ends)}"
            message = f"other commands write {plural(len(ends), 'object')} ({table}) in the store {store_url}"
            raise Locked(message, hint=hint)


def _end_leases(connection: PgConnection, store_url: str) -> None:
    """End the leases of all unfinished objects in a store. `check_not_written` found no writer that may be alive.

    A writer whose lease expired while it was suspended cannot commit any more then. Its object is at the old URL.
    """
    for table in _REFERRING:
        statement = (
            f"UPDATE {table} SET lease_owner = NULL, lease_expires_at = now() "  # noqa: S608
            "WHERE store = %s AND state = 'writing'"
        )
        connection.execute(statement.encode(), [store_url])


def _merge_rows(connection: PgConnection, old: str, new: str) -> str | None:
    """Move all rows at the new URL to the store at the old URL, and delete the row of the new URL.

    Returns:
        The name of the deleted row, if the store at the old URL has a name of its own; else None. Also None if the
        deleted row had no name.
    """
    urls = {"old": old, "new": new}
    for statement in (_DROP_OVERWRITTEN, *_DROP_DUPLICATE_BACKUPS):
        connection.execute(statement.encode(), urls)
    for table in _REFERRING:
        statement = f"UPDATE {table} SET store = %(old)s WHERE store = %(new)s"  # noqa: S608
        connection.execute(statement.encode(), urls)
    [(own_name,)] = connection.execute("SELECT name FROM stores WHERE url = %s", [old]).fetchall()
    statement = "DELETE FROM stores WHERE url = %s RETURNING name, uuid, checks::text"
    [(name, uuid, checks)] = connection.execute(statement, [new]).fetchall()
    connection.execute(_COPY_ATTRIBUTES, (name, uuid, checks, old))
    return name if own_name is not None else None
