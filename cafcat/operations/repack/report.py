"""The report of `repack`."""

from dataclasses import dataclass, field

__all__ = ["RepackReport"]


@dataclass(slots=True)
class RepackReport:
    """What was done, or would be, in chunks, files and bytes.

    chunks: that were chosen, of bytes_dead dead bytes; taken, waiting: as in RepackPlan. chunks_retired: those
    chosen that nothing points to now. chunks_written: new ones, of bytes_written. files_moved, bytes_moved: live
    files. files_changed: replaced or removed meanwhile. files_damaged: that stay where they are. failed: stores
    that could not be used, chunks that are missing, and why. A dry run counts all files as moved.
    """

    chunks: int = 0
    taken: int = 0
    waiting: int = 0
    bytes_dead: int = 0
    chunks_retired: int = 0
    chunks_written: int = 0
    bytes_written: int = 0
    files_moved: int = 0
    bytes_moved: int = 0
    files_changed: int = 0
    files_damaged: int = 0
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False
    dry_run: bool = True
