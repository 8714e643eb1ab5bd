"""Copies the index of a bundle and opens the copy, because LevelDB writes into a folder even if it only reads."""

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

__all__ = ["INDEX", "open_index_copy"]

INDEX: Final = "index/"
"""Prefix of the index files in the folder of a bundle."""
_MAX_BYTES: Final = 64 << 30
"""Largest total size of an index in bytes."""
_MAX_FILES: Final = 100_000
"""Largest number of files of an index. Tables of LevelDB usually have 2 MiB each."""
_BLOCK_BYTES: Final = 8 << 20
_LABEL: Final = "the index of a bundle"

_INDEX_FILES: Final = re.compile(r"CURRENT|MANIFEST-[0-9]+|[0-9]+\.(?:log|ldb|sst)", re.ASCII)
"""Names of the files that are copied. The other files of LevelDB are a lock and logs for humans."""
_CURRENT: Final = re.compile(rb"MANIFEST-[0-9]+\n")
_TABLES: Final = (".ldb", ".sst")
_FOOTER_BYTES: Final = 48
_TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
"""The last bytes of a table of LevelDB."""


@contextmanager
def open_index_copy(folder: ArchiveFolder) -> Iterator[BundleIndex]:
    """Copy the index of the bundle in a folder to a temporary folder, and provide the opened copy.

    The copy is removed when the context ends.

    Raises:
        Corrupt: the index is damaged.
        Unsupported: the index has more than 64 GiB, or more than 100,000 files.
        NotInstalled: plyvel is not installed.
        Conflict: another process changed the index during the copy.
        StoreFailed: the copy cannot be written, usually because the disk is full.
    """
    with temporary_file_of(_LABEL), temporary_folder("cafcat-index-", _LABEL) as copy:
        for source, size_bytes in _files(folder):
            _copy(folder, source, copy / source.removeprefix(INDEX), size_bytes)
        index = BundleIndex(copy, is_copy=True, label=f"{folder.name}/{INDEX}".rstrip("/"))
        try:
            yield index
        finally:
            index.close()


def _files(folder: ArchiveFolder) -> list[tuple[str, int]]:
    """Return the name and the size in bytes of each file of the index that LevelDB reads.

    Raises:
        Unsupported: the files have more than 64 GiB, or are more than 100,000.
    """
    found: list[tuple[str, int]] = []
    total_bytes = 0
    for name, size_bytes in folder.files(INDEX):
        if _INDEX_FILES.fullmatch(name.removeprefix(INDEX)):
            found.append((name, size_bytes))
            total_bytes += size_bytes
        if total_bytes > _MAX_BYTES or len(found) > _MAX_FILES:
            message = f"the index of the bundle has more than {_MAX_BYTES:,} bytes, or over {_MAX_FILES:,} files"
            raise Unsupported(message, chunk=folder.name)
    return found


def _copy(folder: ArchiveFolder, name: str, target: Path, size_bytes: int) -> None:
    try:
        source = folder.open(name)
        with target.open("xb") as copy:
            for start in range(0, size_bytes, _BLOCK_BYTES):
                copy.write(source.read_at(start, min(start + _BLOCK_BYTES, size_bytes)))
    except (NotFound, Corrupt) as error:
        raise Conflict(f"the index of the bundle changed while it was copied: {error}") from error
    _check(target, source.name)


def _check(copy: Path, label: str) -> None:
    """Check the facts in a copied index file that LevelDB trusts without a checksum.

    These are the name of the first file to read, and the position of each table's index. The copy is checked,
    because LevelDB opens the copy; the source may have changed since. A table without a valid end is removed from
    the copy: LevelDB fails if the index uses it, and otherwise it is left over from an interrupted merge of tables.

    Raises:
        Corrupt: the file CURRENT does not name a manifest.
    """
    size_bytes = copy.stat().st_size
    if copy.name == "CURRENT" and (size_bytes > 64 or not _CURRENT.fullmatch(copy.read_bytes())):
        raise Corrupt(
            "the index of the bundle cannot be used: its file CURRENT does not name a manifest", chunk=label
        )
    if copy.suffix in _TABLES and not _is_table(_last_bytes(copy, _FOOTER_BYTES), size_bytes):
        copy.unlink()


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def _is_table(footer: bytes, size_bytes: int) -> bool:
    """Return True if these can be the last 48 bytes of a LevelDB table of `size_bytes` bytes.

    They must begin with two handles (position and size as varints) that point into the table, and end with the
    magic number. The bytes between handles and magic number are not checked.
    """
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
