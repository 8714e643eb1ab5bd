"""The operation `db partition`: copies file_locations into another layout, and switches to it."""

import time
from collections.abc import Callable
from typing import Final

from cafcat.catalog.layout import check_partitions, described
from cafcat.catalog.layout_change import LayoutChanges, LayoutSize
from cafcat.catalog.layout_state import LayoutChange
from cafcat.errors import CatalogLocked, Conflict
from cafcat.operations.audit import audited
from cafcat.operations.partition.report import PartitionReport
from cafcat.session import Session

__all__ = ["cancel", "run"]

_BATCH_SECONDS: Final = 0.2
"""Time of one batch, in seconds: so long may a command that removes or replaces files wait for it."""
_FIRST_BLOCKS: Final = 16
_MOST_BLOCKS: Final = 4096
_PAUSE_SECONDS: Final = 1.0
"""Time between two attempts to switch, in seconds. Readers that waited for one attempt are served meanwhile."""
_REPORT_SECONDS: Final = 60.0
_LOG_FACTOR: Final = 2.0
"""Estimate of the write-ahead log of a change, relative to the size of rows and indexes. Measured: 1.4 to 1.8."""


def run(session: Session, partitions: int, *, dry_run: bool = False) -> PartitionReport:
    """Change the layout of file_locations while other commands read and write.

    The change can be interrupted at any time. The next call with the same number of partitions continues it.

    Args:
        session: The session. Its Progress counts rows.
        partitions: Number of partitions of the new layout; 0 for a plain table.
        dry_run: Return the size of the change; change nothing.

    Raises:
        InvalidInput: The number of partitions is not possible.
        Conflict: Another change is unfinished, the table has objects that a user added, or another command has
            cancelled this change.
        CatalogUnavailable: The role does not own the tables.
        CatalogLocked: A transaction that changes files did not end in time.
    """
    check_partitions(partitions)
    layout = session.catalog.layout
    size, change = layout.size(), layout.change()
    if change is not None and change.partitions != partitions:
        raise Conflict(
            f"a change to {described(change.partitions)} is unfinished",
            hint=f"`cafcat db partition {change.partitions} --yes` continues it, `--cancel` undoes it",
        )
    has_work = change is not None or size.partitions != partitions
    if has_work:
        _check_obstacles(size)
    if has_work and not dry_run:
        with audited(session, "db partition", {"partitions": partitions}):
            if change is None:
                layout.begin(partitions)
            rows = _complete(session, layout)
        _check_layout(layout, partitions)
        return _report(partitions, size, change, rows=rows, dry_run=False)
    return _report(partitions, size, change, rows=size.rows, dry_run=dry_run)


def cancel(session: Session) -> bool:
    """Undo an unfinished change. Return False if there was none.

    Raises:
        Conflict: The new layout is in use already.
        CatalogLocked: A transaction that changes files did not end in time.
    """
    had_change = session.catalog.layout.change() is not None
    session.catalog.layout.cancel()
    return had_change


def _check_obstacles(size: LayoutSize) -> None:
    if size.obstacles:
        hint = "drop them, and create them again after the change"
        raise Conflict(
            f"file_locations has objects that cafcat did not make: {', '.join(size.obstacles)}", hint=hint
        )


def _report(
    partitions: int, size: LayoutSize, change: LayoutChange | None, *, rows: int, dry_run: bool
) -> PartitionReport:
    changed = not dry_run or (change is None and size.partitions == partitions)
    return PartitionReport(
        partitions=partitions,
        before=size.partitions,
        rows=rows,
        table_bytes=size.table_bytes,
        total_bytes=size.total_bytes,
        log_bytes=int(size.total_bytes * _LOG_FACTOR),
        unfinished=None if change is None else change.phase,
        dry_run=dry_run,
        changed=changed,
    )


def _check_layout(layout: LayoutChanges, partitions: int) -> None:
    if layout.partitions() != partitions:
        raise Conflict("another command has cancelled this change", hint="run the same command again")


def _complete(session: Session, layout: LayoutChanges) -> int:
    """Run all steps from the recorded phase on. Return the number of rows that batches have copied."""
    rows = 0
    while (change := layout.change()) is not None:
        rows = change.rows_copied
        session.progress.checkpoint()
        if change.phase == "copying":
            _copy(session, layout, change)
        elif change.phase == "checking":
            session.progress.begin("check")
            layout.tidy()
            layout.check()
        elif change.phase == "switching":
            session.progress.begin("switch")
            _switch(session, layout)
        else:
            _until_free(session, layout.finish)
    return rows


def _copy(session: Session, layout: LayoutChanges, change: LayoutChange) -> None:
    """Copy batches until none is left. Their size follows from the time of the batch before."""
    left = change.blocks - change.blocks_done
    density = change.rows_copied / change.blocks_done if change.blocks_done else 70.0
    session.progress.begin("copy rows", files=int(left * density))
    blocks = _FIRST_BLOCKS
    while (position := layout.change()) is not None and position.phase == "copying":
        begun = time.monotonic()
        rows = layout.copy_batch(blocks)
        faster = _BATCH_SECONDS / max(time.monotonic() - begun, 0.001)
        blocks = max(1, min(_MOST_BLOCKS, int(blocks * min(2.0, max(0.5, faster)))))
        session.progress.advance(rows, 0)
        session.progress.checkpoint()


def _switch(session: Session, layout: LayoutChanges) -> None:
    """Wait for sessions whose snapshot is older than the last batch, then switch."""
    reported = 0.0
    while sessions := layout.older_sessions():
        if time.monotonic() >= reported + _REPORT_SECONDS:
            reported = time.monotonic()
            session.progress.warn(f"waiting for the end of older transactions: {', '.join(sessions)}")
        session.progress.checkpoint()
        time.sleep(_PAUSE_SECONDS)
    _until_free(session, layout.switch)


def _until_free(session: Session, step: Callable[[], None]) -> None:
    """Run a step until the table that it locks is free. Readers and writers go on between the attempts."""
    reported = 0.0
    while True:
        try:
            return step()
        except CatalogLocked as error:
            if time.monotonic() >= reported + _REPORT_SECONDS:
                reported = time.monotonic()
                session.progress.warn(f"waiting for a moment without readers and writers: {error.message}")
        session.progress.checkpoint()
        time.sleep(_PAUSE_SECONDS)
