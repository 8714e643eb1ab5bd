"""Options of `ingest`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from cafcat.errors import InvalidInput
from cafcat.formats.registry import LOGS
from cafcat.model import Comparison, OnConflict
from cafcat.scanning.opening import SourceOptions
from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, Flag, JoinStore
from cafcat.support.quantities import parse_size

__all__ = ["IngestOptions"]


@dataclass(frozen=True, slots=True)
class IngestOptions(SourceOptions):
    """Pack the new and changed files of sources into chunks, and enter them into the catalog.

    A second ingest of the same sources packs only what is new or changed. A file that cannot be read is reported;
    the others are packed. If the user ends the operation, the files that were packed are committed.

    Attributes:
        sources: Folders, files, tar files ("-" is a tar on standard input) and s3:// URLs.
        files_from: File with names and URLs, one per line; "-" is standard input.
        null_separated: Names in `files_from` end with NUL instead of newline.
        prefix: Folder of the catalog that is put before all names.
        include: Patterns as in gitignore: pack only matching files.
        exclude: Patterns as in gitignore: leave out matching files.
        follow_symlinks: Pack the files that symbolic links point to; else links are skipped.
        unpack_tars: Tar files are sources; else they are files.
        inventory: Manifest of an S3 Inventory, a file or URL: used instead of listing the only s3:// source.
        restart_listing: List a bucket from its beginning, although an earlier listing was interrupted.
        on_conflict: What to do with a path that the catalog has with other content.
        comparison: How to find out whether a file has changed: by size and time, by checksum, or not at all: then
            every file is packed.
        dry_run: Write nothing; count what would be done.
        join_store: Write into a store that has chunks of another catalog.
        format: Format of the new chunks.
        timestamp_key: For clp-s: JSON key that holds the timestamp of a record.
        target_size: Size in bytes at which a new chunk begins; None for the setting. For clp-s: bytes of the log
            files in an archive, 1 GB by default.
        jobs: Number of processes that pack local folders, each into chunks of its own; None for one per processor,
            at most four. They start only if there is enough to do.
    """

    sources: Annotated[
        Sequence[str | os.PathLike[str]],
        Argument("SRC...", "Folders, files, tar files (- is a tar on stdin), s3://bucket/prefix."),
    ] = ()
    dry_run: Annotated[bool, Flag("--dry-run", "Write nothing; only count the files.")] = field(
        default=False, kw_only=True
    )
    join_store: JoinStore = field(default=False, kw_only=True)
    format: Annotated[
        str, Flag("--format", "Format of the chunks: caf, car, chunkio, databundle or clp-s.", "FORMAT")
    ] = field(default="caf", kw_only=True)
    timestamp_key: Annotated[
        str | None,
        Flag("--timestamp-key", "JSON key that holds the timestamp of a record (clp-s only).", "KEY", parse_text),
    ] = field(default=None, kw_only=True)
    target_size: Annotated[
        int | None, Flag("--target-size", "Size at which a new chunk begins, such as 30GB.", "SIZE", parse_size)
    ] = field(default=None, kw_only=True)
    jobs: Annotated[
        int | None,
        Flag("--jobs -j", "Number of processes that pack folders. Default: one per processor.", "N"),
    ] = field(default=None, kw_only=True)

    def check(self) -> None:
        """Raise InvalidInput for options that contradict each other, or are out of range."""
        if isinstance(self.sources, str | bytes | os.PathLike):
            raise InvalidInput("sources are a list of names", hint=f"write [{os.fspath(self.sources)!r}]")
        if not self.sources and self.files_from is None:
            raise InvalidInput("there is nothing to ingest", hint="name a folder, a file, or a list of files")
        if self.comparison is Comparison.NOTHING and self.on_conflict is not OnConflict.REPLACE:
            raise InvalidInput("--force replaces files, --on-conflict keeps them", hint="leave one of them out")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInput(f"--jobs must be at least 1, not {self.jobs}")
        if self.format == LOGS and self.comparison is not Comparison.TIME:
            hint = "leave --checksum and --force out"
            raise InvalidInput(f"records in an archive of {LOGS} cannot be compared or replaced", hint=hint)
        if self.format != LOGS and self.timestamp_key is not None:
            raise InvalidInput(f"a timestamp key is for {LOGS}, not for {self.format}")
