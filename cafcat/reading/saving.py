"""Writes many files of the catalog to output files."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.syncing import sync_ancestors

__all__ = ["SavedFiles"]


class SavedFiles:
    """Writes many files of the catalog to output files, which become durable together.

    Use it in a `with` statement: files that have no name yet when it is left are dropped.
    """

    def __init__(self, reader: FileReader, *, overwrite: bool, mode: int) -> None:
        """Create an object without files.

        Args:
            reader: Reads a file from a copy if it proves to be damaged.
            overwrite: True to replace existing files.
            mode: Permissions of new files; the system removes those in the umask.
        """
        self._reader = reader
        self._files: DurableFiles[ReadRequest] = DurableFiles("the output", overwrite=overwrite, mode=mode)
        self._folders: dict[str, OpenFolder] = {}

    def save(self, request: ReadRequest, blocks: Iterator[bytes], output: Output) -> None:
        """Write the content of one file, which gets its name later, at the latest in `committed`.

        Args:
            request: The requested file and range.
            blocks: The requested bytes, as `FileReader.files` returns them.
            output: Where to write the file; no device, pipe or socket.

        Raises:
            CafcatError: Reading failed, as in `FileReader.stream`, or writing: Conflict, InvalidInput,
                OutputFailed.
        """
        parent = str(output.path.parent)
        if parent not in self._folders:
            with disk_errors(output.shown):
                self._folders[parent] = OpenFolder.at(parent)
        folder = self._folders[parent]

        def write(blocks: Iterator[bytes]) -> None:
            name, shown = output.path.name, output.shown
            self._files.write(folder, name, blocks, request.modified_ns, shown=shown, of=request)

        self._reader.save(request, blocks, write)

    def committed(self) -> Iterator[tuple[ReadRequest, CafcatError | None]]:
        """Make all files durable under their names, then yield the request of each file.

        With the request comes None, or the error because of which the file could not get its name: Conflict or
        InvalidInput. This is a generator: the files are made durable when the first item is taken.

        Raises:
            OutputFailed: The disk is full or fails.
        """
        self._files.commit()
        for folder in self._folders:
            with disk_errors(folder):
                sync_ancestors(folder)
        self._folders.clear()
        yield from self._files.finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
