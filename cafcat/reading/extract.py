"""Extracts folders of the catalog to disk: lists files page by page, and reads near files with one request."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import groupby, islice
from typing import Final

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, OutputFailed
from cafcat.model import FileProblem, Location, ProblemKind
from cafcat.native.extract import SmallFiles
from cafcat.progress import Progress
from cafcat.reading.coalescing import RangeRead
from cafcat.reading.output_names import stripped
from cafcat.reading.output_tree import OutputTree, is_safe_name
from cafcat.reading.outputs import Output
from cafcat.reading.plan import ReadPlan, in_read_order, range_reads
from cafcat.reading.reader import FILE_ERRORS, FileReader, Served
from cafcat.reading.request import ReadRequest
from cafcat.reading.tree_files import TreeFiles
from cafcat.reports import ExtractReport
from cafcat.support.in_order import made_ahead
from cafcat.support.quantities import is_int64

__all__ = ["REPORTED_FAILURES", "Extraction", "extract_tree", "plan_tree", "report_failure"]

REPORTED_FAILURES: Final = 1000
"""Most failed files that the report lists; further ones are only counted."""
_TOGETHER: Final = 500
"""Most small files that are written together. The checkpoint is called between them."""
_LEAST_TOGETHER: Final = 4
"""Least number of files that are written together. Fewer take no less time than one after the other."""
_SMALL_BYTES: Final = 1 << 20
"""For files of more than this size, in bytes, `checkpoint` is also called between blocks. Smaller files are written
fast enough."""
_KINDS: Final = {
    "corrupt": ProblemKind.CORRUPT,
    "conflict": ProblemKind.EXISTS,
    "not_found": ProblemKind.MISSING,
    "not_installed": ProblemKind.UNREADABLE,
    "store_failed": ProblemKind.UNREADABLE,
    "unsupported": ProblemKind.UNREADABLE,
}


def extract_tree(
    reader: FileReader,
    files: TreeFiles,
    output: Output,
    *,
    strip: int,
    progress: Progress,
) -> ExtractReport:
    """Write files of the catalog into a directory, for `PackedFiles.extract`.

    Args:
        reader: Reads the files.
        files: The files.
        output: The directory, which is created if it is missing, and whether to replace existing files.
        strip: Number of leading parts of the paths that are removed.
        progress: Receives the progress. Its checkpoint is called between groups of small files, between other
            files, and between blocks of files larger than 1 MiB: if it raises, the current file is dropped and the
            exception passes on. If `progress` is stopping, the extraction ends after the current group or file.

    Returns:
        The numbers of extracted and failed files; `interrupted` is true if `progress` was stopping.

    Raises:
        InvalidInput: Two files have the same name after the removal of leading parts. Nothing was written.
        Conflict, InvalidInput, OutputFailed: The directory cannot be created or written to.
        AccessDenied, Unavailable: A store denies access or is out of reach.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    files.check_outputs(strip)
    file_count, size_bytes = files.totals()
    tree: OutputTree[Location]
    with OutputTree(output) as tree:
        extraction = Extraction(reader, tree, progress=progress, strip=strip)
        progress.begin("extract", files=file_count, size_bytes=size_bytes)
        try:
            planned = ((page.failed, list(_reads(reader, page.locations))) for page in files.pages())
            # Only the native part leaves the processor to other threads.
            with closing(made_ahead(planned) if tree.writes_together else planned) as pages:
                for failed, reads in pages:
                    for name, error in failed:
                        report_failure(extraction.report, progress, name, error)
                    extraction.write_reads(reads)
                    if extraction.report.interrupted:
                        break
            extraction.commit()
        except CafcatError as error:
            extraction.commit_after(error)
            raise
        finally:
            progress.end()
    return extraction.report


def plan_tree(reader: FileReader, files: TreeFiles) -> ReadPlan:
    """Return the reads that `extract_tree` would need, without reading any file."""
    plan = ReadPlan()
    for page in files.pages():
        plan.failed += page.failed
        for read in _reads(reader, page.locations):
            plan.add(read, reader.object_of(read.files[0].location))
    return plan


def _reads(reader: FileReader, page: Sequence[Location]) -> Iterator[RangeRead[ReadRequest]]:
    requests = (ReadRequest.of(location.path, location) for location in page)
    return range_reads(in_read_order(requests), reader.stores)


def report_failure(report: ExtractReport, progress: Progress, path: str, error: CafcatError) -> None:
    """Count a file that could not be extracted, and emit its problem."""
    remedy = f"; {error.hint}" if isinstance(error, Corrupt) and error.hint else ""
    problem = FileProblem(path, _KINDS.get(error.kind, ProblemKind.NAME), error.message + remedy)
    report.files_failed += 1
    if len(report.failed) < REPORTED_FAILURES:
        report.failed.append(problem)
    progress.emit(problem)


class Extraction:
    """One extraction of files into a folder. A file that fails is reported, and the others are written.

    An existing file with the same content stays as it is, so that an extraction continues an interrupted one.

    Attributes:
        report: The numbers so far. `files` and `bytes` count only files that have their names.
    """

    def __init__(
        self,
        reader: FileReader,
        tree: OutputTree[Location],
        *,
        progress: Progress,
        strip: int = 0,
    ) -> None:
        """Create an extraction. This writes nothing yet.

        Args:
            reader: Reads the files.
            tree: The directory that receives the files.
            progress: Receives the progress, and can stop the extraction: see `extract_tree`.
            strip: Number of leading parts of the paths that are removed. Files without further parts are skipped.
        """
        self._reader = reader
        self._tree = tree
        self._progress = progress
        self._strip = strip
        self.report = ExtractReport()

    def write(self, page: Sequence[Location]) -> None:
        """Write some files into the tree. If `progress` is stopping, return early and set `report.interrupted`.

        Args:
            page: Where the files are. The files may be written in another order.

        Raises:
            AccessDenied, Unavailable: A store denies access or is out of reach.
            OutputFailed: The disk is full or fails.
        """
        self.write_reads(_reads(self._reader, page))

    def write_reads(self, reads: Iterable[RangeRead[ReadRequest]]) -> None:
        """Write the files of some reads into the tree. Returns early, and raises, like `write`."""
        with closing(self._reader.served(reads)) as all_served:
            for served in all_served:
                for folder, requests in self._portions(served):
                    self._write_portion(folder, requests, served)
                    if self.report.interrupted:
                        return
                del served  # its bytes are released before the next answer arrives

    def _portions(self, served: Served) -> Iterator[tuple[str | None, Sequence[ReadRequest]]]:
        """Yield small files of one folder together, with the folder. Yield the others with None."""
        if served.data is None or not self._tree.writes_together:
            yield None, served.read.files
            return
        for folder, requests in groupby(served.read.files, self._folder_of_small):
            while portion := list(islice(requests, _TOGETHER)):
                yield folder, portion

    def _folder_of_small(self, request: ReadRequest) -> str | None:
        """Return the folder of a file that `OutputTree.write_together` can write, with a slash at its end.

        None for a file that is encoded or large, or whose time is unknown or does not fit into 64 bits.
        """
        location = request.location
        if location.decoding is not None or location.size_bytes > _SMALL_BYTES:
            return None
        if location.modified_ns is None or not is_int64(location.modified_ns):
            return None
        path = stripped(location.path, self._strip)
        name = path[path.rfind("/") + 1 :]
        return path[: -len(name)] if is_safe_name(name) else None

    def _write_portion(self, folder: str | None, requests: Sequence[ReadRequest], served: Served) -> None:
        position = 0
        while position < len(requests):
            self._progress.checkpoint()
            if self._progress.stopping:
                self.report.interrupted = True
                return
            written = 0
            left = len(requests) - position
            if folder is not None and left >= _LEAST_TOGETHER and self._tree.writes_together:
                written = self._write_together(folder, requests[position:], served)
            if not written:
                written = 1
                self._write(requests[position], served.blocks_of(requests[position]))
            position += written
            if self._tree.has_finished:
                self._count_finished()

    def _write_together(self, folder: str, requests: Sequence[ReadRequest], served: Served) -> int:
        """Write the first of these files together, as many as possible, and return their number."""
        locations = [request.location for request in requests]
        names = [stripped(location.path, self._strip)[len(folder) :] for location in locations]
        files = SmallFiles(
            names,
            [location.start_byte for location in locations],
            [location.end_byte for location in locations],
            [location.crc32c for location in locations],
            [location.modified_ns or 0 for location in locations],
            served.data or b"",
            served.read.start_byte,
        )
        with suppress(Conflict, InvalidInput):  # these concern each file, and are raised again for each
            return self._tree.write_together(folder, files, locations)
        return 0

    def commit(self) -> None:
        """Make all written files durable under their names, and count them. Raises OutputFailed."""
        self._tree.commit()
        self._count_finished()

    def commit_after(self, error: CafcatError) -> None:
        """Commit the complete files after an error that ends the extraction. The error's hint gets their number.

        An error of the commit itself is ignored.
        """
        with suppress(CafcatError):
            self.commit()
        self._count_finished()
        if self.report.files:
            done = f"number of files that were extracted before this error, and are complete: {self.report.files}"
            error.hint = done if error.hint is None else f"{error.hint}; {done}"

    def _count_finished(self) -> None:
        files = size_bytes = 0
        for location, error in self._tree.finished():
            if error is None:
                files += 1
                size_bytes += location.size_bytes
            else:
                self._report_failure(location, error)
        self._count(files, size_bytes)

    def _count(self, files: int, size_bytes: int) -> None:
        self.report.files += files
        self.report.bytes += size_bytes
        self._progress.advance(files, size_bytes)

    def _stoppable(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the blocks of a large file. Before each, call the checkpoint, whose exceptions are raised."""
        for block in blocks:
            self._progress.checkpoint()
            yield block

    def _write(self, request: ReadRequest, blocks: Iterator[bytes]) -> None:
        location = request.location
        name = stripped(location.path, self._strip)
        if not name and self._strip:
            self.report.files_skipped += 1
            return
        try:
            if name.endswith("/") and not location.size_bytes:
                self._tree.make_folder(name[:-1])  # S3 consoles store an empty folder like this
                self._count(1, 0)
            else:
                self._reader.save(request, blocks, partial(self._write_file, name, location))
        except (Conflict, InvalidInput, *FILE_ERRORS) as error:
            self._report_failure(location, error)

    def _write_file(self, name: str, location: Location, blocks: Iterator[bytes]) -> None:
        if location.size_bytes > _SMALL_BYTES:
            blocks = self._stoppable(blocks)
        self._tree.write(name, blocks, location.modified_ns, location)

    def _report_failure(self, location: Location, error: CafcatError) -> None:
        if isinstance(error, Conflict) and self._is_there(location):
            self.report.files_there += 1
            self._progress.advance(1, location.size_bytes)
            return
        self._reader.explain_conflict(error, location.path, stripped(location.path, self._strip))
        report_failure(self.report, self._progress, location.path, error)

    def _is_there(self, location: Location) -> bool:
        """Return True if the output has this file already. A file that may not be read counts as another one."""
        name = stripped(location.path, self._strip)
        try:
            return self._tree.has(name, location.size_bytes, location.crc32c)
        except Conflict:
            return False
        except OutputFailed as error:
            if isinstance(error.__cause__, PermissionError):
                return False
            raise
