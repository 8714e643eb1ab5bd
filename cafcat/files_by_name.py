"""Finds, lists and reads the files of a catalog: those of now, or those of an earlier time."""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from cafcat.catalog.files.scope import FindFilter
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import Folder, Location
from cafcat.reading.request import ReadRequest
from cafcat.session import Session, output_of
from cafcat.support.paths import names_in_list

if TYPE_CHECKING:
    from cafcat.reading.archive_stream import ArchiveStream, OnError
    from cafcat.reading.batch import Batch
    from cafcat.reading.lookup import PathListing
    from cafcat.reading.plan import ReadPlan
    from cafcat.reading.reader import FileReader
    from cafcat.reading.tree_files import TreeFiles
    from cafcat.reports import ExtractReport

__all__ = ["FilesByName"]


class FilesByName(ABC):
    """Finds and lists files by path, pattern or other conditions, and reads them.

    PackedFiles and FilesAsOf are its subclasses.

    Attributes:
        session: Catalog, stores, settings and progress.
    """

    session: Session

    @property
    @abstractmethod
    def _reader(self) -> "FileReader":
        """Looks up paths, and reads files."""

    @property
    @abstractmethod
    def _files(self) -> "PathListing":
        """Lists files."""

    def locate(self, path: str) -> Location:
        """Return where a file is. This takes one query if a file has exactly this path.

        Args:
            path: Path of the file in the catalog. If no file has it, leading "./" and "/" are dropped.

        Raises:
            NotFound: The catalog has no such file.
            InvalidInput: No path can have this text.
        """
        return self._reader.locate(path)

    def locate_many(self, paths: Iterable[str]) -> dict[str, Location | CafcatError]:
        """Return for each path where the file is, or the error that `locate` would raise: NotFound or InvalidInput.

        Each thousand paths need one query, and another one if some of them are missing.
        """
        return self._reader.locate_many([*names_in_list(paths)])

    def list(self, prefix: str = "") -> Iterator[Location]:
        """Yield the file with this name, if there is one, and all files below the folder, in the order of paths.

        Args:
            prefix: A folder of the catalog, or a file; "" for all files. An unknown name yields nothing.
        """
        return self.find(prefix)

    def list_folder(self, prefix: str = "") -> Iterator[Location | Folder]:
        """Yield the file with this name, if there is one, then the files and folders directly in the folder.

        Files and folders are mixed, in the order of paths.

        Args:
            prefix: A folder of the catalog, or a file; "" for the top. An unknown name yields nothing.
        """
        return self._files.level(prefix)

    def find(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        newer_ns: int | None = None,
        older_ns: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Iterator[Location]:
        """Yield those files that `list` would yield and that meet all conditions, in the order of paths.

        Files without a modification time meet no condition on it. A condition of None is met by every file.

        Args:
            prefix: A folder of the catalog, or a file; "" for all files. An unknown name yields nothing.
            name: Shell pattern for the last part of the path, without a slash.
            newer_ns: Only files modified after this time, in nanoseconds since 1970.
            older_ns: Only files modified before this time, in nanoseconds since 1970.
            min_size: Smallest size of a file, in bytes.
            max_size: Largest size of a file, in bytes.

        Raises:
            InvalidInput: `name` has a slash.
        """
        where = _conditions(name, newer_ns, older_ns, min_size, max_size)
        for page in self._files.pages(prefix, where):
            yield from page

    def find_paths(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        newer_ns: int | None = None,
        older_ns: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Generator[Sequence[str], None, None]:
        """Yield the paths of the files that `find` yields, in lists of up to 100,000, in a tenth of the time.

        Threads get the next lists while the caller uses one.

        Args:
            prefix: A folder of the catalog, or a file; "" for all files. An unknown name yields nothing.
            name: Shell pattern for the last part of the path, without a slash.
            newer_ns: Only files modified after this time, in nanoseconds since 1970.
            older_ns: Only files modified before this time, in nanoseconds since 1970.
            min_size: Smallest size of a file, in bytes.
            max_size: Largest size of a file, in bytes.

        Returns:
            The lists. Close this generator if not all of them are needed.

        Raises:
            InvalidInput: `name` has a slash.
        """
        where = _conditions(name, newer_ns, older_ns, min_size, max_size)
        return self._paths_ahead(prefix, where)

    def _paths_ahead(self, prefix: str, where: FindFilter) -> Generator[Sequence[str], None, None]:
        from cafcat.support.in_order import made_ahead

        return made_ahead(self._files.path_pages(prefix, where))

    def glob(self, pattern: str) -> Iterator[Location]:
        """Yield the files whose whole path matches a shell pattern, in the order of paths.

        The database matches, page by page, within the range of paths with the text before the first special
        character.

        Args:
            pattern: The pattern. "*", "?" and "[a-z]" match characters other than "/"; a backslash makes the next
                character plain. "**" as a part of the path matches any number of folders, and at the end everything
                below: "photos/**/*.jpg", "photos/**". Leading "./" and "/" are dropped.
        """
        from cafcat.reading.selecting import glob_range

        for page in self._files.pages_in([glob_range(pattern)]):
            yield from page

    def expand(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the paths that names and shell patterns mean, in their order, as the command line does.

        Every other name is yielded as it is, without a look-up. So is a pattern that is the path of a file, or that
        matches no file: a call that reads the paths then reports the pattern as missing.

            repository.read_many(repository.expand(["photos/**/*.jpg", "notes.txt"]))

        Args:
            names: Paths, and patterns as in `glob`.

        Raises:
            InvalidInput: `names` is a single string, not a list.
        """
        from cafcat.reading.selecting import expanded

        return expanded(self._files, names_in_list(names))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them, with one query and one range read.

        A whole file is compared with its checksum, and so is a file that has to be decoded. A range of any other
        file cannot be checked. If the chunk's own object cannot be read or is damaged, its copies are looked up and
        read.

        Args:
            path: Path of the file in the catalog.
            start: First byte; a negative number counts from the end.
            end: One past the last byte, not negative; None, or a number beyond the end, for the end of the file.

        Raises:
            NotFound: The catalog has no such file.
            Corrupt: The bytes are damaged or missing, and no copy can give them.
            InvalidInput: The range begins at or beyond the end of the file (of an empty file: beyond it) or ends
                before it begins, or no path can have this text.
            StoreFailed, AccessDenied: The store does not give the bytes, and no copy can.
            Conflict: The object was replaced while it was read, and no copy can give the bytes.
            Unavailable: The whole store is out of reach, and no copy can give the bytes.
            NotInstalled, Unsupported: The file cannot be decoded here.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        return self._reader.read_path(path, start, end)

    def stream(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file, or a range of them, in blocks of at most 1 MiB.

        A file of at most 8 MiB is compared with its checksum before the first block is yielded, a larger one before
        the last. If a larger file proves to be damaged then, Corrupt is raised, and no copy is tried. A range
        cannot be compared, unless the file has to be decoded: then all of the file is compared.

        Args:
            path: Path of the file in the catalog.
            start: First byte; a negative number counts from the end.
            end: One past the last byte, not negative; None, or a number beyond the end, for the end of the file.

        Raises:
            NotFound, InvalidInput, CatalogUnavailable, CatalogOutdated: As `read` raises them, by the call itself.
            Corrupt, StoreFailed, AccessDenied, Conflict, Unavailable, NotInstalled, Unsupported: As `read` raises
                them, during the iteration.
        """
        return self._reader.stream(ReadRequest.of(path, self._reader.locate(path), start, end))

    def open(self, path: str) -> io.BufferedReader:
        """Open a file of the catalog for reading, as the built-in `open(path, "rb")` opens a file on disk.

        Any program that reads seekable binary files can use the result. A file of at most 1 MiB is compared with
        its checksum before its first byte is returned; so is a file that has to be decoded. A larger file is
        compared only if it is read from its first to its last byte in order. If the chunk's own object cannot be
        read, its copies are read.

        Args:
            path: Path of the file in the catalog.

        Returns:
            The open file. Its attribute `raw` is a `PackedFile` with the location. Close the file after use.

        Raises:
            NotFound, InvalidInput, CatalogUnavailable, CatalogOutdated: As `read` raises them, by the call itself.
            Corrupt, StoreFailed, AccessDenied, Conflict, Unavailable, NotInstalled, Unsupported: As `read` raises
                them, by the methods of the file.
        """
        from cafcat.reading.packed_file import open_packed

        return open_packed(self._reader, path)

    def __contains__(self, path: object) -> bool:
        """Return True if the catalog has a file with this path. A folder is not a file. This takes one query."""
        try:
            return isinstance(path, str) and bool(self._reader.locate(path))
        except (NotFound, InvalidInput):
            return False

    def get(
        self,
        path: str,
        output: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Location:
        """Write a file of the catalog, or a range of its bytes, to a file on disk.

        The output appears complete and durable, or not at all. A whole file is compared with its checksum, and the
        output gets its modification time. Only a device, pipe or socket is written to directly, and may get a part
        of the bytes before an error.

        Args:
            path: Path of the file in the catalog.
            output: Name of the file to write.
            start: First byte; a negative number counts from the end.
            end: One past the last byte, not negative; None, or a number beyond the end, for the end of the file.
            overwrite: True to replace an existing file.

        Returns:
            Where the file was found in the catalog.

        Raises:
            Conflict: The output exists and overwrite is false, or is a folder; or as `read` raises it.
            OutputFailed: The output cannot be written.
            InvalidInput: As `read` raises it, or the file system cannot have the name of the output.
            NotFound, Corrupt, StoreFailed, AccessDenied, Unavailable, NotInstalled, Unsupported: As `read` raises
                them.
            CatalogUnavailable, CatalogOutdated: As `read` raises them.
        """
        from cafcat.reading.outputs import write_single

        request = ReadRequest.of(path, self._reader.locate(path), start, end)
        target = output_of(self.session.settings, output, overwrite=overwrite)
        write = partial(write_single, target, request.modified_ns)
        self._reader.save(request, self._reader.stream(request), write, can_restart=not target.is_special)
        return request.location

    def read_many(
        self,
        paths: Iterable[str],
        start: int = 0,
        end: int | None = None,
        *,
        order: Literal["archive", "given"] = "archive",
    ) -> Iterator[tuple[str, bytes | CafcatError]]:
        """Yield the path and the bytes of many files, with one query per thousand files, and few range reads.

        Of each five thousand paths, those that cannot be found or have no such range come first, then the others in
        the order of archives and offsets. With `order` "given", all come in the order of the paths; near files
        still share range reads, and up to 64 MiB of files wait for their turn in memory.

        If a single file fails, its error is yielded in place of its bytes: NotFound, Corrupt, StoreFailed,
        NotInstalled, Unsupported, Conflict for an object that was replaced while it was read, or InvalidInput for a
        range that `read` refuses or a name that no path can have.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file, not negative; None, or a number beyond the end, for the end of
                the file.
            order: "archive" for the cheapest order, "given" for the order of the paths.

        Raises:
            InvalidInput: `paths` is a single string, not a list, or `order` is something else.
            AccessDenied, Unavailable: A store denies access or is out of reach.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        if order not in ("archive", "given"):
            raise InvalidInput(f"order must be archive or given, not {order!r}")
        batch = self._batch(start, end)
        return batch.read(names_in_list(paths)) if order == "archive" else batch.read_in_order(names_in_list(paths))

    def stream_archive(
        self, paths: Iterable[str], *, format: str = "tar", on_error: "OnError" = "fail"
    ) -> "ArchiveStream":
        """Return the bytes of a tar or zip with many files, in the order of the paths, as an iterator of blocks.

        Near files share range reads, as in `read_many` with `order` "given". The archive is not compressed.

        Args:
            paths: Paths of files in the catalog.
            format: "tar" or "zip".
            on_error: "fail": the iteration raises the error of the first file that is missing or damaged. "skip":
                such files are left out, and the last member, `.cafcat-errors.json`, names them.

        Returns:
            The stream. Its attribute `failed` has the files that were left out. Close it if you stop earlier.

        Raises:
            InvalidInput: `paths` is a single string, not a list, or `format` or `on_error` is something else.
            NotFound, Corrupt, StoreFailed, NotInstalled, Unsupported, Conflict: With "fail", by the iteration.
            AccessDenied, Unavailable, CatalogUnavailable, CatalogOutdated: By the iteration, as by `read_many`.
        """
        from cafcat.reading.archive_stream import ArchiveStream

        return ArchiveStream(
            self._reader, partial(self._batch(0, None).contents, names_in_list(paths)), format, on_error
        )

    def stream_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """Yield the path of each of many files, and an iterator over its bytes, in the order of the paths.

        Of each five thousand paths, those that cannot be found or have no such range come first, with their error
        (NotFound or InvalidInput) in place of the iterator. An iterator yields blocks of bytes, and raises Corrupt,
        StoreFailed, Conflict, NotInstalled and Unsupported. Use each iterator before you take the next path.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file, not negative; None, or a number beyond the end, for the end of
                the file.

        Raises:
            InvalidInput: `paths` is a single string, not a list.
            AccessDenied, Unavailable: A store denies access or is out of reach.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        return self._batch(start, end).stream(names_in_list(paths))

    def get_many(
        self,
        outputs: Mapping[str, str | os.PathLike[str]],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """Write many files of the catalog to disk, and yield each path with its location or its error.

        The files are written during the iteration. A path is yielded once its file is durable. If a single file
        fails, its error is yielded in place of its location: Conflict if the output exists or is a folder,
        InvalidInput if the file system cannot have its name, or an error that `read_many` yields.

        Args:
            outputs: Name of the file to write, by path in the catalog.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file, not negative; None, or a number beyond the end, for the end of
                the file.
            overwrite: True to replace existing files.

        Raises:
            OutputFailed: An output cannot be written: its folder is missing or not writable, or the disk is full or
                fails. Files that are durable by then stay.
            AccessDenied, Unavailable: A store denies access or is out of reach.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        targets = self.session.outputs(outputs, overwrite=overwrite)
        return self._batch(start, end).get(targets)

    def get_into(
        self,
        paths: Iterable[str],
        directory: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        parents: bool = False,
        overwrite: bool = False,
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """Write many files of the catalog into a directory, and yield each path with its location or its error.

        The files are written during the iteration, and never outside the directory. A path is yielded once its file
        is durable. If a single file fails, its error is yielded in place of its location, as by `get_many`. Any
        number of paths takes the same memory: they are sorted first, in a temporary file if they are many. A path
        that is given twice is written once.

        Args:
            paths: Paths of files in the catalog.
            directory: The directory to write to, which is created if it is missing.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file, not negative; None, or a number beyond the end, for the end of
                the file.
            parents: True to give each file its whole path below the directory; False to give it its base name.
            overwrite: True to replace existing files.

        Raises:
            InvalidInput: `paths` is a single string, a path is no text; or, without `parents`, two files have the
                same base name: then nothing was written.
            Conflict, OutputFailed: The directory cannot be created or written to. Files that are durable by then
                stay.
            AccessDenied, Unavailable: A store denies access or is out of reach.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        output = output_of(self.session.settings, directory, overwrite=overwrite)
        return self._batch(start, end).get_into(names_in_list(paths), output, parents=parents)

    def plan(
        self, paths: Iterable[str], start: int = 0, end: int | None = None, *, in_order: bool = False
    ) -> "ReadPlan":
        """Return the requests that `read_many` and `get_many` would send to the stores, without reading any file.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file, not negative; None, or a number beyond the end, for the end of
                the file.
            in_order: True for the requests of `stream_many`, which reads the files in the order of the paths.
        """
        return self._batch(start, end).plan(names_in_list(paths), in_order=in_order)

    def _batch(self, start: int, end: int | None) -> "Batch":
        from cafcat.reading.batch import Batch

        return Batch(self._reader, start, end)

    def extract(
        self,
        prefix: str | Iterable[str],
        directory: str | os.PathLike[str],
        *,
        paths: Iterable[str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strip: int = 0,
        overwrite: bool = False,
    ) -> "ExtractReport":
        """Write files of the catalog into a directory, as `PackedFiles.extract` does without an executor."""
        from cafcat.reading.extract import extract_tree

        output = output_of(self.session.settings, directory, overwrite=overwrite)
        files = self._chosen_files(prefix, paths=paths, include=include, exclude=exclude, strip=strip)
        return extract_tree(self._reader, files, output, strip=strip, progress=self.session.progress)

    def plan_extract(
        self,
        prefix: str | Iterable[str],
        *,
        paths: Iterable[str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> "ReadPlan":
        """Return the requests that `extract` would send to the stores, without reading any file.

        Args:
            prefix: Folders, files and patterns, as for `extract`.
            paths: Paths of single files in place of `prefix`, as for `extract`.
            include: Patterns as in .gitignore, as for `extract`.
            exclude: Patterns as in .gitignore, as for `extract`.

        Raises:
            NotFound: The catalog has no file for any prefix.
        """
        from cafcat.reading.extract import plan_tree

        return plan_tree(self._reader, self._chosen_files(prefix, paths=paths, include=include, exclude=exclude))

    def _chosen_files(
        self,
        prefix: str | Iterable[str],
        *,
        paths: Iterable[str] | None,
        include: Sequence[str],
        exclude: Sequence[str],
        strip: int = 0,
    ) -> "TreeFiles":
        from cafcat.reading.tree_files import chosen_files

        if strip < 0:
            raise InvalidInput(f"strip must be at least 0, not {strip}")
        return chosen_files(self._reader, self._files, prefix, paths=paths, include=include, exclude=exclude)


def _conditions(
    name: str | None,
    newer_ns: int | None = None,
    older_ns: int | None = None,
    min_size: int | None = None,
    max_size: int | None = None,
) -> FindFilter:
    """Return the conditions of `FilesByName.find`. Raises InvalidInput if one is invalid."""
    from cafcat.reading.globs import regex_of_glob

    if name is not None and "/" in name:
        hint = "`cafcat find FOLDER --name PATTERN` looks below a folder; `cafcat stat PATTERN` takes whole paths"
        raise InvalidInput(f"no base name matches {name!r}: the pattern has a slash", hint=hint)
    times: dict[str, object] = {"newer_ns": newer_ns, "older_ns": older_ns}
    sizes: dict[str, object] = {"min_size": min_size, "max_size": max_size}
    for unit, values in (("nanoseconds since 1970", times), ("bytes", sizes)):
        for option, value in values.items():
            if not isinstance(value, int | float | None):
                raise InvalidInput(f"{option} must be a number of {unit}, not {value!r}")
    pattern = None if name is None else regex_of_glob(name)
    return FindFilter(pattern, newer_ns, older_ns, min_size, max_size)
