"""The report of `undelete`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["UndeleteReport"]


@dataclass(frozen=True, slots=True)
class UndeleteReport:
    """Totals of one `cafcat undelete`.

    Attributes:
        files: Number of files that were brought back.
        bytes: Bytes of these files.
        files_failed: Number of names and folders without any removed file.
        files_live: Number of removed files that were left alone, because their path has a newer file.
        files_pruned: Number of removed files whose bytes no longer exist.
        files_let_go: Number of removed files of adopted archives that are not in the catalog any more.
        files_damaged: Number of files that were brought back although `verify` found their bytes damaged.
        files_taken: Number of sections of archives of logs that were left alone, because another archive has a log
            file of their archive by now.
        stores_behind: URLs of stores that lack the journal record of this change. `recover` writes it later.
    """

    files: int
    bytes: int
    files_failed: int
    files_live: int
    files_pruned: int
    files_let_go: int
    files_damaged: int
    files_taken: int
    stores_behind: tuple[str, ...]
