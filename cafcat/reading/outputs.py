"""Writes output files of users: each appears with all of its content, durable, or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cafcat.errors import Conflict, InvalidInput
from cafcat.reading.output_errors import FOLDER_EXISTS, disk_error
from cafcat.support.new_file import NewFile, new_file, new_named_file, write_all
from cafcat.support.syncing import FOLDER_FLAGS, sync_ancestors, sync_file, sync_folder

__all__ = ["Output", "new_output", "new_output_path", "write_single"]


@dataclass(frozen=True, slots=True)
class Output:
    """Where and how to write a file, or the files of a folder.

    Attributes:
        path: Path of the file or folder, as the user gave it.
        overwrite: True to replace existing files.
        mode: Permissions of new files; the system removes those in the umask.
    """

    path: Path
    overwrite: bool = False
    mode: int = 0o666

    @property
    def folder_mode(self) -> int:
        """Permissions of new folders, before the umask: users who may read a file may also enter its folder."""
        return self.mode | (self.mode & 0o444) >> 2

    @property
    def shown(self) -> str:
        """The path of the output as text, for messages."""
        return str(self.path)

    @property
    def is_special(self) -> bool:
        """True if the output is a device, a pipe or a socket: then it is written to, and never replaced."""
        path = self.path
        return path.is_char_device() or path.is_fifo() or path.is_socket()

    def check_free(self) -> None:
        """Check that the output's name is free, or belongs to a file that may be overwritten.

        Raises:
            Conflict: There is a folder of that name, or a file and `overwrite` is false. A device, pipe or socket
                is no conflict.
            InvalidInput, OutputFailed: The path cannot be examined.
        """
        try:
            if self.path.is_dir():
                raise Conflict(FOLDER_EXISTS, path=self.shown)
            if not self.overwrite and os.path.lexists(self.path) and not self.is_special:
                raise FileExistsError
        except OSError as error:
            raise disk_error(error, self.shown) from error

    def check_file(self) -> None:
        """Check that the output can become a regular file.

        Raises:
            Conflict: There is a folder of that name, or a file and `overwrite` is false.
            InvalidInput: The output is a device, a pipe or a socket, or the file system cannot have such a name.
            OutputFailed: The path cannot be examined.
        """
        self.check_free()
        if self.is_special:
            raise InvalidInput("the output must be a regular file, not a device or pipe", path=self.shown)


def write_single(output: Output, modified_ns: int | None, blocks: Iterable[bytes]) -> None:
    """Write one output file, which is durable when this returns.

    After an error nothing is left of a new file, unless only the sync of its name failed. A device, a pipe or a
    socket is written to directly: bytes that were written before an error stay, and the modification time is not
    set.

    Args:
        output: Where to write the file.
        modified_ns: Modification time of the file, in nanoseconds since 1970; None for the current time.
        blocks: Content of the file. Errors of the iteration are raised.

    Raises:
        Conflict: A file that must not be overwritten, or a folder, has the name. No block was read, unless the file
            appeared meanwhile.
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
    """Yield the descriptor of a new file, which the caller fills in the `with` block.

    When the block ends, the file is made durable and gets its name. After an error nothing is left of the file,
    unless only the sync of its name failed.

    Raises:
        Conflict: A file that must not be overwritten, or a folder, has the name.
        InvalidInput: The output is a device, pipe or socket, or the file system cannot have such a name.
        OutputFailed: The file cannot be created or made durable. Errors of the caller's writes pass unchanged.
    """
    output.check_file()
    with _new_file(output) as file:
        yield file.descriptor


@contextmanager
def new_output_path(output: Output) -> Iterator[str]:
    """Yield the absolute path of a new, empty file beside the output, for libraries that need a path.

    The library must write to this file, and must not replace it by another. When the `with` block ends, the file is
    made durable and gets the output's name. After an error nothing is left of the file, unless only the sync of its
    name failed. Raises what `new_output` raises: Conflict, InvalidInput, OutputFailed.
    """
    output.check_file()
    with _new_file(output, is_named=True) as file:
        yield f"{os.path.abspath(output.path.parent)}/{file.temporary}"


@contextmanager
def _new_file(output: Output, *, is_named: bool = False) -> Iterator[NewFile]:
    """Yield a new file; when the `with` block ends, make it durable and give it its name.

    After an error nothing is left of the file, unless only the sync of its name failed.

    Args:
        output: Where the file will be.
        is_named: True if the new file needs a temporary name, because a library opens it by its path.
    """
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
    """Open the output's folder, and create a new file there. Raises Conflict, InvalidInput, OutputFailed.

    Returns:
        The descriptor of the folder, and the file, which does not have its final name yet.
    """
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
    """Make a file durable under the output's name. Raises Conflict, InvalidInput, OutputFailed."""
    try:
        sync_file(file.descriptor)
        file.take_name(output.path.name, overwrite=output.overwrite)
        sync_folder(folder)
        sync_ancestors(str(output.path.parent))
    except OSError as error:
        raise disk_error(error, output.shown) from error
