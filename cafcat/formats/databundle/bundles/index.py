"""The index of a bundle: a folder in LevelDB's format, written and read by LevelDB itself (plyvel)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cafcat.errors import Corrupt, NotInstalled, StoreFailed
from cafcat.formats.databundle.extras import extra
from cafcat.formats.databundle.layout import FILE_METADATA, record_key

__all__ = ["LEVELDB_BINDINGS", "BundleIndex"]

LEVELDB_BINDINGS: Final = ("plyvel_next", "plyvel")
"""Modules with the same API, in the order in which they are tried (docs/decisions/0025)."""

_BATCH_ROWS: Final = 1000
_NO_ROOM: Final = "No space left"
_SHARD_BYTES: Final = 9
"""Of the key of a record: table and shard."""


class BundleIndex:
    """An open index. Only one process can open it at a time; threads may share it.

    LevelDB writes a lock and a log into the folder even when it only reads."""

    def __init__(
        self, folder: Path, *, create: bool = False, is_copy: bool = False, shown: str | None = None
    ) -> None:
        """Open the index, or make an empty one.

        Args:
            folder: LevelDB's folder.
            create: Make the index; it must not exist.
            is_copy: No other process uses the folder, so a file that cannot be read is damaged.
            shown: The name of the index in messages, instead of the folder.

        Raises:
            NotInstalled: No binding of LevelDB is installed.
            Corrupt: The index is damaged.
            StoreFailed: Another process has opened the index, or the disk is full.
        """
        self._name = shown or str(folder)
        self._is_copy = is_copy
        self._library = _leveldb()
        with self._translated():
            # Paranoid: rows in a damaged log are refused, and not left out.
            self._rows = self._library.DB(
                str(folder), create_if_missing=create, error_if_exists=create, paranoid_checks=True
            )

    @contextmanager
    def batch(self) -> Iterator["_Batch"]:
        """Rows that are written by the thousand, and the last of them at its end."""
        with self._translated():
            batch = _Batch(self._rows)
            yield batch
            batch.flush()

    def put_last(self, key: bytes, value: bytes) -> None:
        """Afterwards this row and all before it are durable."""
        with self._translated():
            self._rows.put(key, value, sync=True)

    def get(self, key: bytes) -> bytes | None:
        with self._translated():
            found: bytes | None = self._rows.get(key, verify_checksums=True)
        return found

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows of FILE_METADATA, by folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a shard from the record on that has this offset; none if there is none before or at it."""
        wanted, end = record_key(shard, offset), record_key(shard + 1, 0)
        begin = self._last_until(wanted)
        return self._range(begin, end) if begin[:_SHARD_BYTES] == wanted[:_SHARD_BYTES] else iter(())

    def _last_until(self, key: bytes) -> bytes:
        """The last key that is not after this one; b"" if there is none. By LevelDB's own verbs: plyvel's iterator
        finds nothing backwards from a place behind all keys."""
        with self._translated(), self._rows.raw_iterator(verify_checksums=True) as rows:
            rows.seek(key)
            if not rows.valid():
                rows.seek_to_last()
            elif rows.key() != key:
                rows.prev()
            return bytes(rows.key()) if rows.valid() else b""

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._translated(), self._rows.iterator(start=start, stop=stop, verify_checksums=True) as rows:
            yield from rows

    def close(self) -> None:
        """Others may open it."""
        self._rows.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._library.Error as error:
            reason = " ".join(str(error).split())
            if isinstance(error, OSError) and not (self._is_copy and _NO_ROOM not in reason):
                message = f"the index of the bundle cannot be read or written: {reason}"
                raise StoreFailed(message, chunk=self._name) from error
            raise Corrupt(f"the index of the bundle cannot be used: {reason}", chunk=self._name) from error


class _Batch:
    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._waiting: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._waiting.append((key, value))
        if len(self._waiting) >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        with self._rows.write_batch() as batch:
            for key, value in self._waiting:
                batch.put(key, value)
        self._waiting.clear()


def _leveldb() -> Any:
    """Return the binding that is installed. Raises NotInstalled if there is none."""
    for binding in LEVELDB_BINDINGS[:-1]:
        with suppress(NotInstalled):
            return extra(binding)
    return extra(LEVELDB_BINDINGS[-1])
