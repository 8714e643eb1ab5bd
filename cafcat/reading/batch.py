"""Reads many files by name: a catalog query for thousands of names, and one request to the store for near files."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice

from cafcat.errors import CafcatError, Conflict, InvalidInput
from cafcat.model import ChunkFiles, Location
from cafcat.reading.coalescing import RangeRead
from cafcat.reading.given_order import Content, Item, read_in_given_order, windows_of
from cafcat.reading.output_names import OutputNames
from cafcat.reading.output_tree import OutputTree
from cafcat.reading.outputs import Output, write_single
from cafcat.reading.plan import PLANNED_FILES, ReadPlan, in_read_order, range_reads
from cafcat.reading.reader import FILE_ERRORS, FileReader
from cafcat.reading.request import ReadRequest
from cafcat.reading.saving import SavedFiles
from cafcat.reading.whole_files import contents_of, parts_of, requests_of
from cafcat.support.paths import check_text

__all__ = ["Batch"]

_Failures = list[tuple[str, CafcatError]]
"""Names as the caller gave them, and why each file cannot be read."""
_Result = tuple[str, bytes | CafcatError]
"""A name as the caller gave it, and the requested bytes of its file, or why they could not be read."""
_Outcome = tuple[str, Location | CafcatError]
"""A name as the caller gave it, and the location of its file, or why the file could not be read or written."""


class Batch:
    """Reads many files, or the same byte range of each of them.

    An error that concerns one file does not end the batch. `read` and `get` return it in place of the content:
    NotFound; InvalidInput for a range beyond the file, or a name that no path can have; Corrupt; StoreFailed;
    Conflict for an object that was replaced while it was read; Unsupported and NotInstalled for a file that cannot
    be decoded here. `stream` returns NotFound and InvalidInput; the iterator of a file raises the others. Errors
    that concern all files are raised: AccessDenied, Unavailable for a store out of reach, CatalogUnavailable,
    CatalogOutdated.
    """

    def __init__(self, reader: FileReader, start: int = 0, end: int | None = None) -> None:
        """Create a batch. This reads nothing yet.

        Args:
            reader: Finds and reads the files.
            start: First byte that is read of each file; a negative number counts from the end of the file.
            end: One past the last byte that is read of each file, not negative; None for the end of the file.
        """
        self._reader = reader
        self._range = (start, end)
        self._is_whole = start == 0 and end is None

    def read(self, paths: Iterable[str]) -> Generator[_Result, None, None]:
        """Yield each path with the requested bytes of its file, or with its error.

        Of each five thousand paths, those that cannot be found or have no such range come first, then the others in
        the order of archives and offsets.
        """
        rest = iter(paths)
        while names := list(islice(rest, PLANNED_FILES)):
            chunks = self._reader.locate_whole(names) if self._is_whole else None
            if chunks is None:
                failed, requests = self._requests(names)
                yield from failed
                yield from self._served(requests)
            elif any(self._reader.stores[chunk.store].is_remote for chunk in chunks):
                yield from self._served(requests_of(chunks))
            else:
                for chunk in chunks:
                    yield from self._whole(chunk)

    def _whole(self, chunk: ChunkFiles) -> Iterator[_Result]:
        """Yield the files of a chunk of a folder. Files that are damaged or large are read one by one."""
        store = self._reader.stores[chunk.store]
        for part in parts_of(chunk, store):
            contents = contents_of(part, store)
            yield from (
                self._served(requests_of([part])) if contents is None else zip(part.paths, contents, strict=True)
            )

    def _served(self, requests: Iterable[ReadRequest]) -> Iterator[_Result]:
        reads = range_reads(in_read_order(requests), self._reader.stores)
        with closing(self._reader.served(reads)) as all_served:
            for served in all_served:
                for request in served.read.files:
                    content = served.content_of(request)
                    if content is None:
                        yield request.name, self._joined(request, served.blocks_of(request))
                    else:
                        yield request.name, content
                del served  # its bytes are released before the next answer arrives

    def read_in_order(self, paths: Iterable[str]) -> Generator[tuple[str, bytes | CafcatError], None, None]:
        """Yield each path with the requested bytes of its file, or with its error, in the order of the paths."""
        with closing(self.contents(paths)) as contents:
            for name, request, result in contents:
                if result is None and request is not None:
                    yield name, self._joined(request, self._reader.stream(request))
                elif result is not None:
                    yield name, result

    def contents(self, paths: Iterable[str]) -> Generator[Content, None, None]:
        """Yield the files in the order of the paths. The caller reads those of more than 8 MiB.

        Files are read together, as `read_in_given_order` does: up to five thousand of them, and 64 MiB.
        """
        rest = iter(paths)
        while names := list(islice(rest, PLANNED_FILES)):
            for window in windows_of(self._items(names)):
                with closing(read_in_given_order(self._reader, window)) as contents:
                    yield from contents

    def stream(self, paths: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """Yield each path with an iterator over the requested bytes of its file, or with its error.

        Of each five thousand paths, those that cannot be found or have no such range come first, with their error.
        The others follow in the order of the paths, each with an iterator, which raises the errors of reading its
        file. Use an iterator before the next path is taken.
        """
        for failed, reads in self._windows(paths, in_order=True):
            yield from failed
            with closing(self._reader.files(reads)) as files:
                yield from ((request.name, blocks) for request, blocks in files)

    def get(self, outputs: Mapping[str, Output]) -> Iterator[_Outcome]:
        """Write each file to its output. Yield each path once its file is durable, or with its error.

        Each output appears with its whole content or not at all, except for devices and pipes. In place of the
        location, a path has a Conflict if its output exists or is a folder, and InvalidInput if the file system
        cannot have the name of its output.

        Args:
            outputs: Where to write each file, by its path in the catalog. All have the same `mode` and `overwrite`.

        Yields:
            The path, and the location of the file in the catalog, or why it could not be read or written.

        Raises:
            OutputFailed: An output cannot be written: its folder is missing or not writable, or the disk is full or
                fails. Files that are durable by then stay.
        """
        free: list[str] = []
        for name, output in outputs.items():
            try:
                output.check_free()
                free.append(name)
            except (Conflict, InvalidInput) as error:
                yield name, error
        for failed, reads in self._windows(free):
            yield from failed
            yield from self._get_window(reads, outputs)

    def get_into(self, paths: Iterable[str], output: Output, *, parents: bool) -> Iterator[_Outcome]:
        """Write each file into a folder. Yield its path with its location when it is durable, or with its error.

        The names are sorted before the first file is written, in a temporary file if they are many. A path that is
        named twice is written once.

        Args:
            paths: Paths of the files in the catalog.
            output: The folder, which is created if it is missing, and whether to replace existing files in it.
            parents: True to give each file its whole path below the folder; False to give it its base name.

        Raises:
            InvalidInput: A path is no text; or, without `parents`, two files have the same base name. Nothing was
                written.
            OutputFailed: An output cannot be written. Files that are durable by then stay.
        """
        hint = "--parents keeps the folders of the files"
        tree: OutputTree[ReadRequest]
        with OutputNames("the same base name, and would have the same output", hint) as names:
            for path in paths:
                check_text(path)
                if not names.add(path, path if parents else path.rsplit("/", 1)[-1]):
                    yield path, self._reader.locate_many([path])[path]
            names.check()
            with OutputTree(output) as tree:
                try:
                    yield from self._write_all(names, tree, parents=parents)
                except CafcatError:  # it concerns more than one file: complete files stay
                    tree.commit()
                    yield from self._finished(tree, parents=parents)
                    raise

    def _write_all(
        self, names: Iterable[str], tree: OutputTree[ReadRequest], *, parents: bool
    ) -> Iterator[_Outcome]:
        """Write each file into a tree. Yield those that failed, and each window of files once they are durable."""

        def write(request: ReadRequest, blocks: Iterator[bytes]) -> None:
            path = request.location.path
            tree.write(path if parents else path.rsplit("/", 1)[-1], blocks, request.modified_ns, request)

        for failed, reads in self._windows(names):
            yield from failed
            with closing(self._reader.files(reads)) as files:
                for request, blocks in files:
                    try:
                        self._reader.save(request, blocks, partial(write, request))
                    except (Conflict, InvalidInput, *FILE_ERRORS) as error:
                        self._explain(request, error, parents=parents)
                        yield request.name, error
            tree.commit()
            yield from self._finished(tree, parents=parents)

    def _finished(self, tree: OutputTree[ReadRequest], *, parents: bool) -> Iterator[_Outcome]:
        if tree.has_finished:
            for request, error in tree.finished():
                if error is not None:
                    self._explain(request, error, parents=parents)
                yield request.name, error or request.location

    def _explain(self, request: ReadRequest, error: CafcatError, *, parents: bool) -> None:
        if parents:
            self._reader.explain_conflict(error, request.location.path, request.location.path)

    def _get_window(
        self, reads: Iterator[RangeRead[ReadRequest]], outputs: Mapping[str, Output]
    ) -> Iterator[_Outcome]:
        one = next(iter(outputs.values()))
        with SavedFiles(self._reader, overwrite=one.overwrite, mode=one.mode) as saved:
            try:
                yield from self._save(reads, outputs, saved)
            except CafcatError:  # it concerns more than one file: complete files stay
                yield from _outcomes(saved)
                raise
            yield from _outcomes(saved)

    def _save(
        self, reads: Iterator[RangeRead[ReadRequest]], outputs: Mapping[str, Output], saved: SavedFiles
    ) -> Iterator[_Outcome]:
        """Write the files of the reads. Yield those that failed, and those that were written to a device or pipe.

        Files written to a regular output are not yielded here, because they are not durable yet.
        """
        with closing(self._reader.files(reads)) as files:
            for request, blocks in files:
                output = outputs[request.name]
                try:
                    if not output.is_special:
                        saved.save(request, blocks, output)
                        continue
                    write_single(output, request.modified_ns, blocks)
                    yield request.name, request.location
                except (Conflict, InvalidInput, *FILE_ERRORS) as error:
                    yield request.name, error

    def plan(self, paths: Iterable[str], *, in_order: bool = False) -> ReadPlan:
        """Return the reads that `read` and `get` would need, without reading any file.

        Args:
            paths: Paths of the files in the catalog.
            in_order: True for the reads of `stream`, which reads the files in the order of the paths.
        """
        plan = ReadPlan()
        for failed, reads in self._windows(paths, in_order=in_order):
            plan.failed += failed
            for read in reads:
                plan.add(read, self._reader.object_of(read.files[0].location))
        return plan

    def _windows(
        self, paths: Iterable[str], *, in_order: bool = False
    ) -> Iterator[tuple[_Failures, Iterator[RangeRead[ReadRequest]]]]:
        """Yield, for each five thousand paths, the errors of those that cannot be read, and the others' reads."""
        rest = iter(paths)
        while names := list(islice(rest, PLANNED_FILES)):
            failed, requests = self._requests(names)
            yield failed, range_reads(requests if in_order else in_read_order(requests), self._reader.stores)

    def _requests(self, names: Sequence[str]) -> tuple[_Failures, list[ReadRequest]]:
        failed: _Failures = []
        requests: list[ReadRequest] = []
        for name, found in self._items(names):
            if isinstance(found, CafcatError):
                failed.append((name, found))
            else:
                requests.append(found)
        return failed, requests

    def _items(self, names: Sequence[str]) -> list[Item]:
        """Return each name with the request for its file, or with the reason why there is none."""
        locations = self._reader.locate_many(names)
        return [(name, self._request(name, locations[name])) for name in names]

    def _request(self, name: str, location: Location | CafcatError) -> ReadRequest | CafcatError:
        if isinstance(location, CafcatError):
            return location
        try:
            return ReadRequest.of(name, location, *self._range)
        except InvalidInput as error:
            return error

    def _joined(self, request: ReadRequest, blocks: Iterator[bytes]) -> bytes | CafcatError:
        try:
            return self._reader.save(request, blocks, b"".join)
        except (Conflict, *FILE_ERRORS) as error:
            return error


def _outcomes(saved: SavedFiles) -> Iterator[_Outcome]:
    for request, error in saved.committed():
        yield request.name, error or request.location
