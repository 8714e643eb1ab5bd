"""The report of `cafcat verify` and `Repository.verify`: the totals of the checks."""

from dataclasses import dataclass

from cafcat.model import VerifyLevel

__all__ = ["VerifyReport"]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Totals of one verify. If it was interrupted and continued, the results of its earlier parts are included.

    At levels index and data, objects are chunks and copies. At level source, they are sources; at level catalog,
    the catalog is the only object. A store that is out of reach counts as one unreadable object, instead of its
    chunks and copies.

    Attributes:
        run: `verify_runs.id`.
        level: Level of the checks.
        resumed: True if an interrupted verify was continued.
        ok: Number of objects in which no damage was found.
        damaged: Number of damaged objects with damage in bytes that a live file needs.
        missing: Number of missing objects that a live file needs.
        unreadable: Number of objects that could not be read, or need a program that is not installed.
        unneeded: Number of damaged or missing objects whose damage concerns no live file.
        gone: Number of objects that were deleted while they were checked; those of earlier parts are not counted.
        files_checked: Number of files that were checked.
        bytes_read: Number of bytes that were read.
        findings: Number of findings in all objects.
        interrupted: True if the user ended the verify before all objects were checked.
        unchecked_blocks: Number of blocks of adopted CARs whose hash function cafcat does not check; those of
            earlier parts are not counted.
        absent: Number of files of the catalog that their source does not have any more; those of earlier parts are
            not counted.
        unpacked: Number of files of sources that are not in the catalog; those of earlier parts are not counted.
        unreadable_files: Number of files and folders of sources that could not be read; those of earlier parts are
            not counted.
        equal: Number of files of sources that are equal to those in the catalog; those of earlier parts are not
            counted.
        stores_out_of_reach: URLs of the stores whose objects could not be checked.
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
    absent: int = 0
    unpacked: int = 0
    unreadable_files: int = 0
    equal: int = 0
    stores_out_of_reach: tuple[str, ...] = ()
