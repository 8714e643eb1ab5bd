"""Write files of the catalog to files of the user."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output, write_single
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.syncing import sync_ancestors

__all__ = ["SavedFiles", "save_single"]


def save_single(reader: FileReader, request: ReadRequest, blocks: Iterator[bytes], output: Output) -> None:
    """Write one file, as `write_single` does; with its modification time, if it is the whole file.

    Args:
        reader: Gives the file again, from a copy, if its chunk proves to be damaged at the end of the file.
        request: What is read.
        blocks: The blocks of the request.
        output: Where to write them. Nothing can be written a second time to a device or pipe.

    Raises:
        CafcatError: As FileReader.read and `write_single` do.
    """

    def write(blocks: Iterator[bytes]) -> None:
        write_single(output, blocks, _time_of(request))

    if output.is_special:
        write(blocks)
    else:
        reader.save(request, blocks, write)


class SavedFiles:
    """Writes many files. A context manager: files that were not committed when it is left are dropped."""

    def __init__(self, reader: FileReader, *, overwrite: bool, mode: int) -> None:
        """Write nothing yet.

        Args:
            reader: Gives files again that prove to be damaged.
            overwrite: Whether to replace existing files.
            mode: Permissions of new files, less the umask.
        """
        self._reader = reader
        self._files: DurableFiles[ReadRequest] = DurableFiles("the output", overwrite=overwrite, mode=mode)
        self._folders: dict[str, OpenFolder] = {}

    def save(self, request: ReadRequest, blocks: Iterator[bytes], output: Output) -> None:
        """Write the content of one file, which takes its name in `committed`. Not for devices and pipes. Raises
        CafcatError."""
        parent = str(output.path.parent)
        if parent not in self._folders:
            with disk_errors(output.shown):
                self._folders[parent] = OpenFolder.at(parent)
        folder = self._folders[parent]

        def write(blocks: Iterator[bytes]) -> None:
            modified_ns = _time_of(request)
            self._files.write(folder, output.path.name, blocks, modified_ns, shown=output.shown, of=request)

        self._reader.save(request, blocks, write)

    def committed(self) -> Iterator[tuple[ReadRequest, CafcatError | None]]:
        """Make all files durable under their names; then yield each, with an error if it could not take its name.
        Raises OutputFailed."""
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


def _time_of(request: ReadRequest) -> int | None:
    return request.location.modified_ns if request.is_whole else None
