"""Extracts folders of the catalog on the workers of an executor, into a directory that all of them reach."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final, NamedTuple

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.reachable_stores import reachable_of
from cafcat.progress import Progress
from cafcat.reading.extract import REPORTED_FAILURES, Extraction, report_failure
from cafcat.reading.output_tree import OutputTree
from cafcat.reading.outputs import Output
from cafcat.reading.tree_files import TreeFiles, TreePage
from cafcat.reports import ExtractReport
from cafcat.session import Session

__all__ = ["extract_on_cluster"]

_MOST_BYTES: Final = 1 << 30
"""Number of bytes of files that one call extracts. A larger file has a call of its own."""


class _Files(NamedTuple):
    """The files that one call extracts, the output directory, and the number of removed parts of the paths."""

    locations: Sequence[Location]
    output: Output
    strip: int


def extract_on_cluster(
    session: Session, files: TreeFiles, output: Output, executor: Executor, *, strip: int, share_password: bool
) -> ExtractReport:
    """Write files of the catalog into a directory, on the workers of an executor.

    A call that was lost is repeated. The repeated call leaves the files that the first one wrote (`Extraction`).

    Args:
        session: Receives the progress. If the user stops it, the calls in flight are waited for.
        files: The files.
        output: The directory, which all workers reach by its path.
        executor: Runs the calls.
        strip: Number of leading parts of the paths that are removed.
        share_password: True to send the URL of the database to the workers even if it has a password.

    Returns:
        The numbers of extracted and failed files.

    Raises:
        InvalidInput: Two files have the same name after the removal of leading parts. Nothing was written.
        InvalidInput, Unavailable: The workers cannot be used, or a call failed too often.
        Conflict, OutputFailed: The directory cannot be created or written to.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    files.check_outputs(strip)
    file_count, size_bytes = files.totals()
    calls = ClusterCalls(session, executor, share_password=share_password)
    report, missing = ExtractReport(), ExtractReport()
    tree: OutputTree[Location]
    with OutputTree(output) as tree:
        calls.check(_stores(session, files), folder=output.path)
        session.progress.begin("extract", files=file_count, size_bytes=size_bytes)
        parts = (
            _Files(part, output, strip)
            for page in files.pages()
            for part in _parts(_found(page, missing, session.progress))
        )
        try:
            with closing(calls.run(_extract_files, parts)) as ended:
                for _, extracted in ended:
                    report = _together(report, extracted)
            tree.commit()
        except CafcatError as error:
            if error.hint is None and report.files:
                error.hint = f"run the same command again: {report.files} files are extracted, and stay as they are"
            raise
        finally:
            session.progress.end()
    return replace(_together(report, missing), interrupted=calls.interrupted)


def _stores(session: Session, files: TreeFiles) -> set[str]:
    """Return the URLs of the stores that the extract reads: those of its chunks, or else of their copies.

    Stores that this process does not reach are left out.
    """
    found = session.catalog.copies.stores_of_chunks(files.chunks())
    reachable = set(reachable_of(session, {url for url, _ in found}))
    copies = {url for own, urls in found if own not in reachable for url in urls}
    return reachable | set(reachable_of(session, copies))


def _found(page: TreePage, missing: ExtractReport, progress: Progress) -> Sequence[Location]:
    """Return the files of a page, after the names without a file were reported."""
    for name, error in page.failed:
        report_failure(missing, progress, name, error)
    return page.locations


def _parts(page: Sequence[Location]) -> Iterator[Sequence[Location]]:
    """Yield the files of a page in parts of at most 1 GiB. A larger file is a part of its own."""
    begin, size_bytes = 0, 0
    for end, location in enumerate(page):
        if end > begin and size_bytes + location.size_bytes > _MOST_BYTES:
            yield page[begin:end]
            begin, size_bytes = end, 0
        size_bytes += location.size_bytes
    if page:
        yield page[begin:]


def _extract_files(session: Session, part: _Files) -> ExtractReport:
    """Extract files on a worker, and return the numbers. This is the call that executors run."""
    reader = session.reader(session.progress)
    tree: OutputTree[Location]
    with OutputTree(part.output) as tree:
        extraction = Extraction(reader, tree, progress=session.progress, strip=part.strip)
        try:
            extraction.write(part.locations)
        except CafcatError:
            with suppress(CafcatError):
                extraction.commit()  # the repeated call finds these files
            raise
        extraction.commit()
    return extraction.report


def _together(report: ExtractReport, other: ExtractReport) -> ExtractReport:
    return ExtractReport(
        report.files + other.files,
        report.bytes + other.bytes,
        report.files_failed + other.files_failed,
        [*report.failed, *other.failed][:REPORTED_FAILURES],
        files_skipped=report.files_skipped + other.files_skipped,
        files_there=report.files_there + other.files_there,
    )
