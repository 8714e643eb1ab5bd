"""Packs log files into archives that the program clp-s makes. Each archive becomes one chunk."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Final

from cafcat.catalog.files.log_units import ExistingLogs
from cafcat.errors import Conflict, InvalidInput, shown_path
from cafcat.events import ChangeFound, ChunkCommitted, SourceChange
from cafcat.formats.clp import program
from cafcat.formats.clp.annotating import LogSource, annotate
from cafcat.formats.clp.reader import ClpReader
from cafcat.logs.timestamp_keys import PACK_WITH_TIMES, head_of
from cafcat.model import FileProblem, OnConflict, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke, batches_of
from cafcat.scanning.problems import Problems
from cafcat.sources.base import LocalSource, Source
from cafcat.stores.local.files import LocalFile
from cafcat.support.quantities import plural, to_microseconds
from cafcat.support.spool import temporary_file_of
from cafcat.support.temporary_folder import temporary_folder
from cafcat.writing.archive_chunk import ArchiveChunk
from cafcat.writing.chunk import ChunkTarget

__all__ = ["LogIngest", "check_log_sources"]

_MOST_FILES: Final = 10_000
_MOST_NAME_BYTES: Final = 1 << 20
"""Largest number of files and of bytes of their names in one archive. The metadata of an archive has room for far
more."""
_MOST_GROUPS: Final = 8
"""Largest number of timestamp keys whose log files are collected at the same time."""
_WARNINGS: Final = 20
_BLOCK_BYTES: Final = 64 << 10
_UNSTRUCTURED: Final = "unstructured logtext is not supported"
"""Part of the message of clp-s about a file that is not of JSON lines."""
_NO_JSON: Final = "clp-s packs files of JSON lines only; ingest this file without --format clp-s"
_HINT: Final = (
    "`cafcat units FILE` shows the archive of a log file, and `cafcat rm -r UUID.clp` removes an archive from the "
    "catalog; then all its log files can be ingested again"
)


def check_log_sources(sources: Sequence[Source]) -> None:
    """Check that all sources are local folders or files, which clp-s can read. Raises InvalidInput otherwise."""
    for source in sources:
        if not isinstance(source, LocalSource):
            hint = "name local folders and files of JSON lines"
            raise InvalidInput(
                f"only local files can be packed into archives of logs, not {source.name}", hint=hint
            )


@dataclass(slots=True)
class _Group:
    """Log files that are collected for one archive.

    Attributes:
        timestamp_key: JSON key that holds the timestamp of their records; None if there is none.
        files: The log files.
        size_bytes: Their total size in bytes.
        name_bytes: Total size of their names in bytes.
    """

    timestamp_key: str | None
    files: list[SourceFile] = field(default_factory=list)
    size_bytes: int = 0
    name_bytes: int = 0

    def has_room(self, file: SourceFile, most_bytes: int) -> bool:
        """Return True if a log file fits into the archive, whose log files may have `most_bytes`."""
        return not self.files or (
            self.size_bytes + file.size_bytes <= most_bytes
            and self.name_bytes + len(file.path.encode()) <= _MOST_NAME_BYTES
            and len(self.files) < _MOST_FILES
        )

    def add(self, file: SourceFile) -> None:
        """Add a log file."""
        self.files.append(file)
        self.size_bytes += file.size_bytes
        self.name_bytes += len(file.path.encode())


class LogIngest:
    """One ingest of log files: collects them in groups, and makes an archive and a chunk of each group.

    An archive has one timestamp key. So the log files of a group have the same one.

    Attributes:
        report: The totals so far. Its files and bytes are those of log files.
    """

    def __init__(
        self,
        target: ChunkTarget,
        target_bytes: int,
        *,
        timestamp_key: str | None,
        on_conflict: OnConflict,
        dry_run: bool,
        list_changes: bool,
        progress: Progress,
    ) -> None:
        """Prepare the ingest, and check that clp-s is installed.

        Args:
            target: Catalog, store, format, run and owner of new chunks.
            target_bytes: Largest total size of the log files in one archive, in bytes. A larger log file gets an
                archive of its own.
            timestamp_key: JSON key that holds the timestamp of a record. None: find it for each log file.
            on_conflict: FAIL raises Conflict for a log file that the catalog has with another size or time. With
                the other values, the log file is reported as a problem and left out.
            dry_run: True to count the log files without making archives or chunks.
            list_changes: True to emit a ChangeFound for each log file that is packed.
            progress: Receives progress and problems. When it is stopping, no further archive is begun, and a
                finished one is still committed. If its checkpoint raises, the archive at hand is abandoned.

        Raises:
            NotInstalled: The program clp-s is missing.
        """
        program.program_path()
        self._target = target
        self._target_bytes = target_bytes
        self._timestamp_key = timestamp_key
        self._on_conflict = on_conflict
        self._dry_run = dry_run
        self._list_changes = list_changes
        self._progress = progress
        self._groups: dict[str | None, _Group] = {}
        self._last_key: str | None = None
        self._paths: set[str] = set()
        self._dry_facts: dict[str, tuple[int, int]] = {}
        self._without_times: list[str] = []
        self._without_times_count = 0
        self.report = IngestReport(run=None if dry_run else target.run, dry_run=dry_run)
        self._problems = Problems(target.catalog, self.report, progress)

    def run(self, sources: Sequence[Source]) -> None:
        """Pack all log files of the sources, or the files up to the moment when the user ends the operation.

        Archives that were committed before an error, or before the end by the user, stay. Log files that were
        collected, but not packed yet, are then left out. Only if a source fails while its files are listed, the
        collected ones are still packed before the error is raised.

        Raises:
            Conflict: The catalog has a log file with another size or time, and `on_conflict` is FAIL. Or another
                process committed one of the log files meanwhile, or abandoned the chunk.
            ProgramFailed: clp-s fails even for a log file of one record.
            TemporaryFileFailed: A temporary file or folder cannot be written.
            Corrupt, Unsupported: The archive that clp-s made cannot be read, or the catalog cannot store its facts.
            StoreFailed: The store failed. Errors of a source that fails as a whole pass through.
            AccessDenied: The store rejected the credentials.
            CatalogUnavailable: The database does not answer.
            CatalogOutdated: The database has another schema.
        """
        try:
            for source in sources:
                self._pack_source(source)
            self._pack_groups()
        except SourceBroke as broke:
            self._pack_groups()
            raise broke.reason from broke
        finally:
            self._problems.record()
            self._warn_of_missing_times()

    def _pack_source(self, source: Source) -> None:
        for found in batches_of(source):
            if self._is_stopping():
                return
            files = [item for item in found if isinstance(item, SourceFile)]
            for item in found:
                if isinstance(item, FileProblem):
                    self._problems.add(item)
            self.report.files_seen += len(files)
            self._pack_batch(files)

    def _pack_batch(self, files: Sequence[SourceFile]) -> None:
        while files and not self._is_stopping():
            files = files[self._add_files(files) :]

    def _add_files(self, files: Sequence[SourceFile]) -> int:
        """Add the new ones of these log files to groups, until a group has to be packed before the next file.

        This group is then packed. Call this again for the other files: they may now be in the catalog.

        Returns:
            The number of files, from the first on, that were added, or that the catalog has.
        """
        existing = self._existing(files)
        for n, file in enumerate(files):
            if self._is_stopping():
                return n
            if n in existing.unchanged:
                self.report.files_unchanged += 1
                self._progress.advance(1, 0)
            elif n in existing.changed:
                self._refuse_changed(file)
            elif "\n" in file.path:
                message = "clp-s cannot read a file with a newline in its name"
                self._problems.add(FileProblem(file.path, ProblemKind.NAME, message))
            elif file.path in self._paths:
                self._pack_groups()
                return n
            elif not self._has_added(file):
                return n
        return len(files)

    def _has_added(self, file: SourceFile) -> bool:
        """Add a log file to the group with its timestamp key, and return True. If the group is full, pack it first.

        Returns:
            False if groups were packed, and the file was not added.
        """
        key = self._key_of(file)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) == _MOST_GROUPS:
                self._pack_groups()
                return False
            group = self._groups[key] = _Group(key)
        if not group.has_room(file, self._target_bytes):
            self._pack_group(self._groups.pop(key))
            return False
        group.add(file)
        self._paths.add(file.path)
        if self._list_changes:
            self._progress.emit(ChangeFound(SourceChange.ADDED, file.path))
        return True

    def _key_of(self, file: SourceFile) -> str | None:
        """Return the timestamp key that the user named, or the key that the log file's first records have.

        A file without records goes into the archive of the file before it.
        """
        if self._timestamp_key is not None or self._dry_run:
            return self._timestamp_key
        head = head_of(file.locator)
        if not head.is_blank:
            self._last_key = head.timestamp_key
        return self._last_key

    def _existing(self, files: Sequence[SourceFile]) -> ExistingLogs:
        """Return which log files of a batch the catalog has, or would have by now if this is a dry run."""
        existing = self._target.catalog.logs.find_existing(files)
        if not self._dry_facts:
            return existing
        counted = {n for n, file in enumerate(files) if file.path in self._dry_facts}
        same = frozenset(n for n in counted if self._dry_facts[files[n].path] == _facts_of(files[n]))
        return ExistingLogs(existing.unchanged | same, existing.changed | (counted - same))

    def _refuse_changed(self, file: SourceFile) -> None:
        message = (
            "the catalog has this log file with another size or time, and records in an archive cannot be replaced"
        )
        if self._on_conflict is OnConflict.FAIL:
            raise Conflict(message, path=file.path, hint=_HINT)
        kind = ProblemKind.CONFLICT if self._on_conflict is OnConflict.SKIP else ProblemKind.EXISTS
        self._problems.add(FileProblem(file.path, kind, f"{message}; {_HINT}"))

    def _pack_groups(self) -> None:
        """Pack all collected log files, and forget them."""
        while self._groups:
            self._pack_group(self._groups.pop(next(iter(self._groups))))

    def _pack_group(self, group: _Group) -> None:
        """Make an archive of a group of log files, and a chunk of the archive. Forget the paths of the group.

        A later record of a log file may have a time that clp-s cannot read. Such log files get an archive without
        times.

        With `dry_run`, only count the files. Once the user ends the ingest, only forget them.
        """
        files = group.files
        self._paths.difference_update(file.path for file in files)
        if not files or self._is_stopping():
            return
        if self._dry_run:
            self._count(files)
            self._dry_facts.update((file.path, _facts_of(file)) for file in files)
            return
        unreadable = self._make_archive(files, group.timestamp_key)
        if unreadable and not self._is_stopping():
            self._make_archive(unreadable, None)

    def _make_archive(self, files: Sequence[SourceFile], timestamp_key: str | None) -> Sequence[SourceFile]:
        """Make an archive of log files, and a chunk of the archive.

        Returns:
            The log files that are still to be packed, without a timestamp key: clp-s cannot read their times.
        """
        with temporary_folder("cafcat-logs-", "an archive of logs") as folder:
            is_found = timestamp_key is not None and self._timestamp_key is None
            archive = _ArchiveRun(folder, timestamp_key, self._problems, self._progress, is_key_found=is_found)
            made = archive.make(files)
            if made is not None and not self._commit(*made):
                self._note_missing_times(made[1])
            return archive.with_unreadable_times

    def _note_missing_times(self, files: Sequence[SourceFile]) -> None:
        found = [file.path for file in files if file.size_bytes]
        self._without_times_count += len(found)
        self._without_times += found[: _NAMED_FILES - len(self._without_times)]

    def _warn_of_missing_times(self) -> None:
        """Warn of the log files that were packed without times, and name the first of them."""
        if not self._without_times_count:
            return
        more = self._without_times_count - len(self._without_times)
        named = ", ".join(map(shown_path, sorted(self._without_times))) + (f" and {more:,} more" if more else "")
        files = plural(self._without_times_count, "log file")
        key = "no usual timestamp key with times that clp-s can read is"
        if self._timestamp_key is not None:
            key = f"the timestamp key {shown_path(self._timestamp_key)} is not"
        self._progress.warn(
            f"{key} in {files} ({named}): a search by time cannot select their records; {PACK_WITH_TIMES}"
        )

    def _commit(self, path: Path, files: Sequence[SourceFile]) -> bool:
        """Commit an archive of log files as a chunk. Return True if the archive has times."""
        sources = [LogSource(file.path, file.size_bytes, file.modified_ns) for file in files]
        archive = annotate(ClpReader(LocalFile(str(path))), sources, "of clp-s")
        chunk = ArchiveChunk(self._target)
        try:
            chunk.write(archive.blocks, archive.entries, archive.units, self._progress)
            finished = chunk.finish(OnConflict.FAIL, self._progress)
        except BaseException as error:
            chunk.abandon(f"the ingest failed: {error}")
            raise
        self.report.interrupted = self._progress.stopping or self.report.interrupted
        self.report.chunks_committed += 1
        self._count(files)
        self._progress.emit(ChunkCommitted(finished.uuid, len(files), finished.size_bytes, finished.commit_seconds))
        return bool(archive.units.times)

    def _count(self, files: Sequence[SourceFile]) -> None:
        size_bytes = sum(file.size_bytes for file in files)
        self.report.files_added += len(files)
        self.report.bytes_added += size_bytes
        self._progress.advance(len(files), size_bytes)

    def _is_stopping(self) -> bool:
        """Return True if the user has ended the ingest, and then note in the report that it was interrupted.

        Raises the errors of `Progress.checkpoint`.
        """
        self._progress.checkpoint()
        self.report.interrupted = self._progress.stopping or self.report.interrupted
        return self.report.interrupted


class _ArchiveRun:
    """Makes one archive by clp-s in a temporary folder, which has symbolic links to the log files.

    The links have the names that the log files get in the catalog. Instead of a link, a log file of only white
    space gets an empty file.

    Attributes:
        with_unreadable_times: Log files that are not in the archive, because clp-s cannot read their times.
    """

    def __init__(
        self,
        folder: Path,
        timestamp_key: str | None,
        problems: Problems,
        progress: Progress,
        *,
        is_key_found: bool = False,
    ) -> None:
        """Prepare to make an archive.

        Args:
            folder: The temporary folder.
            timestamp_key: JSON key that holds the timestamp of a record; None if there is none.
            problems: Receives a problem for each rejected log file.
            progress: Receives warnings. If its checkpoint raises, clp-s is ended.
            is_key_found: True if the user did not name the key. Then log files with other times are no problem.
        """
        self.with_unreadable_times: list[SourceFile] = []
        self._is_key_found = is_key_found
        self._links = folder / "links"
        self._names = folder / "names"
        self._output = folder / "archives"
        self._timestamp_key = timestamp_key
        self._problems = problems
        self._progress = progress

    def make(self, files: Sequence[SourceFile]) -> tuple[Path, Sequence[SourceFile]] | None:
        """Make one archive of all log files that clp-s accepts.

        A log file that clp-s rejects, or that changed meanwhile, is reported as a problem and left out. clp-s then
        runs again on the other files.

        Returns:
            The path of the archive, and the log files in it; None if no log file is left.

        Raises:
            ProgramFailed: clp-s fails even for a log file of one record.
            TemporaryFileFailed: The temporary folder cannot be written.
        """
        files = [file for file in files if self._link(file)]
        while files:
            finished = self._run(files)
            if finished.error is not None:
                self._check_works()
                rejected = self._rejected(files, finished.error)
            else:
                rejected = [
                    FileProblem(file.path, ProblemKind.CHANGED, _CHANGED) for file in files if _is_changed(file)
                ]
                if not rejected:
                    for warning in finished.warnings[:_WARNINGS]:
                        self._progress.warn(f"clp-s: {warning}")
                    [path] = self._output.iterdir()
                    return path, files
            left_out = {problem.path: problem for problem in rejected}
            for file in files:
                if file.path in left_out:
                    self._leave_out(file, left_out[file.path])
            files = [file for file in files if file.path not in left_out]
        return None

    def _leave_out(self, file: SourceFile, problem: FileProblem) -> None:
        if self._is_key_found and _UNREADABLE_TIME in problem.message:
            self.with_unreadable_times.append(file)
        else:
            self._problems.add(problem)

    def _link(self, file: SourceFile) -> bool:
        link = self._links / file.path
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            if _is_blank(file.locator):
                link.touch()
            else:
                os.symlink(os.path.abspath(file.locator), link)
        except OSError as error:
            message = f"cannot link the log file for clp-s under this name: {error.strerror}"
            self._problems.add(FileProblem(file.path, ProblemKind.NAME, message))
            return False
        return True

    def _run(self, files: Sequence[SourceFile]) -> program.CompressResult:
        """Run clp-s on the log files, and return its result.

        The output of earlier runs is removed first: archives, and the temporary folder of a run that failed.

        If clp-s makes several archives, the result has an error, because these could not be committed at once.
        """
        with temporary_file_of("an archive of logs"):
            self._names.write_bytes("".join(f"{file.path}\n" for file in files).encode())
            if self._output.exists():
                rmtree(self._output)
            self._output.mkdir()
        self._progress.checkpoint()
        finished = program.compress(
            self._output, self._names, self._links, timestamp_key=self._timestamp_key, progress=self._progress
        )
        if finished.error is None and (count := len(list(self._output.iterdir()))) != 1:
            return finished._replace(
                error=f"the log files are too large for one archive: clp-s made {count} archives"
            )
        return finished

    def _check_works(self) -> None:
        """Check that clp-s can make an archive of one record, so that an earlier failure is due to the log files.

        Raises:
            ProgramFailed: clp-s fails even for one record.
            TemporaryFileFailed: The temporary folder cannot be written.
        """
        probe = self._links.parent / "probe"
        with temporary_file_of("an archive of logs"):
            probe.mkdir(exist_ok=True)
            (probe / "x").write_bytes(b'{"x": 1}\n')
            (probe / "names").write_bytes(b"x\n")
        finished = program.compress(
            probe / "archives", probe / "names", probe, timestamp_key=None, progress=self._progress
        )
        if finished.error is not None:
            hint = "free space in the folder for temporary files, or set TMPDIR to another folder"
            raise program.ProgramFailed(
                f"clp-s cannot make an archive of a single record: {finished.error}", hint=hint
            )

    def _rejected(self, files: Sequence[SourceFile], error: str) -> list[FileProblem]:
        """Find the log files that clp-s rejects, and return a problem for each.

        Runs clp-s for half of the files at a time, because the error of all together does not name a file. If both
        halves succeed, the files together are too large for one archive: each file of the second half then gets a
        problem, and the first half can be packed.

        Args:
            files: The log files. clp-s failed when it ran on all of them together.
            error: The error message of clp-s for this run.
        """
        if len(files) == 1:
            message = _NO_JSON if _UNSTRUCTURED in error else f"clp-s: {error}"
            return [FileProblem(files[0].path, ProblemKind.UNREADABLE, message)]
        rejected = []
        middle = len(files) // 2
        for half in (files[:middle], files[middle:]):
            if (found := self._run(half).error) is not None:
                rejected += self._rejected(half, found)
        # Each half succeeds alone, so all files together are too large. The next ingest packs the second half.
        later = f"the next `cafcat ingest` packs it; clp-s: {error}"
        return rejected or [FileProblem(file.path, ProblemKind.TOO_LARGE, later) for file in files[middle:]]


_UNREADABLE_TIME: Final = "Failed to parse timestamp"
"""Words in the message of clp-s about a record whose time it cannot read."""
_NAMED_FILES: Final = 3
"""Largest number of log files without times that a warning names."""
_CHANGED: Final = "changed while clp-s read it: the next `cafcat ingest` packs it"


def _facts_of(file: SourceFile) -> tuple[int, int]:
    """Return size and modification time of a log file, to the microsecond, as the catalog compares them."""
    return file.size_bytes, to_microseconds(file.modified_ns)


def _is_blank(name: str) -> bool:
    """Return True if the file at the path `name` has only white space; False also if it cannot be read.

    clp-s rejects such a log file, because it is not JSON, but accepts an empty file.
    """
    with suppress(OSError), open(name, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            if block.strip(b" \t\r\n"):
                return False
        return True
    return False


def _is_changed(file: SourceFile) -> bool:
    """Return True if a log file has another size or other times than when it was listed, or is missing."""
    with suppress(OSError):
        status = os.stat(file.locator)
        changed_ns = status.st_ctime_ns if file.changed_ns is None else file.changed_ns
        found = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return found != (file.size_bytes, file.modified_ns, changed_ns)
    return True
