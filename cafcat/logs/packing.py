"""Log files into archives that the program clp-s makes: one chunk for so many bytes of logs."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cafcat.errors import Conflict, InvalidInput
from cafcat.events import ChunkCommitted
from cafcat.formats.clp import program
from cafcat.formats.clp.noting import LogSource, noted_archive
from cafcat.formats.clp.reader import ClpReader
from cafcat.model import FileProblem, IngestReport, OnConflict, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.scanning.batches import SourceBroke, batches_of
from cafcat.scanning.problems import Problems
from cafcat.sources.base import LocalSource, Source
from cafcat.stores.local.files import LocalFile
from cafcat.support.spool import temporary_file_of
from cafcat.support.temporary_folder import temporary_folder
from cafcat.writing.archive_chunk import ArchiveChunk
from cafcat.writing.chunk import ChunkTarget

__all__ = ["LogIngest", "check_log_sources"]

_MOST_FILES: Final = 10_000
_MOST_NAME_BYTES: Final = 1 << 20
"""What the metadata of an archive has room for, by far."""
_WARNINGS: Final = 20
_BLOCK_BYTES: Final = 64 << 10
_HINT: Final = "cafcat rm -r takes an archive out of the catalog, then its log files can be ingested again"


def check_log_sources(sources: Sequence[Source]) -> None:
    """Raises InvalidInput for what clp-s cannot read by itself."""
    for source in sources:
        if not isinstance(source, LocalSource):
            hint = "name folders and files of JSON lines"
            raise InvalidInput(f"archives of logs are made of local files: {source.name}", hint=hint)


class LogIngest:
    """One run. `report` is what it has done so far: files are log files, and bytes are theirs."""

    def __init__(
        self,
        place: ChunkTarget,
        target_bytes: int,
        *,
        timestamp_key: str | None,
        on_conflict: OnConflict,
        dry_run: bool,
        progress: Progress,
    ) -> None:
        """Args:
        place: Where new chunks go.
        target_bytes: Bytes of the log files in one archive.
        timestamp_key: JSON key that holds the timestamp of a record.
        on_conflict: What to do with a log file that the catalog has.
        dry_run: Write nothing.
        progress: Gets progress and problems. While it is stopping, the archive at hand is committed; if its
            checkpoint raises, nothing is left of the archive at hand.

        Raises:
            NotInstalled: The program clp-s is missing.
        """
        program.program()
        self._place = place
        self._target_bytes = target_bytes
        self._timestamp_key = timestamp_key
        self._on_conflict = on_conflict
        self._dry_run = dry_run
        self._progress = progress
        self._group: list[SourceFile] = []
        self._paths: set[str] = set()
        self._bytes = self._name_bytes = 0
        self.report = IngestReport(run=None if dry_run else place.run, dry_run=dry_run)
        self._problems = Problems(place.catalog, self.report, progress)

    def take(self, sources: Sequence[Source]) -> None:
        """All log files of the sources, or all until the user ends the operation. Raises Conflict under
        OnConflict.FAIL, and errors of store and catalog: archives committed before stay."""
        try:
            for source in sources:
                self._take_source(source)
            self._pack()
        except SourceBroke as broke:
            self._pack()
            raise broke.reason from broke
        finally:
            self._problems.record()

    def _take_source(self, source: Source) -> None:
        for found in batches_of(source):
            if self._stopped():
                return
            files = [item for item in found if isinstance(item, SourceFile)]
            for item in found:
                if isinstance(item, FileProblem):
                    self._problems.add(item)
            self.report.files_seen += len(files)
            self._take_batch(files)

    def _take_batch(self, files: Sequence[SourceFile]) -> None:
        known = self._place.catalog.logs.known(files)
        for n, file in enumerate(files):
            if self._stopped():
                return
            if n in known.unchanged:
                self.report.files_unchanged += 1
                self._progress.advance(1, 0)
            elif n in known.changed:
                self._refuse_changed(file)
            elif "\n" in file.path:
                self._problem(file, ProblemKind.NAME, "clp-s cannot take a name with a newline in it")
            elif file.path in self._paths:
                self._pack()
                self._take_batch([file])
            else:
                self._add(file)

    def _refuse_changed(self, file: SourceFile) -> None:
        message = (
            "the catalog has this log file with another size or time: records in an archive cannot be replaced"
        )
        if self._on_conflict is OnConflict.FAIL:
            raise Conflict(message, path=file.path, hint=_HINT)
        kind = ProblemKind.CONFLICT if self._on_conflict is OnConflict.SKIP else ProblemKind.EXISTS
        self._problem(file, kind, f"{message}; {_HINT}")

    def _add(self, file: SourceFile) -> None:
        name_bytes = len(file.path.encode())
        if self._group and (
            self._bytes + file.size_bytes > self._target_bytes
            or self._name_bytes + name_bytes > _MOST_NAME_BYTES
            or len(self._group) == _MOST_FILES
        ):
            self._pack()
        self._group.append(file)
        self._paths.add(file.path)
        self._bytes += file.size_bytes
        self._name_bytes += name_bytes

    def _pack(self) -> None:
        """Makes an archive of the group, and a chunk of that. After a stop, nothing is begun any more."""
        group, self._group = self._group, []
        self._paths.clear()
        self._bytes = self._name_bytes = 0
        if not group or self._stopped():
            return
        if self._dry_run:
            self._count(group)
            return
        with temporary_folder("cafcat-logs-", "an archive of logs") as folder:
            archive = _Archive(folder, self._timestamp_key, self._problem, self._stopped, self._warn)
            archive.make(group, self._commit)

    def _commit(self, path: Path, files: Sequence[SourceFile]) -> None:
        sources = [LogSource(file.path, file.size_bytes, file.modified_ns) for file in files]
        archive = noted_archive(ClpReader(LocalFile(str(path))), sources, "of clp-s")
        chunk = ArchiveChunk(self._place)
        try:
            chunk.take(archive.blocks, archive.entries, archive.units, self._stopped)
            finished = chunk.finish(OnConflict.FAIL, checkpoint=self._stopped)
        except BaseException as error:
            chunk.abandon(f"the run ended: {error}")
            raise
        self.report.chunks_committed += 1
        self._count(files)
        self._progress.emit(ChunkCommitted(finished.uuid, len(files), finished.size_bytes))

    def _count(self, files: Sequence[SourceFile]) -> None:
        size_bytes = sum(file.size_bytes for file in files)
        self.report.files_added += len(files)
        self.report.bytes_added += size_bytes
        self._progress.advance(len(files), size_bytes)

    def _stopped(self) -> bool:
        """Return True if the run is to end. May raise, as `Progress.checkpoint` does."""
        self._progress.checkpoint()
        self.report.interrupted = self._progress.stopping or self.report.interrupted
        return self.report.interrupted

    def _problem(self, file: SourceFile, kind: ProblemKind, message: str) -> None:
        self._problems.add(FileProblem(file.path, kind, message))

    def _warn(self, message: str) -> None:
        self._progress.warn(message)


class _Archive:
    """clp-s at work in a temporary folder. It sees log files by their names in the catalog, as links."""

    def __init__(
        self,
        folder: Path,
        timestamp_key: str | None,
        problem: Callable[[SourceFile, ProblemKind, str], object],
        checkpoint: Callable[[], object],
        warn: Callable[[str], object],
    ) -> None:
        self._links = folder / "links"
        self._names = folder / "names"
        self._output = folder / "archives"
        self._timestamp_key = timestamp_key
        self._problem = problem
        self._checkpoint = checkpoint
        self._warn = warn

    def make(self, files: Sequence[SourceFile], commit: Callable[[Path, Sequence[SourceFile]], object]) -> None:
        """Has one archive made of all files that can be in one, and calls `commit` with it, if there is any. What
        cannot be is a problem of its own."""
        files = [file for file in files if self._linked(file)]
        while files:
            finished = self._run(files)
            if finished.error is not None:
                self._check_works()
                refused = self._refused(files, finished.error)
            else:
                refused = [(file, ProblemKind.CHANGED, _CHANGED) for file in files if _is_changed(file)]
                if not refused:
                    for warning in finished.warnings[:_WARNINGS]:
                        self._warn(f"clp-s: {warning}")
                    [path] = self._output.iterdir()
                    commit(path, files)
                    return
            for file, kind, message in refused:
                self._problem(file, kind, message)
            gone = {file.path for file, _, _ in refused}
            files = [file for file in files if file.path not in gone]

    def _linked(self, file: SourceFile) -> bool:
        link = self._links / file.path
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            if _is_blank(file.locator):
                link.touch()
            else:
                os.symlink(os.path.abspath(file.locator), link)
        except OSError as error:
            self._problem(file, ProblemKind.NAME, f"clp-s cannot be shown it by this name: {error.strerror}")
            return False
        return True

    def _run(self, files: Sequence[SourceFile]) -> program.Finished:
        """error is also that there are several archives: nobody could enter them at once."""
        with temporary_file_of("an archive of logs"):
            self._names.write_bytes("".join(f"{file.path}\n" for file in files).encode())
            self._output.mkdir(exist_ok=True)
            for old in self._output.iterdir():
                old.unlink()
        self._checkpoint()
        finished = program.compress(
            self._output,
            self._names,
            self._links,
            timestamp_key=self._timestamp_key,
            checkpoint=self._checkpoint,
        )
        if finished.error is None and (count := len(list(self._output.iterdir()))) != 1:
            return finished._replace(error=f"it is too large for one archive: clp-s makes {count} of it")
        return finished

    def _check_works(self) -> None:
        """That it is the log files that are wrong, and not the place that clp-s has to work in. Raises
        ProgramFailed, TemporaryFileFailed."""
        probe = self._links.parent / "probe"
        with temporary_file_of("an archive of logs"):
            probe.mkdir(exist_ok=True)
            (probe / "x").write_bytes(b'{"x": 1}\n')
            (probe / "names").write_bytes(b"x\n")
        finished = program.compress(
            probe / "archives", probe / "names", probe, timestamp_key=None, checkpoint=self._checkpoint
        )
        if finished.error is not None:
            hint = "is there room in the folder for temporary files? TMPDIR names another one"
            raise program.ProgramFailed(f"clp-s cannot make any archive: {finished.error}", hint=hint)

    def _refused(self, files: Sequence[SourceFile], error: str) -> list[tuple[SourceFile, ProblemKind, str]]:
        """Those of the files that clp-s does not take, each by its own error: it failed for all together."""
        if len(files) == 1:
            return [(files[0], ProblemKind.UNREADABLE, f"clp-s: {error}")]
        refused = []
        middle = len(files) // 2
        for half in (files[:middle], files[middle:]):
            if (found := self._run(half).error) is not None:
                refused += self._refused(half, found)
        # Halves that are well may be too much together: what is left out now comes into another archive.
        later = f"the next run takes it; clp-s: {error}"
        return refused or [(file, ProblemKind.TOO_LARGE, later) for file in files[middle:]]


_CHANGED: Final = "changed while clp-s read it: the next run takes it"


def _is_blank(name: str) -> bool:
    """Whether a log file has nothing but blank lines. clp-s takes it for text that is no JSON; an empty one it
    takes."""
    with suppress(OSError), open(name, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            if block.strip(b" \t\r\n"):
                return False
        return True
    return False


def _is_changed(file: SourceFile) -> bool:
    """Whether it is not the file any more that was listed."""
    with suppress(OSError):
        status = os.stat(file.locator)
        changed_ns = status.st_ctime_ns if file.changed_ns is None else file.changed_ns
        found = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return found != (file.size_bytes, file.modified_ns, changed_ns)
    return True
