"""Changes the layout of file_locations while other commands read and write, in small transactions.

1. `begin` creates the table in the new layout, and triggers that repeat each change of file_locations there.
2. `copy_batch` copies the existing rows, page by page, so that the files of a chunk stay together on disk.
3. `check` compares both tables in one snapshot.
4. `switch` renames both tables in one transaction, as soon as no other session uses file_locations.
5. `finish` drops the table in the former layout.

The table `layout_change` has the state between the transactions. A killed command loses at most one batch.

Batches and changes by others keep apart as follows. A transaction that updates or deletes rows of file_locations
shares an advisory lock with others of its kind; a batch holds this lock alone. So a batch cannot copy a row that is
being deleted. Transactions that only insert rows do not wait: the primary key makes a batch skip their rows.
"""

from dataclasses import dataclass
from typing import Final

from psycopg.types.json import Jsonb

from cafcat.catalog import layout_sql as statements
from cafcat.catalog.connection import Connection
from cafcat.catalog.layout import create_target, partition_count, partition_empty, rename_target
from cafcat.catalog.layout_state import (
    LayoutChange,
    become_owner,
    cancel_change,
    create_triggers,
    drop_former_layout,
    read_state,
)
from cafcat.catalog.locking import acquire, set_lock_timeout
from cafcat.errors import Conflict, Corrupt

__all__ = ["LayoutChanges", "LayoutSize"]

SWITCH_SECONDS: Final = 1.5
"""How long one attempt to switch waits for its lock, and new readers with it, in seconds.

This is longer than PostgreSQL's deadlock_timeout, after which the wait ends an autovacuum of the table.
"""


@dataclass(frozen=True, slots=True)
class LayoutSize:
    """The size of file_locations, before its layout is changed.

    Attributes:
        partitions: Present number of partitions; 0 for a plain table.
        rows: Estimated number of rows, of the last vacuum or analysis.
        table_bytes: Size of the rows on disk.
        total_bytes: Size of the rows and their indexes: the space that the second table needs.
        obstacles: Views, indexes and other objects that a user added to the table, and which prevent a change.
    """

    partitions: int
    rows: int
    table_bytes: int
    total_bytes: int
    obstacles: tuple[str, ...]


class LayoutChanges:
    """Queries on the layout of file_locations, and the steps of its change. Each step is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def partitions(self) -> int:
        """Return the number of partitions of file_locations; 0 for a plain table."""
        with self._connection.statement() as connection:
            return partition_count(connection)

    def set_empty(self, partitions: int) -> None:
        """Give the table of an empty catalog another layout; do nothing if it has this layout.

        Raises:
            InvalidInput: The catalog has files in another layout.
        """
        with self._connection.transaction() as connection:
            if partition_count(connection) != partitions:
                partition_empty(connection, partitions)

    def size(self) -> LayoutSize:
        """Return the size of file_locations, and what prevents a change of its layout."""
        with self._connection.transaction() as connection:
            [(table_bytes, total_bytes, rows)] = connection.execute(statements.SIZES).fetchall()
            obstacles = tuple(str(row[0]) for row in connection.execute(statements.OBSTACLES).fetchall())
            return LayoutSize(partition_count(connection), rows, table_bytes, total_bytes, obstacles)

    def change(self) -> LayoutChange | None:
        """Return the state of the unfinished change; None if there is none."""
        with self._connection.transaction() as connection:
            state = read_state(connection)
        return None if state is None else state.shown()

    def begin(self, partitions: int) -> None:
        """Create the table in the new layout, the triggers, and the state of the change.

        This waits until no transaction is writing to file_locations. Readers do not wait.

        Raises:
            Conflict: The table has objects that a user added, or a change is under way.
            CatalogUnavailable: The role does not own the table.
            CatalogLocked: The lock was not free in time.
        """
        with self._connection.transaction() as connection:
            become_owner(connection)
            obstacles = [str(row[0]) for row in connection.execute(statements.OBSTACLES).fetchall()]
            if obstacles:
                hint = "drop them, and create them again after the change"
                raise Conflict(
                    f"file_locations has objects that cafcat did not make: {', '.join(obstacles)}", hint=hint
                )
            acquire(connection, "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")
            if read_state(connection) is not None:
                raise Conflict("another command changes the layout")
            create_target(connection, partitions)
            create_triggers(connection)
            connection.execute(statements.CREATE_STATE)
            [(sources,)] = connection.execute(statements.SOURCES).fetchall()
            connection.execute(
                "INSERT INTO layout_change (partitions, phase, sources) VALUES (%s, 'copying', %s)",
                (partitions, Jsonb(sources)),
            )

    def copy_batch(self, blocks: int) -> int:
        """Copy the rows of the next pages, and return their number. After the last page, the phase is `checking`.

        Args:
            blocks: Largest number of pages.

        Raises:
            CatalogLocked: A transaction that changes rows of file_locations did not end in time.
        """
        with self._connection.transaction() as connection:
            # Each statement has to see the changes of transactions for which the one before it waited.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            acquire(connection, f"SELECT pg_advisory_xact_lock({statements.LOCK_KEY})")
            state = read_state(connection, lock=True)
            if state is None or state.phase != "copying":
                return 0
            return state.copy(connection, blocks)

    def tidy(self) -> None:
        """Collect statistics of the new table, and summarize its pages in the BRIN index, before it is used."""
        with self._connection.statement() as connection:
            connection.execute("SET statement_timeout = 0")
            try:
                connection.execute("VACUUM (ANALYZE) file_locations_new")
            finally:
                connection.execute("RESET statement_timeout")

    def check(self) -> None:
        """Compare the rows of both tables in one snapshot. Then the phase is `switching`.

        Raises:
            Corrupt: The tables differ. They never should.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0")
            found = [
                connection.execute(statements.CONTENTS.format(table=table).encode()).fetchone()
                for table in ("file_locations", "file_locations_new")
            ]
        if found[0] != found[1]:
            counts = " and ".join(str(row[0]) for row in found if row)
            hint = "run `cafcat db partition --cancel`, and report this error"
            raise Corrupt(f"the rows of both layouts differ ({counts} rows)", hint=hint)
        with self._connection.transaction() as connection:
            connection.execute("UPDATE layout_change SET phase = 'switching' WHERE phase = 'checking'")

    def older_sessions(self) -> list[str]:
        """Return a text for each session whose snapshot may be older than the last batch; at most three."""
        with self._connection.transaction() as connection:
            state = read_state(connection)
            if state is None:
                return []
            rows = connection.execute(statements.OLDER_SNAPSHOTS, [state.last_change]).fetchall()
        return [f"server process {pid} ({name})" for pid, name in rows]

    def switch(self) -> None:
        """Rename both tables. Then the phase is `dropping`.

        Raises:
            CatalogLocked: file_locations was in use for SWITCH_SECONDS. The transaction was rolled back.
        """
        with self._connection.transaction() as connection:
            set_lock_timeout(connection, SWITCH_SECONDS)
            connection.execute("LOCK TABLE ONLY file_locations IN ACCESS EXCLUSIVE MODE")
            state = read_state(connection, lock=True)
            if state is not None and state.phase == "switching":
                rename_target(connection)
                connection.execute("UPDATE layout_change SET phase = 'dropping'")

    def finish(self) -> None:
        """Drop the table in the former layout, and the state.

        Raises:
            CatalogLocked: The table was in use for SWITCH_SECONDS. The transaction was rolled back.
        """
        with self._connection.transaction() as connection:
            set_lock_timeout(connection, SWITCH_SECONDS)
            drop_former_layout(connection)

    def cancel(self) -> None:
        """Drop the table in the new layout, the triggers and the state of a change that has not switched yet.

        Raises:
            Conflict: The tables are switched already.
            CatalogLocked: The lock on file_locations was not free in time.
        """
        with self._connection.transaction() as connection:
            cancel_change(connection)
