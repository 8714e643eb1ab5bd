"""Finds files that are gone at the sources of an ingest, and removes them from the catalog (`ingest --delete`).

docs/decisions/0040 has the reasons of its rules.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from cafcat.catalog.files.path_list import VersionList
from cafcat.catalog.files.sources import SourceVersion
from cafcat.errors import InvalidInput, NotConfirmed
from cafcat.events import ChangeFound, SourceChange
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.operations.ingest.options import IngestOptions
from cafcat.operations.removing import Removing
from cafcat.operations.verify.findings import MOST_FINDINGS
from cafcat.reports import IngestReport
from cafcat.scanning.missing import MissingFiles
from cafcat.session import Session
from cafcat.sources.base import Source, WholeFolderSource, as_whole_folder
from cafcat.support.quantities import plural

__all__ = ["GoneFiles", "check_whole_folders"]

_FOUND: Final = (ProblemKind.SYMLINK, ProblemKind.SPECIAL)
"""Problems with a path that is no regular file any more: the file that the catalog has is gone."""


def check_whole_folders(sources: Sequence[Source]) -> None:
    """Raise InvalidInput if one of the sources is no folder or bucket that is listed completely and in order."""
    for source in sources:
        if as_whole_folder(source) is None:
            message = f"{source.name} is no folder or bucket that is listed as a whole"
            hint = "leave --delete out, or ingest this source with a command of its own"
            raise InvalidInput(message, hint=hint)


class _Refusal(NamedTuple):
    """A source from which no file is removed.

    Attributes:
        reason: Why no file is removed.
        hint: The next step for the user.
    """

    reason: str
    hint: str


class GoneFiles:
    """The files that the sources of one ingest had before, and do not have any more. Use it in a `with` statement.

    A file is gone if the catalog has it in the folder of a source, the file came from this source, and the listing
    of the source has no file of its path. Files that a filter excludes, and files below a folder that cannot be
    read, are not gone.
    """

    def __init__(self, session: Session, options: IngestOptions, report: IngestReport) -> None:
        """Begin without files.

        Args:
            session: The session.
            options: Its `delete`, `max_delete`, `list_changes` and `dry_run` are used.
            report: Counts files that are gone, and files that are removed.
        """
        self._session = session
        self._options = options
        self._report = report
        self._versions = VersionList()
        self._source: WholeFolderSource | None = None
        self._missing: MissingFiles[SourceVersion] | None = None
        self._unreliable: str | None = None
        self._refusal: _Refusal | None = None
        self._gone = 0
        self._listed = 0
        self._unknown = 0
        self._is_empty = True

    def begin(self, source: WholeFolderSource | None, source_id: int) -> None:
        """Begin with the listing of a source.

        Args:
            source: The source; None if it does not list a whole folder: then nothing is compared.
            source_id: sources.id of its root; 0 for a root that the catalog does not have.
        """
        self._source, self._missing, self._gone, self._listed, self._unknown = source, None, 0, 0, 0
        self._is_empty = True
        if source is not None:
            versions = self._session.catalog.sources.versions(source_id, source.catalog_folder or "")
            self._missing = MissingFiles(self._counted(versions), source.includes)

    def _counted(self, versions: Iterable[SourceVersion]) -> Iterator[SourceVersion]:
        for version in versions:
            self._listed += 1
            yield version

    def pass_by(self, batch: Sequence[SourceFile | FileProblem]) -> None:
        """Note the next files and problems of the listing."""
        if self._missing is None:
            return
        for item in batch:
            if isinstance(item, FileProblem) and item.kind not in _FOUND:
                self._missing.add_problem(item)
        for item in batch:
            if isinstance(item, SourceFile):
                self._is_empty = False
                self._add(self._missing.before(item.path))

    def end(self) -> None:
        """Note the end of the listing. Check that not too many files of the source are gone."""
        missing, source = self._missing, self._source
        if missing is None or source is None:
            return
        self._add(missing.rest())
        if not missing.is_reliable:
            self._unreliable = source.name
        unknown = plural(self._unknown, "file")
        # Files of unknown source count if the source has them: this ingest has just compared them, or may do so. In
        # an empty source, as of an unmounted disk, all of them count: they may come from it.
        counted = self._unknown if self._is_empty else 0
        gone, expected = self._gone + counted, self._listed - self._unknown + counted
        is_too_much = gone * 100 > expected * self._options.max_delete
        if is_too_much and not self._gone:
            self._refusal = _Refusal(
                f"{source.name} is empty, and the source of {unknown} of the catalog is unknown, as after a "
                "rebuild",
                "check the source, such as a disk that is not mounted; cafcat rm removes files of unknown source",
            )
            return
        if self._unknown:
            self._warn_of_unknown(source)
        if is_too_much:
            are = "is" if self._gone == 1 else "are"
            self._refusal = _Refusal(
                f"{self._gone} of {plural(expected, 'file')} from {source.name} {are} gone, "
                f"more than {self._options.max_delete} %",
                "check the source; if the files are to be removed, run it again with a larger --max-delete PERCENT",
            )

    def _warn_of_unknown(self, source: WholeFolderSource) -> None:
        stay, them = ("it stays", "it") if self._unknown == 1 else ("they stay", "them")
        # Below no folder of the catalog, verify does not look for files that the source lacks.
        listed = "a thousand of them" if self._unknown > MOST_FINDINGS else them
        lists = f"; `cafcat verify --level source` lists {listed}" if source.catalog_folder else ""
        self._session.warn(
            f"{source.name} lacks {plural(self._unknown, 'file')} of the catalog whose source is unknown, as after "
            f"a rebuild: {stay}{lists}, and `cafcat rm` removes {them}"
        )

    def _add(self, files: Iterable[SourceVersion]) -> None:
        for file in files:
            assert self._source is not None  # noqa: S101 - `begin` has set both
            if self._source.has(file.path):
                continue
            if not file.is_known:
                self._unknown += 1
                continue
            self._gone += 1
            self._report.files_gone += 1
            if self._options.list_changes:
                self._session.emit(ChangeFound(SourceChange.GONE, file.path))
            if self._options.delete:
                self._versions.add(file.path, file.chunk_id, file.start_byte)

    def remove(self) -> None:
        """Remove the files that are gone from the catalog, in one transaction. Call this after all commits.

        A dry run only counts them. Nothing is removed without `delete`, if the user ended the ingest, or if a
        listing was not reliable, which is a warning.

        Raises:
            NotConfirmed: More files are gone than `max_delete` allows.
            CatalogUnavailable, CatalogOutdated: The files could not be removed, or the outcome is unknown.
        """
        is_ending = self._report.interrupted or self._session.should_end()
        if not self._options.delete or is_ending:
            return
        if self._unreliable is not None:
            message = "no file was removed: the listing was not in order, or had more than 100,000 problems"
            self._session.warn(f"{self._unreliable}: {message}")
            return
        if self._refusal is not None:
            reason, hint = self._refusal
            if not self._options.dry_run:
                raise NotConfirmed(f"no file was removed, because {reason}", hint=hint)
            self._session.warn(f"without --dry-run, no file would be removed, because {reason}; {hint}")
            return
        if not self._versions.count:
            return
        if self._options.dry_run:
            self._report.files_removed = self._versions.count
        elif self._report.run is not None:
            self._report.files_removed = Removing(self._session).remove_versions(self._versions, self._report.run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._versions.close()
