"""DataBundles for tests: with records of any size and position, and with rows in the head of a shard."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.bundles.compression import METHODS, NONE, compress_record
from cafcat.formats.databundle.bundles.index import LEVELDB_BINDINGS, BundleIndex
from cafcat.formats.databundle.layout import HEAD, MAGIC, VERSION_MAGIC, config_key, file_key, record_key
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.rows import record_value
from cafcat.stores.base import StoredFolder
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c

__all__ = [
    "everything",
    "foreign_bundle",
    "hide_leveldb",
    "inline_shard",
    "leveldb",
    "rows_of",
    "spans_alone",
    "stored",
    "write_index",
]


def everything(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a bundle, including its index."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(folder: Path) -> StoredFolder:
    return StoredFolder(LocalStore(folder))


def spans_alone(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files, each decoded from the bytes of its span without the index.

    Raises the error of the first file that cannot be read.
    """
    bundle_archive = DATABUNDLE.open_folder(stored(folder))
    assert bundle_archive is not None
    found = {}
    for name in bundle_archive.names:
        archive = stored(folder).open(name)
        for entry in bundle_archive.reader(archive, name).entries():
            span = archive.read_at(entry.start_byte, entry.end_byte)
            # In pieces of an odd size, as a network may deliver them.
            blocks = (span[at : at + 1013] for at in range(0, len(span), 1013))
            content = span if entry.decoding is None else b"".join(DATABUNDLE.decode(blocks, entry))
            assert len(content) == entry.size_bytes
            found[entry.path] = content
    return found


def leveldb() -> Any:
    """Return the binding of LevelDB of this Python, one of those that cafcat takes."""
    return import_module("plyvel_next" if sys.version_info >= (3, 12) else "plyvel")


def hide_leveldb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every import of LevelDB fail."""
    for binding in LEVELDB_BINDINGS:
        monkeypatch.setitem(sys.modules, binding, None)


def rows_of(folder: Path) -> dict[bytes, bytes]:
    """Return the rows of the index."""
    with leveldb().DB(str(folder / "index")) as database:
        return dict(database)


def _config(method: int, shards: int, record_bytes: int) -> bytes:
    config = messages().BundleConfig(version_magic=VERSION_MAGIC, block_size=4096, record_size=record_bytes)
    config.compression_method, config.shard_count = method, shards
    encoded: bytes = config.SerializeToString()
    return encoded


def _head(method: int, record_bytes: int, *, data_start: int, table: object = None) -> bytes:
    header = messages().ShardHeader(shard_index=0, shard_count=1, record_size=record_bytes, record_alignment=1)
    header.compression_method = method
    if table is None:
        header.external_metadata = True
    else:
        header.inline_metadata_table.CopyFrom(table)
    encoded = header.SerializeToString()
    assert HEAD.size + len(encoded) <= data_start
    return (HEAD.pack(MAGIC, len(encoded), data_start) + encoded).ljust(data_start, b"\0")


def _shard(
    files: Sequence[tuple[str, bytes]], compression: str, record_bytes: int, padding: Sequence[int]
) -> tuple[dict[bytes, bytes], bytes]:
    """Return rows and records of a shard whose files are concatenated and cut into records.

    A record of zeros has no bytes in the body.

    Args:
        files: paths and contents.
        compression: name of a compression method.
        record_bytes: size of a record before it is compressed.
        padding: numbers of zeros behind the records, used in turn.
    """
    method = METHODS[compression]
    data = b"".join(content for _, content in files)
    rows, body = {config_key(): _config(method, 1, record_bytes)}, bytearray(data if method == NONE else b"")
    for number, start in enumerate(range(0, len(data) if method != NONE else 0, record_bytes)):
        record = data[start : start + record_bytes]
        place = len(body) if any(record) else None
        rows[record_key(0, start)] = record_value(start, place, 0)
        if place is not None:
            body += compress_record(method, record) + bytes(padding[number % len(padding)])
    offset = 0
    for path, content in files:
        metadata = messages().FileMetadata(type=1, shard_uncompressed_offset=offset, uncompressed_size=len(content))
        metadata.crc32c = crc32c(content)
        rows[file_key(path)] = metadata.SerializeToString()
        offset += len(content)
    return rows, bytes(body)


def foreign_bundle(
    folder: Path,
    files: Sequence[tuple[str, bytes]],
    compression: str,
    *,
    record_bytes: int,
    padding: Sequence[int] = (0,),
    data_start: int = 100,
) -> None:
    """Write a bundle of one shard. See `_shard` for the arguments."""
    rows, body = _shard(files, compression, record_bytes, padding)
    folder.mkdir(parents=True)
    head = _head(METHODS[compression], record_bytes, data_start=data_start)
    (folder / "shard-00000000").write_bytes(head + body)
    write_index(folder, rows)


def inline_shard(
    files: Sequence[tuple[str, bytes]], compression: str, *, record_bytes: int, padding: Sequence[int] = (0,)
) -> bytes:
    """Return a shard with all rows in its head. See `_shard` for the arguments."""
    rows, body = _shard(files, compression, record_bytes, padding)
    table = messages().Table(rows=[messages().Row(key=key, value=value) for key, value in rows.items()])
    data_start = 4096 * (2 + table.ByteSize() // 4096)
    return _head(METHODS[compression], record_bytes, data_start=data_start, table=table) + body


def write_index(folder: Path, rows: dict[bytes, bytes]) -> None:
    """Write an index in LevelDB's format."""
    index = BundleIndex(folder / "index", create=True)
    with index.batch() as batch:
        for key, value in rows.items():
            batch.put(key, value)
    index.close()
