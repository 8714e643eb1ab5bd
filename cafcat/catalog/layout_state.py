"""The state of an unfinished change of the layout, in the table `layout_change`, and how such a change ends."""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from cafcat.catalog import layout_sql as statements
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.layout import described, drop_former, partitions_of
from cafcat.catalog.locking import acquire
from cafcat.errors import CatalogDenied, Conflict

__all__ = [
    "LayoutChange",
    "State",
    "become_owner",
    "cancel_change",
    "create_triggers",
    "drop_former_layout",
    "end_change",
    "read_state",
]


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """The state of an unfinished change.

    Attributes:
        partitions: Number of partitions of the new layout; 0 for a plain table.
        phase: copying, checking, switching or dropping.
        rows_copied: Number of rows that batches have copied.
        blocks_done: Number of copied pages.
        blocks: Number of pages to copy in all.
    """

    partitions: int
    phase: str
    rows_copied: int
    blocks_done: int
    blocks: int


@dataclass(slots=True)
class State:
    """The row of layout_change."""

    partitions: int
    phase: str
    sources: list[dict[str, Any]]
    source: int
    block: int
    rows_copied: int
    last_change: str | None

    def shown(self) -> LayoutChange:
        """Return the parts of the state that callers see."""
        sizes = [int(source["blocks"]) for source in self.sources]
        done = sum(sizes[: self.source]) + self.block
        return LayoutChange(self.partitions, self.phase, self.rows_copied, done, sum(sizes))

    def copy(self, connection: PgConnection, blocks: int) -> int:
        """Copy the rows of the next pages, and record the new position."""
        rows = 0
        if self.source < len(self.sources):
            source = self.sources[self.source]
            self._follow_file(connection, source)
            high = min(self.block + blocks, source["blocks"])
            statement = statements.COPY_BATCH.format(table=source["table"], low=self.block, high=high)
            rows = connection.execute(statement.encode()).rowcount
            self.block = high
            if high >= source["blocks"]:
                self.source, self.block = self.source + 1, 0
        phase = "copying" if self.source < len(self.sources) else "checking"
        values = {"sources": Jsonb(self.sources), "source": self.source, "block": self.block}
        connection.execute(statements.ADVANCE, values | {"phase": phase, "rows": rows})
        return rows

    def _follow_file(self, connection: PgConnection, source: dict[str, Any]) -> None:
        """Start the table again if it was rewritten: VACUUM FULL and CLUSTER move rows to other pages."""
        [(blocks, file)] = connection.execute(statements.SOURCE_NOW, {"table": source["table"]}).fetchall()
        if file != source["file"]:
            source |= {"blocks": blocks, "file": file}
            self.block = 0


def read_state(connection: psycopg.Connection[Any], *, lock: bool = False) -> State | None:
    """Return the state of the unfinished change; None if there is none. With `lock`, lock its row."""
    [(exists,)] = connection.execute("SELECT to_regclass('layout_change') IS NOT NULL").fetchall()
    if not exists:
        return None
    row = connection.execute((statements.STATE + ("FOR UPDATE" if lock else "")).encode()).fetchone()
    return None if row is None else State(*row)


def cancel_change(connection: psycopg.Connection[Any]) -> None:
    """Undo an unfinished change that has not switched yet, in the open transaction. Do nothing if there is none."""
    state = read_state(connection)
    if state is None:
        return
    if state.phase == "dropping":
        raise Conflict(
            f"the catalog has {described(state.partitions)} already",
            hint=f"finish the change: `cafcat db partition {state.partitions} --yes`",
        )
    acquire(connection, "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")
    for table in ["file_locations", *partitions_of(connection)]:
        connection.execute(statements.DROP_TRIGGERS.format(table=table).encode())
    connection.execute(f"{statements.DROP_FUNCTIONS}; DROP TABLE file_locations_new, layout_change".encode())


def end_change(connection: psycopg.Connection[Any]) -> None:
    """End an unfinished change in the open transaction: undo it, or finish it if it has switched."""
    state = read_state(connection)
    if state is not None and state.phase == "dropping":
        drop_former_layout(connection)
    else:
        cancel_change(connection)


def drop_former_layout(connection: psycopg.Connection[Any]) -> None:
    """Drop the table in the former layout, and the state, in the open transaction."""
    drop_former(connection)
    connection.execute(f"{statements.DROP_FUNCTIONS}; DROP TABLE IF EXISTS layout_change".encode())


def create_triggers(connection: PgConnection) -> None:
    """Create the triggers that repeat changes of file_locations, in the open transaction."""
    [(schema,)] = connection.execute("SELECT quote_ident(current_schema())").fetchall()
    connection.execute(statements.FUNCTIONS.replace("{schema}", str(schema)).encode())
    for table in ["file_locations", *partitions_of(connection)]:
        connection.execute(statements.TRIGGERS.format(table=table).encode())


def become_owner(connection: PgConnection) -> None:
    """Use the role that owns file_locations until the transaction ends, so that it owns the new table, too."""
    [(owner, is_member)] = connection.execute(statements.OWNER).fetchall()
    if not is_member:
        raise CatalogDenied(
            f"only the owner of the tables, the role {owner}, can change the layout",
            hint="use the --database-url of that role",
        )
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(str(owner))))
