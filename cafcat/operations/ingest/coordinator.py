"""The coordinator of an ingest: it scans the sources, finds new and changed files by batch, and has them packed."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from cafcat.catalog.chunks.chunks import ExistingFiles
from cafcat.errors import Conflict
from cafcat.events import ChangeFound, SourceChange
from cafcat.model import FileProblem, OnConflict, ProblemKind, SourceFile
from cafcat.native.library import library
from cafcat.operations.ingest.packer import Packer, PendingFile
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke, batches_of
from cafcat.scanning.opening import SourceOptions
from cafcat.scanning.positions import Positions
from cafcat.session import Session, SessionFactory
from cafcat.sources.base import (
    ColumnarSource,
    Opener,
    ResumableSource,
    RootedSource,
    ShareableSource,
    Source,
    as_whole_folder,
)
from cafcat.sources.local.columns import FileColumns
from cafcat.sources.parts import DivisibleSource
from cafcat.support.processors import processors
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits

if TYPE_CHECKING:
    from cafcat.operations.ingest.comparing import ContentComparison
    from cafcat.operations.ingest.gone import GoneFiles
    from cafcat.operations.ingest.worker_pool import WorkerPool

__all__ = ["Ingest"]

_UNKNOWN: Final = 0
"""`sources.id` of a source that the catalog does not have."""
_WORKER_FILES: Final = 4_000
_WORKER_BYTES: Final = 64 << 20
"""If the user asks for workers, they start when a batch has this many files or bytes to pack."""
_WORKER_SECONDS: Final = 1.0
_WORKER_BYTES_BY_DEFAULT: Final = 512 << 20
"""Otherwise they start when this process has packed for so long, or when a batch has so many bytes: a process takes
some tenths of a second to start."""
_MOST_THREADS: Final = 2
"""Up to so many workers are threads of this process if there is the native part, which does most of the work. The
Python code of more threads would wait for each other."""
_MOST_JOBS: Final = 4
"""Largest default number of workers. More are faster on some disks only, so users must ask for them."""


class Ingest:
    """State and steps of one ingest run that packs files. `LogIngest` packs archives of logs.

    Attributes:
        positions: Positions from which an interrupted listing of each source can continue.
        gone: Finds the files that are gone at the sources; None if they are not looked for.
        last_position: Position up to which a source was listed, if `most_files` cut its listing short; else None.
    """

    def __init__(
        self,
        session: Session,
        target: ChunkTarget,
        limits: Limits,
        options: SourceOptions,
        *,
        dry_run: bool = False,
        list_changes: bool = False,
        jobs: int | None = 1,
        most_files: int | None = None,
    ) -> None:
        """Prepare the ingest run. No source is read, and nothing is written yet.

        Args:
            session: The session.
            target: Catalog, store, format, run and owner of the new chunks.
            limits: When a chunk is full.
            options: Its `comparison` and `on_conflict` are used.
            dry_run: Write nothing, and only count the files that would be packed.
            list_changes: Emit a ChangeFound for each new, changed or doubtful file.
            jobs: Number of workers that pack, once a batch has enough work for them. 1: this process packs. None:
                one for each processor, at most four, if there is more work than this process packs while they
                start.
            most_files: Number of files after which a source is not listed any further, if it can be cut there.
                None: no limit.
        """
        self._session = session
        self._catalog = session.catalog
        self._target = target
        self._limits = limits
        self._jobs = 1 if dry_run else jobs
        self._most_files = most_files
        self._pool: WorkerPool | None = None
        self._packing_seconds = 0.0
        self._stack = ExitStack()
        self._on_conflict = options.on_conflict
        self._comparison = options.comparison
        self._contents: ContentComparison | None = None
        self._source_ids: dict[str, int] = {}
        self._dry_run = dry_run
        self._list_changes = list_changes
        self.gone: GoneFiles | None = None
        self._progress = session.progress
        self.positions = Positions()
        self.last_position: str | None = None
        self._packer = Packer(session, target, limits, options.on_conflict, self.positions)
        self._packer.report.dry_run = dry_run
        self._packer.report.run = None if dry_run else target.run

    @property
    def report(self) -> IngestReport:
        """Counts of all files and chunks so far, those of workers included."""
        return self._packer.report if self._pool is None else self._pool.total(self._packer.report)

    def run(self, sources: Iterable[Source]) -> None:
        """Ingest all sources, or the files until the user ends the operation.

        Packed files are committed at the end, unless `Session.checkpoint` raises. After an error the open chunk is
        abandoned, and chunks that were committed before stay. If a source fails before its end, for example because
        its server is gone, the open chunk is committed, and then the source's error is raised.

        Raises:
            Conflict: The catalog has a path with other content, and `on_conflict` is FAIL.
            StoreFailed, AccessDenied: The store or a source failed.
            Unavailable: A worker died.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
            CafcatError: Any other error with which a source ended.
        """
        try:
            with self._stack:
                try:
                    for source in sources:
                        self._ingest_source(source)
                except SourceBroke as broke:
                    self.finish()
                    raise broke.reason from broke
                self.finish()
                self.positions.save()  # also of sources without any file to pack
                if self.gone is not None:
                    self.gone.remove()
        except BaseException as error:
            self.abandon(f"the ingest failed: {error}")
            raise
        finally:
            self._packer.problems.record()

    def abandon(self, reason: str) -> None:
        """Abandon the open chunk, if there is one. `reason` is stored in the chunk's row."""
        self._packer.abandon(reason)

    def _ingest_source(self, source: Source) -> None:
        self.positions.source = source
        self.last_position = None
        if self.gone is not None:
            whole = as_whole_folder(source)
            self.gone.begin(whole, _UNKNOWN if whole is None else self._source_id(whole.root))
        listed = 0
        for found in batches_of(source):
            if self._packer.is_stopping():
                return
            if self.gone is not None:
                self.gone.pass_by(found)
            batch = self._files_of(found)
            self.ingest_batch(source, batch)
            if self._packer.report.interrupted:
                return
            if not self._packer.has_uncommitted_chunks:
                self.positions.save()
            listed += len(batch)
            if self._most_files is not None and listed >= self._most_files and batch:
                self.last_position = _position_of(source, batch[-1])
                if self.last_position is not None:
                    return
        self.positions.ended(source)
        if self.gone is not None:
            self.gone.end()

    def _files_of(self, found: Sequence[SourceFile | FileProblem]) -> Sequence[SourceFile]:
        """Return the files of a batch. Its problems are reported."""
        if isinstance(found, FileColumns):
            return found
        batch = []
        for item in found:
            if isinstance(item, FileProblem):
                self._packer.problems.add(item)
            else:
                batch.append(item)
        return batch

    def ingest_batch(self, source: Source, batch: Sequence[SourceFile]) -> None:
        """Find the new and changed files of a batch with one query of the catalog, and pack them.

        The last chunk stays open: call `finish` or `abandon` at the end. If an open chunk may contain the path of a
        file already, all open chunks are committed before this file. Then the catalog is queried again for the rest
        of the batch.
        """
        self._packer.report.files_seen += len(batch)
        if isinstance(batch, FileColumns) and self._is_new(batch):
            self._pack_columns(source, batch)
            self._packer.problems.record()
            return
        source_ids = self._source_ids_of(source, batch)
        while batch:
            existing = self._existing(source, batch, source_ids)
            if self._packer.is_stopping():
                return
            count, pending = self._decide(batch, source_ids, existing)
            self._pack(source, pending)
            if self._packer.is_stopping():
                return
            if count:
                self.positions.passed(batch[count - 1])
            batch, source_ids = batch[count:], source_ids[count:]
            if batch:
                self.finish()
        if self._contents is not None:
            self._packer.report.files_compared += self._contents.forget()
        self._packer.problems.record()

    def _is_new(self, files: FileColumns) -> bool:
        """Return True if the catalog and the open chunks certainly have no file between the first and last path."""
        if self._dry_run or self._list_changes or self._packer.may_contain_from(files.first_path):
            return False
        if self._pool is not None and self._pool.may_contain(files.first_path):
            return False
        return not self._catalog.chunks.has_path_between(files.first_path, files.last_path)

    def _pack_columns(self, source: Source, files: FileColumns) -> None:
        """Pack new files in columns, as `_pack`."""
        assert isinstance(source, ColumnarSource)  # noqa: S101 - only these list files in columns
        source_id = self._source_id(source.root)
        if (workers := self._workers_for(source, len(files), files.size_bytes)) is not None:
            pool, opener = workers
            pool.pack_columns(opener, files, source_id)
        else:
            with self._timed():
                self._packer.pack_columns(source, files, source_id)
        self.positions.passed(files.last)

    def _existing(self, source: Source, batch: Sequence[SourceFile], source_ids: Sequence[int]) -> ExistingFiles:
        """Return which files of the batch are in the catalog, and whether they changed.

        Doubtful files, about which only their content can decide, are read and compared, so that none is doubtful
        any more. A dry run leaves them doubtful.
        """
        existing = self._catalog.chunks.find_existing(batch, source_ids, self._comparison)
        if not existing.doubtful or self._dry_run:
            return existing
        if self._contents is None:
            from cafcat.operations.ingest.comparing import ContentComparison

            self._contents = ContentComparison(self._session)
        differing = self._contents.differing(source, batch, source_ids, existing.doubtful)
        return ExistingFiles(
            existing.unchanged | (existing.doubtful.keys() - differing), existing.changed | differing, {}
        )

    def _source_ids_of(self, source: Source, batch: Sequence[SourceFile]) -> Sequence[int]:
        """Return `sources.id` of each file of a batch, in order."""
        if isinstance(source, RootedSource):  # root_of is slow, so it is called once per file
            return [self._source_id(source.root_of(file)) for file in batch]
        return [self._source_id(source.name)] * len(batch)

    def _source_id(self, root: str) -> int:
        """Return `sources.id` of a root, the folder or URL from which files are ingested. A new root is inserted.

        In a dry run nothing is inserted: the id of a new root is 0.
        """
        found = self._source_ids.get(root)
        if found is None:
            sources = self._catalog.sources
            found = (sources.find(root) or _UNKNOWN) if self._dry_run else sources.add(root)
            self._source_ids[root] = found
        return found

    def _pack(self, source: Source, pending: Sequence[PendingFile]) -> None:
        """Pack new and changed files of a source by workers, or by this packer."""
        size_bytes = sum(item.file.size_bytes for item in pending)
        if (workers := self._workers_for(source, len(pending), size_bytes)) is not None:
            pool, opener = workers
            pool.pack(opener, pending)
        else:
            with self._timed():
                self._packer.pack(source, pending)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begun = monotonic()
        yield
        self._packing_seconds += monotonic() - begun

    def _workers_for(self, source: Source, files: int, size_bytes: int) -> "tuple[WorkerPool, Opener] | None":
        """Return the workers that pack the next files, and what opens the files; None if this packer packs them.

        Workers are used if other processes can open the files of the source, and if the workers run already or the
        files are enough work to start them. The open chunks of the others, packer or workers, are committed.

        Args:
            source: The source.
            files: Number of files to pack.
            size_bytes: Their total size.
        """
        if isinstance(source, ShareableSource) and (pool := self._pool_for(files, size_bytes)) is not None:
            self._packer.finish_chunk()
            return pool, source.opener
        if self._pool is not None:
            self._pool.finish()
        return None

    def _pool_for(self, files: int, size_bytes: int) -> "WorkerPool | None":
        """Return the pool of workers, which starts with the first batch that has enough work; None before that."""
        if self._jobs is None:
            is_enough = self._packing_seconds >= _WORKER_SECONDS or size_bytes >= _WORKER_BYTES_BY_DEFAULT
        else:
            is_enough = files >= _WORKER_FILES or size_bytes >= _WORKER_BYTES
        if self._pool is None and self._jobs != 1 and is_enough:
            jobs = min(processors(), _MOST_JOBS) if self._jobs is None else self._jobs
            if self._jobs is None and not self._catalog.takes_connections(jobs):
                jobs = self._jobs = 1
            self._pool = self._start_pool(jobs) if jobs > 1 else None
        return self._pool

    def _start_pool(self, jobs: int) -> "WorkerPool":
        from cafcat.operations.ingest.worker import Setup
        from cafcat.operations.ingest.worker_pool import WorkerPool

        target = self._target
        settings = self._session.settings
        in_threads = jobs <= _MOST_THREADS and library() is not None
        if settings.bandwidth is not None and not in_threads:  # only the workers send data
            settings = replace(settings, bandwidth=max(1, settings.bandwidth // jobs))
        setup = Setup(
            SessionFactory(settings),
            target.store.url,
            target.archive_format.name,
            target.run,
            self._limits,
            self._on_conflict,
            in_threads,
        )
        return self._stack.enter_context(WorkerPool(self._session, setup, jobs))

    def finish(self) -> None:
        """Commit the open chunks of this packer and of the workers. Raises the errors of `run`."""
        if self._pool is not None:
            self._pool.finish()
        self._packer.finish_chunk()

    def _decide(
        self, batch: Sequence[SourceFile], source_ids: Sequence[int], existing: ExistingFiles
    ) -> tuple[int, Sequence[PendingFile]]:
        """Decide for the files of a batch, from the first on, whether to pack, skip or count them.

        Except in a dry run, this stops before a file whose path an open chunk may contain, or that an earlier file
        of the batch has, too.

        Returns:
            The number of files that were decided, and the files among them that have to be packed.

        Raises:
            Conflict: The catalog has a path with other content, and `on_conflict` is FAIL.
        """
        pending: list[PendingFile] = []
        paths: set[str] = set()
        is_open = self._packer.has_uncommitted_chunks or self._pool is not None
        for n, file in enumerate(batch):
            replaces = n in existing.changed
            if not self._dry_run and (file.path in paths or (is_open and self._may_contain(file.path))):
                return n, pending
            if n in existing.unchanged:
                self._packer.report.files_unchanged += 1
                self._progress.advance(1, 0)
            elif n in existing.doubtful:
                self._note(SourceChange.DOUBTFUL, file)
                self._packer.report.files_compared += 1
                self._progress.advance(1, 0)
            elif replaces and self._on_conflict is not OnConflict.REPLACE:
                self._conflict(file)
            else:
                self._note(SourceChange.REPLACED if replaces else SourceChange.ADDED, file)
                if self._dry_run:
                    self._count_dry(file, replaces=replaces)
                    continue
                paths.add(file.path)
                pending.append(PendingFile(file, replaces, source_ids[n]))
        return len(batch), pending

    def _note(self, change: SourceChange, file: SourceFile) -> None:
        if self._list_changes:
            self._session.emit(ChangeFound(change, file.path))

    def _may_contain(self, path: str) -> bool:
        return self._packer.may_contain(path) or (self._pool is not None and self._pool.may_contain(path))

    def _conflict(self, file: SourceFile) -> None:
        message = "the catalog has this file with other content, or another size or time"
        if self._on_conflict is OnConflict.FAIL:
            raise Conflict(message, path=file.path, hint="use --on-conflict replace or skip")
        self._packer.problems.add(FileProblem(file.path, ProblemKind.CONFLICT, message))

    def _count_dry(self, file: SourceFile, *, replaces: bool) -> None:
        report = self._packer.report
        if replaces:
            report.files_replaced += 1
        else:
            report.files_added += 1
        report.bytes_added += file.size_bytes
        self._progress.advance(1, file.size_bytes)


def _position_of(source: Source, file: SourceFile) -> str | None:
    """Return the position after a file of a source that can be cut and continued there; None for other sources."""
    if isinstance(source, DivisibleSource) and isinstance(source, ResumableSource):
        return source.position_of(file)
    return None
