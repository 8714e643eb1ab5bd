"""Writes and reads bundles on disk: a folder of shard files, and an index for all of them.

`write_bundle` writes a bundle; `Bundle` reads and verifies a bundle. Neither uses a catalog or a store. `Bundle`
opens the index in place, without a copy. It reads files with the classes that also read adopted shards
(`RecordSpans`, `ShardHead`, `FileReader`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from cafcat.errors import (
    CafcatError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    SourceFailed,
    StoreFailed,
    Unsupported,
)
from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.bundles.compression import method_by_name
from cafcat.formats.databundle.bundles.index import BundleIndex
from cafcat.formats.databundle.bundles.record_spans import RecordSpans
from cafcat.formats.databundle.bundles.rows import BundleFile, BundleRows, UserData
from cafcat.formats.databundle.bundles.shard import read_head
from cafcat.formats.databundle.bundles.shard_file import ShardFile
from cafcat.formats.databundle.bundles.shard_writer import ShardWriter, StoredFile
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import config_key, encode_config, file_key, shard_name
from cafcat.formats.databundle.messages import DIRECTORY, REGULAR, messages
from cafcat.formats.index_text import longest_text_bytes
from cafcat.model import FileProblem, ProblemKind
from cafcat.support.in_order import in_order
from cafcat.support.syncing import sync_ancestors, sync_file, sync_folder

__all__ = ["Bundle", "BundleCheck", "BundleFile", "BundleSummary", "NewBundleFile", "UserData", "write_bundle"]

_BLOCK_BYTES: Final = 1 << 20
_MAX_SHARDS: Final = 100_000_000
"""A bundle must have fewer shards than this: the names of shard files have eight digits."""


class NewBundleFile(NamedTuple):
    """A file or directory that `write_bundle` writes.

    Attributes:
        path: name of the file or directory in the bundle.
        content: bytes of the file, or the path of a file to read, or None for a directory.
        user_data: data of the application to store with the file, or None.
    """

    path: str
    content: bytes | Path | None
    user_data: UserData | None = None


class BundleSummary(NamedTuple):
    """The result of `write_bundle`: numbers of files and bytes in the new bundle.

    Attributes:
        files: number of files.
        directories: number of directories.
        data_bytes: total size of the files in bytes.
        stored_bytes: total size of the shard files in bytes.
    """

    files: int
    directories: int
    data_bytes: int
    stored_bytes: int


class BundleCheck(NamedTuple):
    """The result of `Bundle.verify`.

    Attributes:
        files: number of files and directories in the bundle, damaged ones included.
        data_bytes: total size in bytes of the files that were read without an error.
        problems: a problem for each file that is damaged or unsupported, and one for each shard file at which
            reading stopped, such as a missing one.
    """

    files: int
    data_bytes: int
    problems: Sequence[FileProblem]


def write_bundle(
    folder: Path,
    files: Iterable[NewBundleFile],
    *,
    shards: int = 1,
    workers: int = 1,
    compression: str = "zlib",
) -> BundleSummary:
    """Write a new bundle into a folder that is empty or does not exist.

    File n goes to shard n modulo shards, so the same files produce the same shards. The bundle is durable when this
    function returns. The row BUNDLE_CONFIG is written last: without it, an incomplete folder is not a bundle. After
    an error, the files of the incomplete bundle stay in the folder.

    Memory: the list of files, and for each thread some 4 MiB, or a copy of a file that is given as bytes.

    Args:
        folder: the folder.
        files: the files and directories.
        shards: number of shard files.
        workers: number of threads; each writes one shard file at a time.
        compression: "none", "snappy" or "zlib".

    Raises:
        Conflict: the folder is not empty.
        Refused: a name cannot be stored.
        InvalidInput: a name is repeated, the compression is unknown, or `shards` or `workers` is out of range.
        SourceFailed: a file cannot be read.
        StoreFailed: the bundle cannot be written.
        NotInstalled: protobuf, the library for the index (plyvel), or the one for snappy is not installed.
    """
    method = method_by_name(compression)
    if not 1 <= shards < _MAX_SHARDS or workers < 1:
        message = f"a bundle must have 1 to {_MAX_SHARDS - 1:,} shards (not {shards}) and at least 1 worker"
        raise InvalidInput(message)
    file_list = _check_names(files)
    with _translate_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Conflict(f"the folder for a bundle must be empty: {folder}")
        index = BundleIndex(folder / "index", create=True)
        try:
            jobs = [
                _ShardJob(folder, index, method, shard, shards, file_list[shard::shards]) for shard in range(shards)
            ]
            summaries = list(in_order(_write_shard, jobs, most_in_flight=workers))
            sync_folder(str(folder))  # the last row guarantees that all shard files exist
            index.put_durably(config_key(), encode_config(method, shards))
        finally:
            index.close()
        _sync(folder)
    return BundleSummary(*(sum(column) for column in zip(*summaries, strict=True)))


def _sync(folder: Path) -> None:
    """Make all files of the bundle durable, and the names of all folders above the bundle."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(str(path))
        else:
            with path.open("rb") as file:
                sync_file(file.fileno())
    sync_folder(str(folder))
    sync_ancestors(str(folder))


def _check_names(files: Iterable[NewBundleFile]) -> list[NewBundleFile]:
    file_list = list(files)
    seen: set[str] = set()
    for file in file_list:
        longest_text_bytes(file.path)  # raises Refused
        if file.path in seen:
            raise InvalidInput("this name is repeated, but a bundle must have each name only once", path=file.path)
        seen.add(file.path)
    return file_list


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"the bundle {folder} cannot be written: {error.strerror or error}") from error


class _ShardJob(NamedTuple):
    folder: Path
    rows: BundleIndex
    method: int
    shard: int
    shards: int
    files: Sequence[NewBundleFile]


def _write_shard(job: _ShardJob) -> BundleSummary:
    directories = data_bytes = 0
    path = shard_path(job.folder, job.shard)
    with job.rows.batch() as rows, ShardWriter(path, job.method, job.shard, job.shards, rows) as writer:
        for file in job.files:
            is_directory = file.content is None
            stored = (writer.offset, 0, 0) if is_directory else writer.add(_blocks(file))
            rows.put(file_key(file.path), _file_value(job.shard, stored, file))
            directories += is_directory
            data_bytes += stored[1]
        writer.finish()
        return BundleSummary(len(job.files) - directories, directories, data_bytes, writer.stored_bytes)


def _blocks(file: NewBundleFile) -> Iterator[bytes]:
    if isinstance(file.content, bytes):
        yield file.content
        return
    assert file.content is not None  # noqa: S101 - directories have no blocks
    try:
        with file.content.open("rb") as source:
            while block := source.read(_BLOCK_BYTES):
                yield block
    except OSError as error:
        message = f"the file for the bundle cannot be read: {error.strerror or error}"
        raise SourceFailed(message, path=file.path) from error


def _file_value(shard: int, stored: StoredFile, file: NewBundleFile) -> bytes:
    classes = messages()
    offset, size_bytes, checksum = stored
    metadata = classes.FileMetadata(
        type=DIRECTORY if file.content is None else REGULAR,
        shard_index=shard,
        shard_uncompressed_offset=offset,
        uncompressed_size=size_bytes,
        crc32c=checksum,
    )
    if file.user_data is not None:
        metadata.user_data.type_url, metadata.user_data.value = file.user_data
    encoded: bytes = metadata.SerializeToString()
    return encoded


def shard_path(folder: Path, shard: int) -> Path:
    """Return the path of the file of a shard in the folder of its bundle."""
    return folder / shard_name(shard)


class Bundle:
    """Reads one bundle from a local folder. A context manager; threads may share it.

    Memory: a compressed and a decompressed record for each file that is being read, and the last record of each
    thread that read a file.
    """

    def __init__(self, folder: Path) -> None:
        """Open the index of the bundle in a folder. Until `close`, no other process can open this index.

        Raises:
            NotFound: the folder has no index.
            Corrupt: the index is damaged or incomplete, or the bundle has another version.
            StoreFailed: another process has opened the index, or it cannot be read.
            NotInstalled: plyvel or protobuf is not installed.
        """
        self._folder = folder
        if not (folder / "index").is_dir():
            raise NotFound(f"not a bundle: the folder {folder / 'index'} is missing")
        self._index = BundleIndex(folder / "index")
        try:
            self._rows = BundleRows(self._index, str(folder))
        except BaseException:
            self._index.close()
            raise

    @property
    def shards(self) -> int:
        """Number of shard files in the bundle, according to its configuration."""
        return self._rows.config.shards

    def files(self) -> Iterator[BundleFile]:
        """Yield all files and directories of the bundle, in the order of folder and name.

        Raises:
            Corrupt: a row of the index is damaged.
            StoreFailed: the index cannot be read.
        """
        return self._rows.files()

    def file(self, path: str) -> BundleFile:
        """Return the file or directory with the name `path`, without its content.

        Raises:
            NotFound: the bundle has no file or directory of this name.
            Corrupt: the row of the file is damaged.
            StoreFailed: the index cannot be read.
        """
        file = self._rows.get(file_key(path))
        if file is None:
            raise NotFound("the bundle has no such file", path=path)
        return file

    def open(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in blocks of at most 1 MiB; no blocks for a directory.

        Raises:
            NotFound: the bundle has no such file, or its shard file is missing.
            Corrupt: the row of the file or the content is damaged, or its size or CRC-32C is wrong. Raised after
                the last block at the latest.
            Unsupported: the compression is unknown, or the records have an unsupported layout.
            StoreFailed: the index or the shard file cannot be read.
            NotInstalled: the library for the compression is not installed.
        """
        file = self.file(path)
        with self._shard_file(file.shard) as archive:
            yield from _Shard(archive, file.shard, self._rows).open(file)

    def _shard_file(self, shard: int) -> ShardFile:
        return ShardFile(shard_path(self._folder, shard))

    def verify(self, workers: int = 1) -> BundleCheck:
        """Read and check every file of the bundle. Memory: the list of files.

        Problems of files and shard files are returned, not raised. If a shard file is missing or cannot be read, it
        gets one problem, and its remaining files are neither read nor get problems of their own.

        Args:
            workers: number of threads; each reads one shard file at a time.

        Raises:
            Corrupt: a row of a file in the index is damaged.
            StoreFailed: the index cannot be read.
        """
        by_shard: dict[int, list[BundleFile]] = defaultdict(list)
        for file in self.files():
            by_shard[file.shard].append(file)
        jobs = [by_shard[shard] for shard in sorted(by_shard)]
        checks = list(in_order(self._verify_shard, jobs, most_in_flight=workers))
        problems = [problem for check in checks for problem in check.problems]
        return BundleCheck(
            sum(check.files for check in checks), sum(check.data_bytes for check in checks), problems
        )

    def _verify_shard(self, files: list[BundleFile]) -> BundleCheck:
        files.sort(key=lambda file: (file.offset, file.size_bytes))
        number = files[0].shard
        problems: list[FileProblem] = []
        size_bytes = 0
        try:
            with self._shard_file(number) as archive:
                shard = _Shard(archive, number, self._rows)
                for file in files:
                    size_bytes += _verify_file(shard, file, problems)
        except CafcatError as error:
            problems.append(_problem(shard_name(number), error))
        return BundleCheck(len(files), size_bytes, problems)

    def close(self) -> None:
        """Close the index of the bundle, so that other processes can open the bundle."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Shard:
    """Reads files of one shard file by the rows of the bundle's index. Not thread-safe."""

    def __init__(self, archive: RandomReader, shard: int, rows: BundleRows) -> None:
        """Read and check the head of the shard file.

        Args:
            archive: the shard file.
            shard: number of the shard.
            rows: the rows of the bundle's index.

        Raises:
            Corrupt: the head is invalid, or belongs to another bundle or another shard.
            Unsupported: the compression is unknown, or records have more than 8 MiB.
        """
        rows.config.check_supported(archive.name)
        self._head = read_head(archive)
        self._head.check_belongs(rows.config, shard, archive.name)
        self._size_bytes = archive.size_bytes
        self._spans = RecordSpans(rows)
        self._files = FileReader(archive)

    def open(self, file: BundleFile) -> Iterator[bytes]:
        """Return the content of a file of this shard in blocks of at most 1 MiB; see `Bundle.open`."""
        return self._files.open(self._head.with_file_span(self._spans.entry(file), self._size_bytes))


def _verify_file(shard: _Shard, file: BundleFile, problems: list[FileProblem]) -> int:
    """Read a file and return its size in bytes. If it is damaged or unsupported, add a problem and return 0."""
    try:
        return sum(map(len, shard.open(file)))
    except (Corrupt, Unsupported) as error:
        problems.append(_problem(file.path, error))
        return 0


def _problem(name: str, error: CafcatError) -> FileProblem:
    is_damage = isinstance(error, (Corrupt, NotFound))
    return FileProblem(name, ProblemKind.CORRUPT if is_damage else ProblemKind.UNREADABLE, str(error))
