"""Writes many new files that become durable together.

The files of a batch are written without their final names, then synced together, then they take their names. While
one batch is synced, the next is being written. So a file that has its name has its whole content, even after a
power cut. After `commit`, content and name are both on the disk.
"""

import os
import resource
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from cafcat.errors import CafcatError, OutputFailed
from cafcat.reading.output_errors import disk_error
from cafcat.support.new_file import NewFile, new_file, write_all
from cafcat.support.syncing import FOLDER_FLAGS, can_sync_file_system, sync_file, sync_file_system, sync_folder

if TYPE_CHECKING:
    from cafcat.native.extract import FileWriter, NewFiles, SmallFiles

__all__ = ["DurableFiles", "OpenFolder"]

Of = TypeVar("Of")

_BATCH_BYTES: Final = 256 << 20
"""Most content of a batch, in bytes. A batch ends with the file that reaches this size."""
_MOST_DESCRIPTORS: Final = 2048
"""Most open files and folders of a batch. Two batches are open at a time: one is written, one is synced."""
_OTHER_DESCRIPTORS: Final = 256
"""Descriptors that the batches leave to the rest of the process, if its limit is too low for two full batches."""
_FEW_FILES: Final = 16
"""Up to this number of files in all, each file is synced on its own, because a sync of the whole file system also
waits for the writes of other processes."""


class OpenFolder:
    """An open folder, which is closed when no object refers to it any more.

    A file that waits for its name refers to its folder.

    Attributes:
        descriptor: File descriptor of the folder.
        device: Number of the device that has the folder, as in `os.stat`.
    """

    __slots__ = ("descriptor", "device")

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of a folder that the caller has opened.

        It is closed when the last reference to this object is gone. Raises OSError if it is no open descriptor.
        """
        self.descriptor = descriptor
        self.device = os.fstat(descriptor).st_dev

    @classmethod
    def at(cls, path: str | os.PathLike[str], *, below: "OpenFolder | None" = None) -> Self:
        """Open a folder by its path, or by its name in another folder.

        Args:
            path: Path of the folder; with `below`, its name there.
            below: The folder that contains it. Then a symbolic link is not followed, but is an error. None: `path`
                is a path, and links are followed.

        Raises:
            OSError: The folder cannot be opened.
        """
        if below is None:
            return cls(os.open(path, FOLDER_FLAGS))
        return cls(os.open(path, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=below.descriptor))

    def __del__(self) -> None:
        """Close the folder, when the last reference to this object is gone."""
        with suppress(AttributeError, OSError):
            os.close(self.descriptor)


_Waiting = tuple[NewFile, OpenFolder, str, str, Of]
"""A written file that waits for its name: the file, its folder, its name, its path for messages, and its `of`."""


_Together = tuple["NewFiles", OpenFolder, str, Sequence[Of]]
"""Files that the native part wrote: the files, their folder, its path for messages, and the `of` of each file."""


class _Batch(Generic[Of]):
    """Files that are synced together, and the folders in which files or folders were created.

    Attributes:
        files: The files that wait for their names.
        together: Further such files, which the native part wrote.
        folders: Open folders in which a name was made or will be.
        count: Number of all these files.
        bytes: Size of the content of the files, in bytes.
    """

    def __init__(self) -> None:
        self.files: deque[_Waiting[Of]] = deque()
        self.together: deque[_Together[Of]] = deque()
        self.folders: set[OpenFolder] = set()
        self.count = 0
        self.bytes = 0

    def is_full(self, most_descriptors: int) -> bool:
        """Return whether the batch has 256 MiB of content, or too many open descriptors.

        Args:
            most_descriptors: Number of open files and folders at which the batch is full.
        """
        return self.bytes >= _BATCH_BYTES or self.room(most_descriptors) <= 0

    def room(self, most_descriptors: int) -> int:
        """Return how many files the batch can take before it has too many open descriptors."""
        return most_descriptors - self.count - len(self.folders)

    def sync(self, file_systems: dict[int, OpenFolder]) -> None:
        """Make the content of the files durable. Raises OSError.

        Args:
            file_systems: File systems that are synced as a whole, by device, each with an open folder in it. Files
                on other devices are synced one by one.
        """
        devices = {folder.device for folder in self.folders}
        for device in devices & file_systems.keys():
            sync_file_system(file_systems[device].descriptor)
        if not devices <= file_systems.keys():
            for descriptor, folder in self._open_files():
                if folder.device not in file_systems:
                    sync_file(descriptor)

    def _open_files(self) -> Iterator[tuple[int, OpenFolder]]:
        for file, folder, *_ in self.files:
            yield file.descriptor, folder
        for files, folder, *_ in self.together:
            yield from ((descriptor, folder) for descriptor in files.descriptors())

    def sync_folders(self, file_systems: dict[int, OpenFolder]) -> None:
        """Make the names in the folders durable, except in folders on `file_systems`. Raises OSError.

        Args:
            file_systems: File systems, by device, that `DurableFiles.commit` syncs as a whole later.
        """
        for folder in self.folders:
            if folder.device not in file_systems:
                sync_folder(folder.descriptor)

    def discard(self) -> None:
        """Close and drop all files that have no name yet."""
        while self.together:
            self.together.pop()[0].discard()
        while self.files:
            self.files.pop()[0].discard()


class _Sync(Thread, Generic[Of]):
    """A thread that syncs the content of one batch, and then gives the files of the native part their names.

    Attributes:
        batch: The files that are synced.
        error: The error of the sync; None if there is none. Valid once the thread has ended.
    """

    def __init__(self, batch: _Batch[Of], file_systems: dict[int, OpenFolder]) -> None:
        super().__init__(name="cafcat-sync")
        self.batch = batch
        self._file_systems = file_systems
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync and name the files. Called in the thread."""
        try:
            self.batch.sync(self._file_systems)
        except OSError as error:
            self.error = error
            return
        for files, *_ in self.batch.together:
            files.give_names()


class DurableFiles(Generic[Of]):
    """Writes files into open folders, and makes them durable in batches.

    Use it in a `with` statement: files that have no name yet when it is left are dropped. A file whose name is
    taken or impossible is dropped, and the others are written. If a sync fails, or a naming for another reason,
    OutputFailed is raised, and no further file takes a name.

    At most about 512 MiB of content (more if single files are large) and 4,096 open files and folders wait for a
    sync. The process's soft limit of open descriptors is raised for that, as far as its hard limit allows, and
    stays raised.
    """

    def __init__(self, shown: str, *, overwrite: bool, mode: int = 0o666) -> None:
        """Create an object without files.

        Args:
            shown: Name of the output as a whole, for messages that concern no single file.
            overwrite: True to replace existing files.
            mode: Permissions of new files; the system removes those in the umask.
        """
        self._shown = shown
        self._overwrite = overwrite
        self._mode = mode
        self._batch: _Batch[Of] = _Batch()
        self._syncing: _Sync[Of] | None = None
        self._finished: list[tuple[Of, CafcatError | None]] = []
        self._file_systems: dict[int, OpenFolder] = {}
        """File systems that can be synced as a whole, by device, each with an open folder in it.

        The folder was opened before any file was written there, because a sync through it reports the write errors
        since it was opened.
        """
        self._devices: set[int] = set()
        self._is_large = False
        """True if whole file systems are synced, not single files."""
        self._failure: CafcatError | None = None

    def write(
        self, folder: OpenFolder, name: str, blocks: Iterable[bytes], modified_ns: int | None, *, shown: str, of: Of
    ) -> None:
        """Write the content of a file, which gets its name later.

        Args:
            folder: The folder of the file.
            name: Name of the file in the folder.
            blocks: Content of the file. Errors of the iteration are raised; then nothing is left of the file.
            modified_ns: Modification time of the file, in nanoseconds since 1970; None for the current time.
            shown: Path of the file, for messages.
            of: What `finished` returns for the file.

        Raises:
            OutputFailed: This file cannot be written, or an earlier one could not be made durable.
        """
        if self._failure is not None:
            raise self._failure
        try:
            file = new_file(folder.descriptor, self._mode)
            try:
                size_bytes = 0
                for block in blocks:
                    size_bytes += write_all(file.descriptor, block)
                if modified_ns is not None:
                    os.utime(file.descriptor, ns=(modified_ns, modified_ns))
            except BaseException:
                file.discard()
                raise
        except OSError as error:
            raise disk_error(error, shown) from error
        if file.temporary is not None:
            self._writer = None  # the file system has no files without names
        self._batch.files.append((file, folder, name, shown, of))
        self._count_written(folder, 1, size_bytes)

    @property
    def writes_together(self) -> bool:
        """True if there is the native part, and the file systems so far have files without names."""
        return self._writer is not None

    def write_together(self, folder: OpenFolder, files: "SmallFiles", ofs: Sequence[Of], *, shown: str) -> int:
        """Write the content of small files with the native part. They get their names later.

        Args:
            folder: The folder of the files.
            files: The files.
            ofs: What `finished` returns for each file.
            shown: Path of the folder with a slash at its end, for messages.

        Returns:
            The number of files that were written, which are the first ones. `write` raises the error of the next
            one, or writes it.

        Raises:
            OutputFailed: An earlier file could not be made durable.
        """
        if self._failure is not None:
            raise self._failure
        count = 0
        while self._writer is not None and count < len(ofs):
            end = count + max(1, self._batch.room(self._most_descriptors))
            part = files.part(count, end)
            written = self._writer.write(folder.descriptor, part, self._mode)
            self._batch.together.append((written, folder, shown, ofs[count:end]))
            self._count_written(folder, len(written), part.size_bytes(len(written)))
            count += len(written)
            if len(written) < len(part.names):
                break
        return count

    def _count_written(self, folder: OpenFolder, count: int, size_bytes: int) -> None:
        """Count new files of the batch, and begin its sync if it is full."""
        batch = self._batch
        batch.count += count
        batch.bytes += size_bytes
        if folder not in batch.folders:
            self.has_name_in(folder)
        elif batch.is_full(self._most_descriptors):
            self._begin_sync()

    def has_name_in(self, folder: OpenFolder) -> None:
        """Note that a name is made in a folder, so that the folder is synced, at the latest in `commit`.

        Raises:
            OutputFailed: An earlier batch could not be made durable.
        """
        self._batch.folders.add(folder)
        if folder.device not in self._devices:
            self._devices.add(folder.device)
            if can_sync_file_system(folder.descriptor):
                self._file_systems[folder.device] = folder
        if self._batch.is_full(self._most_descriptors):
            self._begin_sync()

    @cached_property
    def _writer(self) -> "FileWriter | None":
        """The native part. A command that writes a few files does not load it."""
        from cafcat.native.extract import file_writer

        return file_writer()

    @cached_property
    def _most_descriptors(self) -> int:
        return _descriptors_of_a_batch()

    @property
    def has_finished(self) -> bool:
        """True if `finished` would return at least one file."""
        return bool(self._finished)

    def finished(self) -> list[tuple[Of, CafcatError | None]]:
        """Return the files that got their names, or could not get them, since the last call of this method.

        The names may not be durable before `commit`.

        Returns:
            The `of` of each file with None, or with the error because of which the file was dropped: Conflict if
            something has that name, InvalidInput if the file system cannot have the name.
        """
        finished, self._finished = self._finished, []
        return finished

    def commit(self) -> None:
        """Give all files their names, and make contents and names durable. `finished` then returns the files.

        Raises:
            OutputFailed: A sync or a naming failed, now or in an earlier call. All files without names are dropped.
        """
        if self._failure is not None:
            raise self._failure
        self._end_sync()
        batch, self._batch = self._batch, _Batch()
        self._is_large = self._is_large or batch.count > _FEW_FILES
        file_systems = self._synced_at_once()
        try:
            self._sync(batch, file_systems)
            for folder in file_systems.values():
                sync_file_system(folder.descriptor)
        except OSError as error:
            raise self._failed(error, batch) from error
        except BaseException:
            batch.discard()
            raise

    def _sync(self, batch: _Batch[Of], file_systems: dict[int, OpenFolder]) -> None:
        if batch.count:
            batch.sync(file_systems)
        self._name(batch)
        batch.sync_folders(file_systems)

    def _begin_sync(self) -> None:
        self._is_large = True
        self._end_sync()
        self._syncing = _Sync(self._batch, self._synced_at_once())
        self._batch = _Batch()
        self._syncing.start()

    def _end_sync(self) -> None:
        """Wait for the sync of the previous batch, and give its files their names. Raises OutputFailed."""
        syncing = self._syncing
        if syncing is None:
            return
        syncing.join()
        if syncing.error is not None:
            raise self._failed(syncing.error, syncing.batch) from syncing.error
        self._name(syncing.batch)
        try:
            syncing.batch.sync_folders(self._synced_at_once())
        except OSError as error:
            raise self._failed(error, syncing.batch) from error
        self._syncing = None

    def _synced_at_once(self) -> dict[int, OpenFolder]:
        return dict(self._file_systems) if self._is_large else {}

    def _name(self, batch: _Batch[Of]) -> None:
        self._name_together(batch)
        files, overwrite = batch.files, self._overwrite
        while files:
            # The file stays in the batch until it has its name: an interrupt may come at any moment.
            file, _, name, shown, of = files[0]
            problem = None
            try:
                file.take_name(name, overwrite=overwrite)
            except OSError as error:
                problem = disk_error(error, shown)
                if isinstance(problem, OutputFailed):
                    raise self._failed(error, batch, shown) from error
            self._finished.append((of, problem))
            files.popleft()

    def _name_together(self, batch: _Batch[Of]) -> None:
        """Name the files of the native part. A file whose name is taken becomes one of `batch.files`."""
        while batch.together:
            files, folder, shown, ofs = batch.together[0]
            counted = 0
            files.give_names()
            while files.named < len(files):
                self._finished += ((of, None) for of in ofs[counted : files.named])
                of = ofs[files.named]
                descriptor, name = files.pop_next()
                file = NewFile(folder.descriptor, descriptor, temporary=None, mode=None)
                batch.files.append((file, folder, name, f"{shown}{name}", of))
                counted = files.named
                files.give_names()
            self._finished += ((of, None) for of in ofs[counted : len(files)])
            batch.together.popleft()

    def _failed(self, error: OSError, batch: _Batch[Of], shown: str | None = None) -> CafcatError:
        """Drop all files without names, and return the error, which later calls of `write` and `commit` raise.

        The content of these files may be lost, and no further sync would report that.

        Args:
            error: The failure of a sync or of a naming.
            batch: The batch that failed.
            shown: Path of the file that failed; None if the error concerns all files.
        """
        self._failure = OutputFailed(
            f"the output cannot be written: {error.strerror or error}", path=shown or self._shown
        )
        batch.discard()
        self._batch.discard()
        return self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._syncing is not None:
            self._syncing.join()
            self._syncing.batch.discard()
        self._batch.discard()


def _descriptors_of_a_batch() -> int:
    """Return how many files and folders a batch may hold open, at least 1.

    If the process's soft limit of open descriptors is too low, it is increased as far as the hard limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * _MOST_DESCRIPTORS + _OTHER_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return _MOST_DESCRIPTORS
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return max(1, (soft - _OTHER_DESCRIPTORS) // 2)
