"""The report of `repair`."""

from dataclasses import dataclass

__all__ = ["RepairReport"]


@dataclass(slots=True)
class RepairReport:
    """What was done, or would be.

    chunks: that were looked at; chunks_mended: those of them that nothing points to any more. files, bytes: live in
    them when they were read; files_kept: whose bytes in the chunk are right; files_from_copy, files_from_source;
    files_lost: that nobody could give. chunks_written: new ones, of bytes_written bytes; files_changed: copied into
    them, but replaced or removed meanwhile. All in numbers and bytes; a dry run has none of the last three.
    chunks_left: of these, whose format cannot be written here, and which stay as they are.
    logs_damaged: archives of logs that are known to be damaged, and stay so: none of the other numbers has them.
    """

    chunks: int = 0
    chunks_mended: int = 0
    files: int = 0
    bytes: int = 0
    files_kept: int = 0
    files_from_copy: int = 0
    files_from_source: int = 0
    files_lost: int = 0
    chunks_written: int = 0
    bytes_written: int = 0
    files_changed: int = 0
    chunks_left: int = 0
    logs_damaged: int = 0
    interrupted: bool = False
    dry_run: bool = True
