"""The arguments and flags of `cafcat ingest` and `Repository.ingest`."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Annotated, Final

from cafcat.errors import InvalidInput
from cafcat.formats.registry import LOGS
from cafcat.model import Comparison, OnConflict
from cafcat.scanning.opening import SourceOptions
from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, Flag, JoinStore, SharePassword
from cafcat.support.quantities import parse_size

__all__ = ["IngestOptions"]

_MAX_DELETE: Final = 50
"""Default of --max-delete, in percent."""


@dataclass(frozen=True, slots=True)
class IngestOptions(SourceOptions):
    """Pack the new and changed files of sources into chunks, and enter them into the catalog.

    A second ingest of the same sources packs only new and changed files. A file that cannot be read is reported;
    the others are packed. If the user ends the operation, the files that were packed are committed.

    Attributes:
        sources: Folders, files, tar files ("-" is a tar on standard input) and s3:// URLs.
        files_from: File that lists the names and URLs of further files to ingest, one per line; "-" is standard
            input.
        null_separated: The names in `files_from` end with NUL instead of newline.
        prefix: Folder of the catalog that is put before the names of all files.
        include: Patterns as in gitignore: pack only matching files.
        exclude: Patterns as in gitignore: leave out matching files.
        follow_symlinks: Pack the files that symbolic links point to; if false, links are skipped.
        unpack_tars: Pack the members of tar files; if false, a tar file is packed as one file.
        inventory: Manifest of an S3 Inventory, a file or URL. It is read instead of listing the bucket of the only
            source.
        restart_listing: List a bucket from its beginning, even if an earlier listing was interrupted.
        on_conflict: What to do with a changed file whose path the catalog has: replace the file, skip it, or fail.
        comparison: How to find out whether a file has changed: by size and time (or entity tag), by checksum, or
            not at all, which packs every file.
        dry_run: Write nothing; count the files that would be packed.
        delete: At the end, remove files from the catalog that came from one of the sources, and are gone there.
            Files that a filter excludes, and files below a folder that cannot be read, stay.
        max_delete: Largest part of the files of a source that `delete` may remove, in percent. If more are gone,
            nothing is removed: a disk may not be mounted.
        list_changes: Emit a ChangeFound for each file that is new, changed or gone.
        join_store: Write into a store that has chunks of another catalog.
        format: Name of the format of the new chunks.
        timestamp_key: For clp-s: JSON key that holds the timestamp of a record.
        target_size: Size in bytes at which a chunk is full; None for the setting `target_size`. For clp-s: bytes of
            log files in one archive; None for 1 GB.
        jobs: Number of workers that pack local folders, each into chunks of its own; 1: this process packs. None
            for one per processor, at most four. They start only if there is enough to do. Two workers are threads
            if there is the native part, else all workers are processes.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: Packs the sources with the workers of this executor, on any number of hosts: a process pool, or
            the executor of Dask, Ray, MPI or another engine. None: this process packs, with its own workers.
    """

    sources: Annotated[
        Sequence[str | os.PathLike[str]],
        Argument("SRC...", "Folders, files, tar files (- is a tar on stdin), s3://bucket/prefix."),
    ] = ()
    dry_run: Annotated[bool, Flag("--dry-run", "Write nothing; list and count the changes.")] = field(
        default=False, kw_only=True
    )
    delete: Annotated[
        bool, Flag("--delete", "Remove files from the catalog that are gone at the source. undelete restores them.")
    ] = field(default=False, kw_only=True)
    max_delete: Annotated[
        int,
        Flag("--max-delete", "Remove nothing if more than this share of a source is gone, in percent.", "PERCENT"),
    ] = field(default=_MAX_DELETE, kw_only=True)
    list_changes: bool = field(default=False, kw_only=True)
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
        Flag("--jobs -j", "Number of workers that pack folders. Default: one per processor, at most 4.", "N"),
    ] = field(default=None, kw_only=True)

    share_password: SharePassword = field(default=False, kw_only=True)
    executor: Executor | None = field(default=None, kw_only=True, compare=False)

    def check(self) -> None:
        """Raise InvalidInput for options that contradict each other, for no source, and for `jobs` below 1.

        The format and the target size are checked later, when the ingest begins.
        """
        if isinstance(self.sources, str | bytes | os.PathLike):
            raise InvalidInput("sources must be a list of names", hint=f"write [{os.fspath(self.sources)!r}]")
        if not self.sources and self.files_from is None:
            hint = "name a folder, a file or a URL, or give a list of names with --files-from"
            raise InvalidInput("no source to ingest is given", hint=hint)
        if self.comparison is Comparison.NOTHING and self.on_conflict is not OnConflict.REPLACE:
            message = f"--force replaces files, but --on-conflict {self.on_conflict} keeps them"
            raise InvalidInput(message, hint="leave one of them out")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInput(f"--jobs must be at least 1, not {self.jobs}")
        if not 0 <= self.max_delete <= 100:
            raise InvalidInput(f"--max-delete must be from 0 to 100 percent, not {self.max_delete}")
        if self.max_delete != _MAX_DELETE and not self.delete:
            raise InvalidInput("--max-delete is for --delete only", hint="leave --max-delete out, or add --delete")
        if self.delete and self.executor is not None:
            hint = "leave --delete out, or leave the cluster out"
            raise InvalidInput("a cluster does not find files that are gone at the source", hint=hint)
        if self.delete and self.format == LOGS:
            hint = "leave --delete out; `cafcat rm` removes archives"
            raise InvalidInput("an archive of logs cannot lose one of its log files", hint=hint)
        if self.format == LOGS and self.comparison is not Comparison.TIME:
            hint = "leave --checksum and --force out, or use another --format"
            raise InvalidInput(f"records in an archive of {LOGS} cannot be compared or replaced", hint=hint)
        if self.format != LOGS and self.timestamp_key is not None:
            hint = f"leave --timestamp-key out, or use --format {LOGS}"
            raise InvalidInput(f"a timestamp key is for {LOGS} only, and the format is {self.format}", hint=hint)
        if self.format == LOGS and self.executor is not None:
            raise InvalidInput(f"archives of {LOGS} are packed on one host", hint="leave the cluster out")
