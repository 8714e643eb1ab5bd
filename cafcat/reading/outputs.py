"""Files for users: each appears with all of its content, durable, or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cafcat.errors import Conflict, InvalidInput
from cafcat.reading.output_errors import disk_error
from cafcat.support.new_file import NewFile, new_file, new_named_file, write_all
from cafcat.support.syncing import FOLDER_FLAGS, sync_ancestors, sync_file, sync_folder

__all__ = ["Output", "new_output", "new_output_path", "write_single"]


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write a file, or the files of a folder.

    path: as the user gave it. overwrite: whether to replace existing files. mode: permissions of new files, less
    the umask.
    """

    path: Path
    overwrite: bool = False
    mode: int = 0o666

    @property
    def folder_mode(self) -> int:
        """Permissions of new folders, less the umask: who may read a file may enter its folder."""
        return self.mode | (self.mode & 0o444) >> 2

    @property
    def shown(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @property
    def is_special(self) -> bool:
        """True for a device, a pipe or a socket: it is written to, not replaced."""
        path = self.path
        return path.is_char_device() or path.is_fifo() or path.is_socket()

    def check_free(self) -> None:
        """Check that the output can be written. Raises Conflict if there is a folder of that name, or an existing
        file that is not to be overwritten."""
        try:
            if self.path.is_dir():
                raise Conflict("there is a folder of that name", path=self.shown)
            if not self.overwrite and os.path.lexists(self.path) and not self.is_special:
                raise FileExistsError
        except OSError as error:
            raise disk_error(error, self.shown) from error

    def check_file(self) -> None:
        """Raise Conflict like `check_free`, and InvalidInput for a device, a pipe or a socket."""
        self.check_free()
        if self.is_special:
            raise InvalidInput("this needs a file, not a device or pipe", path=self.shown)


def write_single(output: Output, modified_ns: int | None, blocks: Iterable[bytes]) -> None:
    """Write one file of the user; it is durable when this returns. A device, a pipe or a socket is written to.

    After an error nothing is left of the file.

    Args:
        output: Where to write it.
        modified_ns: Its modification time, in nanoseconds since 1970; None for now.
        blocks: Its content. Their errors are raised.

    Raises:
        Conflict: There is a file or folder already. No block was read.
        InvalidInput: The file system cannot have such a name.
        OutputFailed: The disk is full or fails.
    """
    output.check_free()
    try:
        if output.is_special:
            with output.path.open("wb", buffering=0) as file:
                for block in blocks:
                    write_all(file.fileno(), block)
            return
        with _new_file(output) as new:
            for block in blocks:
                write_all(new.descriptor, block)
            if modified_ns is not None:
                os.utime(new.descriptor, ns=(modified_ns, modified_ns))
    except OSError as error:
        raise disk_error(error, output.shown) from error


@contextmanager
def new_output(output: Output) -> Iterator[int]:
    """Yield the descriptor of a new file, for the caller to fill. When the context is left, the file is durable and
    has its name; after an error nothing is left of it.

    Raises:
        Conflict: As `write_single` does.
        InvalidInput: The output is a device or pipe.
        OutputFailed: The disk is full or fails.
    """
    output.check_file()
    with _new_file(output) as file:
        yield file.descriptor


@contextmanager
def new_output_path(output: Output) -> Iterator[str]:
    """Yield the absolute path of a new, empty file beside the output, for libraries that need a path; else as
    `new_output`. The library has to write to this file, and must not replace it."""
    output.check_file()
    with _new_file(output, is_named=True) as file:
        yield f"{os.path.abspath(output.path.parent)}/{file.temporary}"


@contextmanager
def _new_file(output: Output, *, is_named: bool = False) -> Iterator[NewFile]:
    """Yield a new file, and give it its name when the context is left; after an error nothing is left of it."""
    folder, file = _begin(output, is_named=is_named)
    try:
        yield file
        _publish(output, folder, file)
    except BaseException:
        file.discard()
        raise
    finally:
        os.close(folder)


def _begin(output: Output, *, is_named: bool) -> tuple[int, NewFile]:
    """Return the descriptor of the output's folder, and a new file in it."""
    try:
        folder = os.open(output.path.parent, FOLDER_FLAGS)
        try:
            return folder, (new_named_file if is_named else new_file)(folder, output.mode)
        except BaseException:
            os.close(folder)
            raise
    except OSError as error:
        raise disk_error(error, output.shown) from error


def _publish(output: Output, folder: int, file: NewFile) -> None:
    """Make a file durable, give it its name, and make the name durable."""
    try:
        sync_file(file.descriptor)
        file.take_name(output.path.name, overwrite=output.overwrite)
        sync_folder(folder)
        sync_ancestors(str(output.path.parent))
    except OSError as error:
        raise disk_error(error, output.shown) from error
