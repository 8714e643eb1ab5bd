"""The report of `undelete`."""

from dataclasses import dataclass

__all__ = ["UndeleteReport"]


@dataclass(frozen=True, slots=True)
class UndeleteReport:
    """What came back: files and their bytes. files_failed: names and folders of which nothing was removed;
    files_live: left alone, as the path has a file again; files_pruned: their bytes are gone; files_taken: sections
    of archives of logs that have a log file that another one has by now. stores_behind: URLs of stores that could
    not be told yet."""

    files: int
    bytes: int
    files_failed: int
    files_live: int
    files_pruned: int
    files_taken: int
    stores_behind: tuple[str, ...]
