"""Files of the catalog to files of the user, wherever their bytes are."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output, write_single
from cafcat.reading.reader import Reading
from cafcat.reading.request import ReadRequest
from cafcat.support.syncing import sync_ancestors

__all__ = ["SavedFiles", "save_single"]


def save_single(reading: Reading, wanted: ReadRequest, blocks: Iterator[bytes], output: Output) -> None:
    """Write a file to disk, as `write_single` does, with its time if it is the whole file; from a copy where its
    own chunk is damaged, also if that is seen only at the end."""

    def write(blocks: Iterator[bytes]) -> None:
        write_single(output, blocks, _time_of(wanted))

    if output.is_special:
        write(blocks)  # what has gone into a pipe is gone
    else:
        reading.save(wanted, blocks, write)


class SavedFiles:
    """Many files to disk. A context manager: files that were not committed when it is left are dropped."""

    def __init__(self, reading: Reading, *, overwrite: bool, mode: int) -> None:
        """Args: overwrite: whether to replace existing files; mode: of new files, less the umask."""
        self._reading = reading
        self._files: DurableFiles[ReadRequest] = DurableFiles("the output", overwrite=overwrite, mode=mode)
        self._folders: dict[str, OpenFolder] = {}

    def save(self, wanted: ReadRequest, blocks: Iterator[bytes], output: Output) -> None:
        """Write the content of a file, as `save_single` does; the file takes its name later, unless the output is a
        device or pipe. Raises CafcatError."""
        parent = str(output.path.parent)
        if parent not in self._folders:
            with disk_errors(output.shown):
                self._folders[parent] = OpenFolder.at(parent)
        folder = self._folders[parent]

        def write(blocks: Iterator[bytes]) -> None:
            self._files.write(folder, output.path.name, blocks, _time_of(wanted), shown=output.shown, of=wanted)

        self._reading.save(wanted, blocks, write)

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


def _time_of(wanted: ReadRequest) -> int | None:
    return wanted.location.modified_ns if wanted.is_whole else None
