"""The results of ingest and extract. Other commands do not load this module, and so start 2 ms sooner."""

from dataclasses import dataclass, field
from typing import Any

from cafcat.model import FileProblem

__all__ = ["ExtractReport", "IngestReport"]


@dataclass(slots=True)
class ExtractReport:
    """Result of one `cafcat extract`.

    Attributes:
        files: Number of files that were written.
        bytes: Their total size.
        files_failed: Number of files that failed, and of names that the catalog does not have.
        failed: The files that failed, with their reasons; only the first thousand.
        interrupted: True if the user stopped the extract.
        files_skipped: Number of files whose path has no parts but those that are removed.
        files_there: Number of files that existed with the same content. They stay as they are.
    """

    files: int = 0
    bytes: int = 0
    files_failed: int = 0
    failed: list[FileProblem] = field(default_factory=list)
    interrupted: bool = False
    files_skipped: int = 0
    files_there: int = 0


@dataclass(slots=True)
class IngestReport:
    """Result of one `cafcat ingest`. In a dry run, files count as added, replaced or removed if they would be.

    Attributes:
        run: ingest_runs.id; None for a dry run, or before the run has begun.
        files_seen: Files that the sources listed.
        files_added: Files committed under a path that the catalog did not have.
        files_replaced: Files committed under a path that the catalog had.
        files_gone: Files that the catalog has of the sources, and that are gone there. They are counted with
            `delete`, `list_changes` or `dry_run` only.
        files_removed: Files that were gone, and that `delete` removed from the catalog.
        files_unchanged: Files that are the same in the catalog.
        files_compared: Files that were read and compared with the checksum in the catalog. A dry run reads no file,
            and counts the files that it would compare.
        files_skipped: Files left out for an expected reason (ProblemKind).
        files_failed: Files that failed.
        bytes_added: Total size of the files added and replaced.
        chunks_committed: Number of chunks that were committed.
        files_of_earlier_run: Files that workers of an earlier ingest, whose command was killed, added and replaced
            during this ingest. They are in no other count but `files_seen`.
        interrupted: True if the user stopped the ingest.
        dry_run: True if this was a dry run, which packs nothing.
    """

    run: int | None = None
    files_seen: int = 0
    files_added: int = 0
    files_replaced: int = 0
    files_gone: int = 0
    files_removed: int = 0
    files_unchanged: int = 0
    files_compared: int = 0
    files_skipped: int = 0
    files_failed: int = 0
    bytes_added: int = 0
    chunks_committed: int = 0
    files_of_earlier_run: int = 0
    interrupted: bool = False
    dry_run: bool = False

    def as_counts(self) -> dict[str, Any]:
        """Return the counters that the table `ingest_runs` stores, by the names of its columns."""
        names = ("added", "replaced", "removed", "unchanged", "skipped", "failed")
        counts = {f"files_{name}": getattr(self, f"files_{name}") for name in names}
        return counts | {"bytes_added": self.bytes_added, "chunks_committed": self.chunks_committed}
