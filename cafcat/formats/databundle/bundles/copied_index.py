"""The index of a bundle of somebody else: a copy of it is opened, as LevelDB writes where it only reads, too."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cafcat.errors import Conflict, Corrupt, NotFound, Unsupported
from cafcat.formats.base import ArchiveFolder
from cafcat.formats.databundle.bundles.index import BundleIndex
from cafcat.support.spool import temporary_file_of
from cafcat.support.temporary_folder import temporary_folder

__all__ = ["INDEX", "opened_copy"]

INDEX: Final = "index/"
_MOST_BYTES: Final = 64 << 30
_MOST_FILES: Final = 100_000
"""LevelDB's files have 2 MiB each."""
_BLOCK_BYTES: Final = 8 << 20
_WHAT: Final = "the index of a bundle"

_NEEDED: Final = re.compile(r"CURRENT|MANIFEST-[0-9]+|[0-9]+\.(?:log|ldb|sst)", re.ASCII)
"""The others of its files are a lock and what it noted for people."""
_CURRENT: Final = re.compile(rb"MANIFEST-[0-9]+\n")
_TABLES: Final = (".ldb", ".sst")
_FOOTER_BYTES: Final = 48
_TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")


@contextmanager
def opened_copy(folder: ArchiveFolder) -> Iterator[BundleIndex]:
    """The index of the bundle in a folder, in a temporary folder. Raises Corrupt if it is damaged,
    Unsupported if it has more than 64 GiB, NotInstalled without plyvel, Conflict if somebody writes it,
    TemporaryFileFailed."""
    with temporary_file_of(_WHAT), temporary_folder("cafcat-index-", _WHAT) as copy:
        for source, size_bytes in _files(folder):
            _copy(folder, source, copy / source.removeprefix(INDEX), size_bytes)
        index = BundleIndex(copy, is_copy=True, shown=f"{folder.name}/{INDEX}".rstrip("/"))
        try:
            yield index
        finally:
            index.close()


def _files(folder: ArchiveFolder) -> list[tuple[str, int]]:
    """Those that LevelDB reads, with their sizes."""
    found: list[tuple[str, int]] = []
    total_bytes = 0
    for name, size_bytes in folder.files(INDEX):
        if _NEEDED.fullmatch(name.removeprefix(INDEX)):
            found.append((name, size_bytes))
            total_bytes += size_bytes
        if total_bytes > _MOST_BYTES or len(found) > _MOST_FILES:
            message = f"the index of the bundle has more than {_MOST_BYTES:,} bytes, or {_MOST_FILES:,} files"
            raise Unsupported(message, chunk=folder.name)
    return found


def _copy(folder: ArchiveFolder, name: str, to: Path, size_bytes: int) -> None:
    try:
        source = folder.open(name)
        with to.open("xb") as copy:
            for start in range(0, size_bytes, _BLOCK_BYTES):
                copy.write(source.read_at(start, min(start + _BLOCK_BYTES, size_bytes)))
    except (NotFound, Corrupt) as error:
        raise Conflict(f"the index of the bundle changed while it was read: {error}") from error
    _check(to, source.name)


def _check(copy: Path, shown: str) -> None:
    """What LevelDB believes without a checksum: which file to begin with, and where a table has its index. Of the
    copy, as that is what it opens: the source may be another by now. Raises Corrupt."""
    size_bytes = copy.stat().st_size
    if copy.name == "CURRENT" and (size_bytes > 64 or not _CURRENT.fullmatch(copy.read_bytes())):
        raise Corrupt("the index of the bundle cannot be used: its CURRENT names no manifest", chunk=shown)
    if copy.suffix in _TABLES and not _is_table(_last_bytes(copy, _FOOTER_BYTES), size_bytes):
        raise Corrupt("the index of the bundle cannot be used: a table of it is cut or damaged", chunk=shown)


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def _is_table(footer: bytes, size_bytes: int) -> bool:
    """Whether these are the last bytes of one: two handles (position and size, as varints), zeros, a number."""
    if len(footer) != _FOOTER_BYTES or not footer.endswith(_TABLE_MAGIC):
        return False
    numbers: list[int] = []
    value = shift = 0
    for byte in footer[: -len(_TABLE_MAGIC)]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return len(numbers) >= 4 and all(sum(handle) < size_bytes for handle in (numbers[:2], numbers[2:4]))
