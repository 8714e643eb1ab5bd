"""The report of `verify`."""

from dataclasses import dataclass

from cafcat.model import VerifyLevel

__all__ = ["VerifyReport"]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Totals of a verify, with those of its earlier parts if it was interrupted before.

    At level source, objects are sources; at level catalog, the catalog is the only object. A store that is out of
    reach counts as one unreadable object.

    Attributes:
        run: `verify_runs.id`.
        level: How closely objects were checked.
        resumed: True if an interrupted verify was continued.
        ok: Number of objects without findings.
        damaged: Number of damaged objects with damage in bytes that a live file needs.
        missing: Number of missing objects that a live file needs.
        unreadable: Number of objects that could not be read.
        unneeded: Number of damaged or missing objects whose damage concerns no live file.
        gone: Number of objects that were deleted while they were checked.
        files_checked: Number of files that were checked.
        bytes_read: Number of bytes that were read.
        findings: Number of findings.
        interrupted: True if the user ended the verify.
        unchecked_blocks: Number of blocks of adopted CARs whose hash function cafcat does not check, without
            earlier parts.
    """

    run: int
    level: VerifyLevel
    resumed: bool
    ok: int
    damaged: int
    missing: int
    unreadable: int
    unneeded: int
    gone: int
    files_checked: int
    bytes_read: int
    findings: int
    interrupted: bool
    unchecked_blocks: int = 0
