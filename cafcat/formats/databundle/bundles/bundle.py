"""A bundle as the published design has it: a folder of shard files, and an index of them all.

Nothing of this knows of catalogs or stores. `write_bundle` makes a bundle, `Bundle` reads and verifies one: by its
index, opened where it is, and else as adopted shards are read (`RecordSpans`, `ShardHead`, `FileReader`).
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
from cafcat.formats.databundle.bundles.compression import method_of
from cafcat.formats.databundle.bundles.index import BundleIndex
from cafcat.formats.databundle.bundles.record_spans import RecordSpans
from cafcat.formats.databundle.bundles.rows import BundleFile, BundleRows, UserData
from cafcat.formats.databundle.bundles.shard import read_head
from cafcat.formats.databundle.bundles.shard_file import ShardFile
from cafcat.formats.databundle.bundles.shard_writer import ShardPlace, ShardWriter
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import config_key, config_of, file_key, shard_name
from cafcat.formats.databundle.messages import DIRECTORY, REGULAR, messages
from cafcat.formats.index_text import longest_text_bytes
from cafcat.model import FileProblem, ProblemKind
from cafcat.support.in_order import in_order
from cafcat.support.syncing import sync_ancestors, sync_file, sync_folder

__all__ = ["Bundle", "BundleCheck", "BundleFile", "BundleSummary", "NewBundleFile", "UserData", "write_bundle"]

_BLOCK_BYTES: Final = 1 << 20
_MOST_SHARDS: Final = 100_000_000
"""Names of shard files have eight digits."""


class NewBundleFile(NamedTuple):
    """path: its name in the bundle; content: its bytes, a file to read, or None for a directory."""

    path: str
    content: bytes | Path | None
    user_data: UserData | None = None


class BundleSummary(NamedTuple):
    """Counts; sizes in bytes: data_bytes of the files, stored_bytes of the shard files."""

    files: int
    directories: int
    data_bytes: int
    stored_bytes: int


class BundleCheck(NamedTuple):
    """What verify found: files and bytes that were read, and what is wrong."""

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
    """Makes a bundle in a folder that is empty or not there. So many threads write a shard file each at a time.
    File n goes to shard n modulo shards, so the same files make the same shards. compression: "none", "snappy" or
    "zlib". Memory: the list of files, and 2 MiB for each thread. The row BUNDLE_CONFIG is written last: a
    folder that was left half-way is no bundle. The bundle is durable when this returns.

    Raises Conflict if the folder has something; Refused for a name, InvalidInput for one that comes twice;
    SourceFailed for a file that cannot be read; StoreFailed; NotInstalled if a library is not installed.
    """
    method = method_of(compression)
    if not 1 <= shards < _MOST_SHARDS or workers < 1:
        raise InvalidInput(f"no bundle has {shards} shards, written by {workers} threads")
    listed = _checked(files)
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Conflict(f"the folder of a bundle has to be empty: {folder}")
        index = BundleIndex(folder / "index", create=True)
        try:
            jobs = [
                _ShardJob(folder, index, method, shard, shards, listed[shard::shards]) for shard in range(shards)
            ]
            done = list(in_order(_write_shard, jobs, most_in_flight=workers))
            sync_folder(str(folder))  # the last row promises all shard files
            index.put_last(config_key(), config_of(method, shards))
        finally:
            index.close()
        _sync(folder)
    return BundleSummary(*(sum(column) for column in zip(*done, strict=True)))


def _sync(folder: Path) -> None:
    """Make the bundle durable, with the names of all folders above it."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(str(path))
        else:
            with path.open("rb") as file:
                sync_file(file.fileno())
    sync_folder(str(folder))
    sync_ancestors(str(folder))


def _checked(files: Iterable[NewBundleFile]) -> list[NewBundleFile]:
    listed = list(files)
    seen: set[str] = set()
    for file in listed:
        longest_text_bytes(file.path)  # raises Refused
        if file.path in seen:
            raise InvalidInput("a bundle has each name once", path=file.path)
        seen.add(file.path)
    return listed


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
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
    with job.rows.batch() as rows, ShardWriter(path, job.method, job.shard, job.shards, rows.put) as writer:
        for file in job.files:
            is_directory = file.content is None
            place = (writer.offset, 0, 0) if is_directory else writer.add(_blocks(file))
            rows.put(file_key(file.path), _file_value(job.shard, place, file))
            directories += is_directory
            data_bytes += place[1]
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
        raise SourceFailed(f"cannot be read: {error.strerror or error}", path=file.path) from error


def _file_value(shard: int, place: ShardPlace, file: NewBundleFile) -> bytes:
    made = messages()
    offset, size_bytes, checksum = place
    metadata = made.FileMetadata(
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
    """As the published design names them."""
    return folder / shard_name(shard)


class Bundle:
    """Reads one bundle. A context manager; threads may share it. Memory: twice a record for each file that is read,
    and for each thread that read one."""

    def __init__(self, folder: Path) -> None:
        """Raises NotFound, Corrupt if it is no whole bundle, Unsupported for one of another version, NotInstalled
        without plyvel or protobuf."""
        self._folder = folder
        if not (folder / "index").is_dir():
            raise NotFound(f"no bundle: there is no folder {folder / 'index'}")
        self._index = BundleIndex(folder / "index")
        try:
            self._rows = BundleRows(self._index, str(folder))
        except BaseException:
            self._index.close()
            raise

    @property
    def shards(self) -> int:
        """How many shard files there are."""
        return self._rows.config.shards

    def files(self) -> Iterator[BundleFile]:
        """All files and directories, by folder and name. Raises Corrupt."""
        return self._rows.files()

    def file(self, path: str) -> BundleFile:
        """One of them. Raises NotFound; Corrupt."""
        file = self._rows.get(file_key(path))
        if file is None:
            raise NotFound("the bundle has no such file", path=path)
        return file

    def open(self, path: str) -> Iterator[bytes]:
        """The content of a file in blocks of at most 1 MiB; of a directory none. Raises NotFound; Corrupt where
        records, size or CRC-32C are others, at the latest in place of the end; Unsupported for a compression that
        is not known, or records that nobody writes so."""
        file = self.file(path)
        with self._shard_file(file.shard) as archive:
            yield from _Shard(archive, file.shard, self._rows).open(file)

    def _shard_file(self, shard: int) -> ShardFile:
        return ShardFile(shard_path(self._folder, shard))

    def verify(self, workers: int = 1) -> BundleCheck:
        """Reads every file. So many threads read a shard file each at a time. Memory: the list of files. Raises
        Corrupt if the index itself cannot be read; what is wrong with a file or a shard is told, and not raised."""
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
        """Others may open it."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Shard:
    """Reads files of one shard file by the rows of the index. For one thread at a time."""

    def __init__(self, archive: RandomReader, shard: int, rows: BundleRows) -> None:
        """Raises Corrupt if its head is of another; Unsupported for a compression that is not known."""
        rows.config.check_known(archive.name)
        self._head = read_head(archive)
        self._head.check_is(rows.config, shard, archive.name)
        self._size_bytes = archive.size_bytes
        self._places = RecordSpans(rows)
        self._files = FileReader(archive)

    def open(self, file: BundleFile) -> Iterator[bytes]:
        """As Bundle.open has it."""
        return self._files.open(self._head.placed(self._places.entry(file), self._size_bytes))


def _verify_file(shard: _Shard, file: BundleFile, problems: list[FileProblem]) -> int:
    """Returns its size in bytes."""
    try:
        return sum(map(len, shard.open(file)))
    except (Corrupt, Unsupported) as error:
        problems.append(_problem(file.path, error))
        return 0


def _problem(name: str, error: CafcatError) -> FileProblem:
    is_damage = isinstance(error, (Corrupt, NotFound))
    return FileProblem(name, ProblemKind.CORRUPT if is_damage else ProblemKind.UNREADABLE, str(error))
